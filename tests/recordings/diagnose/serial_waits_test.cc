// Collectives that end a step, and waits that nothing demands: what they are called, and what the step would be without them.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/serial_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/words.h"
#include "tests/recordings/kineto/ddp_step.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::Contains;
using testing::DdpStep;
using ::testing::HasSubstr;
using testing::period_us;

struct Diagnosed {
  explicit Diagnosed(const DdpStep& step)
      : job(testing::job_of(testing::trace_of(step))), diagnosis(diagnose(job)) {}
  // Mean over steps.
  [[nodiscard]] double us_by(Cause cause) const {
    Duration sum{};
    for (const StepCauses& step : diagnosis.ranks[0].causes) {
      sum += step.by[static_cast<std::size_t>(cause)];
    }
    return to_us(sum) / static_cast<double>(diagnosis.ranks[0].causes.size());
  }
  [[nodiscard]] std::optional<Gain> gain(Change change) const {
    for (const WhatIf& what_if : diagnosis.ranks[0].forecast.what_ifs) {
      if (what_if.change == change) return what_if.gain;
    }
    return std::nullopt;
  }
  JobTrace job;
  Diagnosis diagnosis;
};

// An all-gather of 4 ms behind the update, for which the host stands in a synchronise: the network's 4 ms in every step, the
// last one of the trace included, as the change of the network says.
TEST(CausesTest, ACollectiveThatEndsAStepIsTheNetworks) {
  DdpStep step;
  step.gather_us = 4000;
  const Diagnosed diagnosed(step);
  for (const StepCauses& causes : diagnosed.diagnosis.ranks[0].causes) {
    EXPECT_LT(causes.by[static_cast<std::size_t>(Cause::Host)], std::chrono::microseconds(100));
    EXPECT_GT(causes.by[static_cast<std::size_t>(Cause::Link)], std::chrono::milliseconds(5));
  }
  EXPECT_NEAR(to_us(diagnosed.gain(Change::NoNetwork)->middle), 7000, 200);
}

// The same gather while the host computes for 22 ms behind its last launch, at about 0.9 ms of the step, and waits then: the GPU
// comes to the gather at 21.6 ms and would have stood still up to 22.9 without a network, too.
TEST(CausesTest, WhatTheHostDoesBeforeItWaitsIsTheHosts) {
  DdpStep step;
  step.gather_us = 4000;
  step.host_after_us = 22000;
  const Diagnosed diagnosed(step);
  EXPECT_NEAR(diagnosed.us_by(Cause::Host), 1300, 150);
  EXPECT_NEAR(diagnosed.us_by(Cause::Host) + diagnosed.us_by(Cause::Link) +
                  diagnosed.us_by(Cause::ClosedLate),
              7000, 50);
}

// ZeRO with one bucket in flight: 5 ms each, a bucket is full every 4 ms of backward, and compute stands still until it has come.
// The network is busy from the first bucket on, so the step would be no shorter without these waits.
TEST(SerialWaitsTest, BackwardThatWaitsForReductionsIsNamed) {
  DdpStep step;
  step.comm_us = {5000, 5000, 5000};
  step.waits_each = true;
  const Diagnosed diagnosed(step);
  EXPECT_NEAR(diagnosed.us_by(Cause::Serialised), 10000, 300);
  step.waits_each = false;
  const Diagnosed free(step);
  EXPECT_EQ(free.us_by(Cause::Serialised), 0);
  EXPECT_FALSE(free.gain(Change::WaitAtUpdate).has_value());
}

// What waits at the update only give is the step that does not wait; the host launches far ahead in both.
TEST(SerialWaitsTest, WithoutTheWaitsTheStepIsThatOfOneThatDoesNotWait) {
  for (const double comm : {1000.0, 3000.0, 5000.0}) {
    DdpStep step;
    step.comm_us = {comm, comm, comm};
    DdpStep free = step;
    step.waits_each = true;
    const Diagnosed diagnosed(step);
    const std::optional<Gain> gain = diagnosed.gain(Change::WaitAtUpdate);
    ASSERT_TRUE(gain.has_value()) << comm;
    EXPECT_NEAR(to_us(gain->middle), period_us(step) - period_us(free), 60) << comm;
  }
}

DdpStep gathering(double gather_us) {
  DdpStep step;
  step.buckets = {};
  step.comm_us = {};
  step.gather_before_us = gather_us;
  return step;
}

// FSDP: each layer's parameters are gathered when the layer before has computed. One layer earlier all but the first gather
// hides, as far as it is no longer than the compute of a layer.
TEST(SerialWaitsTest, GathersThatStartWhenTheyAreNeededAreNamed) {
  for (const double gather_us : {500.0, 900.0, 1500.0}) {
    const DdpStep step = gathering(gather_us);
    DdpStep prefetching = step;
    prefetching.prefetches = true;
    const Diagnosed diagnosed(step);
    const double exposed = 12 * gather_us;
    EXPECT_NEAR(diagnosed.us_by(Cause::NoPrefetch) + diagnosed.us_by(Cause::Link), exposed,
                0.05 * exposed)
        << gather_us;
    EXPECT_GT(diagnosed.us_by(Cause::NoPrefetch), 0.6 * exposed) << gather_us;
    const std::optional<Gain> gain = diagnosed.gain(Change::Prefetch);
    ASSERT_TRUE(gain.has_value()) << gather_us;
    EXPECT_NEAR(to_us(gain->middle), period_us(step) - period_us(prefetching), 0.02 * exposed)
        << gather_us;
    EXPECT_THAT(sentences(diagnosed.diagnosis), Contains(HasSubstr("no prefetch"))) << gather_us;
  }
}

TEST(SerialWaitsTest, GathersThatArePrefetchedAreNot) {
  DdpStep step = gathering(900);
  step.prefetches = true;
  const Diagnosed diagnosed(step);
  EXPECT_LT(diagnosed.us_by(Cause::NoPrefetch), 100);
}

}  // namespace
}  // namespace dovetail::diagnose
