// Plans: whether the data arrives, who sends it, how much travels, and whether ranks agree.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/plan.h"

#include "base/error.h"
#include "tests/schedule/reshard/layouts.h"
#include "tests/support/cases.h"
#include "tests/support/oracle.h"
#include "tests/support/reshard_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace dovetail::schedule::reshard {
namespace {

using dovetail::testing::counted;
using dovetail::testing::Elements;
using dovetail::testing::execute;
using dovetail::testing::expect_oracle;
using dovetail::testing::gather;
using dovetail::testing::Parts;
using dovetail::testing::ReshardResult;
using dovetail::testing::scatter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every layout with one word per axis, and both orders where two axes cut one dimension.
std::vector<Layout> all_layouts(const Mesh& mesh) {
  const std::vector<std::string> words{"R", "S(0)", "S(1)", "P(sum)", "P(average)"};
  std::vector<std::string> texts{""};
  for (std::size_t axis = 0; axis < mesh.shape.size(); ++axis) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& word : words) longer.push_back(text + (axis > 0 ? "," : "") + word);
    }
    texts = std::move(longer);
  }
  std::vector<Layout> layouts;
  for (const std::string& text : texts) layouts.push_back(on(mesh, text));
  if (mesh.shape.size() == 2) {
    layouts.push_back(on(mesh, "S(0:1),S(0:0)"));
    layouts.push_back(on(mesh, "S(1:1),S(1:0)"));
  }
  return layouts;
}

// Elements that some rank needs and does not hold, over all ranks.
std::int64_t missing_elements(const Shape& shape, const Layout& from, const Layout& to) {
  std::int64_t missing = 0;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    const Box needed = part_of(shape, to, i);
    missing += elements(needed);
    const auto own = from.mesh.index_of(to.mesh.ranks[i]);
    const auto common = own ? intersection(part_of(shape, from, *own), needed) : std::nullopt;
    if (common) missing -= elements(*common);
  }
  return missing;
}

// RI1, RI6, and RI4 for the moves that are exchanges.
void expect_arrives(const Shape& shape, const Layout& from, const Layout& to) {
  const Value value{.shape = shape, .dtype = DType::F32};
  const ReshardPlan plan = plan_reshard(value, from, to);
  const std::string what =
      describe(plan.path) + " on " + to_string(from.mesh) + " to " + to_string(to.mesh);
  EXPECT_THAT(mismatches(plan), IsEmpty()) << what;
  const Elements whole = counted(shape);
  const ReshardResult result = execute(plan, scatter(whole, shape, from));
  EXPECT_EQ(result.problem, "") << what;
  EXPECT_EQ(gather(result.parts, shape, to), whole) << what;
  EXPECT_EQ(wire_of(value, plan.path), plan.total_wire()) << what;
  Layout at = from;
  for (std::size_t i = 0; i < plan.path.moves.size(); ++i) {
    const Move& move = plan.path.moves[i];
    if (move.kind == MoveKind::Exchange) {
      EXPECT_EQ(plan.wire[i], Bytes(4 * missing_elements(shape, at, move.to))) << what;
    }
    at = move.to;
  }
}

// The same of pairs that are enumerated; under a sanitizer of some.
class Enumerated {
 public:
  void expect_arrives(const Shape& shape, const Layout& from, const Layout& to) {
    if (dovetail::testing::takes(number_++)) reshard::expect_arrives(shape, from, to);
  }

 private:
  std::size_t number_ = 0;
};

TEST(ReshardPlanTest, RI1DataArrivesBetweenAllLayoutsOfLinesOfOneToEightRanks) {
  Enumerated pairs;
  for (std::int64_t n = 1; n <= 8; ++n) {
    const Mesh mesh = make_mesh({n}, Rank{3});
    for (const Layout& from : all_layouts(mesh)) {
      for (const Layout& to : all_layouts(mesh)) pairs.expect_arrives({n, 2 * n}, from, to);
    }
  }
}

class ReshardGridTest : public ::testing::TestWithParam<std::tuple<Shape, std::size_t>> {};

// Grid and remainder: each test takes every third layout to come from.
INSTANTIATE_TEST_SUITE_P(Grids, ReshardGridTest,
                         ::testing::Combine(::testing::Values(Shape{2, 2}, Shape{2, 3},
                                                              Shape{4, 2}),
                                            ::testing::Values(0U, 1U, 2U)));

TEST_P(ReshardGridTest, RI1DataArrivesBetweenAllLayoutsOfGrids) {
  Enumerated pairs;
  const auto& [grid, remainder] = GetParam();
  const Mesh mesh = make_mesh(grid);
  const auto size = static_cast<std::int64_t>(mesh.size());
  const std::vector<Layout> layouts = all_layouts(mesh);
  ASSERT_GE(layouts.size(), 3U);
  for (std::size_t i = remainder; i < layouts.size(); i += 3) {
    for (const Layout& to : layouts) pairs.expect_arrives({size, 2 * size}, layouts[i], to);
  }
}

