// The policies of the source systems at the front door: planned, shown, explored, refused.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "schedule/plan_json.h"
#include "schedule/program_json.h"
#include "tests/cli/asked.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"
#include "traces/trace_json.h"

namespace dovetail {
namespace {

using dovetail::testing::Ended;
using dovetail::testing::number_after;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A directory of its own for each test, removed at its end.
class PolicyCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '-');  // of a test with a parameter
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail-policies-" + name + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path() const { return (directory_ / "plan.json").string(); }

  [[nodiscard]] Ended plan(const std::string& policy) const {
    return dovetail::testing::ask("plan --workload resnet18 --cluster a100x8 --policy " + policy +
                                  " -o " + path());
  }

  // A workload of one layer in which no op is known to fill the gradient of the loss.
  [[nodiscard]] std::string workload_without_loss() const {
    schedule::Program program = dovetail::testing::chain(
        {{dovetail::testing::us(10), dovetail::testing::us(20), kib(4), dovetail::testing::us(1)}},
        8);
    for (schedule::Op& op : program.ops) {
      if (std::holds_alternative<schedule::FillLossGradient>(op.effect)) {
        op.effect = schedule::Opaque{};
      }
    }
    const std::string path = (directory_ / "program.json").string();
    write_file(path, schedule::program_to_json(program));
    return path;
  }

  void expect_refused(const std::string& policy, const std::string& reason) const {
    const Ended ended = plan(policy);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_THAT(ended.output, AllOf(StartsWith("dovetail: "), HasSubstr(reason)));
    EXPECT_FALSE(std::filesystem::exists(path()));
  }

  std::filesystem::path directory_;
};

TEST_F(PolicyCliTest, P20ThePresetIsTheSourcesPassAndSaysWhatItDid) {
  const Ended ended = plan("paddle-pass");
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("source-first-fit:elements=50331648"),
                                  HasSubstr("62 all-reduces fused into")));
  const Ended shown = dovetail::testing::ask("show " + path());
  ASSERT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(shown.output,
              AllOf(StartsWith("schedule source-first-fit:elements=50331648"),
                    HasSubstr("closed by end"), HasSubstr("buckets closed by"),
                    HasSubstr("passes\n"), HasSubstr("lay out: "), HasSubstr("verified: legal")));
}

class EveryPolicyTest : public PolicyCliTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Policies, EveryPolicyTest,
    ::testing::Values("naive", "source-improved", "source-first-fit:cap=25MiB,scope=event",
                      "gradient-merge:k=4,sync=last", "gradient-merge:k=2,sync=every",
                      "gradient-merge:k=2,sync=after,average=no", "sharded:p=2",
                      "sharded:cap=8MiB,k=2", "sharded:gather=next-forward,tail=last-gradient",
                      "source-improved:k=2", "mg-wfbp", "asc-wfbp", "dear", "fsdp+asc-wfbp",
                      "threshold:cap=4MiB,batch=2,wait=before-next-batch"));

TEST_P(EveryPolicyTest, MakesALegalPlan) {
  const Ended planned = plan(GetParam());
  ASSERT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(dovetail::testing::ask("show " + path()).output, HasSubstr("verified: legal"));
}

TEST_F(PolicyCliTest, APlanKeepsTheDecisionsOfItsPolicy) {
  ASSERT_EQ(plan("sharded:cap=8MiB,p=3,k=4,gather=next-forward").code, 0);
  const schedule::Schedule schedule = schedule::read_plan(path()).schedule;
  EXPECT_EQ(schedule.merge.micro_steps, 4);
  EXPECT_EQ(schedule.parameters, schedule::ParameterSync::NextForward);
  EXPECT_EQ(schedule.buckets.front().collective, schedule::Collective::ReduceScatter);
  EXPECT_EQ(schedule.buckets.front().launch, schedule::LaunchPoint(schedule::LaunchInBatch{0}));
}

TEST_F(PolicyCliTest, AllPoliciesAreExplored) {
  const Ended ended =
      dovetail::testing::ask("explore --workload resnet18 --cluster a100x8 --policies all --all");
  ASSERT_EQ(ended.code, 0) << ended.output;
  for (const char* shown :
       {"\n  left out: pipeline: the program has 1 stage, the policy is for 2\n", "\nmg-wfbp ",
        "\ndear:cap=25MiB ", "\nfsdp", "PyTorch DDP's default", "Horovod's default",
        "\nbest: exact:wait=end-of-backward,scale=before-collective\n"}) {
    EXPECT_THAT(ended.output, HasSubstr(shown));
  }
}

