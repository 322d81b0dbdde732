// Policies group as their sources do, and read back as they are typed.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/verify.h"
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
  EXPECT_THAT(bucket_bytes(program, "threshold:threshold=40B"), ElementsAre(40, 104, 8));
  EXPECT_THAT(bucket_bytes(program, "threshold:threshold=1KiB"), ElementsAre(152));
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

TEST(PoliciesTest, A27GradientsOfDifferentDtypesHaveBucketsOfTheirOwn) {
  Program program = with_sizes({40, 40, 40, 40});
  for (Tensor& tensor : program.tensors) {
    if (tensor.name == "l2.grad" || tensor.name == "l0.grad") tensor.dtype = DType::BF16;
  }
  // Ready order l3 (f32), l2 (bf16, 20 bytes), l1 (f32), l0 (bf16): one open bucket per dtype.
  EXPECT_THAT(bucket_bytes(program, "one-bucket"), ElementsAre(80, 40));
}

TEST(PoliciesTest, ASpecIsPrintedAsItIsTyped) {
  for (const char* text :
       {"naive", "per-tensor", "torch-ddp:cap=25MiB,first=1MiB", "threshold:threshold=104857B",
        "exact:mode=copy,wait=end-of-backward,scope=whole-stream",
        "torch-ddp:cap=1GiB,first=1B,mode=view", "source-first-fit:elements=50331648",
        "source-first-fit:cap=25MiB,k=2,sync=after,scope=event,scale=after-collective,fuse=no",
        "source-improved:cap=1MiB,wait=before-next-batch,batch=3,tail=last-gradient,max-streams=2",
        "gradient-merge:cap=25MiB,k=8,sync=every,average=no,sums=f64",
        "sharded:cap=100MiB,mode=view,p=3,overlap=no,gather=next-forward,replicas=nodes"}) {
    EXPECT_EQ(to_string(parse_policy(text)), text);
  }
  EXPECT_EQ(to_string(parse_policy("torch-ddp")), "torch-ddp:cap=25MiB,first=1MiB");
  EXPECT_EQ(to_string(parse_policy("gradient-merge")), "gradient-merge:cap=25MiB");
  EXPECT_EQ(to_string(parse_policy("sharded")), "sharded:cap=100MiB,p=2");
  EXPECT_EQ(to_string(parse_policy("paddle-pass:cap=1MiB")), "source-first-fit:cap=1MiB");
}

TEST(PoliciesTest, ABadSpecIsRefusedWithWhatWasExpected) {
  EXPECT_THAT(refusal("torch-dpd"), HasSubstr("did you mean \"torch-ddp\""));
  EXPECT_THAT(refusal("torch-ddp:cap=25"), HasSubstr("expected a size with its unit"));
  EXPECT_THAT(refusal("torch-ddp:cap=0B"), HasSubstr("at least 1B"));
  EXPECT_THAT(refusal("torch-ddp:cap=-1MiB"), HasSubstr("expected a size"));
  EXPECT_THAT(refusal("torch-ddp:limit=1MiB"), HasSubstr("known: cap, first, mode, wait, scope"));
  EXPECT_THAT(refusal("torch-ddp:cap=1MiB,cap=2MiB"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal("exact:mode=both"), HasSubstr("view or copy"));
  EXPECT_THAT(refusal("exact:"), HasSubstr("expected options"));
}

TEST(PoliciesTest, OptionsThatContradictEachOtherAreRefusedInWords) {
  EXPECT_THAT(refusal("source-first-fit:cap=1MiB,elements=4"), HasSubstr("give one of them"));
  EXPECT_THAT(refusal("source-first-fit:elements=1.5"), HasSubstr("expected a whole number"));
  EXPECT_THAT(refusal("threshold:wait=before-next-batch"), HasSubstr("needs batch="));
  EXPECT_THAT(refusal("threshold:tail=last-gradient"), HasSubstr("needs batch="));
  EXPECT_THAT(refusal("sharded:k=4,sync=every"), HasSubstr("holds only its shard"));
  EXPECT_THAT(refusal("gradient-merge:k=0"), HasSubstr("expected a whole number from 1"));
  EXPECT_THAT(refusal("gradient-merge:sync=first"), HasSubstr("expected every, after or last"));
  // Inline reductions, one per tensor, cannot be sharded.
  EXPECT_THAT(refusal("naive:gather=next-forward"), HasSubstr("it is an option of sharded"));
  EXPECT_THAT(refusal("naive:batch=2"), HasSubstr("known: mode, wait, scope, scale"));
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
  EXPECT_THROW(partition(program, together, default_policy(PolicyKind::Exact)), InputError);
}

TEST(PoliciesTest, EveryPolicyIsLegalOnRandomPrograms) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Program program = dovetail::testing::random_chain(random, 20, 2);
    for (const std::string& name : policy_names()) {
      PolicySpec spec = default_policy(parse_policy(name).kind);
      // Sharded needs updates that can be sharded: sharded_policy_test.cc.
      if (spec.kind == PolicyKind::Exact || spec.kind == PolicyKind::Sharded) continue;
      if (spec.kind == PolicyKind::GradientMerge) continue;  // see source_improved_test.cc
      spec.threshold = Bytes(random.between(1, 20'000));
      spec.first_bucket = Bytes(random.between(1, 5'000));
      spec.mode = random.between(0, 1) == 0 ? BucketMode::View : BucketMode::Copy;
      const auto problems = verify(lower(program, make_schedule(program, spec)).program);
      EXPECT_TRUE(problems.empty()) << name << ": " << problems.front().message;
    }
  }
}

}  // namespace
}  // namespace dovetail::schedule