// Ranks need not stand in order: groups are sorted, parts follow the mesh.
TEST(ReshardPlanTest, RI1DataArrivesOnMeshesWhoseRanksAreShuffled) {
  Enumerated pairs;
  Mesh mesh = make_mesh({2, 2});
  mesh.ranks = {Rank{3}, Rank{0}, Rank{2}, Rank{1}};
  for (const Layout& from : all_layouts(mesh)) {
    for (const Layout& to : all_layouts(mesh)) pairs.expect_arrives({4, 8}, from, to);
  }
}

// Apart, overlapping in part (R5), one inside the other.
TEST(ReshardPlanTest, R5RI1DataArrivesBetweenMeshesThatAreApartOverlapOrContainEachOther) {
  Enumerated pairs;
  for (std::int64_t n = 1; n <= 8; ++n) {
    for (std::int64_t m = 1; m <= 8; ++m) {
      for (const std::int32_t first : {0, 1, 8}) {
        const Mesh source = make_mesh({n});
        const Mesh target = make_mesh({m}, Rank{first});
        for (const std::string from : {"R", "S(0)", "P(sum)"}) {
          for (const std::string to : {"R", "S(1)", "P(sum)"}) {
            pairs.expect_arrives({n, m}, on(source, from), on(target, to));
          }
        }
      }
    }
  }
}

TEST(ReshardPlanTest, RI1DataArrivesBetweenMeshesOfDifferentShapesOverTheSameRanks) {
  Enumerated pairs;
  const Mesh line = make_mesh({4});
  const Mesh grid = make_mesh({2, 2});
  for (const Layout& from : all_layouts(line)) {
    for (const Layout& to : all_layouts(grid)) {
      pairs.expect_arrives({4, 8}, from, to);
      pairs.expect_arrives({4, 8}, to, from);
    }
  }
}

TEST(ReshardPlanTest, RI1DataOfThreeDimensionsArrives) {
  const Mesh mesh = make_mesh({2, 2});
  const std::vector<std::string> texts{"S(0),S(1)", "S(1),S(2)", "S(2),S(0)", "S(1),S(1)",
                                       "R,S(2)"};
  for (const std::string& from : texts) {
    for (const std::string& to : texts) {
      expect_arrives({4, 4, 4}, parse_layout(from, mesh, 3), parse_layout(to, mesh, 3));
    }
  }
}

TEST(ReshardPlanTest, RI1TheFixedOrderDeliversTheSameData) {
  const Mesh mesh = make_mesh({2, 2});
  const Value value{.shape = {4, 8}, .dtype = DType::F32};
  const Elements whole = counted(value.shape);
  const Layout from = on(mesh, "S(0),S(1)");
  const Layout to = on(mesh, "S(1),P(sum)");
  const ReshardPlan plan = plan_path(value, fixed_order_path(value, from, to));
  EXPECT_EQ(gather(execute(plan, scatter(whole, value.shape, from)).parts, value.shape, to), whole);
}

TEST(ReshardPlanTest, RI7ThereAndBackIsTheIdentityOnEveryRank) {
  const Value value{.shape = {8, 8}, .dtype = DType::F32};
  const Mesh low = make_mesh({4});
  for (const Mesh& mesh : {low, make_mesh({2}, Rank{4}), make_mesh({2, 2}, Rank{2})}) {
    for (const Layout& to : complete_layouts(value.shape, mesh)) {
      for (const Layout& from : complete_layouts(value.shape, low)) {
        const Parts before = scatter(counted(value.shape), value.shape, from);
        const ReshardResult there = execute(plan_reshard(value, from, to), before);
        const ReshardResult back = execute(plan_reshard(value, to, from), there.parts);
        EXPECT_EQ(back.parts, before) << to_string(from) << " and " << to_string(to);
      }
    }
  }
}

TEST(ReshardPlanTest, RI7NoStepIsTakenBetweenEqualLayouts) {
  const Layout layout = on(make_mesh({4}), "S(0)");
  const ReshardPlan plan = plan_reshard({.shape = {8, 8}}, layout, layout);
  for (const RankPlan& rank : plan.ranks) EXPECT_THAT(rank.steps, IsEmpty());
  EXPECT_EQ(plan.total_wire(), Bytes(0));
}

