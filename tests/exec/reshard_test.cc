// Resharding on real ranks over TCP, ranks as threads: the data arrives, bit by bit (RI1).
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/reshard/execute.h"

#include "base/error.h"
#include "exec/launch/local_ranks.h"
#include "tests/support/reshard_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>

namespace dovetail::exec::reshard {
namespace {

using dovetail::testing::counted;
using dovetail::testing::Elements;
using dovetail::testing::gather;
using dovetail::testing::Parts;
using dovetail::testing::scatter;
using launch::Session;
using schedule::DType;
using schedule::reshard::Layout;
using schedule::reshard::make_mesh;
using schedule::reshard::Mesh;
using schedule::reshard::plan_reshard;
using schedule::reshard::ReshardPlan;
using schedule::reshard::Shape;
using ::testing::HasSubstr;

constexpr std::array<const char*, 5> kWords{"R", "S(0)", "S(1)", "P(sum)", "P(average)"};

Layout on(const Mesh& mesh, std::string_view text) {
  return schedule::reshard::parse_layout(text, mesh, 2);
}

std::vector<float> part_of(const Parts& parts, Rank rank) {
  const auto found = parts.find(rank);
  if (found == parts.end()) return {};
  return {found->second.begin(), found->second.end()};
}

// Several conversions by one job of `ranks` threads, each gathered and compared with the whole.
struct Conversion {
  Layout from;
  Layout to;
};
void expect_arrive(std::int32_t ranks, const Shape& shape,
                   const std::vector<Conversion>& conversions) {
  const Elements whole = counted(shape);
  std::vector<Parts> arrived(conversions.size());
  std::mutex mutex;
  launch::run_local_ranks({.ranks = ranks}, [&](Session& session) {
    for (std::size_t i = 0; i < conversions.size(); ++i) {
      const Conversion& conversion = conversions[i];
      const ReshardPlan plan = plan_reshard({.shape = shape}, conversion.from, conversion.to);
      const Wires wires(session, plan);
      const Parts before = scatter(whole, shape, conversion.from);
      const std::vector<float> after = execute(plan, wires, part_of(before, session.rank()));
      session.barrier("the end of a conversion");
      const std::lock_guard lock(mutex);
      arrived[i][session.rank()] = {after.begin(), after.end()};
    }
  });
  for (std::size_t i = 0; i < conversions.size(); ++i) {
    const Conversion& conversion = conversions[i];
    EXPECT_EQ(gather(arrived[i], shape, conversion.to), whole)
        << conversion.from << " to " << conversion.to;
    for (const auto& [rank, part] : arrived[i]) {
      const bool is_target = conversion.to.mesh.index_of(rank).has_value();
      EXPECT_EQ(part.empty(), !is_target) << "rank " << rank;
    }
  }
}

class ReshardOnRanks : public ::testing::TestWithParam<std::int32_t> {};
INSTANTIATE_TEST_SUITE_P(Reshard, ReshardOnRanks, ::testing::Values(1, 2, 3, 4));

TEST_P(ReshardOnRanks, RI1EveryLayoutBecomesEveryOtherBitByBit) {
  const std::int32_t n = GetParam();
  const Mesh mesh = make_mesh({n});
  std::vector<Conversion> conversions;
  for (const std::string from : kWords) {
    for (const std::string to : kWords) conversions.push_back({on(mesh, from), on(mesh, to)});
  }
  expect_arrive(n, {6 * n, 5 * n}, conversions);
}

// Apart, overlapping in part, contained; 2 ranks to 2, 3 to 3, 4 to 2.
TEST(ReshardRunTest, R5RI1DataArrivesOnOtherMeshes) {
  std::vector<Conversion> conversions;
  for (const std::string from : {"R", "S(0)", "P(sum)"}) {
    for (const std::string to : {"R", "S(1)"}) {
      conversions.push_back({on(make_mesh({2}), from), on(make_mesh({2}, Rank{2}), to)});
      conversions.push_back({on(make_mesh({3}), from), on(make_mesh({3}, Rank{1}), to)});
      conversions.push_back({on(make_mesh({4}), from), on(make_mesh({2}, Rank{1}), to)});
    }
  }
  expect_arrive(4, {12, 12}, conversions);
}

// Two groups of two ranks each gather side by side, then the other axis cuts.
TEST(ReshardRunTest, RI1DataArrivesOnGrids) {
  const Mesh mesh = make_mesh({2, 2});
  expect_arrive(4, {8, 8},
                {{on(mesh, "S(0),P(sum)"), on(mesh, "S(1),R")},
                 {on(mesh, "S(0),S(1)"), on(mesh, "S(1),S(0)")},
                 {on(mesh, "S(0),S(0)"), on(mesh, "R,R")}});
}

// What was sent is what came: an element that is changed on the way out shows at the end.
TEST(ReshardRunTest, RI1AWrongElementIsFound) {
  const Mesh mesh = make_mesh({2});
  const Shape shape{4, 4};
  const Elements whole = counted(shape);
  Parts arrived;
  std::mutex mutex;
  launch::run_local_ranks({.ranks = 2}, [&](Session& session) {
    const ReshardPlan plan = plan_reshard({.shape = shape}, on(mesh, "S(0)"), on(mesh, "S(1)"));
    const Wires wires(session, plan);
    std::vector<float> before = part_of(scatter(whole, shape, on(mesh, "S(0)")), session.rank());
    if (session.rank() == Rank{1}) before[3] += 1;
    const std::vector<float> after = execute(plan, wires, before);
    session.barrier("the end of the test");
    const std::lock_guard lock(mutex);
    arrived[session.rank()] = {after.begin(), after.end()};
  });
  Elements expected = whole;
  expected[8 + 3] += 1;  // rank 1 holds rows 2 and 3
  EXPECT_EQ(gather(arrived, shape, on(mesh, "S(1)")), expected);
}

TEST(ReshardRunTest, ARankThatLeavesIsNamedWithTheStep) {
  const auto leave = [] {
    launch::run_local_ranks({.ranks = 2}, [](Session& session) {
      const Mesh mesh = make_mesh({2});
      const ReshardPlan plan = plan_reshard({.shape = {2, 2}}, on(mesh, "S(0)"), on(mesh, "R"));
      const Wires wires(session, plan);
      const std::vector<float> before(2, 1.0F);
      if (session.rank() == Rank{0}) execute(plan, wires, before);
    });
  };
  try {
    leave();
    FAIL() << "nobody noticed";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("during all-gather of step 1"));
  }
}

TEST(ReshardRunTest, PlansThatTheJobCannotRunAreRefused) {
  const auto run = [](DType dtype, std::size_t size) -> std::string {
    try {
      launch::run_local_ranks({.ranks = 1}, [&](Session& session) {
        const Mesh mesh = make_mesh({1});
        const ReshardPlan plan =
            plan_reshard({.shape = {2, 2}, .dtype = dtype}, on(mesh, "S(0)"), on(mesh, "R"));
        const Wires wires(session, plan);
        execute(plan, wires, std::vector<float>(size));
      });
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(run(DType::F32, 4), "");
  EXPECT_EQ(run(DType::F32, 3), "reshard: rank 0 gives 3 elements, the plan says 4");
  EXPECT_EQ(run(DType::F16, 4), "reshard: only f32 can be executed, found f16");
  const auto too_few = [] {
    launch::run_local_ranks({.ranks = 1}, [&](Session& session) {
      const Mesh mesh = make_mesh({2});
      const Wires wires(session, plan_reshard({.shape = {2, 2}}, on(mesh, "R"), on(mesh, "S(0)")));
    });
  };
  EXPECT_THROW(too_few(), InputError);
}

}  // namespace
}  // namespace dovetail::exec::reshard
