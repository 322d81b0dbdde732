// Chakra traces: three forms of one small graph, and of hostile ones.
//
// The corpus files hold one graph: forward 100 us, backward 50 and 60 us with an all-reduce of 4 KiB and
// 8 KiB behind each, an update of 30 us behind both. Played: forward 0..100, backward 100..150 and 150..210,
// the all-reduces are ready at 150 and 210.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/chakra.h"

#include "base/file.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::HasSubstr;

std::string sample(const std::string& name) {
  return read_file(std::string(DOVETAIL_SOURCE_DIR) + "/tests/fuzz/corpus/chakra/" + name);
}

TEST(ChakraTest, PlaysTheDependenciesOfATraceWithoutStartTimes) {
  for (const char* name : {"feeder.json", "two.et"}) {
    const std::string text = sample(name);
    const models::Profile profile = read_chakra({name, text}, 8).profile;
    EXPECT_EQ(profile.world_size, 8);
    EXPECT_EQ(profile.by_rank[0].forward, from_us(150)) << name;
    EXPECT_EQ(profile.by_rank[0].backward, from_us(60)) << name;
    EXPECT_EQ(profile.by_rank[0].optimizer, from_us(30)) << name;
    ASSERT_EQ(profile.gradients.size(), 2u) << name;
    EXPECT_EQ(profile.gradients[0].name, "all-reduce 2#3");
    EXPECT_EQ(profile.gradients[0].numel, 1024);
    EXPECT_EQ(profile.gradients[1].ready.front(), from_us(60));
    ASSERT_TRUE(profile.collectives.has_value());
    EXPECT_EQ(profile.collectives->points.back().isolated, from_us(90));
  }
}

TEST(ChakraTest, TakesRecordedStartTimesWhereThereAreSome) {
  const std::string text = sample("jsonizer.json");
  const ImportedStep step = read_chakra({"a.json", text}, 2);
  EXPECT_EQ(step.profile.by_rank[0].forward, from_us(100));
  EXPECT_THAT(step.read, ::testing::Contains("recorded start times were taken"));
  EXPECT_FALSE(step.profile.collectives.has_value());  // one size only
}

TEST(ChakraTest, RefusesATraceOfPyTorchThatHasNoTimes) {
  const std::string text = R"({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []})";
  EXPECT_THAT(error_of([&] {
                read_chakra({"et.json", text}, 2);
              }),
              HasSubstr("PyTorch's execution trace, which has no times; join it"));
}

TEST(ChakraTest, NamesWhatIsWrong) {
  const std::string et = sample("two.et");
  const auto refusal = [](const std::string& text) {
    return error_of([&] { read_chakra({"a.et", text}, 2); });
  };
  EXPECT_THAT(refusal(et.substr(0, et.size() - 1)),
              HasSubstr("a field is longer than what holds it"));
  EXPECT_THAT(refusal(std::string(20, '\xff')), HasSubstr("a number has more than ten bytes"));
  EXPECT_THAT(refusal(""), HasSubstr("a number is cut off"));
  EXPECT_THAT(refusal(et.substr(0, 8)), HasSubstr("none of them an all-reduce with a size"));
  std::string circle = sample("feeder.json");
  circle.replace(circle.find("\"data_deps\": []"), 15, "\"data_deps\": [6]");
  EXPECT_THAT(refusal(circle), HasSubstr("go in circles"));
  std::string negative = sample("feeder.json");
  negative.replace(negative.find("\"runtime\": 100"), 14, "\"runtime\": -10");
  EXPECT_THAT(refusal(negative),
              HasSubstr("/workload_graph/0/runtime: expected an integer from 0"));
}

}  // namespace
}  // namespace dovetail::imports
