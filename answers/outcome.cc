// What follows from the figures of an outcome.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/outcome.h"

#include <algorithm>

#include "base/error.h"

namespace dovetail::answers {

void Question::require_subject(const std::string& where) const {
  const auto refuse = [&](const char* why) { throw InputError(where + ": " + why); };
  if (workload.empty() && job.empty()) refuse("name a workload or a job");
  if (!workload.empty() && !job.empty()) refuse("name a workload or a job, not both");
  if (!job.empty() && (world || layout)) refuse("a job says its ranks and its layout itself");
  if (!job.empty() && cluster.empty()) refuse("a job needs a cluster");
}

std::optional<double> Outcome::gap() const {
  if (!bound || !bound->time || bound->time->count() <= 0) return std::nullopt;
  return 100 * (to_us(step) / to_us(*bound->time) - 1);
}

Duration Outcome::left() const {
  if (bound && bound->time) return std::max(Duration{}, step - *bound->time);
  return std::min(step, exposed.total);
}

}  // namespace dovetail::answers
