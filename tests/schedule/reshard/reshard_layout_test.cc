// Layouts: who holds what, what is refused, what need not be converted.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/layout.h"

#include "base/error.h"
#include "tests/schedule/reshard/layouts.h"
#include "tests/support/errors.h"
#include "tests/support/oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::reshard {
namespace {

using dovetail::testing::error_of;
using ::testing::HasSubstr;

// Rank 3 of a 2x2 mesh stands at (1, 1): the second half of the rows and of the columns.
TEST(ReshardLayoutTest, O8RankThreeOfATwoByTwoMeshHoldsTheLastRowsAndColumns) {
  const Layout layout = on(make_mesh({2, 2}), "S(0),S(1)");
  dovetail::testing::expect_oracle("O8 part of rank 3 of a 2x2 mesh, 8x8 cut by rows and columns",
                                   to_string(part_of({8, 8}, layout, 3)),
                                   std::string("[4,8)x[4,8)"));
  EXPECT_EQ(to_string(part_of({8, 8}, layout, 1)), "[0,4)x[4,8)");
}

TEST(ReshardLayoutTest, R1MeshesAreRowMajor) {
  const Mesh mesh = make_mesh({2, 3}, Rank{10});
  EXPECT_EQ(mesh.coordinate(5), (Shape{1, 2}));
  EXPECT_EQ(mesh.index_of(Rank{14}), 4U);
  EXPECT_EQ(mesh.index_of(Rank{16}), std::nullopt);
  EXPECT_EQ(mesh.line(4, 0), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(mesh.line(4, 1), (std::vector<std::size_t>{3, 4, 5}));
}

TEST(ReshardLayoutTest, R1TextNamesWhatEachMeshAxisDoes) {
  const Mesh mesh = make_mesh({2, 2, 2});
  const Layout layout = parse_layout("S(0),R,P(sum)", mesh, 1);
  EXPECT_EQ(layout.cuts, (std::vector<std::vector<std::int32_t>>{{0}}));
  EXPECT_EQ(layout.partial, (std::vector<Partial>{{.axis = 2, .op = ReduceOp::Sum}}));
  for (const std::string text : {"S(0),R,P(sum)", "R,P(average),S(1)", "S(1),S(1),S(1)",
                                 "S(0:1),R,S(0:0)", "S(1:2),S(1:0),S(1:1)"}) {
    EXPECT_EQ(to_string(parse_layout(text, mesh, 2)), text);
  }
}

// Cut by axis 0 first, rank (1, 0) holds the third quarter; by axis 1 first, the second.
TEST(ReshardLayoutTest, R1TheFirstAxisInTheListCutsCoarsest) {
  const Mesh mesh = make_mesh({2, 2});
  EXPECT_EQ(to_string(part_of({8}, parse_layout("S(0),S(0)", mesh, 1), 2)), "[4,6)");
  EXPECT_EQ(to_string(part_of({8}, parse_layout("S(0:1),S(0:0)", mesh, 1), 2)), "[2,4)");
}

TEST(ReshardLayoutTest, R2LocalShapesDivideEvenly) {
  const Layout layout = on(make_mesh({2, 4}), "S(1),S(0)");
  EXPECT_EQ(local_shape({8, 6}, layout), (Shape{2, 3}));
}

// Each element lies in exactly one part.
TEST(ReshardLayoutTest, R2PartsCoverTheTensorOnce) {
  const Layout layout = on(make_mesh({2, 3}), "S(0),S(1)");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    sum += elements(part_of({4, 6}, layout, i));
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_EQ(intersection(part_of({4, 6}, layout, i), part_of({4, 6}, layout, j)), std::nullopt);
    }
  }
  EXPECT_EQ(sum, 24);
}

TEST(ReshardLayoutTest, RL4UnevenCutsAreRefusedWithTheReason) {
  const Layout layout = on(make_mesh({2}), "S(0)");
  EXPECT_EQ(cannot_lay_out({8, 8}, layout), std::nullopt);
  EXPECT_EQ(cannot_lay_out({7, 8}, layout).value_or(""),
            "dimension 0 of tensor 7x8 has 7 elements, which 2 ranks cannot share evenly (S(0)); "
            "pad it first");
  EXPECT_THAT(error_of([&] { require_layout({7, 8}, layout); }), HasSubstr("dimension 0"));
}

TEST(ReshardLayoutTest, RefusesAxesThatDoNotExistOrAreUsedTwice) {
  Layout layout = on(make_mesh({2, 2}), "S(0),R");
  layout.cuts[1] = {2};
  EXPECT_THAT(cannot_lay_out({8, 8}, layout).value_or(""), HasSubstr("axis 2 does not exist"));
  layout.cuts[1] = {0};
  EXPECT_THAT(cannot_lay_out({8, 8}, layout).value_or(""), HasSubstr("axis 0 is used twice"));
  layout.cuts[1] = {};
  layout.mesh.ranks[1] = Rank{0};
  EXPECT_THAT(cannot_lay_out({8, 8}, layout).value_or(""), HasSubstr("a rank stands twice"));
  EXPECT_THAT(cannot_lay_out({8}, on(make_mesh({2}), "R")).value_or(""), HasSubstr("dimensions"));
}

TEST(ReshardLayoutTest, TextThatIsNoLayoutIsRefused) {
  const Mesh mesh = make_mesh({2, 2});
  EXPECT_EQ(error_of([&] { on(mesh, "S(0)"); }),
            "layout \"S(0)\": expected one word per mesh axis, 2 of them, found 1");
  EXPECT_EQ(error_of([&] { on(mesh, "S(0),S(2)"); }),
            "layout \"S(0),S(2)\": found S(2), the number of the tensor's dimensions is 2");
  EXPECT_EQ(error_of([&] { on(mesh, "S(0),Q"); }),
            "layout \"S(0),Q\": expected R, S(dimension), P(sum) or P(average), found \"Q\"");
  EXPECT_THAT(error_of([&] { on(mesh, "S(0:0),S(0:2)"); }), HasSubstr("are not 0, 1, ..."));
  for (const std::string text : {"S(),R", "S(0:),R", "S(-1),R", "P(max),R", "s(0),R", ""}) {
    EXPECT_NE(error_of([&] { on(mesh, text); }), "") << text;
  }
  EXPECT_THAT(error_of([] { parse_shape("8x"); }), HasSubstr("expected extents such as 8x8"));
  EXPECT_THAT(error_of([] { parse_shape("0x8"); }), HasSubstr("expected extents"));
  EXPECT_EQ(parse_shape("8x16"), (Shape{8, 16}));
  EXPECT_THAT(error_of([] { make_mesh({2, 0}); }), HasSubstr("mesh 2x0"));
}

TEST(ReshardLayoutTest, AMeshHasAtMost65536RanksThatCanBeNumbered) {
  EXPECT_EQ(make_mesh({256, 256}).size(), 65536U);
  EXPECT_EQ(error_of([] {
              make_mesh({256, 257});
            }),
            "mesh 256x257: expected extents from 1 on, at most 65536 ranks");
  EXPECT_EQ(make_mesh({4}, Rank{2147483644}).ranks.back(), Rank{2147483647});
  EXPECT_EQ(error_of([] { make_mesh({4}, Rank{2147483645}); }),
            "mesh 4 from rank 2147483645 on: expected ranks up to 2147483647");
}

}  // namespace
}  // namespace dovetail::schedule::reshard
