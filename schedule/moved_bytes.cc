// Sizes of commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/moved_bytes.h"

#include <algorithm>
#include <utility>

#include "schedule/id_table.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// Of one role.
class ExtraMemory {
 public:
  explicit ExtraMemory(const ScheduledProgram& program) {
    for (const Op& op : program.program.ops) ops_[op.id] = &op;
    for (const Tensor& tensor : program.program.tensors) {
      if (tensor.kind == TensorKind::MergedGradient) sums_[tensor.id] = tensor.bytes();
    }
    for (const BucketLayout& layout : program.buckets) {
      const bool copied = layout.mode == BucketMode::Copy;
      buckets_[layout.bucket] = copied ? layout.size : layout.size - layout.payload;
    }
  }

  Bytes of(const RankProgram& role) {
    Bytes bytes;
    // Each counts once; the other roles have buckets and sums of their own.
    const auto take = [&](Bytes& once) { bytes += std::exchange(once, Bytes(0)); };
    for (const Command& command : role.commands) {
      visit(
          command.action,
          [&](const RunOp& run) {
            for (const TensorId id : ops_.at(run.op)->writes) {
              if (sums_.at(id) > Bytes(0)) take(sums_[id]);
            }
          },
          [&](const RunCollective& run) { take(buckets_[run.bucket]); },
          [&](const Copy& copy) { take(buckets_[copy.bucket]); }, [](const RecordEvent&) {},
          [](const WaitEvent&) {}, [](const Scale&) {});
    }
    return bytes;
  }

 private:
  IdTable<OpId, const Op*> ops_{nullptr};
  IdTable<TensorId, Bytes> sums_{Bytes(0)};
  IdTable<BucketId, Bytes> buckets_{Bytes(0)};
};

}  // namespace

Bytes part_size(const BucketLayout& layout, Part part) {
  return part == Part::Shard ? Bytes(layout.size.count() / layout.shards) : layout.size;
}

Bytes moved_bytes(const BucketLayout& layout, const RunCollective& collective) {
  const bool shard = collective.kind == Collective::AllReduce && collective.part == Part::Shard;
  return part_size(layout, shard ? Part::Shard : Part::Whole);
}

Bytes moved_bytes(const BucketLayout& layout, const Scale& scale) {
  return part_size(layout, scale.part);
}

Bytes moved_bytes(const Program& program, const BucketLayout& layout, const Copy& copy) {
  Bytes bytes;
  for (const TensorId id : copy.gradients) {
    const Tensor& tensor = program.tensor(id);
    const auto member = std::ranges::find(layout.members, id, &Placement::tensor);
    bytes += member == layout.members.end() ? tensor.bytes()
                                            : element_size(tensor.dtype) * member->elements(tensor);
  }
  return bytes;
}

Bytes memory_beyond_gradients(const ScheduledProgram& program) {
  ExtraMemory extra(program);
  Bytes most;
  for (const RankProgram& role : program.roles) most = std::max(most, extra.of(role));
  return most;
}

}  // namespace dovetail::schedule
