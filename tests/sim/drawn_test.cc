// Simulated steps of many policies as Perfetto files: the importer takes them, every bucket's collective
// has an arrow from the op that wrote its last gradient, every stall one from what ended it, and the counters
// end where the figures of the step do.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "schedule/lower/lower.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "sim/simulate.h"
#include "tests/support/perfetto_rules.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"
#include "traces/perfetto.h"

namespace dovetail::sim {
namespace {

using nlohmann::json;
using testing::PerfettoRules;
using testing::us;
using traces::SpanKind;

traces::Trace played(const std::string& policy, std::int32_t stages = 1) {
  const std::vector<testing::Layer> layers(6, {us(10), us(20), Bytes(4000), us(5)});
  schedule::Program program = testing::chain(layers);
  if (stages > 1) {
    program = std::get<schedule::Rewritten>(
                  schedule::assign_stages(std::move(program), {.stages = stages}))
                  .program;
  }
  const schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy(policy));
  const auto plan = schedule::lower(program, schedule).program;
  for (const schedule::Problem& problem : schedule::verify(program, plan, schedule.merge)) {
    ADD_FAILURE() << policy << ": " << problem.message;
  }
  const models::Costs costs =
      testing::costs_of({.collective = testing::line(us(15), 5), .copy_ns_per_byte = 1}, program);
  return simulate(plan, costs, {.steps = 3});
}

// Arrows of a category by the name, step and process of the slice in which they end.
std::map<std::tuple<std::string, int, int>, int> ends_of_arrows(const json& document,
                                                                const std::string& category) {
  std::map<std::tuple<std::string, int, int>, int> found;
  for (const json& end : document.at("traceEvents")) {
    if (end.at("ph") != "f" || end.at("cat") != category) continue;
    for (const json& slice : document.at("traceEvents")) {
      if (slice.at("ph") != "X" || slice.at("tid") != end.at("tid")) continue;
      const std::int64_t at = PerfettoRules::ns(end.at("ts"));
      const std::int64_t start = PerfettoRules::ns(slice.at("ts"));
      if (at < start || at >= start + PerfettoRules::ns(slice.at("dur"))) continue;
      ++found[{slice.at("name"), slice.at("args").at("step"), slice.at("pid")}];
    }
  }
  return found;
}

// The process in which a rank is drawn.
int process_of(const traces::Trace& trace, Rank rank) {
  return static_cast<int>(std::ranges::find(trace.ranks, rank) - trace.ranks.begin()) + 1;
}

class DrawnTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DrawnTest, OpensWithArrowsToCollectivesAndStallsAndWithTrueCounters) {
  const traces::Trace trace = played(GetParam());
  const std::vector<const traces::Trace*> traces = {&trace};
  const json document = json::parse(traces::perfetto_json(traces));
  EXPECT_THAT(PerfettoRules::problems(document), ::testing::IsEmpty());
  const auto ready = ends_of_arrows(document, "ready");
  const auto stalls = ends_of_arrows(document, "wait");
  int collectives = 0;
  for (const traces::Span& span : trace.spans) {
    const traces::CommandInfo& info = trace.command(span.command);
    const std::tuple key(info.name, span.step, process_of(trace, span.rank));
    if (info.name.find("all-gather") != std::string::npos) {
      EXPECT_FALSE(ready.contains(key)) << info.name << " of step " << span.step;
    } else if (info.kind == SpanKind::Collective) {
      EXPECT_GE(ready.count(key), 1U) << info.name << " of step " << span.step;
      EXPECT_FALSE(info.tensors.empty()) << info.name;
      EXPECT_EQ(info.bus_bytes.count(),
                info.name.starts_with("all-reduce") ? info.bytes.count() : info.bytes.count() / 2);
      ++collectives;
    }
    if (info.kind == SpanKind::Wait && span.stream == traces::kComputeStream) {
      EXPECT_EQ(stalls.count(key), 1U) << info.name << " of step " << span.step;
    }
  }
  EXPECT_GT(collectives, 0);
  // In the first step nothing of another one is under way.
  const traces::StepReport report = traces::step_report(trace, 0);
  const std::vector<traces::StepWindow> windows = traces::step_windows(trace);
  EXPECT_EQ(
      traces::exposed_by_step(trace, report.rank, windows, traces::ComputeWork::FirstStream)[0],
      report.exposed);
}

INSTANTIATE_TEST_SUITE_P(All, DrawnTest,
                         ::testing::Values("naive", "per-tensor", "torch-ddp:cap=8KB,first=4KB",
                                           "sharded:cap=8KB,p=1",
                                           "sharded:cap=8KB,p=1,gather=next-forward",
                                           "threshold:cap=8KB,k=2", "fsdp"));

// A pipeline's stages wait for each other: the wait says for what, and an arrow comes from there.
TEST(DrawnPipelineTest, StallsOfStagesSayWhatTheyWaitFor) {
  const traces::Trace trace = played("pipeline:stages=2,k=4", 2);
  const std::vector<const traces::Trace*> traces = {&trace};
  const json document = json::parse(traces::perfetto_json(traces));
  EXPECT_THAT(PerfettoRules::problems(document), ::testing::IsEmpty());
  const auto stalls = ends_of_arrows(document, "wait");
  int waits = 0;
  for (const traces::Span& span : trace.spans) {
    const traces::CommandInfo& info = trace.command(span.command);
    if (info.kind != SpanKind::Wait || span.stream != traces::kComputeStream) continue;
    EXPECT_THAT(info.name, ::testing::StartsWith("wait "));
    EXPECT_EQ(stalls.count({info.name, span.step, process_of(trace, span.rank)}), 1U) << info.name;
    ++waits;
  }
  EXPECT_GT(waits, 0);
}

}  // namespace
}  // namespace dovetail::sim
