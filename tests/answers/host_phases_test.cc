// Phases in which the host takes most of the time, by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/host_phases.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "models/networks/text.h"

namespace dovetail::predict {
namespace {

// Each op takes the device `device` and the host 10 us.
schedule::Program ops_of(const std::vector<std::pair<schedule::Phase, Duration>>& list) {
  schedule::Program program;
  for (const auto& [phase, device] : list) {
    const OpId id{static_cast<std::int32_t>(program.ops.size())};
    program.ops.push_back({.id = id,
                           .name = "op" + std::to_string(id.value),
                           .phase = phase,
                           .work = schedule::TimedWork{.by_rank = {device}}});
  }
  return program;
}

models::Costs costs_of(const schedule::Program& program) {
  models::Costs costs;
  costs.ops = models::OpCosts(models::OpModel{.machine = "test"}, program);
  costs.host.run_op = from_us(10);
  return costs;
}

std::vector<HostPhase> bound(const std::vector<std::pair<schedule::Phase, Duration>>& list) {
  const schedule::Program program = ops_of(list);
  return host_bound_phases(program, costs_of(program));
}

using schedule::Phase;

TEST(HostPhasesTest, APhaseIsBoundByTheHostWhereThatTakesMostOfIt) {
  const std::vector<HostPhase> found = bound({{Phase::Forward, from_us(2)},
                                              {Phase::Forward, from_us(2)},
                                              {Phase::Backward, from_us(100)},
                                              {Phase::Optimizer, from_us(1)}});
  ASSERT_EQ(found.size(), 1U);  // behind backward the host has run ahead
  EXPECT_EQ(found[0].phase, Phase::Forward);
  EXPECT_EQ(found[0].host, from_us(20));
  EXPECT_EQ(found[0].device, from_us(4));
  EXPECT_DOUBLE_EQ(found[0].share, 1);
  EXPECT_DOUBLE_EQ(found[0].of_step, 20.0 / 121);
}

TEST(HostPhasesTest, JustBelowTheDeviceCountsAndFarBelowDoesNot) {
  EXPECT_EQ(bound({{Phase::Forward, from_us(11)}}).size(), 1U);
  EXPECT_EQ(bound({{Phase::Forward, from_us(12)}}).size(), 0U);
}

TEST(HostPhasesTest, TheIntervalIsAsWideAsWhatTheHostTakesVaries) {
  const std::vector<HostPhase> all = {{.phase = Phase::Forward,
                                       .host = from_us(100),
                                       .device = from_us(10),
                                       .share = 1,
                                       .of_step = 1}};
  const StepRange narrow{.p5 = from_us(90), .p50 = from_us(100), .p95 = from_us(120)};
  const StepRange wide = widened(narrow, from_us(100), all);
  EXPECT_NEAR(to_us(wide.p5), 100 / 1.7, 0.01);
  EXPECT_EQ(wide.p50, from_us(100));
  EXPECT_EQ(wide.p95, from_us(170));
  EXPECT_EQ(widened(narrow, from_us(100), {}), narrow);
}

TEST(HostPhasesTest, ASmallModelOnAFastDeviceIsBoundByItsHost) {
  const models::Cluster cluster = load_cluster("h100x1", DOVETAIL_SOURCE_DIR "/models");
  const auto found = [&](const std::string& job) {
    return predict_job(jobs::parse_job(job), cluster).host_bound;
  };
  EXPECT_EQ(found("gpt2:gbs=1,mbs=1,kernels=transformers").size(), 3U);
  EXPECT_EQ(found("llama3_8b:gbs=1,mbs=1,seq=8192,recompute=full").size(), 0U);
}

}  // namespace
}  // namespace dovetail::predict
