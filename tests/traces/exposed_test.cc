// Exposed communication by its three definitions, on traces that were not measured.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/exposed.h"

#include <gtest/gtest.h>

#include "tests/traces/sample.h"

namespace dovetail::traces {
namespace {

using sample::Builder;
using sample::us;

// Columns of 10 us. One step of backward, a collective, its wait and the update:
//   s0 BBBwwO
//   s1 .00000   the link is busy 10..50, the last 20 us without compute
Builder step_of_one_bucket() {
  Builder builder;
  builder.compute(0, SpanPhase::Backward, "backward").bucket(1, SpanKind::Collective, 0, mib(1));
  builder.bucket(2, SpanKind::Wait, 0).compute(3, SpanPhase::Optimizer, "update");
  return builder;
}

// Backward and update alone, as much later as a machine that drifts.
Trace alone(std::int64_t backward_us) {
  return step_of_one_bucket()
      .ran({.command = 0, .from = 0, .to = backward_us})
      .ran({.command = 3, .from = backward_us, .to = backward_us + 10})
      .build();
}

TEST(ExposedTest, EachDefinitionBlamesWhatItSaysOnCommunication) {
  // The step takes 60 us: 30 us of backward, 20 of waiting, 10 for the update. Alone it takes
  // 25 + 10 us: contention cost 5 us, which only the difference shows.
  const Trace with = step_of_one_bucket()
                         .ran({.command = 0, .from = 0, .to = 30})
                         .ran({.command = 1, .stream = 1, .from = 10, .to = 50})
                         .ran({.command = 2, .from = 30, .to = 50})
                         .ran({.command = 3, .from = 50, .to = 60})
                         .build();
  const Exposed exposed = exposed_of(with, alone(25));
  EXPECT_EQ(exposed.alone, us(35));
  EXPECT_EQ(exposed.stalls, us(20));
  EXPECT_EQ(exposed.difference, us(25));
  EXPECT_EQ(exposed.uncovered, us(20));
}

TEST(ExposedTest, ACollectiveOnTheComputeStreamIsAllExposed) {
  // s0 BBB0000O: 40 us on stream 0.
  const Trace with = step_of_one_bucket()
                         .ran({.command = 0, .from = 0, .to = 30})
                         .ran({.command = 1, .from = 30, .to = 70})
                         .ran({.command = 3, .from = 70, .to = 80})
                         .build();
  const Exposed exposed = exposed_of(with, alone(30));
  EXPECT_EQ(exposed.stalls, us(40));
  EXPECT_EQ(exposed.difference, us(40));
  EXPECT_EQ(exposed.uncovered, us(40));
}

TEST(ExposedTest, ACollectiveBehindComputeIsNotExposedAndNoiseMayEvenTurnTheDifference) {
  // s0 BBBO, s1 .0..: done before backward is.
  const Trace with = step_of_one_bucket()
                         .ran({.command = 0, .from = 0, .to = 30})
                         .ran({.command = 1, .stream = 1, .from = 10, .to = 20})
                         .ran({.command = 3, .from = 30, .to = 40})
                         .build();
  const Exposed exposed = exposed_of(with, alone(32));
  EXPECT_EQ(exposed.stalls, us(0));
  EXPECT_EQ(exposed.difference, us(-2));
  EXPECT_EQ(exposed.uncovered, us(0));
}

TEST(ExposedTest, TheMedianStepSpeaks) {
  // Steps of 60, 40 and 80 us: the median one waited 20 us, the others 0 and 40.
  Builder builder = step_of_one_bucket();
  std::int64_t start = 0;
  std::int32_t step = 0;
  for (const std::int64_t wait : {20, 0, 40}) {
    const std::int64_t end = start + 30 + wait;
    builder.ran({.command = 0, .step = step, .from = start, .to = start + 30});
    builder.ran({.command = 1, .stream = 1, .step = step, .from = start + 10, .to = end});
    if (wait > 0) builder.ran({.command = 2, .step = step, .from = start + 30, .to = end});
    builder.ran({.command = 3, .step = step, .from = end, .to = end + 10});
    start = end + 10;
    ++step;
  }
  const Exposed exposed = exposed_of(builder.build(), alone(30));
  EXPECT_EQ(exposed.stalls, us(20));
  EXPECT_EQ(exposed.difference, us(20));
  EXPECT_EQ(exposed.uncovered, us(20));
}

}  // namespace
}  // namespace dovetail::traces
