// What transitions cost, and which way between two layouts is cheapest.
//
// The machine of these tests: 1 us per message, 1 ns per byte on the wire, 0.1 ns per byte copied;
// mostly 64x64 f32 on 4 ranks, B = 16384 bytes, so one ring pass is 3 (1000 + 4096) = 15288 ns.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/path.h"

#include "base/error.h"
#include "schedule/reshard/exchange.h"
#include "tests/schedule/reshard/layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::reshard {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;

const ReshardCosts kCosts{.latency = std::chrono::microseconds(1),
                          .wire = BytesPerSecond(1e9),
                          .copy = BytesPerSecond(10e9)};

Value square(DType dtype = DType::F32) { return {.shape = {64, 64}, .dtype = dtype}; }

// Of the one transition along axis 0 that leads from one layout to the other.
std::int64_t cost_ns(const Value& value, const std::string& from, const std::string& to) {
  const Mesh mesh = make_mesh({4});
  const Layout target = on(mesh, to);
  for (const Move& move : moves_from(value, on(mesh, from), target.partial)) {
    if (move.to == target) return cost_of(value, on(mesh, from), move, kCosts).count();
  }
  return -1;
}

std::vector<MoveKind> kinds(const Path& path) {
  std::vector<MoveKind> kinds;
  for (const Move& move : path.moves) kinds.push_back(move.kind);
  return kinds;
}

TEST(ReshardPathTest, TransitionsCostWhatTheFormulasSay) {
  EXPECT_EQ(cost_ns(square(), "R", "S(0)"), 410);      // 0.1 * 4096 = 409.6
  EXPECT_EQ(cost_ns(square(), "S(0)", "R"), 15288);    // one pass
  EXPECT_EQ(cost_ns(square(), "S(1)", "R"), 21842);    // + 4 * 0.1 * 16384 = 6553.6
  EXPECT_EQ(cost_ns(square(), "S(0)", "S(1)"), 6891);  // 3 (1000 + 1024) + 2 * 0.1 * 4096
  EXPECT_EQ(cost_ns(square(), "P(sum)", "R"), 30576);  // two passes
  EXPECT_EQ(cost_ns(square(), "P(sum)", "S(0)"), 15288);
  EXPECT_EQ(cost_ns(square(), "P(sum)", "S(1)"), 19384);  // + 0.2 * 16384 + 0.2 * 4096
  EXPECT_EQ(cost_ns(square(), "R", "P(sum)"), 1638);
  EXPECT_EQ(cost_ns(square(), "R", "P(average)"), 0);
}

// 3 (1000 + B/4): B is 8192, 8192, 16384, 32768.
TEST(ReshardPathTest, RL6EveryDTypeHasACost) {
  EXPECT_EQ(cost_ns(square(DType::F16), "S(0)", "R"), 9144);
  EXPECT_EQ(cost_ns(square(DType::BF16), "S(0)", "R"), 9144);
  EXPECT_EQ(cost_ns(square(DType::F32), "S(0)", "R"), 15288);
  EXPECT_EQ(cost_ns(square(DType::F64), "S(0)", "R"), 27576);
}

// In a 1x64 tensor dimension 1 is contiguous: nothing is repacked.
TEST(ReshardPathTest, R8ContiguousDimensionsAreGatheredWithoutCopies) {
  const Value row{.shape = {1, 4096}, .dtype = DType::F32};
  EXPECT_EQ(cost_ns(row, "S(1)", "R"), 15288);
}

TEST(ReshardPathTest, UnevenCutsAreNoMoves) {
  const Value odd{.shape = {64, 63}, .dtype = DType::F32};
  EXPECT_EQ(cost_ns(odd, "R", "S(1)"), -1);
  EXPECT_EQ(cost_ns(odd, "S(0)", "S(1)"), -1);
}

TEST(ReshardPathTest, RL5CutsChangeByAllToAllNotByGatheringEverything) {
  const Mesh mesh = make_mesh({4});
  const Path ours = cheapest_path(square(), on(mesh, "S(0)"), on(mesh, "S(1)"), kCosts);
  EXPECT_THAT(kinds(ours), ElementsAre(MoveKind::AllToAll));
  EXPECT_EQ(ours.cost, nanoseconds(6891));
  const Path fixed = fixed_order_path(square(), on(mesh, "S(0)"), on(mesh, "S(1)"), kCosts);
  EXPECT_THAT(kinds(fixed), ElementsAre(MoveKind::AllGather, MoveKind::Slice));
  EXPECT_EQ(fixed.cost, nanoseconds(15288 + 410));
}

TEST(ReshardPathTest, RI7NothingIsDoneBetweenEqualLayouts) {
  for (const std::string text : {"R", "S(0)", "S(1)", "P(sum)", "P(average)"}) {
    const Layout layout = on(make_mesh({4}), text);
    EXPECT_EQ(cheapest_path(square(), layout, layout).moves.size(), 0U) << text;
  }
}

TEST(ReshardPathTest, PartialSumsAreScatteredWhereTheTargetIsCut) {
  const Mesh mesh = make_mesh({4});
  const Path cut = cheapest_path(square(), on(mesh, "P(sum)"), on(mesh, "S(0)"), kCosts);
  EXPECT_THAT(kinds(cut), ElementsAre(MoveKind::ReduceScatter));
  const Path whole = cheapest_path(square(), on(mesh, "P(sum)"), on(mesh, "R"), kCosts);
  EXPECT_THAT(kinds(whole), ElementsAre(MoveKind::AllReduce));
}

