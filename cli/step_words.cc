// Lines of text about a predicted step that several subcommands print alike.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/step_words.h"

#include "base/count.h"
#include "base/decimal.h"
#include "base/json.h"
#include "cli/text.h"

namespace dovetail::cli {

void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval) {
  if (!interval) return;
  print_text(out,
             "  p10 of the step " + to_string(interval->p10) + ", median " +
                 to_string(interval->median) + ", p90 " + to_string(interval->p90) + ": of " +
                 counted(std::int64_t{interval->draws}, "draw") +
                 " from the spread of measured kernels and collectives",
             4);
}

void print_range(std::ostream& out, const std::optional<predict::StepRange>& range) {
  if (!range) return;
  print_text(out,
             "  p5 of the step " + to_string(range->p5) + ", p50 " + to_string(range->p50) +
                 ", p95 " + to_string(range->p95) +
                 ": by how far public steps lay from their predictions (docs/machines.md)",
             4);
}

nlohmann::ordered_json range_json(const std::optional<predict::StepRange>& range) {
  if (!range) return nullptr;
  return {
      {"p5_us", to_us(range->p5)}, {"p50_us", to_us(range->p50)}, {"p95_us", to_us(range->p95)}};
}

void print_host_bound(std::ostream& out, const std::optional<predict::HostBound>& bound) {
  if (bound) print_text(out, to_string(*bound), 2, Tone::Warning);
}

std::string rest_of_host_bound(const predict::HostBound& bound) {
  return waits_text(bound) + " (CUDA graphs, compiled steps)";
}

std::vector<std::string> with_host_bound(const std::optional<predict::HostBound>& bound,
                                         std::vector<std::string> notes) {
  if (bound) notes.insert(notes.begin(), to_string(*bound));
  return notes;
}

}  // namespace dovetail::cli
