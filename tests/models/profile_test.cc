// Measured profiles: what is refused, and tables that a noisy measurement gives.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/workloads/profile.h"

#include "base/json_reader.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using ::testing::HasSubstr;

// Two ranks; rank 1 computes a thousand times as long.
std::string file(const std::string& more) {
  return R"({"name": "small", "world_size": 2,
    "profile": {"forward_us": 10, "backward_us": 20, "optimizer_us": 0,
      "rank1": {"forward_us": 10000, "backward_us": 20000, "optimizer_us": 0},
      "gradients": [{"name": "g", "numel": 1, "dtype": "float32", "ready_us": 20,
                     "ready_us_rank1": 20}]}, )" +
         more + "}";
}

Profile read(const std::string& more) { return read_profile(JsonFile("p.json", file(more))); }

std::string refusal(const std::string& more) {
  return error_of([&] { read(more); });
}

TEST(ProfileTest, AQueueDoesNotFallWhereALoneCollectiveDoes) {
  // Expectation: one of the eight takes 4 us at 1000 bytes and 8 at 2000. Alone 100 us at 1000 bytes, 60 at 4000
  // (noise), hence 86.667 at 2000 on the line between; 160 at 8000. From 2000 bytes on the queue follows what lone
  // ones take beyond that: nothing at 4000, 160 - 86.667 = 73.333 at 8000.
  const Profile profile = read(R"("all_reduce_alone":
      [{"bytes": 1000, "us": 100}, {"bytes": 4000, "us": 60}, {"bytes": 8000, "us": 160}],
    "all_reduce_queue_of_8": [{"bytes_each": 1000, "us_for_8": 32}, {"bytes_each": 2000, "us_for_8": 64}])");
  ASSERT_TRUE(profile.collectives.has_value());
  std::vector<std::int64_t> queued_ns;
  for (const CollectivePoint& point : profile.collectives->points) {
    queued_ns.push_back(point.back_to_back->count());
  }
  EXPECT_THAT(queued_ns, ::testing::ElementsAre(4'000, 8'000, 8'000, 81'333));
}

