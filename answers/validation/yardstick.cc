// What all sources share: the list of them, and how a row gets its job.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/yardstick.h"

#include <utility>

#include "base/attempt.h"

namespace dovetail::yardsticks {

void set_job(Row& row, jobs::Job job) {
  if (const auto done = attempt([&] { complete(job, row.name); })) {
    row.job = std::move(job);
  } else {
    row.no_job = done.error.substr(row.name.size() + 2);
  }
}

std::vector<Yardstick> load_yardsticks(const std::string& folder) {
  return {nanotron(folder),        nanotron_own(folder), torchtitan(folder), kempnerforge(folder),
          simumax(folder),         simumax_own(folder),  duoan(folder),      damek(folder),
          megatron_bridge(folder), mlperf(folder)};
}

std::map<std::string, std::int64_t> without_job(const Yardstick& yardstick) {
  std::map<std::string, std::int64_t> reasons;
  for (const Row& row : yardstick.rows) {
    if (!row.no_job.empty()) ++reasons[row.no_job];
  }
  return reasons;
}

}  // namespace dovetail::yardsticks
