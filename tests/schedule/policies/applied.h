// What tests of policies and passes ask most often: a policy's result, and what the verifier says.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"

namespace dovetail::schedule {

inline PolicyResult applied(const Program& program, const std::string& policy) {
  EXPECT_THAT(problems(program), ::testing::IsEmpty());
  return apply_policy(program, parse_policy(policy));
}

// The verifier's messages about a plan that was lowered from `schedule`.
inline std::vector<std::string> complaints(const Program& program, const ScheduledProgram& plan,
                                           const Schedule& schedule) {
  std::vector<std::string> messages;
  for (const Problem& problem : verify(program, plan, schedule.merge)) {
    messages.push_back(problem.message);
  }
  return messages;
}
inline std::vector<std::string> complaints(const Program& program, const Schedule& schedule) {
  return complaints(program, lower(program, schedule).program, schedule);
}

}  // namespace dovetail::schedule