TEST(ProfileTest, OneOfEightInAQueueTakesANanosecondAtLeast) {
  const auto queue = [](const std::string& us) {
    return R"("all_reduce_alone": [{"bytes": 1, "us": 1}, {"bytes": 2, "us": 2}],
      "all_reduce_queue_of_8": [{"bytes_each": 1, "us_for_8": )" +
           us + R"(}, {"bytes_each": 2, "us_for_8": 1}])";
  };
  EXPECT_EQ(read(queue("0.008")).collectives->points.front().back_to_back, Duration(1));
  EXPECT_THAT(refusal(queue("0.007")),
              HasSubstr("/all_reduce_queue_of_8/0/us_for_8: expected a number from 0.008"));
}

// The smallest all-reduce takes 5 us. On a host that moves the bytes all of them are its processor time.
TEST(ProfileTest, AFactorOfAlmostOneTakesNoProcessorTime) {
  const auto processor_time = [](const std::string& factor) {
    const Profile profile = read(
        R"("all_reduce_alone": [{"bytes": 1000, "us": 5}, {"bytes": 2000, "us": 9}],
           "compute_slowdown_while_communicating": {"forward": 1, "backward": )" +
        factor + "}");
    return profile_costs(profile, profile_program(profile)).contention(Rank{0}).collective_cpu;
  };
  EXPECT_EQ(processor_time("1"), Duration{});
  EXPECT_EQ(processor_time("1.0001"), Duration{});
  EXPECT_EQ(processor_time("1.055"), Duration(2500));
  EXPECT_EQ(processor_time("1.1"), Duration(5000));
  EXPECT_EQ(processor_time("2"), Duration(5000));
}

TEST(ProfileTest, TimesThatAreScaledStayTimes) {
  const auto baseline = [](const std::string& forward, const std::string& p90) {
    return R"("no_communication_step": {"step_us": 100, "forward_us": )" + forward +
           R"(, "backward_us": 20, "optimizer_us": 5, "p10_us": 90, "p90_us": )" + p90 + "}";
  };
  EXPECT_EQ(read(baseline("1e9", "5090")).baseline->p90, std::chrono::microseconds(5'090));
  // Expectation: rank 1 takes a thousand times as long, hence 1.001e12 us.
  EXPECT_THAT(
      refusal(baseline("1.001e9", "100")),
      HasSubstr("/no_communication_step/forward_us: expected at most 1e12 us on every rank"));
  EXPECT_THAT(refusal(baseline("10", "5091")),
              HasSubstr("expected p10_us and p90_us within 50 times step_us of each other"));
}

// The host takes 60 us to issue forward, 30 for the gradient's backward, 5 for the rest, 15 for the updates, and 10 for a
// bucket.
TEST(ProfileTest, AHostThatWasSeenIssuesThePartsOfTheStep) {
  const std::string parts = R"("host": {"forward": {"compute_us": 20, "issue_us": 60},
      "rest": {"compute_us": 0, "issue_us": 5}, "optimizer": {"compute_us": 8, "issue_us": 15}})";
  const auto text = [&](const std::string& gradient, const std::string& more) {
    return R"({"name": "small", "world_size": 2, "bucket_call_us": 10,
      "profile": {"forward_us": 20, "backward_us": 20, "optimizer_us": 8,
        "gradients": [{"name": "g", "numel": 1, "dtype": "float32", "ready_us": 20)" +
           gradient + R"(}]},
      "all_reduce_alone": [{"bytes": 1, "us": 1}, {"bytes": 2, "us": 2}])" +
           more + "}";
  };
  const auto read_text = [](const std::string& all) {
    return read_profile(JsonFile("p.json", all));
  };
  const std::string work = R"(, "compute_us": 12, "issue_us": 30)";
  const Profile profile = read_text(text(work, ", " + parts));
  const schedule::Program program = profile_program(profile);
  const Costs costs = profile_costs(profile, program);
  EXPECT_EQ(costs.host.kind, HostModel::Kind::Async);
  EXPECT_EQ(costs.host.collective, std::chrono::microseconds(10));
  std::vector<std::int64_t> issued_us, compute_us;
  for (const schedule::Op& op : program.ops) {
    issued_us.push_back(costs.issue(op) / std::chrono::microseconds(1));
    compute_us.push_back(costs.op(op, Rank{0}) / std::chrono::microseconds(1));
  }
  // Forward, the gradient, the rest, the begin of the updates and the update.
  EXPECT_THAT(issued_us, ::testing::ElementsAre(60, 30, 5, 15, 0));
  EXPECT_THAT(compute_us, ::testing::ElementsAre(20, 12, 0, 0, 8));
  // A copy in an earlier micro-step is issued as the op itself.
  schedule::Op copy = program.ops[1];
  copy.id = OpId{1000};
  copy.name += "@0";
  EXPECT_EQ(costs.issue(copy), std::chrono::microseconds(30));
  // Without it a bucket's launch takes compute time.
  const Profile unseen = read_text(text("", ""));
  EXPECT_EQ(profile_costs(unseen, profile_program(unseen)).host.kind, HostModel::Kind::Inline);
  EXPECT_THAT(error_of([&] { read_text(text("", ", " + parts)); }), HasSubstr("compute_us"));
}

// A step of two gradients, recorded with a bucket for each, the later gradient first.
std::string recorded_text(const std::string& buckets, const std::string& more = "") {
  return R"({"name": "small", "world_size": 2, "bucket_call_us": 10,
    "profile": {"forward_us": 20, "backward_us": 20, "optimizer_us": 8,
      "gradients": [{"name": "a", "numel": 1, "dtype": "float32", "ready_us": 10},
                    {"name": "b", "numel": 1, "dtype": "float32", "ready_us": 20}]},
    "recorded": {"step_us": 400, "mode": "copy", "framework": "torch", "buckets": )" +
         buckets + more + R"(},
    "all_reduce_alone": [{"bytes": 1, "us": 1}], "all_reduce_estimated": [
      {"bytes": 8, "us": 4, "low_us": 2, "high_us": 9}]})";
}

