// What a sequence of collectives repeats, and what only looks so at its end.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using ::testing::StartsWith;

constexpr std::int64_t kMiB = 1 << 20;

// "G" gathers 8 MiB, "g" 4, "S" scatters 8 MiB, "s" 4, "R" reduces 8 MiB, "r" 4 bytes, "B" broadcasts 8 MiB, "b" 4 bytes.
std::vector<SequenceEntry> entries_of(const std::string& letters) {
  std::vector<SequenceEntry> entries;
  for (const char letter : letters) {
    switch (letter) {
      case 'G':
      case 'g':
        entries.push_back({"all-gather", (letter == 'G' ? 8 : 4) * kMiB});
        break;
      case 'S':
      case 's':
        entries.push_back({"reduce-scatter", (letter == 'S' ? 8 : 4) * kMiB});
        break;
      case 'B':
      case 'b':
        entries.push_back({"broadcast", letter == 'B' ? 8 * kMiB : 4});
        break;
      default:
        entries.push_back({"all-reduce", letter == 'R' ? 8 * kMiB : 4});
    }
  }
  return entries;
}
std::size_t period(const std::string& letters) { return period_of(entries_of(letters)); }

TEST(SequenceTest, StepsThatFollowEachOtherRepeat) {
  const std::string step = "GGGGgGGGGSSSSsrr";
  EXPECT_EQ(period(step + step + step), 16U);
  EXPECT_EQ(period(step + step + step.substr(0, 9)), 16U);   // cut off
  EXPECT_EQ(period("BBBBbb" + step + step), 16U);            // parameters first
  EXPECT_EQ(period(step + step + "rR" + step + step), 16U);  // an evaluation between
  EXPECT_EQ(period("RRR"), 1U);
}

// The end of the only step: norm and loss; layers in turn; buckets of one size.
TEST(SequenceTest, TheEndOfAnOnlyStepIsNoStep) {
  EXPECT_EQ(period("GGGGgGGGGSSSSsrr"), 0U);
  EXPECT_EQ(period("GGGGgGGGGSSSSsrrrr"), 0U);
  EXPECT_EQ(period("GGGGGGGSGSGSGSGS"), 0U);
  EXPECT_EQ(period("GGGGSSSSSSSS"), 0U);
  EXPECT_EQ(period("SSSSGGGGGG"), 0U);
  EXPECT_EQ(period("GGGGgGGGGSSSSsrrGGGG"), 0U);  // and what is left of the next one
  EXPECT_THAT(in_words(entries_of("GGGGgGGGGSSSSsrr")), StartsWith("16 collectives: all-gather"));
}

}  // namespace
}  // namespace dovetail::imports
