// Reading two traces and printing their comparison.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/compare.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/environment.h"
#include "cli/figures.h"
#include "cli/outputs.h"
#include "cli/result_pages.h"
#include "cli/text.h"
#include "traces/compare.h"
#include "traces/perfetto.h"
#include "traces/timeline.h"
#include "traces/trace_json.h"

namespace dovetail::cli {

namespace {

// What the run itself predicted from the costs that it met; nothing where it was told to measure none.
void print_figures(std::ostream& out, const traces::Side& measured) {
  const auto& notes = measured.provenance.notes;
  if (!notes.contains(kPredictedQuiet) || !notes.contains(kPredictedTypical)) return;
  out << "\nthe two figures of " << measured.steps
      << " steps, predicted from costs measured between the rounds of the run\n";
  TextTable table({"figure", "predicted ms", "measured ms", "error"});
  const auto add = [&](const char* name, const char* note, Duration time) {
    const double predicted = std::strtod(notes.at(note).c_str(), nullptr);
    table.add({name, fixed(predicted / 1e3, 3), fixed(to_us(time) / 1e3, 3),
               fixed(100 * (predicted / to_us(time) - 1), 2, "+") + " %"});
  };
  add("quiet step (p10)", kPredictedQuiet, measured.step_times.p10);
  add("typical step (p50)", kPredictedTypical, measured.step_times.median);
  table.print(out);
}

}  // namespace

void compare(const CompareOptions& options, std::ostream& out) {
  refuse_beside(options.document, "compare: --timeline", options.timeline);
  require_outputs(
      {{"--perfetto", options.perfetto},
       page_output(options.page),
       document_file(options.document)},
      {{"the predicted trace", options.predicted}, {"the measured trace", options.measured}});
  const traces::Trace predicted = traces::load_trace(options.predicted);
  const traces::Trace measured = traces::load_trace(options.measured);
  const auto expect = [](const traces::Trace& trace, const std::string& path,
                         traces::Origin origin) {
    if (trace.provenance.origin == origin) return;
    throw InputError(path + ": /provenance/origin: expected \"" +
                     std::string(traces::to_string(origin)) + "\"");
  };
  expect(predicted, options.predicted, traces::Origin::Simulated);
  expect(measured, options.measured, traces::Origin::Measured);
  const traces::Comparison comparison = traces::compare(predicted, measured);
  std::vector<NewFile> files;
  if (!options.perfetto.empty()) {
    const std::array<const traces::Trace*, 2> both = {&predicted, &measured};
    files.push_back({options.perfetto, as_named(options.perfetto, traces::perfetto_json(both))});
  }
  if (options.page.wanted()) {
    files.push_back(
        page_file(options.page, report_of_comparison(options.page, predicted, measured)));
  }
  write_files(files);
  put_document(
      options.document, [&comparison] { return traces::to_json(comparison); }, out);
  if (replaces_report(options.document)) return;
  traces::print(out, comparison);
  print_figures(out, comparison.measured);
  if (options.timeline) {
    const traces::TimelineOptions width{.columns = timeline_columns()};
    out << '\n' << traces::timeline(predicted, width) << '\n' << traces::timeline(measured, width);
  }
  if (!options.perfetto.empty()) {
    out << options.perfetto << ": predicted and measured tracks; open in ui.perfetto.dev\n";
  }
}

}  // namespace dovetail::cli
