// What is written for other frameworks: the plan as they run it, what is given up, and the numbers in the
// files.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "frameworks/framework.h"
#include "schedule/lower/lower.h"
#include "schedule/place_names.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "sim/steady.h"
#include "tests/cli/tool.h"
#include "tests/support/errors.h"
#include "tests/support/program_builder.h"
#include "tests/support/programs.h"

namespace dovetail::frameworks {
namespace {

using ::testing::AllOf;
using testing::chain;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::us;

// A chain on a link of 1 ns per byte and 10 us per collective: everything is predicted for real.
class ExportTest : public ::testing::Test {
 protected:
  // Four layers of 400 B, 40 kB, 80 kB and 40 kB; backward ends in the order l3, l2, l1, l0.
  ExportTest()
      : program_(chain({{us(10), us(20), Bytes(40'000), us(4)},
                        {us(10), us(20), Bytes(80'000), us(8)},
                        {us(10), us(20), Bytes(40'000), us(4)},
                        {us(10), us(20), Bytes(400), us(1)}})),
        costs_(testing::costs_of({.collective = testing::line(us(10), 1), .copy_ns_per_byte = 0.05},
                                 program_)) {
    machine_.name = "line";
    machine_.step = [this](const schedule::Schedule& schedule) {
      const schedule::Lowered lowered = schedule::lower(program_, schedule);
      EXPECT_TRUE(schedule::verify(program_, lowered.program, schedule.merge).empty());
      sim::CompiledProgram compiled;
      sim::Workspace workspace;
      return Duration(
          sim::find_steady_state(lowered.program, costs_, compiled, workspace).summary.step_ns);
    };
    machine_.collective = [](schedule::Collective, const schedule::ProcessGroup&, Bytes bytes) {
      return us(10) + Duration(bytes.count());
    };
  }

  [[nodiscard]] schedule::Plan plan(const std::string& policy) const {
    return {.program = program_,
            .schedule = schedule::make_schedule(program_, parse_policy(policy)),
            .summary = {.workload = "chain", .cluster = "line"}};
  }

  [[nodiscard]] Export to(std::string_view id, const schedule::Plan& plan) const {
    return export_plan(framework(id), plan, machine_, {.version = "0", .plan = "plan.json"});
  }

  schedule::Program program_;
  models::Costs costs_;
  Machine machine_;
};

std::vector<std::string> words_of(const Export& result) {
  std::vector<std::string> words;
  for (const Loss& loss : result.losses) words.push_back(loss.what);
  return words;
}

TEST_F(ExportTest, LossesAddUpToWhatTheFrameworkTakesMore) {
  const schedule::Plan views = plan("threshold:cap=40KB");
  for (const std::string& target : ids(has_writer)) {
    if (target == "nccl-tuner") continue;
    const Export result = to(target, views);
    Duration sum = result.planned;
    for (const Loss& loss : result.losses) sum += loss.more;
    EXPECT_EQ(sum, result.as_run) << target;
    EXPECT_EQ(result.as_run, machine_.step(result.schedule)) << target;
    EXPECT_FALSE(result.text.empty());
    EXPECT_THAT(result.text, HasSubstr("simulated, not measured"));
  }
}

// Buckets close at 40 kB: l3 and l2 (40,400 B), l1 (80,000 B), l0 (40,000 B).
TEST_F(ExportTest, TorchGetsTheBytesOfEveryBucketExactly) {
  const Export result = to("torch", plan("threshold:cap=40KB"));
  EXPECT_THAT(words_of(result), ElementsAre(HasSubstr("DDP waits at the end of backward"),
                                            HasSubstr("DDP divides gradients")));
  EXPECT_THAT(
      result.text,
      HasSubstr("BUCKET_CAP_MB_LIST = [0.0385284423828125, 0.0762939453125, 0.03814697265625]"));
  EXPECT_THAT(result.text, AllOf(HasSubstr("(40400, ["), HasSubstr("(80000, ["),
                                 HasSubstr("GRADIENT_AS_BUCKET_VIEW = True")));
}

TEST_F(ExportTest, WhatDdpDoesAnywayLosesNothing) {
  const Export result = to("torch", plan("torch-ddp:cap=80KB,first=40KB"));
  EXPECT_TRUE(result.losses.empty());
  EXPECT_EQ(result.planned, result.as_run);
}

TEST_F(ExportTest, GroupsOutOfOrderAreLeftToTheApplyFunction) {
  schedule::Plan mixed = plan("threshold:cap=40KB,mode=copy,wait=end-of-backward");
  auto& buckets = mixed.schedule.buckets;
  ASSERT_EQ(buckets.size(), 3U);
  std::swap(buckets[0].gradients.back(), buckets[1].gradients.back());
  const Export result = to("torch", mixed);
  EXPECT_THAT(result.text, AllOf(HasSubstr("dovetail_torch.apply"), HasSubstr("not consecutive"),
                                 Not(HasSubstr("BUCKET_CAP_MB_LIST = "))));
}

TEST_F(ExportTest, ShardedUpdatesAreGivenUpByThoseWhoReduceToAll) {
  const schedule::Plan sharded = plan("sharded:cap=80KB,p=1");
  EXPECT_THAT(words_of(to("torch", sharded)),
              ::testing::Contains(HasSubstr("sharded updates: DDP all-reduces")));
  EXPECT_THAT(words_of(to("megatron", sharded)),
              Not(::testing::Contains(HasSubstr("all-reduces"))));
}

// Two ranks: each holds the other half, too.
TEST_F(ExportTest, WhoHoldsParametersWholeSaysHowMuchMoreThatIs) {
  const schedule::Plan gathered = plan("fsdp:cap=40KB");
  Bytes whole;
  for (const schedule::Tensor& tensor : gathered.program.tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) whole += tensor.bytes();
  }
  const std::int64_t ranks = gathered.program.world_size;
  const std::string more = dovetail::to_string(whole - Bytes(whole.count() / ranks));
  for (const char* const target : {"torch", "megatron", "deepspeed", "horovod", "xla"}) {
    EXPECT_THAT(words_of(to(target, gathered)),
                ::testing::Contains(AllOf(HasSubstr("sharded parameters: "),
                                          HasSubstr("holds them whole, " + more + " more"))))
        << target;
  }
  EXPECT_THAT(words_of(to("fsdp", gathered)),
              Not(::testing::Contains(HasSubstr("sharded parameters"))));
}

TEST_F(ExportTest, Fsdp2KeepsTheGathersOfAPlanThatGathersBeforeEachUse) {
  // Without modules all parameters are the root's: one group, which the plan's blocks are not.
  EXPECT_THAT(words_of(to("fsdp", plan("fsdp:cap=40KB"))),
              ::testing::Contains(HasSubstr("no groups of whole modules")));
  // Each backward op reads the parameter of its gradient, and each parameter has a module.
  for (schedule::Op& op : program_.ops) {
    if (op.phase != schedule::Phase::Backward) continue;
    for (const TensorId written : op.writes) {
      const std::string& gradient = program_.tensor(written).name;
      for (const schedule::Tensor& tensor : program_.tensors) {
        if (tensor.name + ".grad" == gradient) op.reads.push_back(tensor.id);
      }
    }
  }
  for (schedule::Tensor& tensor : program_.tensors) {
    const std::size_t end = tensor.name.find(".grad");
    if (tensor.kind == schedule::TensorKind::Parameter) tensor.name += ".weight";
    if (tensor.kind == schedule::TensorKind::Gradient) tensor.name.insert(end, ".weight");
  }
  const Export each_use = to("fsdp", plan("fsdp:cap=1KB,forward=1,backward=0"));
  EXPECT_EQ(each_use.schedule.parameters, schedule::ParameterSync::EachUse);
  EXPECT_THAT(words_of(each_use), Not(::testing::Contains(HasSubstr("shards and gathers"))));
  EXPECT_THAT(each_use.text, AllOf(HasSubstr("RESHARD_AFTER_FORWARD = True\nFORWARD_PREFETCH = 1"),
                                   HasSubstr("BACKWARD_PREFETCH = 0\nKEEP_LAST = True")));
  EXPECT_THAT(each_use.text, HasSubstr("FORWARD_ONLY = []"));
  // As an embedding, whose gradient needs no weights: FSDP2 would gather it for backward all the same.
  schedule::Program whole = program_;
  const auto first =
      std::find_if(program_.ops.rbegin(), program_.ops.rend(),
                   [](const schedule::Op& op) { return op.phase == schedule::Phase::Backward; });
  std::erase_if(first->reads, [&](TensorId id) {
    return program_.tensor(id).kind == schedule::TensorKind::Parameter;
  });
  EXPECT_THAT(to("fsdp", plan("fsdp:cap=1KB")).text,
              AllOf(HasSubstr("FORWARD_ONLY = [\""), HasSubstr("set_unshard_in_backward(False)")));
  program_ = std::move(whole);
  // Blocks that stay from forward to backward are not gathered again.
  const Export kept = to("fsdp", plan("fsdp:cap=40KB,reshard=no"));
  EXPECT_THAT(kept.text,
              AllOf(HasSubstr("RESHARD_AFTER_FORWARD = False"), HasSubstr("KEEP_LAST = False")));
  EXPECT_EQ(kept.schedule.parameters, schedule::ParameterSync::EachUse);
  // It reduces in every micro-step, or in the last where it is told so.
  const Export every = to("fsdp", plan("fsdp:cap=40KB,k=2,sync=every"));
  EXPECT_EQ(every.schedule.merge.sync, schedule::SyncPoint::EveryMicroStep);
  EXPECT_THAT(every.text, Not(HasSubstr("set_requires_gradient_sync")));
  const Export last = to("fsdp", plan("fsdp:cap=40KB,k=2"));
  EXPECT_EQ(last.schedule.merge.sync, schedule::SyncPoint::LastMicroStep);
  EXPECT_THAT(last.text, HasSubstr("model.set_requires_gradient_sync(last)"));
}

// FSDP2 would leave what no list names to the root, which is gathered first and stays.
TEST_F(ExportTest, Fsdp2GroupsModulesOfFrozenParametersToo) {
  for (schedule::Tensor& tensor : program_.tensors) {
    const std::size_t end = tensor.name.find(".grad");
    if (tensor.kind == schedule::TensorKind::Parameter) tensor.name += ".weight";
    if (tensor.kind == schedule::TensorKind::Gradient) tensor.name.insert(end, ".weight");
  }
  const auto frozen = std::ranges::find(program_.tensors, "l1.weight", &schedule::Tensor::name);
  ASSERT_NE(frozen, program_.tensors.end());
  program_ = testing::frozen(program_, frozen->id);
  const Export result = to("fsdp", plan("fsdp:forward=1,backward=1"));
  EXPECT_THAT(result.text,
              HasSubstr("GROUPS = [  # in the order of backward\n"
                        "    [\"l3\"],\n    [\"l2\"],\n    [\"l1\"],\n    [\"l0\"],\n]"));
}

TEST_F(ExportTest, ACutGradientGoesToTheBucketThatHoldsMostOfIt) {
  schedule::Plan cut = plan("per-tensor:mode=copy");
  auto& buckets = cut.schedule.buckets;
  const schedule::Slice whole = buckets[1].gradients.front();  // l2: 10,000 elements
  buckets[1].gradients = {{whole.tensor, 0, 4'000}};
  buckets[2].gradients.push_back({whole.tensor, 4'000, 6'000});
  const Export result = to("horovod", cut);
  EXPECT_THAT(words_of(result), ::testing::Contains(HasSubstr("does not cut a gradient")));
  ASSERT_EQ(result.schedule.buckets.size(), 3U);  // the second one is empty now
  EXPECT_EQ(result.schedule.buckets[1].gradients.size(), 2U);
}

// One size for all: 10,100 elements (l3 + l2), then l1 alone as it is larger, then l0.
TEST_F(ExportTest, DeepSpeedGetsTheSizeWithTheShortestStep) {
  const schedule::Plan views = plan("threshold:cap=40KB");
  const Export result = to("deepspeed", views);
  for (const auto& bucket : result.schedule.buckets) {
    EXPECT_EQ(bucket.wait, schedule::WaitPoint::BeforeNextBatch);
  }
  EXPECT_THAT(result.text, AllOf(HasSubstr("\"reduce_bucket_size\": "), HasSubstr("overlap_comm")));
  for (const std::string policy : {"per-tensor", "one-bucket", "threshold:cap=40KB"}) {
    schedule::Schedule other = plan(policy + (policy.find(':') == std::string::npos ? ":" : ",") +
                                    "mode=copy,batch=1,wait=before-next-batch")
                                   .schedule;
    EXPECT_LE(result.as_run, machine_.step(other)) << policy;
  }
}

TEST_F(ExportTest, TunerRowsCoverAllSizesAndNameTheChannels) {
  schedule::Plan capped = plan("threshold:cap=40KB");
  EXPECT_THROW(static_cast<void>(to("nccl-tuner", capped)), InputError);
  capped.schedule.buckets[0].max_ctas = 2;  // 40,400 B: below 64 KiB, NCCL's own affair
  capped.schedule.buckets[1].max_ctas = 4;  // 80,000 B
  const Export result = to("nccl-tuner", capped);
  EXPECT_THAT(result.text, HasSubstr("allreduce,0,65535,tree,ll,0,-1,2\n"
                                     "allreduce,65536,18446744073709551615,ring,simple,4,-1,2\n"));
  for (const char* word : {"reducescatter", "allgather", "broadcast", "reduce"}) {
    EXPECT_THAT(result.text, HasSubstr("\n" + std::string(word) + ",0,65535,ring,ll,0,-1,2\n"));
  }
  EXPECT_THAT(result.text, Not(HasSubstr(",-1,-1")));  // channels -1 would be one channel
}

TEST_F(ExportTest, NamesFromFilesStayWithinTheirStrings) {
  schedule::Plan hostile = plan("per-tensor");
  hostile.program.tensors.back().name = "x";
  for (schedule::Tensor& tensor : hostile.program.tensors) {
    if (tensor.kind == schedule::TensorKind::Gradient) tensor.name = "a\"\n\\" + tensor.name;
  }
  hostile.schedule.policy = "per-tensor\nimport os";
  const Export result = to("horovod", hostile);
  EXPECT_THAT(result.text, AllOf(HasSubstr(R"(["a\"\u000a\\)"), Not(HasSubstr("\nimport os"))));
}

// What a trace's gradients are called: files that go by names are refused, those that go by sizes are written.
TEST_F(ExportTest, APlanWithoutNamesGivesNoFileThatGoesByNames) {
  schedule::Plan nameless = plan("threshold:cap=100kB");
  std::size_t place = 0;
  for (schedule::Tensor& tensor : nameless.program.tensors) {
    if (tensor.kind == schedule::TensorKind::Gradient) {
      tensor.name = schedule::place_name(0, place++) + ".grad";
    }
  }
  for (const std::string& word : ids(has_writer)) {
    if (word == "nccl-tuner") continue;
    if (word == "torch" || word == "deepspeed") {
      EXPECT_FALSE(to(word, nameless).text.empty()) << word;
      continue;
    }
    EXPECT_THAT(testing::error_of([&] { static_cast<void>(to(word, nameless)); }),
                HasSubstr("--parameters FILE"))
        << word;
  }
}

TEST(PlaceNamesTest, AreToldFromNames) {
  for (const char* place : {"bucket0.gradient0", "bucket12.gradient345.grad", "all-reduce 3"}) {
    EXPECT_TRUE(schedule::is_place_name(place)) << place;
  }
  for (const char* name :
       {"", "bucket0", "bucket0.gradient", "bucket0.gradient1.weight", "bucket.gradient1",
        "layer.bucket0.gradient1", "all-reduce ", "all-reduce 3x"}) {
    EXPECT_FALSE(schedule::is_place_name(name)) << name;
  }
}

// The written files, loaded and called by Python as their framework would (tests/frameworks/check_files.py).
TEST(ExportFilesTest, DoWhatTheySay) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("dovetail-frameworks-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string base = folder.string();
  const auto run = [](const std::string& words) {
    const dovetail::testing::Ended ended = dovetail::testing::run_tool(words);
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  };
  run("plan --workload resnet18 --cluster a100x8 --policy threshold:cap=4MiB -o " + base +
      "/plan.json");
  run("plan --workload resnet18 --cluster a100x8 --policy sharded:cap=8MiB,p=1 -o " + base +
      "/sharded.json");
  for (const std::string& word : ids(has_writer)) {
    if (word == "nccl-tuner") continue;
    const std::string said = run("export " + base + "/plan.json --to " + word + " -o " + base +
                                 "/" + word + (word == "deepspeed" ? ".json" : ".py"));
    EXPECT_THAT(said, AllOf(HasSubstr("predicted (simulated)"), HasSubstr("use: ")));
  }
  run("export " + base + "/sharded.json --to megatron -o " + base + "/megatron_sharded.py");
  const dovetail::testing::Ended checked = dovetail::testing::run_command(
      "python3 " DOVETAIL_SOURCE_DIR "/tests/frameworks/check_files.py " + base);
  EXPECT_EQ(checked.code, 0) << checked.output;
  const dovetail::testing::Ended mapped = dovetail::testing::run_command(
      "python3 " DOVETAIL_SOURCE_DIR "/tests/frameworks/check_names.py " + base +
      "/plan.json " DOVETAIL_SOURCE_DIR "/python");
  EXPECT_EQ(mapped.code, 0) << mapped.output;
  const dovetail::testing::Ended unknown =
      dovetail::testing::run_tool("export " + base + "/plan.json --to torhc");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("did you mean torch?"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dovetail::frameworks
