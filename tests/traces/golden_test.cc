// Golden texts of all that traces/ prints, for the two small traces of sample.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"
#include "tests/traces/sample.h"
#include "traces/compare.h"
#include "traces/metrics.h"
#include "traces/perfetto.h"
#include "traces/timeline.h"
#include "traces/trace_json.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>

namespace dovetail::traces {
namespace {

TEST(TracesGoldenTest, Timeline) {
  EXPECT_TRUE(matches_golden("traces/timeline_predicted.txt", timeline(sample::predicted())));
  EXPECT_TRUE(matches_golden("traces/timeline_measured.txt",
                             timeline(sample::measured(), {.steps = Steps::All, .columns = 60})));
}

TEST(TracesGoldenTest, StepReport) {
  std::ostringstream out;
  print(out, median_step(sample::measured()));
  EXPECT_TRUE(matches_golden("traces/step_report.txt", out.str()));
}

TEST(TracesGoldenTest, Comparison) {
  const Comparison comparison = compare(sample::predicted(), sample::measured());
  std::ostringstream out;
  print(out, comparison);
  EXPECT_TRUE(matches_golden("traces/comparison.txt", out.str()));
  EXPECT_TRUE(matches_golden("traces/comparison.json", to_json(comparison)));
}

TEST(TracesGoldenTest, TraceFile) {
  EXPECT_TRUE(matches_golden("traces/trace.json", to_json(sample::measured())));
}

TEST(TracesGoldenTest, PerfettoFile) {
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  const std::array traces = {&predicted, &measured};
  EXPECT_TRUE(matches_golden("traces/perfetto.json", perfetto_json(traces)));
}

}  // namespace
}  // namespace dovetail::traces