TEST_F(PolicyCliTest, ALowerBoundIsStatedOnlyWhereItHolds) {
  EXPECT_THAT(plan("source-improved").output, HasSubstr("lower bound"));
  EXPECT_THAT(plan("gradient-merge:k=4").output, HasSubstr("lower bound"));
  // Of whole tensors there is one, of those that are cut where a bucket ends none.
  EXPECT_THAT(plan("sharded").output, HasSubstr("lower bound"));
  EXPECT_THAT(plan("sharded:cap=8MiB").output, Not(HasSubstr("lower bound")));
  EXPECT_THAT(plan("fsdp").output, HasSubstr("lower bound"));
  EXPECT_THAT(plan("pipeline:stages=2").output, HasSubstr("lower bound"));
  EXPECT_THAT(plan("pipeline:stages=2+fsdp").output, Not(HasSubstr("lower bound")));
}

TEST_F(PolicyCliTest, ExploreTakesPoliciesWithSeveralOptions) {
  const Ended ended = dovetail::testing::ask(
      "explore --workload resnet18 --cluster a100x8 --policies "
      "paddle-pass,source-improved:cap=4MiB,batch=2,gradient-merge:k=2,sync=last");
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("source-first-fit:elements=50331648"),
                                  HasSubstr("source-improved:cap=4MiB,batch=2"),
                                  HasSubstr("gradient-merge:cap=25MiB,k=2")));
}

TEST_F(PolicyCliTest, BadCombinationsAreRefusedWithTheRule) {
  expect_refused("sharded:replicas=nodes", "need no reduction over replicas");
  expect_refused("sharded:cap=1MiB,mode=view", "spans buckets");
  expect_refused("naive:gather=next-forward", "it is an option of sharded");
  expect_refused("source-first-fit:cap=1MiB,elements=5", "give one of them");
  expect_refused("threshold:wait=before-next-batch", "needs batch=");
}

TEST_F(PolicyCliTest, P10AFactorThatCannotBeFoldedIsRefusedInWords) {
  const Ended ended = dovetail::testing::ask(
      "plan --workload " + workload_without_loss() +
      " --cluster a100x8 --policy source-improved:scale=loss-gradient -o " + path());
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.output,
            "dovetail: policy source-improved:cap=25MiB,scale=loss-gradient: scale=loss-gradient: "
            "no op is known to fill the gradient of the loss\n");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// The number behind this label.
TEST_F(PolicyCliTest, OneRankIsBoundedByItsComputeAlone) {
  const Ended ended = dovetail::testing::ask(
      "explore --workload mlp --cluster a100x8 --world 1 --thresholds 25MiB");
  EXPECT_EQ(ended.code, 0);
  EXPECT_GE(number_after(ended.output, "on this model: gap "), 0) << ended.output;
}

TEST_F(PolicyCliTest, ExploreNeverCallsALargerBatchBest) {
  const Ended ended = dovetail::testing::ask(
      "explore --workload mlp --cluster a100x8 --policies gradient-merge,exact:k=4");
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("fastest: "), HasSubstr("4 micro-steps per update"),
                                  Not(HasSubstr("best: "))));
}

// On this link half of the traffic goes beside the next forward: faster than any all-reduce, 402.2 ms. DDP cannot
// shard updates; Megatron can, which is another training job unless somebody asks for it.
TEST_F(PolicyCliTest, ExploreCallsShardedUpdatesBestOnlyWhereTheyAreAskedFor) {
  const std::string explore = "explore --workload mlp-1000mbit --thresholds 1MiB,4MiB,25MiB";
  const std::string sharded = "sharded:cap=1MiB,p=1,gather=next-forward";
  EXPECT_THAT(dovetail::testing::ask(explore).output,
              AllOf(HasSubstr(sharded + " "),
                    HasSubstr("best: exact:wait=end-of-backward,scale=before-collective\n"),
                    HasSubstr("rows below 0 % need more than a setting of PyTorch DDP"),
                    HasSubstr("faster, but not by what PyTorch DDP can be told: exact, ")));
  const std::string megatron = explore + " --framework megatron";
  EXPECT_THAT(dovetail::testing::ask(megatron).output,
              HasSubstr("best: exact:wait=end-of-backward\n"));
  EXPECT_THAT(dovetail::testing::ask(megatron + " --policies ddp,exact," + sharded).output,
              HasSubstr("best: " + sharded));
}

