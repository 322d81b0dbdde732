// Parts a norm's gradients by what they are cut over: the first part keeps the norm's id and tensor.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/shard_norm.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/gradient.h"
#include "schedule/lower/rewrite/shard_work.h"

namespace dovetail::schedule {
namespace {

constexpr GroupId kWhole{-1};

// What a norm reads of gradients that are cut over one group, or whole.
struct NormPart {
  GroupId group;
  std::vector<TensorId> reads = {};
  std::int64_t elements = 0;
};

class NormSharder {
 public:
  NormSharder(ProgramEditor& editor, const Op& norm) : editor_(editor), norm_(norm) {}

  std::optional<Refusal> run(const IdTable<TensorId, GroupId>& cut_over) && {
    divide(cut_over);
    const bool sharded =
        std::ranges::any_of(parts_, [](const NormPart& part) { return part.group != kWhole; });
    if (!sharded) return std::nullopt;
    std::vector<Op> behind;
    for (const NormPart& part : parts_) {
      if (std::optional<Refusal> refused = write(part, behind)) return refused;
    }
    editor_.insert_after(norm_.id, std::move(behind));
    return std::nullopt;
  }

 private:
  [[nodiscard]] const Program& program() const { return editor_.program(); }

  // In the order in which the norm reads them; what is no gradient is of the first part.
  void divide(const IdTable<TensorId, GroupId>& cut_over) {
    for (const TensorId id : norm_.reads) {
      const Tensor& tensor = program().tensor(id);
      if (!is_gradient(tensor.kind)) continue;
      auto part = std::ranges::find(parts_, cut_over.at(id), &NormPart::group);
      if (part == parts_.end()) part = parts_.insert(part, NormPart{.group = cut_over.at(id)});
      part->reads.push_back(id);
      part->elements += tensor.numel();
    }
    if (parts_.size() == 1) parts_.front().reads = norm_.reads;
    if (parts_.size() < 2) return;
    for (const TensorId id : norm_.reads) {
      if (!is_gradient(program().tensor(id).kind)) parts_.front().reads.push_back(id);
    }
  }

  // Its norm, the all-reduce that completes it, and its addition to that of the first part.
  std::optional<Refusal> write(const NormPart& part, std::vector<Op>& behind) {
    const bool first = &part == &parts_.front();
    const bool cut = part.group != kWhole;
    const std::int64_t ranks = cut ? program().group(part.group).size() : 1;
    if (cut && ranks < 2) {
      return Refusal{"norm " + norm_.name + " reads gradients that are scattered to one rank"};
    }
    Op norm = norm_;
    norm.reads = part.reads;
    std::get<GlobalNorm>(norm.effect).shard = cut;
    WorkSum work;
    if (!work.add(norm_.work, share(part, ranks))) {
      return Refusal{"norm " + norm_.name + ": the work of a shard of it is not known"};
    }
    norm.work = work.total();
    if (!first) rename(cut ? program().group(part.group).name : "whole", norm);
    if (first) {
      editor_.replace(norm);
    } else {
      behind.push_back(norm);
    }
    if (cut) behind.push_back(completion(norm, part.group));
    if (!first) behind.push_back(addition(norm));
    return std::nullopt;
  }

  [[nodiscard]] Share share(const NormPart& part, std::int64_t ranks) const {
    if (parts_.size() == 1) return {.part = 1, .whole = ranks};
    std::int64_t all = 0;
    for (const NormPart& each : parts_) all += each.elements;
    return {.part = part.elements, .whole = all * ranks};
  }

  // An op and a tensor of its own.
  void rename(const std::string& of, Op& norm) {
    norm.id = editor_.new_op_id();
    norm.name += "." + of;
    Tensor sum = program().tensor(norm_.writes.front());
    sum.id = editor_.new_tensor_id();
    sum.name += "." + of;
    norm.writes = {sum.id};
    editor_.add_tensor(std::move(sum));
  }

  // Of the optimizer, beside the norm.
  [[nodiscard]] Op beside(const Op& norm, const std::string& does) {
    return {.id = editor_.new_op_id(),
            .name = norm.name + "." + does,
            .phase = Phase::Optimizer,
            .dtype = norm.dtype,
            .work = MemoryWork{},
            .reads = {},
            .writes = {},
            .stage = norm.stage,
            .micro_step = norm.micro_step};
  }

  [[nodiscard]] Bytes size() const { return program().tensor(norm_.writes.front()).bytes(); }

  [[nodiscard]] Op completion(const Op& norm, GroupId group) {
    Op op = beside(norm, "all-reduce");
    op.work = CollectiveWork{.kind = Collective::AllReduce,
                             .group = group,
                             .bytes = size(),
                             .op = ReduceOp::Sum,
                             .purpose = Purpose::GlobalNorm};
    op.reads = op.writes = norm.writes;
    return op;
  }

  [[nodiscard]] Op addition(const Op& norm) {
    Op op = beside(norm, "add");
    op.work = MemoryWork{.bytes = 3 * size(), .flop = {}};  // two reads, one write
    op.effect = Accumulate{};
    op.reads = {norm_.writes.front(), norm.writes.front()};
    op.writes = norm_.writes;
    return op;
  }

  ProgramEditor& editor_;
  const Op& norm_;
  std::vector<NormPart> parts_;
};

}  // namespace

std::optional<Refusal> shard_norms(ProgramEditor& editor,
                                   const IdTable<TensorId, GroupId>& cut_over) {
  for (const Op& op : editor.program().ops) {
    const auto* norm = std::get_if<GlobalNorm>(&op.effect);
    if (norm == nullptr || norm->shard) continue;
    if (std::optional<Refusal> refused = NormSharder(editor, op).run(cut_over)) return refused;
  }
  return std::nullopt;
}

}  // namespace dovetail::schedule
