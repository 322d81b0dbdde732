// Hashing field by field. A field that is forgotten here makes two plans look alike, so each struct
// of schedule/ has its function, in the order of its declaration.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/plan_hash.h"

#include "base/error.h"
#include "base/random.h"
#include "schedule/visit.h"

#include <bit>
#include <optional>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::BucketLayout;
using schedule::BucketMember;
using schedule::CollectiveWork;
using schedule::Command;
using schedule::Communicate;
using schedule::Copy;
using schedule::GemmWork;
using schedule::MemoryWork;
using schedule::Op;
using schedule::ProcessGroup;
using schedule::Program;
using schedule::RankProgram;
using schedule::RecordEvent;
using schedule::Reduction;
using schedule::RunOp;
using schedule::ScheduledProgram;
using schedule::Stream;
using schedule::Tensor;
using schedule::TimedWork;
using schedule::WaitEvent;

class Hasher {
 public:
  [[nodiscard]] std::uint64_t value() const { return state_; }

  void add(std::uint64_t number) { state_ = splitmix64(state_ ^ splitmix64(number)); }
  void add(bool yes) { add(static_cast<std::uint64_t>(yes)); }
  void add(std::int64_t number) { add(static_cast<std::uint64_t>(number)); }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view text) {
    add(text.size());
    for (const char letter : text)
      add(static_cast<std::uint64_t>(static_cast<unsigned char>(letter)));
  }
  template <class Tag>
  void add(Id<Tag> id) {
    add(static_cast<std::int64_t>(id.value));
  }
  template <class Tag, class Rep>
  void add(Quantity<Tag, Rep> quantity) {
    add(quantity.count());
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(Enum word) { add(static_cast<std::int64_t>(word)); }
  template <class Item>
  void add(const std::vector<Item>& items) {
    add(items.size());
    for (const Item& item : items) add(item);
  }

  void add(Duration duration) { add(static_cast<std::int64_t>(duration.count())); }
  void add(const Tensor& tensor) {
    add_all(tensor.id, tensor.name, tensor.kind, tensor.dtype, tensor.shape, tensor.merges);
  }
  void add(const GemmWork& work) { add_all(work.m, work.n, work.k, work.count, work.operands); }
  void add(const MemoryWork& work) {
    add_all(work.bytes, work.flop, work.attention.has_value());
    if (work.attention)
      add_all(work.attention->tokens, work.attention->head_dim, work.attention->backward);
  }
  void add(const schedule::Kernel& kernel) {
    add(kernel.index());
    std::visit([&](const auto& work) { add(work); }, kernel);
  }
  void add(const Op& op) {
    add_all(op.id, op.name, op.phase, op.dtype, op.work.index());
    schedule::visit(
        op.work, [&](const GemmWork& work) { add(work); },
        [&](const MemoryWork& work) { add(work); },
        [&](const schedule::KernelsWork& work) { add(work.kernels.copy()); },
        [&](const TimedWork& work) { add(work.by_rank); },
        [&](const CollectiveWork& work) {
          add_all(work.kind, work.group, work.bytes, work.op, work.purpose,
                  static_cast<std::int64_t>(work.root));
        });
    add_all(op.reads, op.writes, op.effect.index());
    schedule::visit(
        op.effect, [](const schedule::Opaque&) {}, [](const schedule::ZeroFill&) {},
        [&](const schedule::FillLossGradient& fill) { add(fill.value); },
        [&](const schedule::Accumulate& sum) { add_all(sum.overwrite, sum.factor, sum.shard); },
        [&](const schedule::Update& update) { add_all(update.elementwise, update.rescale); },
        [&](const schedule::ShardUpdate& update) {
          add_all(update.gradients, update.parameters, update.traffic, update.rescale);
        },
        [&](const schedule::GlobalNorm& norm) { add_all(norm.shard, norm.rescale); });
    add_all(static_cast<std::int64_t>(op.stage), static_cast<std::int64_t>(op.micro_step));
  }
  void add(Rational value) { add_all(value.numerator(), value.denominator()); }
  template <class Item>
  void add(const std::optional<Item>& item) {
    add(static_cast<std::uint64_t>(item.has_value()));
    if (item) add(*item);
  }
  void add(const ProcessGroup& group) {
    add_all(group.id, group.name, group.ranks, group.instance_size);
  }
  void add(const Reduction& reduction) {
    add_all(reduction.gradient, reduction.group, reduction.op, reduction.scale);
  }
  void add(const Stream& stream) { add_all(stream.id, stream.name); }
  void add(const BucketMember& placement) {
    add_all(placement.tensor, placement.offset, placement.first, placement.count);
  }
  void add(const BucketLayout& layout) {
    add_all(layout.bucket, layout.dtype, layout.mode, layout.payload, layout.size, layout.members,
            layout.shards, layout.cut_over, layout.residence);
  }
  void add(const Command& command) {
    add_all(command.id, command.stream, command.action.index());
    schedule::visit(
        command.action, [&](const RunOp& run) { add(run.op); },
        [&](const Communicate& run) {
          add_all(run.bucket, run.kind, run.reduce, run.group, run.part,
                  static_cast<std::int64_t>(run.max_ctas), run.op,
                  static_cast<std::int64_t>(run.root));
        },
        [&](const Copy& copy) { add_all(copy.bucket, copy.direction, copy.gradients); },
        [&](const RecordEvent& record) { add(record.event); },
        [&](const WaitEvent& wait) { add(wait.event); },
        [&](const schedule::Scale& scale) { add_all(scale.bucket, scale.factor, scale.part); },
        [&](const schedule::Release& release) { add(release.bucket); });
  }
  void add(const RankProgram& role) { add_all(role.ranks, role.commands); }
  void add(const Program& program) {
    add_all(std::string_view(program.name), program.world_size, program.tensors, program.ops,
            program.groups, program.reductions, static_cast<std::int64_t>(program.stages),
            program.stage_map, static_cast<std::int64_t>(program.micro_steps));
  }

 private:
  template <class... Fields>
  void add_all(const Fields&... fields) {
    (add(fields), ...);
  }

  std::uint64_t state_ = 0;
};

}  // namespace

std::uint64_t plan_hash(const ScheduledProgram& plan) {
  Hasher hasher;
  hasher.add(plan.program);
  hasher.add(std::string_view(plan.policy));
  hasher.add(plan.streams);
  hasher.add(plan.buckets);
  hasher.add(plan.roles);
  return hasher.value();
}

void require_same_plan(const Exchange& exchange, const ScheduledProgram& plan) {
  const auto mine = std::bit_cast<std::int64_t>(plan_hash(plan));
  const std::vector<std::vector<std::int64_t>> all = share(exchange, std::vector{mine});
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    std::ostringstream message;
    message << "rank " << rank << " holds another plan than rank 0 (" << plan.policy << " for "
            << plan.program.name << "); start all ranks with the same files";
    throw DeviceError(message.str());
  }
}

}  // namespace dovetail::exec