// The plan of another machine is a start like a policy. That of a pipeline is one only for a workload that is cut into the same
// stages, which `plan` does, although the names of all gradients are the same.
TEST_F(PolicyCliTest, APlanFileIsAStartForPlanAndExplore) {
  const auto run = [&](const std::string& command, const std::string& rest) {
    return dovetail::testing::ask(command + " --workload mlp --cluster " + rest);
  };
  const std::string again = (directory_ / "again.json").string();
  const std::string on_h200 = "h200x8 --plan " + path();
  ASSERT_EQ(run("plan", "a100x8 --policy torch-ddp:cap=5MiB -o " + path()).code, 0);
  EXPECT_EQ(run("plan", on_h200 + " -o " + again).code, 0);
  EXPECT_EQ(schedule::read_plan(again).schedule, schedule::read_plan(path()).schedule);
  EXPECT_EQ(schedule::read_plan(again).summary.cluster, "h200x8");
  EXPECT_THAT(run("explore", on_h200 + " --policies exact").output, HasSubstr(path()));
  ASSERT_EQ(run("plan", "a100x8 --policy pipeline:stages=2,k=4 -o " + path()).code, 0);
  EXPECT_EQ(run("plan", on_h200 + " -o " + again).code, 0);
  EXPECT_EQ(schedule::read_plan(again).program.stages, 2);
  const Ended refused = run("explore", on_h200 + " --policies exact");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output,
              HasSubstr("/program: the plan is of 2 pipeline stages, the workload here of 1"));
}

// Sizes that are no whole KiB, too: of the four from 100 KiB to 64 MiB the second and the third.
TEST_F(PolicyCliTest, ARowOfExploreIsPastedBackAsItIsNamed) {
  const std::string explore = "explore --workload resnet18 --cluster a100x8 ";
  const auto rows_of = [&](const std::string& rest) {
    const Ended ended = dovetail::testing::ask(explore + rest + " --json");
    return nlohmann::json::parse(ended.output).at("rows");
  };
  const std::string swept = "--policies threshold,torch-ddp --thresholds 100KiB:64MiB --points 4";
  const std::string table = dovetail::testing::ask(explore + swept + " --all").output;
  std::size_t uneven = 0;
  for (const nlohmann::json& row : rows_of(swept)) {
    const std::string policy = row.at("policy");
    EXPECT_THAT(table, HasSubstr("\n" + policy + " "));
    EXPECT_THAT(rows_of("--policies " + policy),
                ::testing::Contains(::testing::Truly([&](const nlohmann::json& pasted) {
                  return pasted.at("policy") == policy &&
                         pasted.at("step_us") == row.at("step_us") &&
                         pasted.at("as_run") == row.at("as_run");
                })))
        << policy;
    uneven += policy == "threshold:cap=889460B" || policy == "threshold:cap=7725974B";
  }
  EXPECT_EQ(uneven, 3U);  // the larger is a row as PyTorch runs it, too
}

// Without --framework the framework is the one that can run all that was named; what it does by itself is a row.
TEST_F(PolicyCliTest, ExploreComparesForTheFrameworkThatCanRunWhatWasNamed) {
  const std::string explore = "explore --workload resnet18 --cluster a100x8 --policies ";
  const auto asked = [&](const std::string& rest) {
    return dovetail::testing::ask(explore + rest).output;
  };
  EXPECT_THAT(asked("xla"), AllOf(HasSubstr("JAX / XLA's default"), Not(HasSubstr("torch-ddp"))));
  EXPECT_THAT(asked("horovod"), HasSubstr("bucket_cap_mb_list (export --to torch)"));
  EXPECT_THAT(asked("horovod:threshold=128MiB --framework horovod"),
              HasSubstr("nothing: it is what Horovod does by itself"));
  EXPECT_THAT(asked("exact"), AllOf(HasSubstr("PyTorch DDP's default"),
                                    HasSubstr("PyTorch DDP: gradient_as_bucket_view=True"),
                                    HasSubstr("dovetail_torch.apply (own hooks)")));
  EXPECT_THAT(asked("torch-ddp:cap=8MiB,first=1MiB --framework torch1"),
              HasSubstr("PyTorch 1.x DDP: bucket_cap_mb=8"));
  const Ended unknown = dovetail::testing::ask(explore + "exact --framework pytorch");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("--framework \"pytorch\": did you mean torch?"));
}

TEST_F(PolicyCliTest, ExploreSaysWhichStepsOfAPolicyWereLeftOut) {
  const Ended ended =
      dovetail::testing::ask("explore --workload gpt2 --cluster a100x8 --policies paddle-pass");
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("left out: source-first-fit"),
                                  HasSubstr("does not follow its producer")));
}

