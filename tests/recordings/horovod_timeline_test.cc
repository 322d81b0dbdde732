// Horovod's timeline to a workload. No timeline of a real job that may be copied was found; the events
// follow its sources.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/horovod_timeline.h"

#include "base/json_reader.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string name_event(int pid, const std::string& name) {
  return R"({"name": "process_name", "ph": "M", "pid": )" + std::to_string(pid) +
         R"(, "args": {"name": ")" + name + "\"}},\n";
}
std::string begin(int pid, const std::string& name, int ts) {
  return R"({"ph": "B", "name": ")" + name + R"(", "ts": )" + std::to_string(ts) + R"(, "pid": )" +
         std::to_string(pid) + "},\n";
}
std::string end(int pid, int ts, const std::string& args = "") {
  return R"({"ph": "E", "ts": )" + std::to_string(ts) + R"(, "pid": )" + std::to_string(pid) +
         args + "},\n";
}
std::string ready(int pid, const std::string& rank, int ts) {
  return R"({"ph": "X", "name": ")" + rank + R"(", "ts": )" + std::to_string(ts) + R"(, "pid": )" +
         std::to_string(pid) + R"(, "dur": 0},)" + "\n";
}

// Three gradients, ready 0, 300 and 1000 us into backward; the first two are fused (3 KiB, 500 us), the
// third is alone (4 KiB, 200 us) and ends at 1220. A step takes 5000 us.
std::string timeline(int steps) {
  std::string text = "[\n" + name_event(1, "c") + name_event(2, "b") + name_event(3, "a");
  for (int step = 0; step < steps; ++step) {
    const int at = 10000 + 5000 * step;
    const std::string shape = R"(, "args": {"dtype": "float32", "shape": "[2, 128]"})";
    const std::string double_shape = R"(, "args": {"dtype": "float32", "shape": "[512]"})";
    text += begin(1, "NEGOTIATE_ALLREDUCE", at) + ready(1, "0", at) + ready(1, "1", at + 1);
    text += begin(2, "NEGOTIATE_ALLREDUCE", at + 300) + ready(2, "1", at + 301);
    text += end(1, at + 310) + end(2, at + 310) + begin(1, "ALLREDUCE", at + 311) +
            begin(2, "ALLREDUCE", at + 311) + begin(1, "NCCL_ALLREDUCE", at + 320) +
            begin(2, "NCCL_ALLREDUCE", at + 321) + end(1, at + 819) + end(2, at + 820) +
            end(1, at + 830, shape) + end(2, at + 830, double_shape);
    text += begin(3, "NEGOTIATE_ALLREDUCE", at + 1000) + end(3, at + 1010) +
            begin(3, "ALLREDUCE", at + 1011) + begin(3, "NCCL_ALLREDUCE", at + 1020) +
            end(3, at + 1220) +
            end(3, at + 1230, R"(, "args": {"dtype": "float32", "shape": "[1024]"})");
  }
  return text;
}

ImportedStep read(const std::string& text, std::optional<std::int64_t> ranks = std::nullopt) {
  return read_horovod_timeline({"run/timeline.json", text}, ranks);
}

TEST(HorovodTimelineTest, MakesAProfileOfReadyTimesAndFusedReductions) {
  const ImportedStep step = read(timeline(4));
  const models::Profile& profile = step.profile;
  EXPECT_EQ(profile.name, "timeline");
  EXPECT_EQ(profile.world_size, 2);
  ASSERT_EQ(profile.gradients.size(), 3u);
  EXPECT_EQ(profile.gradients[0].name, "c");
  EXPECT_EQ(profile.gradients[0].numel, 256);
  EXPECT_EQ(profile.gradients[1].ready.front(), from_us(300));
  EXPECT_EQ(profile.gradients[2].ready.front(), from_us(1000));
  EXPECT_EQ(profile.by_rank[0].backward, from_us(1000));
  // 5000 us a step, 1000 of backward, 220 from the last gradient to the end of its reduction.
  EXPECT_EQ(profile.by_rank[0].forward, from_us(5000 - 1000 - 220));
  ASSERT_TRUE(profile.collectives.has_value());
  const auto& points = profile.collectives->points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].bytes, Bytes(3 * 1024));
  EXPECT_EQ(points[0].isolated, from_us(500));
  EXPECT_EQ(points[1].isolated, from_us(200));
}

TEST(HorovodTimelineTest, WritesAProfileThatCanBeRead) {
  const ImportedStep step = read(timeline(3));
  const JsonFile file("step.json", profile_to_json(step));
  const models::Profile again = models::read_profile(file);
  EXPECT_EQ(again.gradients.size(), 3u);
  EXPECT_THAT(again.notes, ElementsAre(step.what));  // which predictions repeat
  EXPECT_EQ(again.by_rank[0].forward, step.profile.by_rank[0].forward);
  EXPECT_EQ(again.collectives->points, step.profile.collectives->points);
  EXPECT_TRUE(schedule::problems(models::profile_program(again)).empty());
}

TEST(HorovodTimelineTest, ReadsWhatAKilledJobHasWritten) {
  const std::string text = timeline(4);
  const ImportedStep step = read(text.substr(0, text.size() - 40));
  EXPECT_EQ(step.profile.gradients.size(), 3u);
  EXPECT_THAT(step.left_out, Contains(HasSubstr("the last event is cut off")));
}

TEST(HorovodTimelineTest, SaysWhatItLacks) {
  EXPECT_THAT(error_of([] { read(timeline(1)); }), HasSubstr("fewer than two steps"));
  EXPECT_THAT(error_of([] { read(""); }), HasSubstr("no tensor in it"));
  EXPECT_THAT(
      error_of([] { read("[{\"ph\": \"B\", \"pid\": 1, \"ts\": \"x\", \"name\": \"a\"}]"); }),
      HasSubstr("line 1: /ts: expected a number"));
  std::string unmarked = timeline(3);
  for (std::size_t at = unmarked.find("\"X\""); at != std::string::npos;
       at = unmarked.find("\"X\"")) {
    unmarked[at + 1] = 'Y';
  }
  EXPECT_THAT(error_of([&] { read(unmarked); }), HasSubstr("say it with --ranks"));
  EXPECT_EQ(read(unmarked, 64).profile.world_size, 64);
}

}  // namespace
}  // namespace dovetail::imports
