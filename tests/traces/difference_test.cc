// Tests of traces/difference.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/difference.h"
#include "base/json.h"

#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace dovetail::traces {
namespace {

using sample::Builder;
using sample::us;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Moved line(const std::string& what, std::int64_t first, std::int64_t second) {
  return {
      .what = what, .first_count = 1, .second_count = 1, .first = us(first), .second = us(second)};
}

// Of one rank: a forward op, and collectives of these sizes in a row on stream 1, one behind the other.
struct Sent {
  std::int64_t mib = 0;
  std::int64_t time = 0;
  std::vector<std::string> tensors;
};
Trace sending(const std::vector<Sent>& all, std::int64_t forward = 10) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "forward").ran({.command = 0, .from = 0, .to = forward});
  std::int64_t at = forward;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i + 1);
    builder.bucket(id, SpanKind::Collective, id - 1, mib(all[i].mib));
    std::vector<CarriedTensor> tensors;
    for (const std::string& name : all[i].tensors) tensors.push_back({name, mib(1)});
    builder.carries(std::move(tensors));
    builder.ran({.command = id, .stream = 1, .from = at, .to = at + all[i].time, .transfer = at});
    at += all[i].time;
  }
  return builder.build();
}

TEST(DifferenceTest, NamesOfLayersAndOfKernelVariantsAreOneClass) {
  EXPECT_EQ(op_class("model.layers.12.q_proj.forward"), "model.layers.*.q_proj.forward");
  EXPECT_EQ(op_class("layer3"), "layer*");
  EXPECT_EQ(op_class("void gemm_128x64<float, 4>(float*)"), "void gemm_*x*");
  EXPECT_EQ(op_class("forward"), "forward");
}

// The median steps of the sample: rank 0 of the prediction (70), rank 1 of the measurement (76). Compute 55 and 66;
// communication 45 on both; exposed 15 and 10; both busy until the end but for stalls beside collectives.
TEST(DifferenceTest, TheFiguresOfTheStepAreOfTheSlowestRanks) {
  const Difference found = difference({sample::measured()}, {sample::predicted()});
  EXPECT_THAT(
      found.whole,
      ElementsAre(line("step time", 76, 70), line("compute", 66, 55), line("communication", 45, 45),
                  line("exposed communication", 10, 15), line("neither", 0, 0)));
}

// Backward 40 and 30, updates 16 and 15, stalls 10 and 15: -10 - 1 + 5 = -6 = 70 - 76.
TEST(DifferenceTest, TheActivitiesSumToTheStep) {
  const Difference found = difference({sample::measured()}, {sample::predicted()});
  EXPECT_THAT(found.activities, ElementsAre(line("forward", 10, 10), line("backward", 40, 30),
                                            line("optimizer", 16, 15), line("stall", 10, 15)));
}

// Three backward ops of one class; collectives that carry the same tensors, without the wait for the late rank.
TEST(DifferenceTest, WhatMovedMostStandsFirst) {
  const Difference found = difference({sample::measured()}, {sample::predicted()});
  ASSERT_EQ(found.moved.size(), 6U);
  EXPECT_EQ(found.moved[0],
            (Moved{"backward layer*.backward", SpanKind::Compute, 3, 3, us(40), us(30)}));
  EXPECT_EQ(found.moved[1],
            (Moved{"optimizer layer*.update", SpanKind::Compute, 3, 3, us(16), us(15)}));
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(found.moved[i].change(), us(0)) << i;
}

