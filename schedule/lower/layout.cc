// Where every bucket lies, and on which stream of which role it travels.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "schedule/collective_traits.h"
#include "schedule/visit.h"

namespace dovetail::schedule::internal {
namespace {

// A range of a tensor that some bucket holds, to find ranges that overlap.
struct Held {
  TensorId tensor;
  GroupId group;
  std::int64_t first = 0;
  std::int64_t end = 0;
  const Bucket* bucket = nullptr;
};

class Layout {
 public:
  explicit Layout(Draft& draft) : draft_(draft) {}

  void run() {
    if (draft_.program().stages > 1) find_roles();
    draft_.buckets.reserve(draft_.schedule.buckets.size());
    draft_.out.buckets.reserve(draft_.schedule.buckets.size());
    for (const Bucket& bucket : draft_.schedule.buckets) {
      check(bucket);
      if (!continues_another(bucket)) place(bucket);
    }
    if (some_range_twice_) check_ranges();
    report();
  }

 private:
  void find_roles() {
    for (const Op& op : draft_.program().ops) {
      if (op.phase == Phase::Optimizer) continue;
      for (const TensorId id : op.writes) writer_role_[id] = draft_.program().role_of(op);
    }
  }

  void check(const Bucket& bucket) {
    if (bucket.gradients.empty()) throw InputError(draft_.name(bucket) + ": has no gradients");
    if (bucket.pad_to < Bytes(1)) throw InputError(draft_.name(bucket) + ": pad_to is below 1");
    if (bucket.align_to < Bytes(1)) {
      throw InputError(draft_.name(bucket) + ": align_to is below 1");
    }
    if (bucket.id.value < 0 || bucket.id.value > kLargestId) {
      throw InputError(draft_.name(bucket) + ": no such id is possible");
    }
    char& used = used_[bucket.id];
    if (used != 0) throw InputError(draft_.name(bucket) + ": its id is used twice");
    used = 1;
    if (!traits_of(bucket.collective).reduces()) {
      throw InputError(draft_.name(bucket) + ": a gradient is reduced by an all-reduce or a " +
                       "reduce-scatter, not by an " + std::string(to_string(bucket.collective)));
    }
    if (bucket.sums_whole && bucket.collective != Collective::ReduceScatter) {
      throw InputError(draft_.name(bucket) +
                       ": sums_whole, but it is not reduce-scattered: nothing of it is a shard");
    }
    if (bucket.replicas && bucket.collective != Collective::ReduceScatter) {
      throw InputError(draft_.name(bucket) + ": only shards of a reduce-scatter have replicas");
    }
  }

  // The tensor that travels for the slice. Throws where there is none.
  TensorId traveller(const Bucket& bucket, const Slice& slice) const {
    const TensorId id = draft_.travels.at(slice.tensor);
    if (id.value < 0) {
      throw InputError(draft_.name(bucket) + ": " + draft_.program().tensor(slice.tensor).name +
                       " needs no reduction");
    }
    return id;
  }

  BucketPlan plan_of(const Bucket& bucket) const {
    BucketPlan plan;
    plan.buffer = bucket.id;
    plan.stream = stream_of(bucket.stream);
    const TensorId front = traveller(bucket, bucket.gradients.front());
    plan.reduce = debt_over(draft_, front, bucket.group).op;
    if (bucket.replicas) plan.reduce_replicas = debt_over(draft_, front, *bucket.replicas).op;
    plan.role = writer_role_.at(front);
    return plan;
  }

