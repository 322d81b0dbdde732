// Chooses the process, joins its recording and reads its steps.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/load/nsys_step.h"

#include "base/error.h"
#include "recordings/text.h"

#include <algorithm>
#include <utility>

namespace dovetail::imports {
namespace {

std::int64_t works_of(const Recording& recording) {
  return std::ranges::count_if(
      recording.events, [](const RecordedEvent& event) { return event.kind == EventKind::Kernel; });
}

std::vector<std::string> other_processes(const std::vector<Recording>& recordings,
                                         const Recording* chosen) {
  constexpr std::size_t kShown = 16;
  std::vector<std::string> others;
  for (const Recording& one : recordings) {
    const bool is_same = chosen != nullptr && one.process == chosen->process;
    if (is_same || others.size() == kShown) continue;
    others.push_back(std::to_string(one.process.value_or(0)));
  }
  return others;
}

}  // namespace

ImportedStep nsys_step(std::vector<Recording> recordings, const NsysStepOptions& options) {
  if (recordings.empty()) return {};
  const auto chosen =
      options.pid ? std::ranges::find_if(
                        recordings, [&](const auto& one) { return one.process == options.pid; })
                  : std::ranges::max_element(recordings, {}, works_of);
  if (chosen == recordings.end()) {
    throw InputError(recordings.front().file + ": --pid " + std::to_string(*options.pid) +
                     ": no kernel of that process; there are " +
                     listed(other_processes(recordings, nullptr)));
  }
  std::string which;
  if (recordings.size() > 1) {
    which = std::to_string(recordings.size()) + " processes and devices in the report: this is " +
            chosen->file + "; --pid names another, of " +
            listed(other_processes(recordings, &*chosen));
  }
  RankTrace rank;
  rank.line = join(*chosen, {.step = options.step});
  rank.trace = std::move(*chosen);
  ImportedStep step = all_reduce_step(rank, options.all_reduces);
  if (!which.empty()) step.read.insert(step.read.begin(), which);
  return step;
}

}  // namespace dovetail::imports