TEST_F(PolicyCliTest, ShardedRowsSayWhatTheirCollectivesAreTakenFrom) {
  const std::string note =
      "reduce-scatter over 8 ranks on 1 node is taken as half of the all-reduce";
  const auto explore = [](const std::string& policy) {
    return dovetail::testing::ask("explore --workload mlp --cluster a100x8 --policies " + policy);
  };
  EXPECT_THAT(explore("sharded").output, HasSubstr(note));
  EXPECT_THAT(explore("one-bucket").output, Not(HasSubstr(note)));
  EXPECT_THAT(plan("sharded").output, HasSubstr(note));
  EXPECT_THAT(plan("one-bucket").output, AllOf(Not(HasSubstr(note)), HasSubstr("uncalibrated")));
}

// Asynchronous launches fill the first step's streams late, so it is slower than the steady one.
TEST_F(PolicyCliTest, APlanItsTraceAndPredictTellOneStepTime) {
  const std::string trace = (directory_ / "trace.json").string();
  const Ended planned = dovetail::testing::ask(
      "plan --workload mlp --cluster a100x2_nv12 --policy torch-ddp:cap=8MiB -o " + path() +
      " --trace " + trace);
  ASSERT_EQ(planned.code, 0) << planned.output;
  const double ms = number_after(planned.output, "predicted step ");
  const Ended predicted = dovetail::testing::ask("predict --cluster a100x2_nv12 --plan " + path());
  EXPECT_NEAR(number_after(predicted.output, "step time"), ms, 0.01 * ms);
  EXPECT_NEAR(to_us(traces::median_step(traces::load_trace(trace)).step_time) / 1e3, ms, 0.01 * ms);
}

TEST_F(PolicyCliTest, ExactGroupsGradientsThatMayNotAllShareABucket) {
  schedule::Program program = schedule::read_program(workload_without_loss());
  ASSERT_EQ(program.reductions.size(), 1U);
  program.groups.push_back({GroupId{1}, "other", program.groups[0].ranks, 8});
  schedule::Tensor more = program.tensor(program.reductions[0].gradient);
  const TensorId first = more.id;
  more.id = TensorId{static_cast<std::int32_t>(program.tensors.size())};
  more.name = "another gradient";
  program.tensors.push_back(more);
  for (schedule::Op& op : program.ops) {
    if (std::ranges::count(op.writes, first) > 0) op.writes.push_back(more.id);
  }
  program.reductions.push_back({more.id, GroupId{1}});
  const std::string mixed = (directory_ / "mixed.json").string();
  write_file(mixed, schedule::program_to_json(program));
  const Ended ended =
      dovetail::testing::ask("explore --all --workload " + mixed + " --cluster a100x8");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("\nexact    "), Not(HasSubstr("left out: exact"))));
}

TEST_F(PolicyCliTest, PredictTakesThePlansOwnMachineAndDrawsTheStep) {
  const auto tool = [](const std::string& words) { return dovetail::testing::ask(words); };
  for (const std::string inputs : {"mlp-1000mbit", "mlp --cluster a100x8"}) {
    const Ended planned = tool("plan --workload " + inputs + " --policy one-bucket -o " + path());
    ASSERT_EQ(planned.code, 0) << planned.output;
    const std::string perfetto = (directory_ / "perfetto.json").string();
    const Ended ended = tool("predict --timeline --perfetto " + perfetto + " --plan " + path());
    EXPECT_EQ(ended.code, 0);
    // Steps of a trace overlap by what the ranks differ in, and three digits are printed.
    const double ms = number_after(planned.output, "predicted step ");
    EXPECT_NEAR(number_after(ended.output, "step time"), ms, 0.002 * ms);
    EXPECT_THAT(ended.output, AllOf(HasSubstr("FFF"), HasSubstr("BBB")));
    EXPECT_THAT(read_file(perfetto), HasSubstr("traceEvents"));
  }
}

// A plan tells where its machine was read; without that file predict asks for one.
TEST_F(PolicyCliTest, PredictFindsAMachineThatIsAFile) {
  const std::string shipped =
      std::string(DOVETAIL_SOURCE_DIR) + "/traces/measured/mlp-1gbit-machine.json";
  const std::string machine = path() + ".machine.json";
  std::filesystem::copy_file(shipped, machine);
  const Ended planned = dovetail::testing::ask(
      "plan --workload mlp-1000mbit --policy one-bucket --cluster " + machine + " -o " + path());
  ASSERT_EQ(planned.code, 0) << planned.output;
  const Ended found = dovetail::testing::ask("predict --plan " + path());
  EXPECT_EQ(found.code, 0);
  std::filesystem::remove(machine);
  const Ended refused = dovetail::testing::ask("predict --plan " + path());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output,
              HasSubstr("\"here\", is no shipped one: name its file with --cluster"));
  const Ended named = dovetail::testing::ask("predict --plan " + path() + " --cluster " + shipped);
  EXPECT_EQ(named.output, found.output);
}

}  // namespace
}  // namespace dovetail
