// Draws Schedules at random from everything that the language can say, and makes illegal plans of
// legal ones by one mutation each.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_language.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dovetail::testing {
namespace {

using schedule::Bucket;
using schedule::BucketMode;
using schedule::Collective;
using schedule::CommStream;
using schedule::InlineStream;
using schedule::LaunchAfterBackward;
using schedule::LaunchAfterOp;
using schedule::LaunchInBatch;
using schedule::Op;
using schedule::owed_gradients;
using schedule::OwedGradient;
using schedule::ParameterSync;
using schedule::Phase;
using schedule::Program;
using schedule::ReduceOp;
using schedule::ScaleAt;
using schedule::Schedule;
using schedule::Slice;
using schedule::SyncPoint;
using schedule::WaitPoint;
using schedule::WaitScope;

class Draw {
 public:
  Draw(Random& random, const Program& program) : random_(random), program_(program) {}

  Schedule schedule() {
    Schedule result;
    result.policy = "random";
    result.merge.micro_steps = one_of<std::int32_t>({1, 1, 1, 2, 4});
    if (result.merge.micro_steps > 1) {
      result.merge.op = one_of({ReduceOp::Sum, ReduceOp::Average});
      result.merge.sync = one_of(
          {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep});
    }
    result.scale = one_of({ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
                           ScaleAt::LossGradient, ScaleAt::Optimizer});
    result.parameters = one_of({ParameterSync::AfterUpdate, ParameterSync::NextForward});
    sharded_ = one_in(3);
    group(result);
    for (Bucket& bucket : result.buckets) decide(bucket);
    if (one_in(4)) batch(result);
    return result;
  }

 private:
  bool one_in(std::int64_t n) { return random_.between(1, n) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    const auto index = random_.between(0, static_cast<std::int64_t>(values.size()) - 1);
    return *(values.begin() + index);
  }

  // Consecutive buckets; now and then a gradient is cut in two, whose parts may lie in different
  // buckets. One gradient in the backward reader's way ends its bucket before the reader.
  void group(Schedule& result) {
    const std::vector<OwedGradient> owed = owed_gradients(program_);
    std::int32_t next = 0;
    std::size_t deadline = program_.ops.size();
    for (const OwedGradient& gradient : owed) {
      const bool late = gradient.producer_index >= deadline;
      if (result.buckets.empty() || one_in(3) || late || !fits(result.buckets.back(), gradient)) {
        open(result, gradient, next++);
        deadline = program_.ops.size();
      }
      deadline = std::min(deadline, first_backward_reader(gradient));
      if (gradient.numel > 4 && one_in(6)) {
        const std::int64_t cut = random_.between(1, gradient.numel - 1);
        result.buckets.back().gradients.push_back(Slice(gradient.tensor, 0, cut));
        open(result, gradient, next++);
        result.buckets.back().gradients.push_back(
            Slice(gradient.tensor, cut, gradient.numel - cut));
        cut_.insert(gradient.tensor);
      } else {
        result.buckets.back().gradients.push_back(Slice(gradient.tensor));
      }
    }
  }

  void open(Schedule& result, const OwedGradient& gradient, std::int32_t id) {
    Bucket bucket;
    bucket.id = BucketId{id};
    bucket.group = gradient.group;
    result.buckets.push_back(std::move(bucket));
  }

  [[nodiscard]] bool fits(const Bucket& bucket, const OwedGradient& gradient) const {
    const TensorId first = bucket.gradients.front().tensor;
    return bucket.group == gradient.group && program_.tensor(first).dtype == gradient.dtype;
  }

  [[nodiscard]] std::size_t first_backward_reader(const OwedGradient& gradient) const {
    for (std::size_t i = gradient.producer_index + 1; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.phase == Phase::Optimizer) break;
      if (std::ranges::find(op.reads, gradient.tensor) != op.reads.end()) return i;
    }
    return program_.ops.size();
  }

  [[nodiscard]] bool is_read_in_backward() const {
    return std::ranges::any_of(owed_gradients(program_), [&](const OwedGradient& gradient) {
      return first_backward_reader(gradient) < program_.ops.size();
    });
  }

  void decide(Bucket& bucket) {
    const bool has_cut = std::ranges::any_of(
        bucket.gradients, [&](const Slice& slice) { return cut_.contains(slice.tensor); });
    bucket.mode = has_cut ? BucketMode::Copy : one_of({BucketMode::View, BucketMode::Copy});
    bucket.pad_to = Bytes(std::int64_t{4} << random_.between(0, 7));
    bucket.align_to = one_of({Bytes(1), Bytes(16), Bytes(256)});
    bucket.collective = sharded_ ? Collective::ReduceScatter : Collective::AllReduce;
    bucket.wait = one_of({WaitPoint::FirstUse, WaitPoint::EndOfBackward, WaitPoint::AtLaunch});
    bucket.scope = one_of({WaitScope::Event, WaitScope::Event, WaitScope::WholeStream});
    if (one_in(6)) {
      bucket.stream = InlineStream{};
    } else {
      bucket.stream = CommStream{static_cast<std::int32_t>(random_.between(0, 1))};
    }
    // A bucket that backward reads must be launched when ready, and so must all before it, since
    // none is launched before its predecessor. That is the default.
    if (is_read_in_backward()) return;
    const std::int64_t launch = random_.between(0, 4);
    if (launch == 0) bucket.launch = LaunchAfterBackward{};
    if (launch == 1) bucket.launch = LaunchAfterOp{random_backward_op()};
  }

  OpId random_backward_op() {
    std::vector<OpId> backward;
    for (const Op& op : program_.ops) {
      if (op.phase == Phase::Backward) backward.push_back(op.id);
    }
    const auto last = static_cast<std::int64_t>(backward.size()) - 1;
    return backward[static_cast<std::size_t>(random_.between(0, last))];
  }

  // Launches in batches of p, with or without the wait for the batch before.
  void batch(Schedule& result) {
    if (is_read_in_backward()) return;
    const std::int64_t size = random_.between(1, 3);
    const bool waits = one_in(2);
    for (std::size_t i = 0; i < result.buckets.size(); ++i) {
      Bucket& bucket = result.buckets[i];
      bucket.stream = CommStream{0};
      bucket.launch = LaunchInBatch{static_cast<std::int32_t>(static_cast<std::int64_t>(i) / size)};
      if (waits) bucket.wait = WaitPoint::BeforeNextBatch;
    }
  }

  Random& random_;
  const Program& program_;
  bool sharded_ = false;
  std::set<TensorId> cut_;
};

}  // namespace

void place_collectives(Random& random, const Program& program, Schedule& schedule) {
  for (const Op& op : program.ops) {
    if (!std::holds_alternative<schedule::CollectiveWork>(op.work) || random.between(0, 3) == 0) {
      continue;
    }
    schedule::OpPlacement placement;
    placement.op = op.id;
    placement.stream = CommStream{static_cast<std::int32_t>(random.between(0, 2))};
    if (random.between(0, 4) == 0) placement.scope = WaitScope::WholeStream;
    if (random.between(0, 1) == 0) {
      const auto last = static_cast<std::int64_t>(program.ops.size()) - 1;
      placement.launch =
          LaunchAfterOp{program.ops[static_cast<std::size_t>(random.between(0, last))].id};
    }
    schedule.collectives.push_back(std::move(placement));
  }
}

Schedule random_language_schedule(Random& random, const Program& program) {
  return Draw(random, program).schedule();
}

}  // namespace dovetail::testing
