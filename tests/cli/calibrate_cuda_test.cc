// From a GPU's calibration to a prediction, on a fake machine: what is predicted is what it does.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_cuda.h"
#include "calibrate/calibrate.h"
#include "calibrate/needs.h"
#include "calibrate/quality.h"
#include "calibrate/transfers.h"
#include "cli/cuda_job.h"
#include "cli/selftest_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "exec/communicator_plan.h"
#include "exec/cpu/job.h"
#include "exec/cuda/stand_in.h"
#include "exec/device/layout.h"
#include "exec/device/message.h"
#include "exec/fake/fake_backend.h"
#include "exec/launch/local_ranks.h"
#include "exec/run.h"
#include "exec/values/dataflow.h"
#include "models/rates/collective_table.h"
#include "models/workloads/workload.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "search/planner.h"
#include "tests/cli/tool.h"

namespace dovetail::cli {
namespace {

using schedule::ScheduledProgram;
using ::testing::HasSubstr;

// An op takes 1 us + 1 ns per 10 kFLOP + 1 ns per 1000 bytes, a collective 20 us + 1 ns per 50
// bytes.
Duration time_of(const ScheduledProgram& plan, const schedule::Command& command) {
  if (const auto run = schedule::op_run_by(command)) {
    const schedule::Op& op = plan.program.op(*run);
    return Duration(1000 + static_cast<std::int64_t>(op.flop().count() / 1e4) +
                    op.bytes().count() / 1000);
  }
  if (const auto* collective = schedule::bucket_collective(command)) {
    return Duration(20'000 + plan.bucket(*collective->bucket).size.count() / 50);
  }
  return {};
}

std::unique_ptr<exec::Backend> fake_machine(const ScheduledProgram& plan) {
  return std::make_unique<exec::fake::FakeBackend>(exec::fake::Durations{
      .duration = [&plan](const schedule::Command& command) { return time_of(plan, command); },
      .issue = {}});
}

// The fake host's own time is no part of the machine.
calibrate::Options replayed() {
  return {.host = calibrate::HostWork::Replayed, .steps = 2, .largest = mib(64)};
}

CalibrateCudaOptions fake_options() {
  CalibrateCudaOptions options;
  options.name = "fake";
  options.workload = "mlp";
  options.backend.issue = "graph";
  return options;
}

schedule::Program workload() {
  return models::load_workload("mlp", 2, std::string(DOVETAIL_SOURCE_DIR) + "/models").program;
}

models::Cluster calibrated(const exec::Exchange& exchange, const calibrate::MakeBackend& machine,
                           const calibrate::Options& how, const schedule::Program& program) {
  models::Cluster cluster = calibrate::calibrate({.exchange = exchange,
                                                  .make_backend = machine,
                                                  .options = how,
                                                  .ranks = program.world_size},
                                                 program)
                                .cluster;
  describe(cluster, fake_options(), "cuda");
  return cluster;
}

models::Cluster calibrated(const calibrate::Options& how = replayed()) {
  return calibrated(exec::alone(), fake_machine, how, workload());
}

// On ranks that are threads; rank 0's.
models::Cluster calibrated_by_ranks(const calibrate::Options& how,
                                    const schedule::Program& program) {
  std::optional<models::Cluster> cluster;
  const auto ranks = static_cast<std::int32_t>(program.world_size);
  exec::launch::run_local_ranks({.ranks = ranks}, [&](exec::launch::Session& session) {
    models::Cluster found = calibrated(exec::cpu::exchange_of(session), fake_machine, how, program);
    if (session.rank() == Rank{0}) cluster = std::move(found);
  });
  return *cluster;
}

Duration executed(const schedule::Policy& spec) {
  const schedule::Program program = workload();
  const ScheduledProgram plan =
      schedule::lower(program, schedule::make_schedule(program, spec)).program;
  const std::unique_ptr<exec::Backend> backend = fake_machine(plan);
  const exec::RankResult result = exec::run(plan, Rank{0}, *backend, {.warmup = 0, .steps = 1});
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (const exec::Timing& timing : result.timings) {
    start = std::min(start, timing.start_ns);
    end = std::max(end, timing.end_ns);
  }
  return Duration(end - start);
}

// Host and gaps cost nothing on the fake machine and its table is a straight line, so only what
// interpolation rounds may differ.
TEST(CalibrateCudaTest, WhatIsPredictedIsWhatTheMachineDoes) {
  const models::Cluster cluster = calibrated();
  const schedule::Program program = workload();
  search::Planner planner(program, models::costs_for(cluster, program));
  for (const char* policy : {"one-bucket", "per-tensor", "no-overlap", "threshold:cap=8MiB",
                             "threshold:cap=8MiB,scope=whole-stream"}) {
    const schedule::Policy spec = schedule::parse_policy(policy);
    const auto predicted = static_cast<double>(planner.evaluate(spec).summary.step_ns);
    const auto measured = static_cast<double>(executed(spec).count());
    EXPECT_NEAR(predicted / measured, 1, 0.01) << policy;
  }
}

// calibrate --policy exact: nothing but all-reduces of all ranks, and the file says for what.
TEST(CalibrateCudaTest, WhatNoPlanOfThePoliciesNeedsIsNotMeasured) {
  const schedule::Program program = workload();
  CalibrateCudaOptions of = fake_options();
  of.policies = {"exact", "per-tensor"};
  calibrate::Options what = replayed();
  what.largest = kib(64);
  const calibrate::Wanted wanted = calibrate::wanted_for(program, of.policies);
  what.variants = wanted.variants;
  what.measures_further = wanted.further_collectives;
  models::Cluster cluster = calibrated_by_ranks(what, program);
  describe(cluster, of, "cuda");
  ASSERT_EQ(cluster.collectives.size(), 1U);
  EXPECT_EQ(cluster.collectives[0].collective, schedule::Collective::AllReduce);
  EXPECT_FALSE(cluster.passes.contains(models::PassKind::ShardUpdate));
  EXPECT_EQ(cluster.notes.at("measured for"), "exact; per-tensor");
  // What is predicted for other policies says so.
  const std::string path =
      ::testing::TempDir() + "/measured_for." + std::to_string(::getpid()) + ".json";
  write_file(path, models::cluster_to_json(cluster));
  EXPECT_THAT(testing::run_tool("explore --workload mlp --policies exact --cluster " + path).output,
              HasSubstr("plans of other policies hold were not measured; calibrated for exact; "
                        "per-tensor\n"));
  std::filesystem::remove(path);
}

// Four ranks, as two stages of two replicas or as shards of four, need no table to be derived.
TEST(CalibrateCudaTest, EveryGroupThatDividesTheRanksHasItsTables) {
  const schedule::Program program =
      models::load_workload("mlp", 4, std::string(DOVETAIL_SOURCE_DIR) + "/models").program;
  calibrate::Options what = replayed();
  what.largest = kib(64);
  what.variants = calibrate::pass_variants(program);
  const models::Cluster cluster = calibrated_by_ranks(what, program);
  using schedule::Collective;
  for (const std::int64_t ranks : {2, 4}) {
    for (const Collective kind :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
      EXPECT_EQ(models::collective_assumption(cluster, {kind, ranks}), "") << ranks;
    }
  }
  EXPECT_EQ(models::collective_assumption(cluster, {Collective::SendRecv, 2}), "");
  for (const auto kind : {models::PassKind::Accumulate, models::PassKind::ShardUpdate}) {
    EXPECT_EQ(cluster.passes.count(kind), 1U) << to_string(kind);
  }
  EXPECT_EQ(models::parse_cluster("fake.json", models::cluster_to_json(cluster)), cluster);
}

// Two hosts of four: groups of up to four ranks lie on one host, the whole spans both.
TEST(CalibrateCudaTest, GroupsLieOnOneHostAsFarAsTheyFit) {
  schedule::Program program;
  program.world_size = 8;
  for (const auto& one : calibrate::wanted_series(program, {1, 1, 1, 1, 2, 2, 2, 2})) {
    EXPECT_EQ(one.nodes, one.ranks <= 4 ? 1 : 2) << one.ranks;
  }
  for (const auto& one : calibrate::wanted_series(program, {1, 2, 3, 4, 5, 6, 7, 8})) {
    EXPECT_EQ(one.nodes, one.ranks);
    EXPECT_EQ(one.group.spacing, calibrate::Spacing::Apart);
  }
}

TEST(CalibrateCudaTest, TheFileSaysHowItWasMeasured) {
  CalibrateCudaOptions of = fake_options();
  of.max_ctas = 16;
  models::Cluster cluster = calibrated();
  note_execution(cluster, of);
  EXPECT_EQ(cluster.backend, models::BackendKind::Cuda);
  EXPECT_EQ(cluster.ranks, 2);
  EXPECT_EQ(cluster.host.kind, models::HostModel::Kind::Async);
  EXPECT_EQ(cluster.notes.at("issue"), "graph");
  EXPECT_EQ(cluster.notes.at("max_ctas"), "16");
  EXPECT_EQ(cluster.notes.at("stand_in"), "none: real collectives");
  EXPECT_EQ(models::parse_cluster("fake.json", models::cluster_to_json(cluster)), cluster);
}

TEST(CalibrateCudaTest, AStandInIsNotValidAndEveryPredictionSaysWhy) {
  CudaJob job;
  job.facts.devices.resize(1);
  job.options.stand_in = exec::cuda::StandIn::SendToSelf;
  models::Cluster cluster = calibrated();
  for (const std::string& objection : objections_to(job, 0)) calibrate::object(cluster, objection);
  ASSERT_TRUE(cluster.quality.has_value());
  EXPECT_FALSE(cluster.quality->valid);
  const std::vector<std::string> sentences = models::assumptions(cluster, workload());
  EXPECT_TRUE(std::ranges::any_of(sentences, [](const std::string& sentence) {
    return sentence.find("no link was measured") != std::string::npos;
  }));
}

TEST(CudaJobTest, AStandInOrAnEmulatedDeviceIsSaidInTheReport) {
  CudaJob job;
  job.facts.devices.resize(2);
  job.facts.devices[0].name = "NVIDIA H200";
  job.facts.devices[1].name = "EMULATED";
  EXPECT_EQ(link_of(job), "NCCL");
  EXPECT_THAT(objections_to(job, 1), ::testing::Contains(HasSubstr("the device is emulated")));
  job.options.stand_in = exec::cuda::StandIn::SendToSelf;
  EXPECT_THAT(link_of(job), HasSubstr("a send of the rank to itself"));
  EXPECT_THAT(objections_to(job, 0), ::testing::Contains(HasSubstr("no link was measured")));
}

TEST(CalibrateCudaTest, AFewSizesOrAnAbsurdSlowDownAreNotValid) {
  calibrate::Options what = replayed();
  what.budget = Duration(0);  // two sizes are measured whatever the budget
  EXPECT_THAT(calibrated(what).quality->why,
              ::testing::Contains("only 2 sizes of collectives within the budget"));
  what.budget = std::chrono::minutes(4);
  models::Cluster whole = calibrated(what);
  EXPECT_THAT(whole.quality->why, ::testing::Not(::testing::Contains(::testing::AnyOf(
                                      HasSubstr("size"), HasSubstr("slow-down")))));
  const calibrate::Evidence evidence = {
      .conditions = {}, .contention_ops = 20, .contention_collectives = 20};
  EXPECT_THAT(quality_of(whole, evidence).why, ::testing::IsEmpty());
  whole.contention.collective_slowdown = 95.5;
  EXPECT_THAT(quality_of(whole, evidence).why,
              ::testing::ElementsAre("a slow-down of x95.5 is no contention"));
  whole.contention.collective_slowdown = 1;
  auto& sizes = std::get<std::vector<models::CollectivePoint>>(whole.collectives[0].times);
  sizes[4].isolated *= 5;  // one of 15: a stranger on the link
  *sizes[4].back_to_back *= 5;
  EXPECT_THAT(quality_of(whole, evidence).why,
              ::testing::ElementsAre(HasSubstr("off the line between its neighbours")));
}

// What the backend decides of a plan before it touches the device (exec/cuda/backend.cc), without the
// device; one rank plays the plan of two, as send-to-self does.
TEST(CalibrateCudaTest, TheBackendAcceptsEveryPlanOfACalibration) {
  std::deque<ScheduledProgram> plans;
  const calibrate::MakeBackend accepting = [&plans](const ScheduledProgram& plan) {
    plans.push_back(exec::cuda::as_one_rank(plan));
    const ScheduledProgram& alone = plans.back();
    const exec::Layout layout(alone, Rank{0}, exec::Scope::Communicated);
    const auto keys = exec::communicators_of(alone);
    static_cast<void>(exec::values::expectations(alone, Rank{0}));
    for (const schedule::Command& command : alone.roles.at(0).commands) {
      const auto* action = schedule::bucket_collective(command);
      if (action == nullptr) continue;
      EXPECT_EQ(keys.at(exec::communicator_of(alone, keys, command)).max_ctas, 16);
      EXPECT_GT(
          exec::message_of(alone, layout, Rank{0}, *action, exec::Peers::Real).payload_bytes(), 0);
    }
    EXPECT_LT(layout.bytes(), std::int64_t{16} << 30);
    return fake_machine(alone);
  };
  calibrate::Options what;
  what.max_ctas = 16;
  what.steps = 1;
  what.transfer_steps = 1;
  what.budget = std::chrono::hours(1);
  const schedule::Program program =
      models::load_workload("gpt2", 2, std::string(DOVETAIL_SOURCE_DIR) + "/models").program;
  const models::Cluster found = calibrated(exec::alone(), accepting, what, program);
  EXPECT_GT(found.kernels.size(), 1u);
  EXPECT_GT(plans.size(), 20u);
}

TEST(CalibrateCudaTest, WithoutAUsableGpuTheToolSaysSoAndEndsWithThree) {
  const testing::Ended ended = testing::run_tool(
      "calibrate --backend cuda --stand-in send-to-self --workload mlp -o /nonexistent/x.json");
  if (ended.code == 2) GTEST_SKIP() << "this machine has a GPU";  // it got as far as the file
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.output, HasSubstr("cuda"));
}

TEST(CalibrateCudaTest, WrongOptionsAreWrongInput) {
  EXPECT_EQ(testing::run_tool("calibrate --backend tpu --workload mlp -o x.json").code, 2);
  EXPECT_EQ(
      testing::run_tool("calibrate --backend cuda --stand-in mirror --workload mlp -o x.json").code,
      2);
}

TEST(SelftestCudaTest, AnExclusiveGpuIsNotShared) {
  exec::cuda::Facts facts;
  facts.devices.emplace_back();
  EXPECT_EQ(why_not_shared(facts), "");
  facts.devices[0].is_shareable = false;
  EXPECT_THAT(why_not_shared(facts), HasSubstr("exclusive mode"));
}

}  // namespace
}  // namespace dovetail::cli
