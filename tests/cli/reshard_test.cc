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

}  // namespace
}  // namespace dovetail::cli