TEST(ProfileTest, TheRecordedStepKeepsItsBucketsInTheirOrder) {
  const Profile profile = read_profile(JsonFile(
      "p.json", recorded_text(R"([["b"], ["a"]])", R"(, "replayed_us": 410, "micro_steps": 4,
                              "bucket_call_low_us": 0, "bucket_call_high_us": 30)")));
  ASSERT_TRUE(profile.recorded.has_value());
  const RecordedStep& recorded = *profile.recorded;
  EXPECT_EQ(recorded.step, std::chrono::microseconds(400));
  EXPECT_EQ(recorded.off(), std::chrono::microseconds(10));
  EXPECT_TRUE(recorded.is_copied);
  EXPECT_EQ(recorded.framework, "torch");
  EXPECT_EQ(recorded.micro_steps, 4);
  EXPECT_THAT(recorded.buckets,
              ::testing::ElementsAre(std::vector<std::size_t>{1}, std::vector<std::size_t>{0}));
  // Half a per cent where nobody knows the miss.
  const Profile unknown = read_profile(JsonFile("p.json", recorded_text(R"([["a", "b"]])")));
  EXPECT_EQ(unknown.recorded->off(), std::chrono::microseconds(2));
}

TEST(ProfileTest, WhatARecordingDoesNotTellIsAsCheapOrAsDearAsItMayBe) {
  const Profile profile = read_profile(JsonFile(
      "p.json",
      recorded_text(R"([["a", "b"]])", R"(, "bucket_call_low_us": 3, "bucket_call_high_us": 30)")));
  const schedule::Program program = profile_program(profile);
  const CostBounds bounds = profile_bounds(profile, program);
  const auto all_reduce = [&](const Costs& costs) {
    return costs.collective(schedule::Collective::AllReduce, program.groups.front(), Bytes(8))
        .isolated;
  };
  using std::chrono::microseconds;
  EXPECT_EQ(bounds.cheap.host.collective, microseconds(3));
  EXPECT_EQ(bounds.dear.host.collective, microseconds(30));
  EXPECT_EQ(all_reduce(bounds.cheap), microseconds(2));
  EXPECT_EQ(all_reduce(bounds.dear), microseconds(9));
}

TEST(ProfileTest, EachGradientIsInOneRecordedBucket) {
  const auto said = [](const std::string& buckets) {
    return error_of([&] { read_profile(JsonFile("p.json", recorded_text(buckets))); });
  };
  EXPECT_THAT(said(R"([["a"], ["b", "c"]])"),
              HasSubstr("/recorded/buckets/1/1: expected a gradient of the profile, once"));
  EXPECT_THAT(said(R"([["a", "b"], ["a"]])"), HasSubstr("/recorded/buckets/1/0"));
  EXPECT_THAT(
      said(R"([["a"]])"),
      HasSubstr("/recorded/buckets: expected each of the 2 gradients in a bucket, found 1"));
  EXPECT_THAT(said(R"([["a", "b"], []])"), HasSubstr("expected at least one gradient"));
}

// On one GPU: nobody measured a collective, and none takes time.
TEST(ProfileTest, AWorldOfOneNeedsNoCollectives) {
  const std::string text = R"({"name": "one", "world_size": 1,
    "profile": {"forward_us": 20, "backward_us": 20, "optimizer_us": 8,
      "gradients": [{"name": "g", "numel": 1, "dtype": "float32", "ready_us": 20}]}})";
  const Profile profile = read_profile(JsonFile("p.json", text));
  ASSERT_TRUE(has_own_costs(profile));
  const schedule::Program program = profile_program(profile);
  const Costs costs = profile_costs(profile, program);
  EXPECT_EQ(
      costs.collective(schedule::Collective::AllReduce, program.groups.front(), mib(64)).isolated,
      Duration{});
}

}  // namespace
}  // namespace dovetail::models
