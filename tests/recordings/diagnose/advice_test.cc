// What diagnose says of other buckets, held against steps that have them.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "models/workloads/profile.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/workload.h"
#include "tests/recordings/kineto/ddp_step.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::Contains;
using testing::DdpStep;
using ::testing::HasSubstr;

// The step with these buckets of gradients in ready order, on a network of this latency and 2.5 ms for each 8 MiB.
DdpStep step_with(const std::vector<std::size_t>& ends, double latency_us) {
  DdpStep step;
  step.buckets.clear();
  step.comm_us.clear();
  std::size_t next = 0;
  for (const std::size_t end : ends) {
    step.buckets.emplace_back();
    std::int64_t bytes = 0;
    for (; next < end; ++next) {
      const std::size_t layer = step.elements.size() - 1 - next;
      step.buckets.back().push_back(layer);
      bytes += step.elements[layer] * 4;
    }
    step.comm_us.push_back(latency_us + 2500.0 * static_cast<double>(bytes) / (8 << 20));
  }
  return step;
}

// Every setting's interval holds what the step takes with its buckets, whatever the latency: recorded are one size (8 MiB),
// three (4, 8, 12 MiB), the largest one only, and the smallest one only.
TEST(BucketAdviceTest, IntervalsHoldWhatTheStepTakesWithOtherBuckets) {
  for (const double latency : {0.0, 500.0, 1500.0}) {
    for (const std::vector<std::size_t>& recorded :
         {std::vector<std::size_t>{2, 4, 6}, {1, 3, 6}, {6}, {1, 2, 3, 4, 5, 6}}) {
      const DdpStep now = step_with(recorded, latency);
      const Diagnosis diagnosis = diagnose(testing::job_of(testing::trace_of(now)));
      ASSERT_TRUE(diagnosis.buckets.has_value()) << latency;
      for (const BucketSetting& setting : diagnosis.buckets->settings) {
        // Gradients that are views of buckets are another step than the recorded one, which copies
        // them.
        if (setting.schedule.buckets.front().mode == schedule::BucketMode::View) continue;
        const double gain =
            testing::period_us(now) - testing::period_us(step_with(setting.ends, latency));
        EXPECT_LE(to_us(setting.gain.low), gain + 1)
            << latency << ", " << recorded.size() << " buckets: " << setting.setting;
        EXPECT_GE(to_us(setting.gain.high), gain - 1)
            << latency << ", " << recorded.size() << " buckets: " << setting.setting;
      }
    }
  }
}

// 8, 12 and 4 MiB tell latency and bandwidth: what 25 MiB cost is known within a fifth, though twice the largest.
TEST(BucketAdviceTest, ThreeSizesSayMoreThanOne) {
  const auto width = [](const std::vector<std::size_t>& recorded) {
    const Diagnosis diagnosis =
        diagnose(testing::job_of(testing::trace_of(step_with(recorded, 500))));
    for (const BucketSetting& setting : diagnosis.buckets->settings) {
      if (setting.ends.size() == 1) return to_us(setting.gain.high - setting.gain.low);
    }
    return 0.0;
  };
  EXPECT_GT(width({1, 3, 6}), 500);
  EXPECT_LT(width({1, 3, 6}), 3000);
  EXPECT_GT(width({2, 4, 6}), 2 * width({1, 3, 6}));
}

// The imported file has what was recorded apart from what is estimated, and is read again as it was.
TEST(BucketAdviceTest, AnImportedFileMarksSizesThatNobodyMeasured) {
  const JobTrace job = testing::job_of(testing::trace_of(DdpStep()));
  const auto made = import_workload(job, 0, replay_rank(job.ranks[0]), "step");
  const TracedWorkload& workload = std::get<ImportedWorkload>(made).workload;
  const models::Profile read = models::read_profile(JsonFile("step.json", workload_json(workload)));
  ASSERT_EQ(read.collectives->points.size(), 1U);
  EXPECT_EQ(read.collectives->points[0].bytes, mib(8));
  EXPECT_EQ(read.collectives->estimated, workload.profile.collectives->estimated);
  EXPECT_EQ(read.collectives->estimated.front().bytes, kib(8));
  EXPECT_LT(read.collectives->estimated.front().low, std::chrono::microseconds(10));
  EXPECT_THAT(read.notes, Contains(HasSubstr("one size of all-reduce in the trace, 8 MiB")));
}

}  // namespace
}  // namespace dovetail::diagnose