// The bucket of a and b is cut in two; that of c is the same under another number.
TEST(DifferenceTest, BucketsAreTheSameWhereTheyCarryTheSameTensors) {
  const Difference found = difference({sending({{2, 20, {"a", "b"}}, {1, 12, {"c"}}})},
                                      {sending({{1, 11, {"a"}}, {1, 13, {"b"}}, {1, 15, {"c"}}})});
  EXPECT_THAT(
      found.moved,
      ElementsAre(Moved{"all-reduce of 2 tensors from a on, 2 MiB", SpanKind::Collective, 1, 0,
                        us(20), us(0)},
                  Moved{"all-reduce of b, 1 MiB", SpanKind::Collective, 0, 1, us(0), us(13)},
                  Moved{"all-reduce of a, 1 MiB", SpanKind::Collective, 0, 1, us(0), us(11)},
                  Moved{"all-reduce of c, 1 MiB", SpanKind::Collective, 1, 1, us(12), us(15)},
                  Moved{"forward forward", SpanKind::Compute, 1, 1, us(10), us(10)}));
}

TEST(DifferenceTest, WithoutTensorsTheNthOfASizeIsTheSame) {
  const Difference found =
      difference({sending({{2, 20, {}}, {2, 22, {}}})}, {sending({{2, 21, {}}, {2, 28, {}}})});
  ASSERT_EQ(found.moved.size(), 3U);
  EXPECT_EQ(found.moved[0],
            (Moved{"all-reduce, 2 MiB (2)", SpanKind::Collective, 1, 1, us(22), us(28)}));
  EXPECT_EQ(found.moved[1],
            (Moved{"all-reduce, 2 MiB", SpanKind::Collective, 1, 1, us(20), us(21)}));
}

// On stream 1 an op of 5 runs beside the collective 10..30: it hides 5 of it only where any stream may compute.
TEST(DifferenceTest, AProfilersTraceHasNoComputeStream) {
  Builder builder;
  builder.compute(0, SpanPhase::Communication, "kernel").ran({.command = 0, .from = 0, .to = 10});
  builder.compute(1, SpanPhase::Communication, "other")
      .ran({.command = 1, .stream = 1, .from = 12, .to = 17});
  builder.bucket(2, SpanKind::Collective, 0, mib(1)).ran({.command = 2, .from = 10, .to = 30});
  const Trace trace = builder.build();
  const Difference any =
      difference({trace, ComputeWork::AnyStream}, {trace, ComputeWork::AnyStream});
  EXPECT_EQ(any.whole.at(3), line("exposed communication", 15, 15));
  EXPECT_THAT(any.activities, IsEmpty());
  EXPECT_EQ(difference({trace}, {trace}).whole.at(3), line("exposed communication", 20, 20));
}

TEST(DifferenceTest, PrintsBothSidesAndTheChanges) {
  std::ostringstream out;
  print(out, difference({sample::measured()}, {sample::predicted()}));
  EXPECT_THAT(out.str(),
              HasSubstr("first   measured by cpu/ring on two-laptops, workload three-layers"));
  EXPECT_THAT(out.str(), HasSubstr("NOTE    origin: measured first, simulated second\n"));
  EXPECT_THAT(out.str(), HasSubstr("what moved, largest first: 2 of 2 that changed, of 6 kinds"));
  EXPECT_THAT(out.str(),
              HasSubstr("  backward layer*.backward   3, 3  0.040000   0.030000  -0.010000\n"));
}

TEST(DifferenceTest, ATraceBesideItselfDoesNotMove) {
  std::ostringstream out;
  const Trace trace = sample::predicted();
  print(out, difference({trace}, {trace}));
  EXPECT_THAT(out.str(), HasSubstr("no op and no collective of 6 kinds changed"));
}

TEST(DifferenceTest, TheJsonHasEveryKind) {
  const auto json =
      nlohmann::json::parse(to_json(difference({sample::measured()}, {sample::predicted()})));
  EXPECT_EQ(json.at("schema"), "dovetail.difference/1");
  EXPECT_EQ(json.at("rows").size(), 6U);
  EXPECT_EQ(json.at("rows").at(0).at("change_us"), -10);
  EXPECT_EQ(json.at("whole").at(0).at("second_us"), 70);
}

}  // namespace
}  // namespace dovetail::traces
