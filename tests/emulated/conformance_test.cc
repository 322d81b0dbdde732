// The emulation answers every probe as the real libraries do on an H100 (conformance.cc).
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/conformance.h"
#include "tests/emulated/fixture.h"

#include <gmock/gmock.h>

namespace dovetail::emulated {
namespace {

TEST_F(EmulatedTest, AnswersEveryProbe) {
  const std::vector<conformance::Answer> answers = conformance::run_probes();
  EXPECT_EQ(answers.size(), 36U);
  for (const conformance::Answer& answer : answers) {
    EXPECT_EQ(answer.verdict, conformance::Verdict::Pass) << answer.probe << ": " << answer.detail;
  }
  // The real library says nothing of a wait that orders nothing.
  EXPECT_THAT(take_complaints(), ::testing::ElementsAre(::testing::HasSubstr("orders nothing")));
}

}  // namespace
}  // namespace dovetail::emulated