  // Whether the bucket's gradients owe a second reduction, and lie in a bucket for the first one.
  bool continues_another(const Bucket& bucket) {
    const std::int32_t first = draft_.debt.at(traveller(bucket, bucket.gradients.front()));
    if (draft_.debts[static_cast<std::size_t>(first)].next < 0) return false;
    for (const std::size_t i : begun_with_.at(bucket.gradients.front().tensor)) {
      const Bucket& other = draft_.schedule.buckets[i];
      if (draft_.buckets[i].continued || other.group == bucket.group) continue;
      if (other.gradients != bucket.gradients) continue;
      if (other.collective != Collective::AllReduce || bucket.collective != Collective::AllReduce) {
        throw InputError(draft_.name(bucket) + ": gradients that need two reductions in two " +
                         "buckets need all-reduces");
      }
      BucketPlan plan = plan_of(bucket);
      plan.buffer = draft_.buckets[i].buffer;
      plan.after = i;
      draft_.buckets[i].continued = true;
      begun_with_[bucket.gradients.front().tensor].push_back(draft_.buckets.size());
      draft_.buckets.push_back(plan);
      return true;
    }
    return false;
  }

  void place(const Bucket& bucket) {
    BucketPlan plan = plan_of(bucket);
    BucketLayout layout;
    layout.bucket = bucket.id;
    layout.mode = bucket.mode;
    layout.dtype = draft_.program().tensor(traveller(bucket, bucket.gradients.front())).dtype;
    layout.members.reserve(bucket.gradients.size());
    const std::int64_t element = element_size(layout.dtype).count();
    const std::int64_t alignment = std::lcm(bucket.align_to.count(), element);
    Bytes end;
    for (const Slice& slice : bucket.gradients) {
      const TensorId id = traveller(bucket, slice);
      const Tensor& tensor = draft_.program().tensor(id);
      if (tensor.dtype != layout.dtype) {
        throw InputError(draft_.name(bucket) + ": mixes dtypes: " + tensor.name);
      }
      if (writer_role_.at(id) != plan.role) {
        throw InputError(draft_.name(bucket) + ": mixes stages: " + tensor.name);
      }
      hold(bucket, slice, tensor);
      const Bytes offset = rounded_up(end, alignment);
      const Bytes size = element_size(tensor.dtype) * slice.elements(tensor);
      layout.members.push_back({id, offset, slice.first, slice.count});
      layout.payload += size;
      end = offset + size;
    }
    if (bucket.collective == Collective::ReduceScatter) {
      layout.shards = draft_.program().group(bucket.group).size();
      if (layout.shards > 1) layout.cut_over = bucket.group;
    }
    layout.size = rounded_up(end, padding_unit(bucket, layout));
    begun_with_[bucket.gradients.front().tensor].push_back(draft_.buckets.size());
    draft_.buckets.push_back(plan);
    draft_.out.buckets.push_back(std::move(layout));
  }

  // Checks the slice and remembers it.
  void hold(const Bucket& bucket, const Slice& slice, const Tensor& tensor) {
    const std::int64_t elements = slice.elements(tensor);
    const bool whole = slice.first == 0 && elements == tensor.numel();
    if (!whole) {
      if (slice.first < 0 || slice.count < 0 || elements < 1 ||
          slice.first > tensor.numel() - elements) {
        throw InputError(draft_.name(bucket) + ": " + tensor.name +
                         " has no such range: " + std::to_string(elements) + " elements from " +
                         std::to_string(slice.first) + " on");
      }
      if (bucket.mode == BucketMode::View) {
        throw InputError(draft_.name(bucket) + ": a part of " + tensor.name +
                         " needs copy mode: a view holds whole gradients");
      }
    }
    char& seen = seen_[tensor.id];
    if (seen != 0) some_range_twice_ = true;
    seen = 1;
    held_.push_back({tensor.id, bucket.group, slice.first, slice.first + elements, &bucket});
  }

  void check_ranges() {
    std::ranges::stable_sort(held_, {}, [](const Held& held) {
      return std::tuple(held.tensor, held.group, held.first);
    });
    for (std::size_t i = 1; i < held_.size(); ++i) {
      const Held& a = held_[i - 1];
      const Held& b = held_[i];
      if (a.tensor != b.tensor) continue;
      if (a.group != b.group) {
        throw InputError(draft_.name(*b.bucket) + ": " + draft_.program().tensor(b.tensor).name +
                         " travels over two groups in buckets whose members differ");
      }
      if (b.first < a.end) {
        throw InputError(draft_.name(*b.bucket) + ": holds elements of " +
                         draft_.program().tensor(b.tensor).name + " that bucket " +
                         std::to_string(a.bucket->id.value) + " holds too");
      }
    }
  }

