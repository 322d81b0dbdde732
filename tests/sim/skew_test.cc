// Independent lateness of many ranks: all of them simulated, against one that is later by order statistics.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "base/statistics.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "sim/steady.h"
#include "tests/support/programs.h"

namespace dovetail::sim {
namespace {

constexpr std::size_t kLayers = 8;
constexpr std::int64_t kOp = 100'000;   // ns
constexpr std::int64_t kLate = 30'000;  // ns: an op is up to so much earlier or later, evenly
constexpr std::size_t kOps = 3 * kLayers;

using Jitter = std::function<Duration(std::int32_t, std::size_t)>;

std::int64_t step_of(std::int64_t ranks, const Jitter& jitter) {
  const Duration op(kOp);
  const std::vector<testing::Layer> layers(kLayers, {op, op, Bytes(40'000), op});
  const schedule::Program program = testing::chain(layers, ranks, jitter);
  const models::Costs costs =
      testing::costs_of({.collective = testing::line(testing::us(20), 1)}, program);
  const schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
  CompiledProgram compiled;
  Workspace workspace;
  return find_steady_state(schedule::lower(program, schedule).program, costs, compiled, workspace)
      .summary.step_ns;
}

TEST(SkewTest, OrderStatisticsSayWhatASimulationOfAllRanksShows) {
  // Of one rank's step: many small ones add up to a normal lateness.
  const double sigma = static_cast<double>(kLate) / std::sqrt(3.0) * std::sqrt(double{kOps});
  Random random(7);
  for (const std::int64_t ranks : {2, 4, 8, 16, 32, 64}) {
    constexpr int kDraws = 40;
    double simulated = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto late = [&](std::int32_t, std::size_t) {
        return Duration(random.between(-kLate, kLate));
      };
      simulated += static_cast<double>(step_of(ranks, late)) / kDraws;
    }
    const double share = expected_maximum(ranks) * sigma / (kOps * kOp);
    const auto alike = [&](std::int32_t, std::size_t) {
      return Duration(std::llround(share * kOp));
    };
    const auto predicted = static_cast<double>(step_of(ranks, alike));
    EXPECT_NEAR(predicted / simulated, 1, 0.01) << ranks << " ranks";
    EXPECT_GT(predicted, static_cast<double>(step_of(1, {}))) << "lateness costs something";
  }
}

}  // namespace
}  // namespace dovetail::sim
