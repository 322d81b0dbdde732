// `dovetail report`: finds out from its arguments what is to be shown (a sweep, plans, traces) and
// writes the page.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <optional>
#include <utility>

#include "answers/plan_machine.h"
#include "answers/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "cli/outputs.h"
#include "cli/plan_page.h"
#include "cli/result_pages.h"
#include "cli/step_words.h"
#include "schedule/plan_json.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

// Files by what they are.
struct Files {
  std::vector<std::string> plans;
  std::vector<traces::Trace> predicted, measured;
};

Files read_files(const std::vector<std::string>& paths) {
  Files files;
  for (const std::string& path : paths) {
    const JsonFile file(path);
    JsonObject root = file.root();
    const std::string schema = root.has("schema") ? root.string("schema") : "";
    if (schema == schedule::kPlanSchema) {
      files.plans.push_back(path);
      continue;
    }
    if (schema != traces::kTraceSchema) {
      throw InputError(path + ": /schema: expected \"" + std::string(schedule::kPlanSchema) +
                       "\" or \"" + std::string(traces::kTraceSchema) +
                       "\", a plan or a trace, found \"" + schema + "\"");
    }
    traces::Trace trace = traces::load_trace(path);
    const bool is_measured = trace.provenance.origin == traces::Origin::Measured;
    (is_measured ? files.measured : files.predicted).push_back(std::move(trace));
  }
  if (files.predicted.size() > 1 || files.measured.size() > 1) {
    throw InputError("report: at most one predicted and one measured trace go together");
  }
  return files;
}

void add_plans(report::Report& report, const ReportOptions& options, const Files& files) {
  for (const std::string& path : files.plans) {
    schedule::Plan read = schedule::read_plan(path);
    predict::Machine named = predict::machine_of({.command = "report",
                                                  .cluster = options.cluster,
                                                  .data_dir = options.explore.inputs.data_dir},
                                                 read);
    const predict::Prediction found =
        predict::predict_plan(std::move(read), std::move(named), path);
    const schedule::Plan& plan = found.plan;
    const models::Costs& costs = found.machine.costs;
    if (report.found) {
      add_timeline(report, path,
                   {.program = found.program, .costs = costs, .steady = found.steady});
      continue;
    }
    report.title = plan.summary.workload + " on " + costs.machine + ": " + plan.schedule.policy;
    if (report.facts.empty()) {  // otherwise those of the measurement stand there
      report.facts = {{"workload", plan.summary.workload}, {"machine", costs.machine}};
      add_facts(report, plan.program);
    }
    add_notes(report, with_host_bound(found.host_bound, found.notes));
    add_plan(report, {.plan = plan,
                      .lowered = found.program,
                      .costs = costs,
                      .steady = found.steady,
                      .file = path,
                      .lower_bound = predict::bound_on(plan, options.cluster),
                      .usual = usual_of(plan.program)});
  }
}

report::Report report_of_files(const ReportOptions& options) {
  const Files files = read_files(options.files);
  if (files.plans.empty() && files.predicted.empty() && !files.measured.empty()) {
    throw InputError("report: a measured trace alone: add its plan or the predicted trace");
  }
  const bool both = !files.predicted.empty() && !files.measured.empty();
  report::Report report =
      both ? report_of_comparison(options.page, files.predicted.front(), files.measured.front())
           : start_page(options.page, "Report");
  add_plans(report, options, files);
  if (both) return report;
  for (const traces::Trace& trace : files.predicted) {
    if (files.plans.empty())
      report.title = trace.provenance.workload + ": " + trace.provenance.policy;
    report.timelines.push_back(report::timeline(trace, {.title = "predicted"}));
  }
  for (const traces::Trace& trace : files.measured) {
    report.timelines.push_back(report::timeline(trace, {.title = "measured"}));
  }
  return report;
}

}  // namespace

void report(const ReportOptions& options, std::ostream& out) {
  const bool sweeps = !options.explore.workloads.empty();
  if (sweeps == !options.files.empty()) {
    throw InputError("report: name either --workload (and --cluster), or plans and traces");
  }
  if (options.json == options.page.wanted()) {
    throw InputError("report: name the page to write with -o, or print the figures with --json");
  }
  std::vector<NamedFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({"the file", file});
  require_outputs({{"-o", options.page.file}}, inputs);
  const report::Report made =
      sweeps ? report_of_sweep(options.explore, options.page) : report_of_files(options);
  if (options.json) {
    out << figures_of(made).dump(1) << '\n';
    return;
  }
  const NewFile page = page_file(options.page, made);
  write_file(page.path, page.content);
  out << page.path << ": " << made.title << "; open it in a browser\n";
}

}  // namespace dovetail::cli