  static Bytes rounded_up(Bytes size, std::int64_t unit) {
    return Bytes((size.count() + unit - 1) / unit * unit);
  }

  static std::int64_t padding_unit(const Bucket& bucket, const BucketLayout& layout) {
    const std::int64_t unit = bucket.pad_to.count();
    if (layout.shards <= 1) return unit;
    return std::lcm(unit, layout.shards * element_size(layout.dtype).count());
  }

  void report() {
    Bytes payload_sum;
    Bytes padding;
    for (const BucketLayout& layout : draft_.out.buckets) {
      payload_sum += layout.payload;
      padding += layout.size - layout.payload;
    }
    draft_.tell(LoweringPass::LayOut, counted(draft_.debts.size(), "gradient") + " in " +
                                          counted(draft_.buckets.size(), "bucket") + ", " +
                                          dovetail::to_string(payload_sum) + ", padding " +
                                          dovetail::to_string(padding));
  }

  Draft& draft_;
  IdTable<TensorId, std::int32_t> writer_role_{0};
  IdTable<BucketId, char> used_{0};
  IdTable<TensorId, char> seen_{0};
  IdTable<TensorId, std::vector<std::size_t>> begun_with_;  // buckets, by their first gradient
  std::vector<Held> held_;
  bool some_range_twice_ = false;
};

}  // namespace

StreamId stream_of(const StreamChoice& choice) {
  return visit(
      choice, [](const InlineStream&) { return kComputeStream; },
      [](const CommStream& comm) { return StreamId{comm.index + 1}; });
}

void collect_debts(Draft& draft) {
  const std::vector<Reduction>& reductions = draft.program().reductions;
  draft.debts.resize(reductions.size());
  // From the last to the first, so that each tensor's list is in the Program's order.
  for (std::size_t i = reductions.size(); i-- > 0;) {
    const Reduction& owed = reductions[i];
    std::int32_t& first = draft.debt[draft.travels.at(owed.gradient)];
    draft.debts[i] = {owed.group, owed.op, first};
    first = static_cast<std::int32_t>(i);
  }
}

void name_streams(Draft& draft) {
  std::int32_t streams = 0;
  const auto count = [&](const StreamChoice& stream, const std::string& name) {
    const auto* comm = std::get_if<CommStream>(&stream);
    if (comm == nullptr) return;
    if (comm->index < 0) throw InputError(name + ": negative stream");
    streams = std::max(streams, comm->index + 1);
  };
  for (const Bucket& bucket : draft.schedule.buckets) count(bucket.stream, draft.name(bucket));
  for (const ParameterGather& gather : draft.schedule.gathers) {
    count(gather.stream, draft.name(gather));
  }
  for (const OpPlacement& placement : draft.schedule.collectives) {
    count(placement.stream, draft.name(placement));
  }
  draft.out.streams.push_back({kComputeStream, "compute"});
  for (std::int32_t i = 0; i < streams; ++i) {
    draft.out.streams.push_back({StreamId{i + 1}, "comm" + std::to_string(i)});
  }
}

void lay_out(Draft& draft) { Layout(draft).run(); }

const Debt& debt_over(const Draft& draft, TensorId tensor, GroupId group) {
  const std::int32_t first = draft.debt.at(tensor);
  DOVETAIL_CHECK(first >= 0) << "tensor " << tensor << " needs no reduction";
  for (std::int32_t i = first; i >= 0; i = draft.debts[static_cast<std::size_t>(i)].next) {
    const Debt& debt = draft.debts[static_cast<std::size_t>(i)];
    if (debt.group == group) return debt;
  }
  return draft.debts[static_cast<std::size_t>(first)];
}

}  // namespace dovetail::schedule::internal
