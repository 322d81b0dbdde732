// Reading two traces, and printing what a prediction misses or what moved between them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/compare.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "calibrate/noise/step_figures.h"
#include "cli/compare_clusters.h"
#include "cli/environment.h"
#include "cli/outputs.h"
#include "cli/result_pages.h"
#include "cli/text.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/step_traces.h"
#include "recordings/load/load_job.h"
#include "recordings/timeline/rank_set.h"
#include "traces/compare.h"
#include "traces/difference.h"
#include "traces/perfetto.h"
#include "traces/timeline.h"
#include "traces/trace_json.h"

namespace dovetail::cli {

namespace {

// What the run itself predicted from the costs that it met; nothing where it was told to measure none.
void print_compared_figures(std::ostream& out, const traces::Side& measured) {
  const auto& notes = measured.provenance.notes;
  if (!notes.contains(testbed::kPredictedQuiet) || !notes.contains(testbed::kPredictedTypical))
    return;
  out << "\nthe two figures of " << measured.steps
      << " steps, predicted from costs measured between the rounds of the run\n";
  struct Figure {
    const char* name;
    Duration predicted, measured;
  };
  const auto predicted = [&notes](const char* note) {
    return from_us(std::strtod(notes.at(note).c_str(), nullptr));
  };
  const std::vector<Figure> figures = {
      {"quiet step", predicted(testbed::kPredictedQuiet), measured.step_times.quick},
      {"typical step (p50)", predicted(testbed::kPredictedTypical), measured.step_times.median}};
  print_table(
      out, table_of<Figure>(
               {{{"", "figure"}, &Figure::name},
                {{"", "predicted ms", Unit::Milliseconds, {3}}, &Figure::predicted},
                {{"", "measured ms", Unit::Milliseconds, {3}}, &Figure::measured},
                {{"", "error", Unit::Share, {2, Sign::Always}},
                 [](const Figure& row) { return to_us(row.predicted) / to_us(row.measured) - 1; }}},
               figures));
}

// A trace of either kind, and which of its streams computes.
struct Given {
  traces::Trace trace;
  traces::ComputeWork compute = traces::ComputeWork::FirstStream;
};

// Traces of this tool name their schema at once; all others are taken for those of PyTorch's profiler, of which
// the last step is compared.
Given load(const std::string& path) {
  constexpr std::streamsize kHead = 4096;
  std::ifstream in(path, std::ios::binary);
  std::string head(static_cast<std::size_t>(kHead), '\0');
  in.read(head.data(), kHead);
  if (in.gcount() == 0 || head.find("\"schema\"") != std::string::npos) {
    return {traces::load_trace(path)};
  }
  const imports::JobTrace job = imports::load_job({path}, {});
  std::vector<traces::Trace> steps = diagnose::last_steps(job, diagnose::diagnose(job));
  if (steps.empty()) throw InputError(path + ": no step in it ran anything");
  return {std::move(steps.front()), traces::ComputeWork::AnyStream};
}

// A prediction and the measurement of what may be the same plan: joined command by command.
bool is_prediction_of(const Given& predicted, const Given& measured) {
  return predicted.trace.provenance.origin == traces::Origin::Simulated &&
         measured.trace.provenance.origin == traces::Origin::Measured &&
         measured.compute == traces::ComputeWork::FirstStream;
}

// The page of --html lays a prediction beside its measurement.
void refuse_unless_joined(const CompareOptions& options, bool joins, const Given& first) {
  if (!joins && options.page.wanted()) {
    throw InputError(
        "compare: --html shows a predicted trace beside a measured one: give these, in this order");
  }
  if (first.compute == traces::ComputeWork::AnyStream && options.timeline) {
    throw InputError(
        "compare: --timeline needs to know which stream computes, and a profiler's trace does not "
        "say");
  }
}

void print_timelines(std::ostream& out, const CompareOptions& options, const Given& first,
                     const Given& second) {
  if (!options.timeline) return;
  const traces::TimelineOptions width{.columns = timeline_columns()};
  out << '\n'
      << traces::timeline(first.trace, width) << '\n'
      << traces::timeline(second.trace, width);
}

std::string perfetto_of_both(const Given& first, const Given& second) {
  const std::array<const traces::Trace*, 2> both = {&first.trace, &second.trace};
  return traces::perfetto_json(both, {.compute = first.compute});
}

}  // namespace

void compare(const CompareOptions& options, std::ostream& out) {
  if (are_clusters(options)) return compare_clusters(options, out);
  refuse_beside(options.document, "compare: --timeline", options.timeline);
  require_outputs({{"--perfetto", options.perfetto},
                   page_output(options.page),
                   document_file(options.document)},
                  {{"the first trace", options.first}, {"the second trace", options.second}});
  const Given first = load(options.first);
  const Given second = load(options.second);
  if (first.compute != second.compute) {
    throw InputError(
        "compare: one file is of this tool and one of a profiler, which name ops in other ways: "
        "`dovetail diagnose` replays the profiler's");
  }
  const bool joins = is_prediction_of(first, second);
  refuse_unless_joined(options, joins, first);
  std::optional<traces::Comparison> comparison;
  std::optional<traces::Difference> difference;
  if (joins) {
    comparison = traces::compare(first.trace, second.trace);
  } else {
    difference = traces::difference({first.trace, first.compute}, {second.trace, second.compute});
  }
  std::vector<NewFile> files;
  if (!options.perfetto.empty()) {
    files.push_back(
        {options.perfetto, as_named(options.perfetto, perfetto_of_both(first, second))});
  }
  if (options.page.wanted()) {
    files.push_back(
        page_file(options.page, report_of_comparison(options.page, first.trace, second.trace)));
  }
  write_files(files);
  put_document(
      options.document,
      {.json = [&] { return joins ? traces::to_json(*comparison) : traces::to_json(*difference); },
       .table =
           [&] { return joins ? traces::rows_of(*comparison) : traces::rows_of(*difference); }},
      out);
  if (replaces_report(options.document)) return;
  if (joins) {
    traces::print(out, *comparison);
    print_compared_figures(out, comparison->measured);
  } else {
    traces::print(out, *difference);
  }
  print_timelines(out, options, first, second);
  if (!options.perfetto.empty()) {
    out << options.perfetto << ": " << (joins ? "predicted and measured tracks" : "both traces")
        << "; open in ui.perfetto.dev\n";
  }
}

}  // namespace dovetail::cli