// 64 elements, each needed by one rank: the baseline sends all 64 to each of 4 ranks.
TEST(ReshardPlanTest, O8RI4RL1OnlyIntersectionsTravelFromReplicatedRanks) {
  const Layout from = on(make_mesh({2}), "R");
  const Layout to = on(make_mesh({4}, Rank{2}), "S(0)");
  expect_oracle("O8 elements sent, R on 2 to S(0) on 4 others, source",
                elements_sent(whole_part_exchange({8, 8}, from, to)), 256);
  expect_oracle("O8 elements sent, R on 2 to S(0) on 4 others, ours",
                elements_sent(exchange({8, 8}, from, to)), 64);
}

// Each target needs a quarter of the tensor from each source; the baseline sends it whole halves.
TEST(ReshardPlanTest, O8RI4RL1OnlyIntersectionsTravelBetweenCuts) {
  const Layout from = on(make_mesh({2}), "S(0)");
  const Layout to = on(make_mesh({2}, Rank{2}), "S(1)");
  expect_oracle("O8 elements sent, S(0) on 2 to S(1) on 2 others, source",
                elements_sent(whole_part_exchange({8, 8}, from, to)), 128);
  expect_oracle("O8 elements sent, S(0) on 2 to S(1) on 2 others, ours",
                elements_sent(exchange({8, 8}, from, to)), 64);
}

std::vector<std::int32_t> senders(const std::vector<Message>& messages) {
  std::vector<std::int32_t> senders;
  for (const Message& message : messages) senders.push_back(message.from.value);
  return senders;
}

// Two holders of the whole, six targets.
TEST(ReshardPlanTest, O8RL2HoldersTakeTurns) {
  const Layout from = on(make_mesh({2}), "R");
  const Layout to = on(make_mesh({6}, Rank{2}), "S(0)");
  expect_oracle("O8 senders, 2 holders and 6 targets, source",
                senders(whole_part_exchange({6, 6}, from, to)),
                std::vector<std::int32_t>{0, 1, 0, 0, 0, 0});
  expect_oracle("O8 senders, 2 holders and 6 targets, ours", senders(exchange({6, 6}, from, to)),
                std::vector<std::int32_t>{0, 1, 0, 1, 0, 1});
}

// Holders 0 and 10, targets 1, 2, 8, 9.
TEST(ReshardPlanTest, RI4NoExchangeSendsMoreThanTheIntersections) {
  const Shape shape{8, 8};
  for (const Mesh& target : {make_mesh({2}, Rank{4}), make_mesh({4}, Rank{2}), make_mesh({2, 2})}) {
    for (const Mesh& source : {make_mesh({1}), make_mesh({4}), make_mesh({2, 4})}) {
      for (const Layout& from : complete_layouts(shape, source)) {
        for (const Layout& to : complete_layouts(shape, target)) {
          std::int64_t needed = 0;
          for (std::size_t i = 0; i < target.size(); ++i) {
            const Box part = part_of(shape, to, i);
            needed += elements(part);
            const auto holder = source.index_of(target.ranks[i]);
            if (!holder) continue;
            const auto held = intersection(part, part_of(shape, from, *holder));
            if (held) needed -= elements(*held);
          }
          EXPECT_EQ(elements_sent(exchange(shape, from, to)), needed) << from << " to " << to;
        }
      }
    }
  }
}

// The two ranks in both meshes keep what they have.
TEST(ReshardPlanTest, R5WhatARankHoldsIsNotSent) {
  const Layout from = on(make_mesh({2}), "R");
  const Layout to = on(make_mesh({4}), "S(0)");
  EXPECT_EQ(elements_sent(exchange({8, 8}, from, to)), 32);
  EXPECT_EQ(elements_sent(exchange({8, 8}, to, to)), 0);
}

// n = 4 ranks, W = 64 elements: a ring gathers 3 * 64, all-to-all moves 3 * 64 / 4.
TEST(ReshardPlanTest, RL5AllToAllMovesAnNthOfTheBytesOfGathering) {
  const Mesh mesh = make_mesh({4});
  const Value value{.shape = {8, 8}, .dtype = DType::F32};
  const Layout from = on(mesh, "S(0)");
  const Layout to = on(mesh, "S(1)");
  EXPECT_EQ(plan_reshard(value, from, to).total_wire(), Bytes(4 * 48));
  EXPECT_EQ(plan_path(value, fixed_order_path(value, from, to)).total_wire(), Bytes(4 * 192));
}

// Axis 0 keeps its cut, so only the two ranks of each row gather: 2 rows x 1 x 32 elements, where
// all four ranks would move 3 x 64.
TEST(ReshardPlanTest, R7OnlyTheRanksWhosePartsAreNeededGather) {
  const Mesh mesh = make_mesh({2, 2});
  const ReshardPlan plan =
      plan_reshard({.shape = {8, 8}}, on(mesh, "S(0),S(1)"), on(mesh, "S(0),R"));
  ASSERT_EQ(plan.groups.size(), 1U);
  EXPECT_EQ(plan.groups[0].size(), 2);
  EXPECT_EQ(plan.total_wire(), Bytes(4 * 64));
}

