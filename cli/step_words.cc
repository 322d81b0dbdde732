// Lines of text about a predicted step that several subcommands print alike.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/step_words.h"

#include "base/count.h"
#include "base/decimal.h"

namespace dovetail::cli {

void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval) {
  if (!interval) return;
  out << "  p10 of the step " << milliseconds(interval->p10) << ", median "
      << milliseconds(interval->median) << ", p90 " << milliseconds(interval->p90) << ": of "
      << counted(std::int64_t{interval->draws}, "draw")
      << " from the spread of measured kernels and collectives\n";
}

void print_host_bound(std::ostream& out, const std::string& sentence) {
  if (!sentence.empty()) out << sentence << '\n';
}

std::vector<std::string> with_host_bound(const std::string& sentence,
                                         std::vector<std::string> notes) {
  if (!sentence.empty()) notes.insert(notes.begin(), sentence);
  return notes;
}

}  // namespace dovetail::cli
