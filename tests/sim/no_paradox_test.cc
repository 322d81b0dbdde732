// A better machine never makes a step slower, and a little noise makes little difference, on random programs and machines.
//
// Where a collective takes longer alone than in a queue, one that ends earlier may leave the next one alone
// (models/costs/costs.h): so much, and no more, may a better machine cost.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "schedule/lower/lower.h"
#include "sim/simulate.h"
#include "tests/support/cases.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using testing::us;
using Points = std::vector<models::CollectivePoint>;

// Sizes of 64 bytes to more than any bucket here has (beyond a table its last slope counts, which noise moves more); times rise, with
// bumps. Queued times are lone ones, or differ by a factor of 0.7 to 1.7.
Points random_table(Random& random) {
  Points points;
  const bool has_queue = random.between(0, 1) == 0;
  double ns = static_cast<double>(random.between(500, 50'000));
  constexpr std::int64_t kMostBytes = 1 << 23;
  for (std::int64_t bytes = 64; points.empty() || points.back().bytes < Bytes(kMostBytes);
       bytes *= random.between(0, 1) == 0 ? 4 : 8) {
    const Duration lone(static_cast<std::int64_t>(ns) + 1);
    const double queued = has_queue ? ns * (0.7 + random.uniform()) : ns;
    points.push_back({.bytes = Bytes(bytes),
                      .isolated = lone,
                      .back_to_back = Duration(static_cast<std::int64_t>(queued) + 1)});
    ns *= 0.8 + 5 * random.uniform();
  }
  return points;
}

struct Case {
  std::vector<testing::Layer> layers;
  Points points;
  testing::SimpleMachine machine;
  std::string policy;
};

Case random_case(std::uint64_t seed) {
  Random random(seed);
  Case drawn{.layers = {}, .points = random_table(random), .machine = {}, .policy = "per-tensor"};
  const auto random_us = [&] { return us(random.between(1, 40)); };
  for (std::int64_t i = random.between(2, 10); i > 0; --i) {
    const Bytes bytes(4 * random.between(1, 1 << 17));
    drawn.layers.push_back({random_us(), random_us(), bytes, random_us()});
  }
  if (random.between(0, 2) > 0) {
    drawn.policy = "torch-ddp:cap=" + std::to_string(random.between(4, 2000)) + "KiB";
  }
  if (random.between(0, 1) == 0)
    drawn.policy += drawn.policy == "per-tensor" ? "" : ",wait=first-use";
  if (random.between(0, 1) == 0) drawn.machine.contention.compute_slowdown = 1 + random.uniform();
  return drawn;
}

struct Step {
  double ns = 0;
  double forced_ns = 0;  // by which lone collectives take longer than queued ones, all together
};

Step step_of(const Case& drawn) {
  const schedule::Program program = testing::chain(drawn.layers);
  testing::SimpleMachine machine = drawn.machine;
  machine.collective = models::CollectiveTable(drawn.points);
  const models::Costs costs = testing::costs_of(machine, program);
  const schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy(drawn.policy));
  Step step;
  for (const schedule::Bucket& bucket : schedule.buckets) {
    const models::CollectiveTime time = machine.collective.time(schedule::payload(program, bucket));
    step.forced_ns +=
        std::max(0.0, static_cast<double>((time.isolated - time.back_to_back).count()));
  }
  const auto plan = schedule::lower(program, schedule).program;
  step.ns = static_cast<double>(traces::step_times(simulate(plan, costs)).front().count());
  return step;
}

// Rates are rounded to 2^-20, each time to 1 ns.
double rounding(double ns) { return 1e-4 * ns + 50; }

void expect_never_slower(const std::string& what,
                         const std::function<void(Case&, Random&)>& improve) {
  const int cases = testing::few_cases(300);
  for (int seed = 0; seed < cases; ++seed) {
    Case drawn = random_case(static_cast<std::uint64_t>(seed));
    const Step before = step_of(drawn);
    Random random(static_cast<std::uint64_t>(seed) + 1'000'000);
    improve(drawn, random);
    const Step after = step_of(drawn);
    ASSERT_LE(after.ns,
              before.ns + std::max(before.forced_ns, after.forced_ns) + rounding(before.ns))
        << what << ", seed " << seed << ", " << drawn.policy;
  }
}

TEST(BetterMachineTest, AFasterLinkIsNeverSlower) {
  expect_never_slower("link", [](Case& drawn, Random& random) {
    const double factor = 0.5 + 0.5 * random.uniform();
    for (models::CollectivePoint& point : drawn.points) {
      point.isolated = Duration(
          1 + static_cast<std::int64_t>(factor * static_cast<double>(point.isolated.count())));
      point.back_to_back = Duration(
          1 + static_cast<std::int64_t>(factor * static_cast<double>(point.back_to_back->count())));
    }
  });
}

TEST(BetterMachineTest, LessLatencyIsNeverSlower) {
  expect_never_slower("latency", [](Case& drawn, Random& random) {
    Duration least = drawn.points.front().isolated;
    for (const models::CollectivePoint& point : drawn.points) {
      least = std::min({least, point.isolated, *point.back_to_back});
    }
    const Duration less(random.between(0, least.count() - 1));
    for (models::CollectivePoint& point : drawn.points) {
      point.isolated -= less;
      *point.back_to_back -= less;
    }
  });
}

TEST(BetterMachineTest, AnOpThatEndsEarlierIsNeverSlower) {
  expect_never_slower("op", [](Case& drawn, Random& random) {
    const auto last = static_cast<std::int64_t>(drawn.layers.size()) - 1;
    testing::Layer& layer = drawn.layers.at(static_cast<std::size_t>(random.between(0, last)));
    layer.backward = layer.backward / 2;
  });
}

TEST(BetterMachineTest, OnePercentOfNoiseInAPointMovesAStepByNoMore) {
  const int cases = testing::few_cases(300);
  for (int seed = 0; seed < cases; ++seed) {
    Case drawn = random_case(static_cast<std::uint64_t>(seed));
    for (models::CollectivePoint& point : drawn.points) point.back_to_back = point.isolated;
    const Step before = step_of(drawn);
    Random random(static_cast<std::uint64_t>(seed) + 2'000'000);
    const auto last = static_cast<std::int64_t>(drawn.points.size()) - 1;
    models::CollectivePoint& point =
        drawn.points.at(static_cast<std::size_t>(random.between(0, last)));
    point.isolated += point.isolated / 100 * (random.between(0, 1) == 0 ? 1 : -1);
    point.back_to_back = point.isolated;
    ASSERT_NEAR(step_of(drawn).ns, before.ns, 0.01 * before.ns + rounding(before.ns))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace dovetail::sim