// Every rank has its rows already: one copy each, no message, no group.
TEST(ReshardPlanTest, R7R9WhatARankHoldsIsSlicedInPlace) {
  const Mesh mesh = make_mesh({4});
  const ReshardPlan plan = plan_reshard({.shape = {8, 8}}, on(mesh, "R"), on(mesh, "S(1)"));
  EXPECT_THAT(plan.groups, IsEmpty());
  EXPECT_EQ(plan.total_wire(), Bytes(0));
  EXPECT_EQ(
      plan.of(Rank{1}).steps,
      (std::vector<Step>{Begin{{8, 2}}, CopyPart{.from = {{0, 8}, {2, 4}}, .to = {{0, 8}, {0, 2}}},
                         Finish{}}));
}

TEST(ReshardPlanTest, R13GroupsAreDeclaredOnceForAllRanks) {
  const Mesh mesh = make_mesh({2, 2});
  const ReshardPlan plan =
      plan_reshard({.shape = {8, 8}}, on(mesh, "P(sum),S(0)"), on(mesh, "R,S(1)"));
  ASSERT_EQ(plan.groups.size(), 2U);
  for (const ProcessGroup& group : plan.groups) {
    EXPECT_EQ(group.ranks.size(), 4U);
    EXPECT_EQ(group.size(), 2);
    const bool is_axis0 = group.name == "from.axis0";
    EXPECT_THAT(group.ranks, is_axis0 ? ElementsAre(Rank{0}, Rank{2}, Rank{1}, Rank{3})
                                      : ElementsAre(Rank{0}, Rank{1}, Rank{2}, Rank{3}));
  }
}

TEST(ReshardPlanTest, RI6MissingReceivesAndForeignCollectivesAreFound) {
  const Layout from = on(make_mesh({2}), "R");
  const Layout to = on(make_mesh({2}, Rank{2}), "S(0)");
  ReshardPlan plan = plan_reshard({.shape = {8, 8}}, from, to);
  std::vector<Step>& steps = plan.ranks[2].steps;
  std::erase_if(steps, [](const Step& step) { return std::holds_alternative<ReceivePart>(step); });
  EXPECT_THAT(mismatches(plan),
              ElementsAre("rank 0 sends 32 elements to rank 2, which receives nothing"));

  const Mesh mesh = make_mesh({4});
  ReshardPlan gathered = plan_reshard({.shape = {8, 8}}, on(mesh, "S(0)"), on(mesh, "R"));
  ReshardPlan fewer = gathered;
  fewer.ranks[3].steps.clear();
  EXPECT_THAT(mismatches(fewer), ElementsAre("only 3 of 4 ranks of group 0 run its collectives"));
  for (Step& step : gathered.ranks[1].steps) {
    if (Collect* collect = std::get_if<Collect>(&step)) collect->kind = Collective::AllReduce;
  }
  EXPECT_THAT(mismatches(gathered),
              ElementsAre("rank 0 and rank 1 disagree on the collectives of group 0"));
}

// A plan that is executed although a receive is missing must not look complete.
TEST(ReshardPlanTest, TheMemoryExecutorNoticesLostMessages) {
  const Layout from = on(make_mesh({1}), "R");
  const Layout to = on(make_mesh({1}, Rank{1}), "R");
  ReshardPlan plan = plan_reshard({.shape = {2, 2}}, from, to);
  std::erase_if(plan.ranks[1].steps,
                [](const Step& step) { return std::holds_alternative<ReceivePart>(step); });
  const ReshardResult result = execute(plan, scatter(counted({2, 2}), {2, 2}, from));
  EXPECT_THAT(result.problem, HasSubstr("not received"));
  EXPECT_NE(gather(result.parts, {2, 2}, to), counted({2, 2}));
}

TEST(ReshardPlanTest, PlansReadAsSteps) {
  const Mesh mesh = make_mesh({2});
  EXPECT_EQ(describe(plan_reshard({.shape = {8, 8}}, on(mesh, "S(0)"), on(mesh, "S(1)"))),
            "rank 0\tbegin 8x4\n"
            "\tall-to-all over from.axis0  out [0,4)x[0,4) [0,4)x[4,8)  in [0,4)x[0,4) "
            "[4,8)x[0,4)\n"
            "\tfinish\n"
            "rank 1\tbegin 8x4\n"
            "\tall-to-all over from.axis0  out [0,4)x[0,4) [0,4)x[4,8)  in [0,4)x[0,4) "
            "[4,8)x[0,4)\n"
            "\tfinish\n");
}

}  // namespace
}  // namespace dovetail::schedule::reshard
