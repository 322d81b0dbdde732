// The HTML reports of measurements: a run, a comparison, a diagnosis.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/result_pages.h"

#include <filesystem>

#include "cli/diagnose_json.h"
#include "recordings/diagnose/step_traces.h"
#include "recordings/diagnose/words.h"
#include "traces/compare.h"
#include "traces/metrics.h"

namespace dovetail::cli {
namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// What a measurement says of itself: the date, the link, whether it is valid.
void add_provenance(report::Report& report, const traces::Provenance& from) {
  if (!from.workload.empty()) report.facts.push_back({"workload", from.workload});
  report.facts.push_back({"machine", from.machine});
  report.facts.push_back({"backend", from.backend});
  for (const char* const name : {"link", "date", "valid"}) {
    const auto note = from.notes.find(name);
    if (note != from.notes.end()) report.facts.push_back({name, note->second});
  }
}

}  // namespace

report::Report report_of_run(const PageOptions& page, const Result& result,
                             const std::vector<Loaded>& loaded, const std::string& json) {
  std::string title = "Run of ";
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    title += (i == 0 ? "" : ", ") + file_name(loaded[i].path);
  }
  report::Report report = start_page(page, std::move(title));
  add_provenance(report, result.measured.traces.front().provenance);
  report.facts.push_back({"ranks", std::to_string(result.measured.traces.front().world_size)});
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    report.timelines.push_back(
        report::timeline(result.measured.traces[i],
                         {.title = file_name(loaded[i].path), .program = &loaded[i].program}));
  }
  report.results.push_back(json);
  return report;
}

void add_comparison(report::Report& report, const traces::Trace& predicted,
                    const traces::Trace& measured) {
  report.timelines.push_back(report::timeline(measured, {.title = "measured"}));
  report.timelines.push_back(report::timeline(predicted, {.title = "predicted"}));
  report.results.push_back(traces::to_json(traces::compare(predicted, measured)));
}

report::Report report_of_comparison(const PageOptions& page, const traces::Trace& predicted,
                                    const traces::Trace& measured) {
  report::Report report =
      start_page(page, "Predicted beside measured: " + measured.provenance.workload + ", " +
                           measured.provenance.policy);
  add_provenance(report, measured.provenance);
  report.facts.push_back({"predicted for", predicted.provenance.machine});
  report.facts.push_back({"ranks", std::to_string(measured.world_size)});
  add_comparison(report, predicted, measured);
  return report;
}

report::Report report_of_diagnosis(const PageOptions& page, const imports::JobTrace& job,
                                   const diagnose::Diagnosis& diagnosis, const std::string& json) {
  report::Report report =
      start_page(page, "Why the step is slow: " + file_name(job.ranks.front().trace.file));
  report.facts.push_back({"ranks", diagnose::ranks_in_words(job)});
  const auto& devices = job.ranks.front().trace.devices;
  if (!devices.empty()) report.facts.push_back({"GPU", devices.begin()->second.name});
  const std::string& nccl = job.ranks.front().trace.nccl_version;
  if (!nccl.empty()) report.facts.push_back({"NCCL", nccl});
  for (const traces::Trace& trace : diagnose::step_traces(job, diagnosis)) {
    const std::string rank = "rank " + std::to_string(trace.ranks.front().value);
    report.timelines.push_back(
        report::timeline(trace, {.title = rank + ": " + trace.provenance.policy,
                                 .compute = report::ComputeStream::Unknown}));
  }
  if (const std::optional<Answer> answer = answer_of_diagnosis(diagnosis)) {
    report.answer = answer_on_page(*answer);
  }
  report.results.push_back(json);
  return report;
}

}  // namespace dovetail::cli