// A reduction over 4 slow ranks of a tensor that axis 0 already cuts moves half the bytes: the
// fixed order would gather first.
TEST(ReshardPathTest, PartialSumsAreReducedBeforeTheOtherAxisIsGathered) {
  const Mesh mesh = make_mesh({2, 4});
  const Path path = cheapest_path(square(), on(mesh, "S(0),P(sum)"), on(mesh, "R,R"), kCosts);
  ASSERT_EQ(path.moves.size(), 2U);
  EXPECT_EQ(path.moves[0].kind, MoveKind::AllReduce);
  EXPECT_EQ(path.moves[1].kind, MoveKind::AllGather);
  const Path fixed = fixed_order_path(square(), path.from, on(mesh, "R,R"), kCosts);
  EXPECT_THAT(kinds(fixed), ElementsAre(MoveKind::AllGather, MoveKind::AllReduce));
  EXPECT_LT(path.cost, fixed.cost);
}

// No path is dearer than the fixed order, whatever the two layouts.
TEST(ReshardPathTest, RL5TheSearchIsNeverDearerThanTheFixedOrder) {
  const Mesh mesh = make_mesh({2, 4});
  const std::vector<std::string> words{"R", "S(0)", "S(1)", "P(sum)"};
  int compared = 0;
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      for (const std::string& c : words) {
        for (const std::string& d : words) {
          const Layout from = on(mesh, a + "," + b);
          const Layout to = on(mesh, c + "," + d);
          Path fixed;
          try {
            fixed = fixed_order_path(square(), from, to, kCosts);
          } catch (const InputError&) {
            continue;  // an axis under another cut: beyond the fixed order
          }
          const Path best = cheapest_path(square(), from, to, kCosts);
          EXPECT_LE(best.cost, fixed.cost) << describe(best) << "\n" << describe(fixed);
          EXPECT_EQ(best.to(), to);
          EXPECT_EQ(fixed.to(), to);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 200);
}

// One holder, four readers that want everything. Straight: 4 messages of 16384 bytes leave one
// rank. Cut: 4 messages of 4096 bytes, then one ring pass among the readers.
TEST(ReshardPathTest, TensorsAreCutBeforeTheyTravelToManyReaders) {
  const Layout from = on(make_mesh({1}), "R");
  const Layout to = on(make_mesh({4}, Rank{1}), "R");
  const Path path = cheapest_path(square(), from, to, kCosts);
  EXPECT_THAT(kinds(path), ElementsAre(MoveKind::Exchange, MoveKind::AllGather));
  // 4 (1000 + 4096) + 2 * 0.1 * 4096, then 15288.
  EXPECT_EQ(path.cost, nanoseconds(20384 + 819 + 15288));
}

TEST(ReshardPathTest, CompleteLayoutsAreListedOnce) {
  // One axis: R, S(0), S(1). Two axes: 3 x 3 choices, and two orders where both cut one dimension.
  EXPECT_EQ(complete_layouts({8, 8}, make_mesh({2})).size(), 3U);
  EXPECT_EQ(complete_layouts({8, 8}, make_mesh({2, 2})).size(), 11U);
  EXPECT_EQ(complete_layouts({8, 7}, make_mesh({2})).size(), 2U);
}

// The search leaves out exchanges by this bound; it must never exceed the whole cost.
TEST(ReshardPathTest, AnExchangeIsBoundedByItsBusiestReceiver) {
  const Value value{.shape = {12, 12}};
  const std::vector<Mesh> meshes = {make_mesh({2, 3}), make_mesh({4}, Rank{2})};
  int exact = 0;
  int pairs = 0;
  for (const Mesh& source : meshes) {
    for (const Mesh& target : meshes) {
      for (const Layout& from : complete_layouts(value.shape, source)) {
        for (const Layout& to : complete_layouts(value.shape, target)) {
          const Move move{.kind = MoveKind::Exchange, .axis = 0, .to = to};
          const ExchangeBound bound = exchange_bound(value, from, to, kCosts);
          const auto messages = exchange(value.shape, from, to);
          EXPECT_EQ(bound.messages, static_cast<std::int64_t>(messages.size())) << from << to;
          EXPECT_LE(bound.cost, cost_of(value, from, move, kCosts)) << from << to;
          exact += bound.cost == cost_of(value, from, move, kCosts) ? 1 : 0;
          ++pairs;
        }
      }
    }
  }
  EXPECT_GT(exact, pairs / 2);
}

TEST(ReshardPathTest, PathsReadAsSentences) {
  const Mesh mesh = make_mesh({4});
  EXPECT_EQ(describe(cheapest_path(square(), on(mesh, "S(0)"), on(mesh, "S(1)"), kCosts)),
            "S(0) -> S(1) by all-to-all along axis 0 (6.89 us)");
  EXPECT_EQ(describe(cheapest_path(square(), on(mesh, "R"), on(mesh, "R"))), "R: nothing to do");
}

}  // namespace
}  // namespace dovetail::schedule::reshard
