// dovetail reshard, as it prints and as it refuses.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/reshard.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace dovetail::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ReshardOptions square() {
  ReshardOptions options;
  options.shape = "64x64";
  options.mesh = "4";
  options.from = "S(0)";
  options.to = "S(1)";
  options.latency = "1us";
  options.wire = "1GB";
  options.copy = "10GB";
  return options;
}

std::string printed(const ReshardOptions& options) {
  std::ostringstream out;
  reshard(options, out);
  return out.str();
}

std::string refusal(const ReshardOptions& options) {
  try {
    printed(options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// All-to-all: 3 (1000 + 1024) ns + 2 * 4096 bytes copied at 0.1 ns; 3/4 of 16384 bytes travel. The
// fixed order gathers 3 * 16384 bytes.
TEST(CliReshardTest, PrintsThePathItsCostAndWhatTheFixedOrderCosts) {
  EXPECT_EQ(printed(square()),
            "tensor       64x64 f32, 16384 bytes\n"
            "from         S(0) on 4 on ranks 0..3\n"
            "to           S(1) on 4 on ranks 0..3\n"
            "path         S(0) -> S(1) by all-to-all along axis 0 (6.89 us)\n"
            "cost         6.89 us (modelled, alone on the network)\n"
            "wire         12288 bytes\n"
            "fixed order  S(0) -> R by all-gather along axis 0 (15.3 us) -> S(1) by slice along "
            "axis 0 (410 ns): 15.7 us, 49152 bytes\n");
}

TEST(CliReshardTest, PrintsTheStepsOfEveryRankOfBothMeshes) {
  ReshardOptions options = square();
  options.to_mesh = "2";
  options.to_first_rank = 4;
  options.steps = true;
  const std::string text = printed(options);
  EXPECT_THAT(text, HasSubstr("rank 0\tbegin 0\n"));
  EXPECT_THAT(text, HasSubstr("rank 5\tbegin 64x32\n"));
  EXPECT_THAT(text, HasSubstr("send [0,16)x[32,64) to rank 5"));
  EXPECT_THAT(text, Not(HasSubstr("fixed order")));
}

// 64 elements on two ranks that each hold all of them, to four others that each need a quarter: 64 elements
// travel, 256 bytes. With whole parts every reader gets all 64, which are 1024 bytes.
TEST(CliReshardTest, SaysWhatWholePartsWouldMoveBetweenTwoMeshes) {
  ReshardOptions options = square();
  options.shape = "64";
  options.mesh = "2";
  options.from = "R";
  options.to = "S(0)";
  options.to_mesh = "4";
  options.to_first_rank = 2;
  const std::string text = printed(options);
  EXPECT_THAT(text, HasSubstr("wire         256 bytes\n"));
  EXPECT_THAT(text, HasSubstr("whole parts  1024 bytes on the wire"));
  EXPECT_THAT(printed(square()), Not(HasSubstr("whole parts")));
}

TEST(CliReshardTest, RefusesWhatItCannotRead) {
  ReshardOptions options = square();
  options.shape = "63x64";
  EXPECT_THAT(refusal(options), HasSubstr("63 elements, which 4 ranks cannot share evenly"));
  options = square();
  options.dtype = "int8";
  EXPECT_EQ(refusal(options), "--dtype int8: expected f32, f16, bf16 or f64");
  options = square();
  options.to = "S(0),R";
  EXPECT_THAT(refusal(options), HasSubstr("expected one word per mesh axis, 1 of them, found 2"));
  options = square();
  options.wire = "0GB";
  EXPECT_EQ(refusal(options), "--wire 0GB: expected more than nothing");
  options = square();
  options.to_first_rank = -1;
  EXPECT_EQ(refusal(options), "--to-first-rank: expected a rank from 0 on");
}

TEST(CliReshardTest, FlagsAreNamedBesideWhatTheyExpect) {
  ReshardOptions options = square();
  options.latency = "5";
  EXPECT_EQ(refusal(options), "--latency: expected a time with its unit, e.g. 1.5ms, found \"5\"");
  options = square();
  options.wire = "10";
  EXPECT_EQ(refusal(options), "--wire: expected a rate with its unit, e.g. 10GB/s, found \"10\"");
  options.wire = "1GB/s";
  options.copy = "10GB/s";
  EXPECT_EQ(printed(options), printed(square()));
}

TEST(CliReshardTest, RefusesWhatIsTooLarge) {
  ReshardOptions options = square();
  options.shape = "99999999996x99999999996";
  EXPECT_EQ(refusal(options), "--shape 99999999996x99999999996: larger than 16 TiB");
  options = square();
  options.mesh = "1000000";
  EXPECT_EQ(refusal(options), "mesh 1000000: expected extents from 1 on, at most 65536 ranks");
  options = square();
  options.to_first_rank = 2147483647;
  EXPECT_THAT(refusal(options), HasSubstr("expected ranks up to 2147483647"));
  options = square();
  options.shape = "4096x4096";
  options.mesh = "4096";
  options.to_first_rank = 4096;
  EXPECT_THAT(refusal(options), HasSubstr("too many messages between the two meshes"));
  options = square();
  options.mesh = "2x2x2x2x2x2x2x2";
  options.from = options.to = "R,R,R,R,R,R,R,R";
  EXPECT_THAT(refusal(options), HasSubstr("too many layouts to search"));
  options = square();
  options.shape = "1048576x1048576";
  options.wire = "1B/s";
  EXPECT_THAT(refusal(options), HasSubstr("this could take nine years"));
  options = square();
  options.shape = "2048x2048";
  options.mesh = "2048";
  options.steps = true;
  EXPECT_EQ(refusal(options), "--steps: expected meshes of at most 1024 ranks");
}

// All-to-all, 65535 (1000 + 1024) ns + copies; each rank keeps 1/65536 of its part.
TEST(CliReshardTest, LargeMeshesTakeNoLongerThanTheirRanks) {
  ReshardOptions options = square();
  options.shape = "65536x65536";
  options.mesh = "65536";
  EXPECT_THAT(printed(options), HasSubstr("S(0) -> S(1) by all-to-all along axis 0"));
  EXPECT_THAT(printed(options), HasSubstr("wire         17179607040 bytes"));
}

}  // namespace
}  // namespace dovetail::cli
