// Policies group as their sources do, and read back as they are typed.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/report.h"
#include "schedule/verify/verify.h"
#include "tests/support/errors.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Gradients of these sizes in gradient-ready order: the chain's last layer is ready first.
Program with_sizes(std::vector<std::int64_t> bytes) {
  std::vector<dovetail::testing::Layer> layers;
  for (auto size = bytes.rbegin(); size != bytes.rend(); ++size) {
    layers.push_back({Duration(10), Duration(10), Bytes(*size), Duration(10)});
  }
  return dovetail::testing::chain(layers);
}

std::vector<std::int64_t> bucket_bytes(const Program& program, const std::string& policy) {
  std::vector<std::int64_t> sizes;
  for (const Bucket& bucket : make_schedule(program, parse_policy(policy)).buckets) {
    sizes.push_back(payload(program, bucket).count());
  }
  return sizes;
}

std::string refusal(const std::string& policy) {
  try {
    parse_policy(policy);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

// A bucket closes once its bytes reach the limit: 40 >= 40 closes, 4 does not; 4 + 100 does.
TEST(PoliciesTest, AThresholdClosesABucketOnceItIsReached) {
  const Program program = with_sizes({40, 4, 100, 8});
  EXPECT_THAT(bucket_bytes(program, "threshold:cap=40B"), ElementsAre(40, 104, 8));
  EXPECT_THAT(bucket_bytes(program, "threshold:cap=1KiB"), ElementsAre(152));
  EXPECT_THAT(bucket_bytes(program, "per-tensor"), ElementsAre(40, 4, 100, 8));
  EXPECT_THAT(bucket_bytes(program, "one-bucket"), ElementsAre(152));
  EXPECT_THAT(bucket_bytes(program, "no-overlap"), ElementsAre(152));
  EXPECT_THAT(bucket_bytes(program, "naive"), ElementsAre(40, 4, 100, 8));
}

// First limit 40, then 104 for ever: 40 | 4 + 100 | 8 + 60 + 60 | 4.
TEST(PoliciesTest, AL9TorchDdpHasItsOwnLimitForTheFirstBucket) {
  const Program program = with_sizes({40, 4, 100, 8, 60, 60, 4});
  EXPECT_THAT(bucket_bytes(program, "torch-ddp:cap=104B,first=40B"), ElementsAre(40, 104, 128, 4));
}

// The copy into a bucket divides; gradients that lie in it are divided in a pass of their own.
TEST(PoliciesTest, TorchDdpDividesOnTheWayIntoABucket) {
  Program program = with_sizes({40, 4});
  for (Reduction& reduction : program.reductions) reduction.op = ReduceOp::Average;
  const auto scale = [&](const std::string& policy) {
    return make_schedule(program, parse_policy(policy)).scale;
  };
  EXPECT_EQ(scale("torch-ddp"), ScaleAt::Collective);
  EXPECT_EQ(scale("torch-ddp:mode=view"), ScaleAt::BeforeCollective);
  EXPECT_EQ(scale("torch-ddp:mode=view,scale=optimizer"), ScaleAt::Optimizer);
  EXPECT_EQ(scale("threshold:mode=view"), ScaleAt::Collective);
  EXPECT_EQ(to_string(parse_policy("torch-ddp:mode=view")),
            "torch-ddp:cap=25MiB,first=1MiB,mode=view");
  for (Reduction& reduction : program.reductions) reduction.op = ReduceOp::Sum;
  EXPECT_EQ(scale("torch-ddp:mode=view"), ScaleAt::Collective);
}

// Forward begins with 8. Below 29 are 8 + 20, then 4 + 24; below 28 8 alone, 20 + 4, 24. 100 is above the cap alone.
TEST(PoliciesTest, DearPacksModulesFromTheFirstOfForwardOnAndStaysBelowTheCap) {
  EXPECT_THAT(bucket_bytes(with_sizes({24, 4, 20, 8}), "dear:cap=29B"), ElementsAre(28, 28));
  EXPECT_THAT(bucket_bytes(with_sizes({24, 4, 20, 8}), "dear:cap=28B"), ElementsAre(24, 24, 8));
  EXPECT_THAT(bucket_bytes(with_sizes({100, 4, 20}), "dear:cap=29B"), ElementsAre(100, 24));
  const Schedule schedule = make_schedule(with_sizes({40, 4}), parse_policy("dear"));
  EXPECT_EQ(schedule.parameters, ParameterSync::NextForward);
  EXPECT_EQ(schedule.buckets.front().wait, WaitPoint::EndOfBackward);
  EXPECT_EQ(schedule.buckets.front().collective, Collective::ReduceScatter);
}

TEST(PoliciesTest, A27GradientsOfDifferentDtypesHaveBucketsOfTheirOwn) {
  Program program = with_sizes({40, 40, 40, 40});
  for (Tensor& tensor : program.tensors) {
    if (tensor.name == "l2.grad" || tensor.name == "l0.grad") tensor.dtype = DType::BF16;
  }
  // Ready order l3 (f32), l2 (bf16, 20 bytes), l1 (f32), l0 (bf16): one open bucket per dtype.
  EXPECT_THAT(bucket_bytes(program, "one-bucket"), ElementsAre(80, 40));
}

// Stage 1 holds the last two of four layers, so 40 and 4 are ready in one stage, 100 and 8 in the
// other. A rank runs one stage: it has only the gradients of that one.
TEST(PoliciesTest, NoBucketSpansTwoStagesOfAPipeline) {
  Program program = with_sizes({40, 4, 100, 8});
  for (Op& op : program.ops) {
    const bool is_late = op.name.starts_with("l2") || op.name.starts_with("l3");
    op.stage = is_late ? 1 : 0;
  }
  for (const char* policy : {"one-bucket", "torch-ddp:cap=1KiB,first=1KiB",
                             "source-first-fit:elements=1000", "source-improved:cap=1KiB"}) {
    EXPECT_THAT(bucket_bytes(program, policy), ElementsAre(44, 108)) << policy;
  }
}

TEST(PoliciesTest, AListIsCutAtTheCommasBetweenPolicies) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(split_policies("exact"), Texts{"exact"});
  EXPECT_EQ(split_policies("ddp,sharded:p=2,k=4,exact"),
            (Texts{"ddp", "sharded:p=2,k=4", "exact"}));
  // An option needs a policy with options before it.
  EXPECT_EQ(split_policies("ddp,k=4"), (Texts{"ddp", "k=4"}));
  EXPECT_EQ(split_policies("a:x=1,b:y=2,z=3"), (Texts{"a:x=1", "b:y=2,z=3"}));
}

TEST(PoliciesTest, ASpecIsPrintedAsItIsTyped) {
  for (const char* text :
       {"naive", "per-tensor", "torch-ddp:cap=25MiB,first=1MiB", "threshold:cap=104857B",
        "exact:mode=copy,wait=end-of-backward,scope=whole-stream",
        "torch-ddp:cap=1GiB,first=1B,mode=view", "source-first-fit:elements=50331648",
        "source-first-fit:cap=25MiB,k=2,sync=after,scope=event,scale=after-collective,fuse=no",
        "source-improved:cap=1MiB,wait=before-next-batch,batch=3,tail=last-gradient,max-streams=2",
        "gradient-merge:cap=25MiB,k=8,sync=every,average=no,sums=f64",
        "sharded:cap=100MiB,mode=view,p=3,overlap=no,gather=next-forward,replicas=nodes",
        "sharded:cap=1MiB,p=1,reduce=all-reduce"}) {
    EXPECT_EQ(to_string(parse_policy(text)), text);
  }
  EXPECT_EQ(to_string(parse_policy("torch-ddp")), "torch-ddp:cap=25MiB,first=1MiB");
  // What used to be its only name is read still.
  EXPECT_EQ(to_string(parse_policy("threshold:threshold=16MiB")), "threshold:cap=16MiB");
  EXPECT_EQ(to_string(parse_policy("threshold+threshold=16MiB")), "threshold:cap=16MiB");
  EXPECT_EQ(to_string(parse_policy("gradient-merge")), "gradient-merge:cap=25MiB");
  EXPECT_EQ(to_string(parse_policy("sharded")), "sharded:cap=100MiB,p=2");
  EXPECT_EQ(to_string(parse_policy("source-first-fit:cap=1MiB")), "source-first-fit:cap=1MiB");
}

TEST(PoliciesTest, APolicyOfValuesIsThatOfTheirWords) {
  PolicyTerm stages = usual_term("pipeline");
  stages.decisions.stages->stages = 4;
  PolicyTerm fsdp = usual_term("fsdp");
  fsdp.decisions.gathers->forward = 2;
  fsdp.decisions.collectives = OwnCollectives::Async;
  const Policy typed = parse_policy("pipeline:kind=1f1b,stages=4+fsdp:forward=2,collectives=async");
  EXPECT_EQ(join({stages, fsdp}), typed);
  EXPECT_EQ(to_string(join({stages, fsdp})), to_string(typed));
  EXPECT_EQ(parse_policy("fsdp:forward=2,collectives=async", {}, std::array{stages}), typed);
  fsdp.decisions.accumulation = Merge{.micro_steps = 2};
  EXPECT_EQ(testing::error_of([&] {
              join({stages, fsdp});
            }),
            "policy \"pipeline+fsdp\": pipeline and fsdp both decide accumulation");
  stages.decisions.stages->stages = 1;
  EXPECT_EQ(testing::error_of([&] { join({stages}); }),
            "policy \"pipeline\": stages= must be at least 2: one stage is no pipeline");
}

TEST(PoliciesTest, ABadSpecIsRefusedWithWhatWasExpected) {
  EXPECT_THAT(refusal("torch-dpd"), HasSubstr("did you mean \"torch-ddp\""));
  EXPECT_THAT(refusal("torch-ddp:cap=25"), HasSubstr("expected a size with its unit"));
  EXPECT_THAT(refusal("torch-ddp:cap=0B"),
              ::testing::AllOf(HasSubstr("at least 1B"), HasSubstr("DDP's bucket_cap_mb=0")));
  EXPECT_THAT(refusal("torch-ddp:cap=-1MiB"), HasSubstr("expected a size"));
  EXPECT_THAT(refusal("torch-ddp:limit=1MiB"),
              HasSubstr("known: cap, first, torch, k, sync, average, sums, mode, wait, scope"));
  EXPECT_THAT(refusal("torch-ddp:cap=1MiB,cap=2MiB"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal("threshold:cap=1MiB,threshold=2MiB"), HasSubstr("\"cap\" stands twice"));
  EXPECT_THAT(refusal("threshold:cap=1MiB+threshold=2MiB"), HasSubstr("\"cap\" stands twice"));
  EXPECT_THAT(refusal("per-tensor:threshold=1MiB"), HasSubstr("it is an option of threshold"));
  EXPECT_THAT(refusal("exact:mode=both"), HasSubstr("view or copy"));
  EXPECT_THAT(refusal("exact:"), HasSubstr("expected options"));
  EXPECT_THAT(refusal("fsdp:reshard=2"),
              HasSubstr("option reshard: expected yes or no: that N ranks keep a block"));
  EXPECT_THAT(refusal("fsdp:reshard=some"), HasSubstr("yes or no, found \"some\""));
}

TEST(PoliciesTest, OptionsThatContradictEachOtherAreRefusedInWords) {
  EXPECT_THAT(refusal("source-first-fit:cap=1MiB,elements=4"), HasSubstr("give one of them"));
  EXPECT_THAT(refusal("source-first-fit:elements=1.5"), HasSubstr("expected a whole number"));
  EXPECT_THAT(refusal("threshold:wait=before-next-batch"), HasSubstr("needs batch="));
  EXPECT_THAT(refusal("threshold:tail=last-gradient"), HasSubstr("needs batch="));
  EXPECT_THAT(refusal("gradient-merge:k=0"), HasSubstr("expected a whole number from 1"));
  EXPECT_THAT(refusal("gradient-merge:sync=first"), HasSubstr("expected every, after or last"));
  // Inline reductions, one per tensor, cannot be sharded.
  EXPECT_THAT(refusal("naive:gather=next-forward"), HasSubstr("it is an option of sharded"));
  EXPECT_THAT(refusal("naive:batch=2"),
              HasSubstr("known: k, sync, average, sums, mode, wait, scope, scale"));
}

TEST(PoliciesTest, MicroStepsAreRefusedWhereTheyMeanNothing) {
  EXPECT_THAT(refusal("threshold:sync=every"), HasSubstr("there is only one micro-step"));
  EXPECT_THAT(refusal("threshold:batch=2,k=2,sync=after,wait=before-next-batch"),
              HasSubstr("nothing is launched before the end of backward"));
}

TEST(PoliciesTest, PipelinesAreRefusedWithTheRule) {
  EXPECT_THAT(refusal("pipeline:stages=1"), HasSubstr("at least 2"));
  EXPECT_THAT(refusal("pipeline:kind=interleaved"), HasSubstr("needs chunks= of at least 2"));
  EXPECT_THAT(refusal("pipeline:chunks=2"), HasSubstr("chunks= needs kind=interleaved"));
  EXPECT_THAT(refusal("pipeline:kind=zbv"), HasSubstr("kind=zbv needs chunks=2"));
  EXPECT_THAT(refusal("pipeline:align=across-stages"), HasSubstr("needs kind=interleaved"));
  EXPECT_THAT(refusal("pipeline:sync=every"), HasSubstr("in the last micro-batch only"));
  EXPECT_THAT(refusal("pipeline:kind=gpipe"), HasSubstr("expected sequential, 1f1b, interleaved,"));
  EXPECT_THAT(refusal("threshold:stages=2"), HasSubstr("it is an option of pipeline"));
}

TEST(PoliciesTest, APresetTakesTheOptionsOfWhatItStandsFor) {
  const std::vector<Preset> presets = {{"mine", "sharded:cap=1MiB,wait=before-next-batch"}};
  EXPECT_EQ(parse_policy("mine", presets), parse_policy("sharded:cap=1MiB,wait=before-next-batch"));
  EXPECT_EQ(placement(parse_policy("mine:p=3", presets)).batch, 3);
  EXPECT_EQ(to_string(parse_policy("pipeline+mine", presets)),
            "pipeline:kind=1f1b,stages=2+sharded:cap=1MiB,wait=before-next-batch,p=2");
  EXPECT_THROW(parse_policy("mine"), InputError);
  for (const PolicyHelp& help : policy_help(presets)) {
    EXPECT_EQ(parse_policy(help.name, presets), parse_policy(help.defaults)) << help.name;
  }
}

TEST(PoliciesTest, PL24TheReportSaysWhichMemoryAPolicyAdds) {
  // Gradients of 40 and 400 bytes. Views add none; copies 440 bytes; sharded ones the gathered
  // parameters besides; f64 sums of f32 gradients twice the 440 bytes, which copies then have too.
  const Program program = with_sizes({40, 400});
  const auto memory = [&](const std::string& policy) {
    for (const std::string& line : apply_policy(program, parse_policy(policy)).report) {
      if (line.starts_with("memory")) return line.substr(line.find(':') + 2);
    }
    return std::string();
  };
  EXPECT_EQ(memory("source-improved"), "copies 0 B, sums 0 B");
  EXPECT_EQ(memory("source-improved:mode=copy"), "copies 440 B, sums 0 B");
  EXPECT_EQ(memory("sharded"), "copies 880 B, sums 0 B");
  EXPECT_EQ(memory("torch-ddp:k=2,sums=f64"), "copies 880 B, sums 880 B");
  EXPECT_EQ(memory("torch-ddp:k=2,sync=every"), "copies 440 B, sums 440 B");
  EXPECT_EQ(memory("sharded:k=2,sync=every"), "copies 880 B, sums 220 B");
}

TEST(PoliciesTest, PL24ABucketThatStaysInAnothersBufferAddsNoMemory) {
  // 40 bytes, copied once for the reductions over two groups; padded to 64 once.
  const Program program = with_sizes({40});
  Schedule schedule = make_schedule(program, parse_policy("per-tensor:mode=copy"));
  schedule.buckets.front().pad_to = Bytes(64);
  schedule.buckets.push_back(schedule.buckets.front());
  schedule.buckets.back().id = BucketId{1};
  schedule.buckets.back().group = GroupId{1};
  EXPECT_THAT(bucket_report(program, schedule),
              ElementsAre(HasSubstr("fused into 2: 80 B, padding 24 B"), HasSubstr("copies 40 B"),
                          HasSubstr("buckets closed")));
}

TEST(PoliciesTest, PL24ParametersAreGatheredInTheirOwnWidth) {
  // f16 gradients of 20 bytes whose f32 sums, 40 bytes, are scattered; 40 bytes of parameters.
  Program program = with_sizes({40});
  for (Tensor& tensor : program.tensors) {
    if (tensor.kind == TensorKind::Gradient) tensor.dtype = DType::F16;
  }
  const PolicyResult result = apply_policy(program, parse_policy("sharded:k=2"));
  EXPECT_EQ(result.failure, std::nullopt);
  EXPECT_THAT(result.report, ::testing::Contains(HasSubstr("copies 80 B, sums 40 B")));
}

TEST(PoliciesTest, P5TheNaiveProgramScalesEachGradientAfterItsReduction) {
  Program program = with_sizes({40, 4});
  const Schedule schedule = make_schedule(program, parse_policy("naive"));
  EXPECT_EQ(schedule.scale, ScaleAt::AfterCollective);
  EXPECT_EQ(schedule.buckets.front().stream, StreamChoice(InlineStream{}));
  EXPECT_EQ(make_schedule(program, parse_policy("naive:scale=collective")).scale,
            ScaleAt::Collective);
  for (Reduction& reduction : program.reductions) reduction.op = ReduceOp::Sum;
  EXPECT_EQ(make_schedule(program, parse_policy("naive")).scale, ScaleAt::Collective);
}

TEST(PoliciesTest, APartitionThatMixesDtypesIsRefused) {
  Program program = with_sizes({40, 40});
  program.tensors.back().dtype = DType::F16;
  const std::vector<std::size_t> together{2};
  EXPECT_THROW(partition(program, together, parse_policy("exact")), InputError);
}

TEST(PoliciesTest, EveryPolicyIsLegalOnRandomPrograms) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Program program = dovetail::testing::random_chain(random, 20, 2);
    for (const std::string& name : policy_names()) {
      Policy policy = parse_policy(name);
      // Sharded updates, micro-steps and pipelines need other programs: combinations_test.cc.
      if (needs_costs(policy) || policy.decisions.sharding || policy.decisions.accumulation)
        continue;
      if (bucket_size(policy)) {
        policy = with_bucket_size(std::move(policy), Bytes(random.between(1, 20'000)));
      }
      BucketPlacement place = placement(policy);
      place.mode = random.between(0, 1) == 0 ? BucketMode::View : BucketMode::Copy;
      const Schedule schedule = make_schedule(program, placed(std::move(policy), place));
      const auto problems = verify(program, lower(program, schedule).program, schedule.merge);
      EXPECT_TRUE(problems.empty()) << name << ": " << problems.front().message;
    }
  }
}

}  // namespace
}  // namespace dovetail::schedule
