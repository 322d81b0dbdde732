// The clock's bound under the steps of all groupings of small programs, played by the evaluator, which is the simulator to
// the nanosecond: with everything on that can make a step longer or shorter.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/clock_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schedule/policies/policies.h"
#include "search/step_model.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"

namespace dovetail::search {
namespace {

using models::KernelClass;
using schedule::BucketMode;
using schedule::WaitPoint;

constexpr std::uint64_t kSeeds = 400;  // 10,000 were run once

struct Small {
  schedule::Program program;
  models::Costs costs;
  schedule::Schedule frame;
};

// Tables that fall here and there, queues that are faster or slower than lone transfers.
models::CollectiveTable uneven_table(Random& random) {
  std::vector<models::CollectivePoint> points;
  std::int64_t time = random.between(100, 6000);
  for (std::int64_t bytes = 64; bytes < 200'000; bytes *= 4) {
    const std::int64_t queued = std::max<std::int64_t>(1, time + random.between(-3000, 3000));
    points.push_back({.bytes = Bytes(bytes), .isolated = Duration(time)});
    if (random.between(0, 2) > 0) points.back().back_to_back = Duration(queued);
    time = std::max<std::int64_t>(50, time + random.between(-500, 9000));
  }
  return models::CollectiveTable(points);
}

Small drawn(std::uint64_t seed, std::int64_t layers) {
  Random random(seed);
  Small small;
  small.program = testing::random_chain(random, layers, 2);
  testing::SimpleMachine machine = testing::random_machine(random);
  if (random.between(0, 1) == 0) machine.collective = uneven_table(random);
  if (random.between(0, 3) > 0) testing::contend(random, machine);
  if (seed % 4 != 0) {  // the exact clock knows of neither
    models::Contention& contention = machine.contention;
    contention.start_delay = Duration{};
    contention.collective_gemm_slowdown = contention.collective_memory_slowdown = std::nullopt;
  }
  small.costs = testing::costs_of(machine, small.program);
  small.costs.distinct_ranks = random.between(0, 3) == 0 ? 2 : 1;
  if (random.between(0, 1) == 0) testing::draw_kernels(random, small.program, small.costs);
  if (random.between(0, 2) == 0) {  // hosts far ahead
    small.costs.host = {.kind = models::HostModel::Kind::Async,
                        .launch_gap = Duration(random.between(0, 300))};
  }
  const std::int64_t scale = random.between(0, 4);
  const char* const scales[] = {"collective", "collective", "before-collective", "after-collective",
                                "optimizer"};
  small.frame = schedule::make_schedule(
      small.program, schedule::parse_policy("per-tensor:scale=" + std::string(scales[scale])));
  if (random.between(0, 2) == 0) {
    for (schedule::Bucket& bucket : small.frame.buckets) {
      bucket.pad_to = Bytes(256);
      bucket.align_to = Bytes(64);
    }
  }
  return small;
}

// Buckets as they are, or each held back, copied, or waited for where backward ends.
Choices vary(Random& random, const StepModel& model, Choices choices) {
  for (BucketChoice& choice : choices) {
    const std::int32_t ready = model.ready(choice.end - 1);
    choice.launch = static_cast<std::int32_t>(random.between(ready, model.backward_end()));
    if (random.between(0, 2) == 0) choice.mode = BucketMode::Copy;
    if (random.between(0, 2) == 0) choice.wait = WaitPoint::EndOfBackward;
    if (random.between(0, 2) == 0) choice.scope = schedule::WaitScope::WholeStream;
  }
  choices.front().mode = BucketMode::View;
  return choices;
}

// As PyTorch's DDP.
Choices copied(Choices choices) {
  for (BucketChoice& choice : choices) {
    choice.mode = BucketMode::Copy;
    choice.wait = WaitPoint::EndOfBackward;
  }
  return choices;
}

// Whether hosts that issue so many buckets a step are done well before it ends.
bool keeps_ahead(const Small& small, std::size_t buckets, Duration step) {
  Duration host{};
  for (const schedule::Op& op : small.program.ops) host += small.costs.issue(op);
  const models::HostModel& model = small.costs.host;
  host += static_cast<std::int64_t>(buckets) * (model.collective + 4 * model.event);
  return static_cast<double>(host.count()) < 0.97 * static_cast<double>(step.count());
}

// Sharded updates, gathered at once or in the next forward; of all kinds of work, some with a norm of all gradients.
Small drawn_sharded(std::uint64_t seed) {
  Small small = drawn(seed, 7);
  Random random(seed);
  for (schedule::Op& op : small.program.ops) {
    const bool multiplies = std::holds_alternative<schedule::GemmWork>(op.work);
    if (op.phase == schedule::Phase::Optimizer && (multiplies || random.between(0, 1) == 0)) {
      op.work = schedule::MemoryWork{.bytes = Bytes(random.between(1, 9'000)), .flop = Flop(0)};
    }
  }
  const std::string gather = random.between(0, 2) > 0 ? "next-forward" : "after-update";
  small.frame =
      schedule::make_schedule(small.program, schedule::parse_policy("sharded:gather=" + gather));
  return small;
}

void expect_under_all_sharded(std::uint64_t seed, std::int64_t& compared) {
  const Small small = drawn_sharded(seed);
  const StepModel::Made made = StepModel::make(small.program, small.costs, small.frame);
  if (!made.model) return;  // updates of several kinds
  StepWorkspace workspace = made.model->workspace();
  Random random(seed);
  Duration best = Duration::max();
  Choices plain;
  for (const auto& ends :
       testing::all_groupings(static_cast<std::size_t>(made.model->gradients()))) {
    plain = testing::choices_with_ends(ends, BucketMode::View, WaitPoint::FirstUse);
    best = std::min(best, made.model->evaluate(plain, workspace));
    best = std::min(best, made.model->evaluate(vary(random, *made.model, plain), workspace));
  }
  const std::optional<BoundKind> kind = made.model->bound_kind(plain, best);
  ASSERT_TRUE(kind);
  EXPECT_LE(made.model->lower_bound(*kind, Duration::max()).step, best);
  EXPECT_LE(made.model->lower_bound(*kind, best).step, best);
  ++compared;
}

TEST(ClockBoundTest, LiesUnderEveryGroupingOfShardedUpdates) {
  std::int64_t compared = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_under_all_sharded(seed, compared);
  }
  EXPECT_GT(compared, 100);
}

struct BoundTally {
  std::int64_t when_ready = 0;
  std::int64_t optimal = 0;  // the bound is reached
};

// Over all groupings, as they are and varied: each is of a kind whose bound lies under it.
void expect_under_all(std::uint64_t seed, BoundTally& tally) {
  Small small = drawn(seed, 8);
  const bool rescales = small.frame.scale == schedule::ScaleAt::Optimizer;
  if (!rescales && seed % 4 == 0) {  // the last gradient that is ready has no reader
    const TensorId last = schedule::owed_gradients(small.program).back().tensor;
    for (schedule::Op& op : small.program.ops) std::erase(op.reads, last);
  }
  const StepModel::Made made = StepModel::make(small.program, small.costs, small.frame);
  ASSERT_TRUE(made.model) << made.refusal;
  const StepModel& model = *made.model;
  StepWorkspace workspace = model.workspace();
  Random random(seed);
  const std::int32_t stream = random.between(0, 4) == 0 ? kInline : 0;
  const Duration unknown = Duration::max();
  Duration best = unknown;
  Duration best_ahead = unknown;
  Duration best_varied = unknown;
  Duration best_copied = unknown;
  Duration best_waiting = unknown;
  Duration best_waiting_ahead = unknown;
  Choices plain, waiting;
  for (const auto& ends : testing::all_groupings(static_cast<std::size_t>(model.gradients()))) {
    plain = testing::choices_with_ends(ends, BucketMode::View, WaitPoint::FirstUse);
    for (BucketChoice& choice : plain) choice.stream = stream;
    const Duration step = model.evaluate(plain, workspace);
    best = std::min(best, step);
    if (keeps_ahead(small, plain.size(), step)) best_ahead = std::min(best_ahead, step);
    best_varied = std::min(best_varied, model.evaluate(vary(random, model, plain), workspace));
    waiting = plain;
    for (BucketChoice& choice : waiting) choice.wait = WaitPoint::EndOfBackward;
    const Duration waited = model.evaluate(waiting, workspace);
    best_waiting = std::min(best_waiting, waited);
    if (keeps_ahead(small, plain.size(), waited)) {
      best_waiting_ahead = std::min(best_waiting_ahead, waited);
    }
    best_copied = std::min(best_copied, model.evaluate(copied(plain), workspace));
  }
  const auto bound_of = [&](const Choices& choices, Duration known) {
    return model.lower_bound(model.bound_kind(choices, unknown).value(), known);
  };
  const auto least = [](const StepBound& bound, Duration of_all, Duration of_those_ahead) {
    return bound.kind.find("ahead") != std::string::npos ? of_those_ahead : of_all;
  };
  const StepBound bound = bound_of(plain, unknown);
  EXPECT_LE(bound.step, least(bound, best, best_ahead));
  EXPECT_LE(bound.held_back, std::min(best, best_varied));
  const StepBound at_end = bound_of(waiting, unknown);
  EXPECT_LE(at_end.step, least(at_end, best_waiting, best_waiting_ahead));
  EXPECT_GE(at_end.step, bound.held_back);
  EXPECT_LE(bound_of(copied(plain), unknown).step, best_copied);
  const StepBound known = bound_of(plain, best);
  EXPECT_LE(known.step, best);
  if (bound.kind.find("when ready") != std::string::npos) ++tally.when_ready;
  if (known.step + Duration(5) > best) ++tally.optimal;
}

TEST(ClockBoundTest, LiesUnderEveryGroupingOfSmallPrograms) {
  BoundTally tally;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_under_all(seed, tally);
  }
  EXPECT_GT(tally.when_ready, 5);
  EXPECT_GT(tally.optimal, 50);
}

}  // namespace
}  // namespace dovetail::search
