// `dovetail predict`: simulates plan files on a machine, and prints one prediction in full or
// several as a table.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/predict.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "answers/plan_machine.h"
#include "answers/prediction.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/environment.h"
#include "cli/outputs.h"
#include "cli/plan_page.h"
#include "cli/stage_table.h"
#include "cli/step_words.h"
#include "cli/text.h"
#include "models/costs/costs_json.h"
#include "schedule/plan_json.h"
#include "sim/interval.h"
#include "traces/critical_path.h"
#include "traces/metrics.h"
#include "traces/perfetto.h"
#include "traces/timeline.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

// Of kAllOf<traces::Activity>.
constexpr std::array<const char*, kWordCount<traces::Activity>> kActivityKeys = {
    "forward_us", "backward_us",   "optimizer_us", "copy_us",
    "enqueue_us", "collective_us", "stall_us",     "idle_us"};

// One plan on one machine, with some of its steps.
struct Predicted {
  std::string path;
  predict::Prediction found;
  predict::Traced traced;
  traces::StepReport report;  // of the median step
  std::optional<sim::StepInterval> interval;
  std::vector<predict::StageParts> stages;

  [[nodiscard]] const schedule::Plan& plan() const { return found.plan; }
  [[nodiscard]] const models::Costs& costs() const { return found.machine.costs; }
  // As plans state them. Where fewer steps were asked for than are steady, of the step that is reported.
  [[nodiscard]] Duration step() const {
    return found.steady.cycle == 1 ? report.step_time : found.step();
  }
  [[nodiscard]] std::optional<predict::StepRange> range() const {
    return predict::step_range(found.machine.cluster, plan().program, step());
  }
  [[nodiscard]] Duration exposed() const {
    return found.steady.cycle == 1 ? report.exposed : found.exposed();
  }
};

predict::PlanAndMachine read_plan(const PredictOptions& options, const std::string& path,
                                  const std::string& cluster) {
  if (!options.workload.empty()) {
    const predict::InputOptions wanted{.workload = options.workload,
                                       .cluster = cluster,
                                       .data_dir = options.data_dir,
                                       .world = {},
                                       .layout = options.layout,
                                       .force = options.force,
                                       .what_if = options.what_if};
    return path == options.workload ? predict::step_as_it_stands(wanted)
                                    : predict::plan_on_workload(path, wanted);
  }
  schedule::Plan plan = schedule::read_plan(path);
  predict::Machine machine = predict::machine_of({.command = "predict",
                                                  .cluster = cluster,
                                                  .data_dir = options.data_dir,
                                                  .what_if = options.what_if},
                                                 plan);
  return {.plan = std::move(plan), .machine = std::move(machine)};
}

Predicted predict_one(const PredictOptions& options, const std::string& path,
                      const std::string& cluster) {
  auto [plan, machine] = read_plan(options, path, cluster);
  predict::Prediction found = predict::predict_plan(std::move(plan), std::move(machine), path);
  predict::Traced traced = predict::trace_of(found, options.steps);
  traces::StepReport report = traces::median_step(traced.trace);
  std::optional<sim::StepInterval> interval =
      sim::step_interval(found.program, found.machine.costs);
  std::vector<predict::StageParts> stages = predict::step_parts(found.program, traced.trace);
  return {path,     std::move(found), std::move(traced), std::move(report),
          interval, std::move(stages)};
}

ordered_json collectives_json(const traces::StepReport& report) {
  ordered_json rows = ordered_json::array();
  for (const traces::BucketRow& row : report.buckets) {
    rows.push_back({{"name", row.name},
                    {"bucket", row.bucket ? ordered_json(row.bucket->value) : nullptr},
                    {"size_bytes", row.bytes.count()},
                    {"start_us", to_us(row.start)},
                    {"end_us", to_us(row.end)},
                    {"exposed_us", to_us(row.exposed)}});
  }
  return rows;
}

ordered_json path_json(const Predicted& one) {
  ordered_json parts = ordered_json::array();
  for (const traces::PathPart& part :
       traces::path_parts(one.traced.trace, one.traced.path, one.report.step)) {
    parts.push_back({{"kind", std::string(traces::to_string(part.kind))},
                     {"what", part.what},
                     {"rank", part.rank.value},
                     {"links", part.links},
                     {"start_us", to_us(part.start)},
                     {"time_us", to_us(part.time)}});
  }
  return parts;
}

ordered_json row_json(const Predicted& one) {
  const traces::StepReport& report = one.report;
  ordered_json breakdown;
  for (std::size_t i = 0; i < kWordCount<traces::Activity>; ++i) {
    breakdown[kActivityKeys[i]] = to_us(report.breakdown[kAllOf<traces::Activity>[i]]);
  }
  ordered_json interval = nullptr;
  if (one.interval) {
    interval = {{"p10_us", to_us(one.interval->p10)},
                {"p50_us", to_us(one.interval->median)},
                {"p90_us", to_us(one.interval->p90)},
                {"draws", one.interval->draws}};
  }
  const std::optional<double> overlap = report.overlap_ratio();
  return {{"plan", one.path},
          {"policy", one.plan().schedule.policy},
          {"workload", one.plan().summary.workload},
          {"cluster", one.costs().machine},
          {"world_size", one.plan().program.world_size},
          {"buckets", one.plan().schedule.buckets.size()},
          {"step_us", to_us(one.step())},
          {"exposed_us", to_us(one.exposed())},
          {"communication_us", to_us(report.communication)},
          {"compute_us", to_us(report.compute_busy)},
          {"overlap_ratio", overlap ? ordered_json(*overlap) : nullptr},
          {"breakdown", std::move(breakdown)},
          {"interval", std::move(interval)},
          {"public_interval", range_json(one.range())},
          {"stages", stages_json(one.stages)},
          {"collectives", collectives_json(report)},
          {"critical_path", path_json(one)},
          {"notes", with_host_bound(one.found.host_bound, one.found.notes)}};
}

std::string predictions_json(const std::vector<Predicted>& all) {
  ordered_json rows = ordered_json::array();
  for (const Predicted& one : all) rows.push_back(row_json(one));
  const ordered_json document = {{"schema", "dovetail.predict/1"},
                                 {"kind", "predict"},
                                 {"origin", "simulated"},
                                 {"rows", std::move(rows)}};
  return document.dump(1) + "\n";
}

void write_outputs(const PredictOptions& options, const std::vector<Predicted>& all) {
  std::vector<NewFile> files;
  if (!options.trace.empty()) {
    files.push_back({options.trace, with_tool(traces::to_json(all.front().traced.trace))});
  }
  if (!options.perfetto.empty()) {
    std::vector<const traces::Trace*> traces;
    std::vector<const traces::CriticalPath*> paths;
    for (const Predicted& one : all) {
      traces.push_back(&one.traced.trace);
      paths.push_back(&one.traced.path);
    }
    files.push_back({options.perfetto,
                     as_named(options.perfetto, traces::perfetto_json(traces, {.paths = paths}))});
  }
  if (!options.costs.empty()) {
    files.push_back({options.costs, models::costs_to_json(all.front().costs())});
  }
  if (options.page.wanted()) {
    const Predicted& one = all.front();
    const std::string cluster = options.clusters.empty() ? "" : options.clusters.front();
    files.push_back(page_file(
        options.page,
        report_of_plan(options.page, with_host_bound(one.found.host_bound, one.found.notes),
                       {.plan = one.plan(),
                        .lowered = one.found.program,
                        .costs = one.costs(),
                        .steady = one.found.steady,
                        .file = one.path,
                        .lower_bound = predict::bound_on(one.plan(), cluster, options.what_if),
                        .usual = usual_of(one.plan().program)})));
  }
  write_files(files);
}

void print_one(std::ostream& out, const PredictOptions& options, const Predicted& one) {
  print_text(out, std::string("dovetail ") + DOVETAIL_VERSION + "; plan " + one.path + " (" +
                      one.plan().schedule.policy + ") on " + one.costs().machine +
                      "; predicted (simulated)");
  print_host_bound(out, one.found.host_bound);
  print_notes(out, one.found.notes, options.detail);
  traces::print(out, one.report);
  const std::vector<predict::For> kinds = kinds_of(one.stages);
  const bool is_more = std::ranges::any_of(
      kinds, [](predict::For kind) { return kind != predict::For::DataParallel; });
  if (one.stages.size() > 1 || is_more) {
    print_stages(out, one.stages, kinds);
  }
  print_bubble(out, one.stages, one.step());
  print_figures(out, one.interval);
  print_range(out, one.range());
  if (options.critical_path) {
    out << '\n';
    traces::print_critical_path(out, one.traced.trace, one.traced.path);
  }
  if (options.timeline) {
    out << '\n' << traces::timeline(one.traced.trace, {.columns = timeline_columns()});
  }
}

void print_several(std::ostream& out, const PredictOptions& options,
                   const std::vector<Predicted>& all) {
  out << "dovetail " << DOVETAIL_VERSION << "; " << counted(all.size(), "prediction")
      << " (simulated)\n";
  std::vector<std::string> told;
  for (const Predicted& one : all) {
    for (const std::string& note : with_host_bound(one.found.host_bound, one.found.notes)) {
      const std::string line = one.costs().machine + ": " + note;
      if (std::ranges::find(told, line) == told.end()) told.push_back(line);
    }
  }
  print_notes(out, told, options.detail);
  const auto best = std::ranges::min_element(all, {}, &Predicted::step);
  const auto against_best = [&best](const Predicted& one) -> Cell {
    if (&one == &*best) return "best";
    return 100 * (to_us(one.step()) / to_us(best->step()) - 1);
  };
  const auto left = [](const char* title, int spare = 0) {
    return dovetail::Column{"", title, Unit::Own, {}, spare, Align::Left};
  };
  print_table(
      out,
      table_of<Predicted>(
          {{{"", "plan"}, &Predicted::path},
           {left("workload", 3), [](const Predicted& one) { return one.plan().summary.workload; }},
           {left("cluster"), [](const Predicted& one) { return one.costs().machine; }},
           {left("policy"), [](const Predicted& one) { return one.plan().schedule.policy; }},
           {{"", "buckets", Unit::Own, {}, 1},
            [](const Predicted& one) { return one.plan().schedule.buckets.size(); }},
           {{"", "step ms", Unit::Milliseconds, {3}}, &Predicted::step},
           {{"", "exposed ms", Unit::Milliseconds, {3}, 2}, &Predicted::exposed},
           {{"", "against best", Unit::Percent, {1, Sign::Always}}, against_best}},
          all));
}

// Throws InputError for what has no effect, or none that is defined.
void check(const PredictOptions& options, std::size_t predictions) {
  if (predictions == 0)
    throw InputError("predict: PLAN is missing: name one or several plan files");
  const auto refuse = [&](bool given, const std::string& what, const std::string& why) {
    if (given) throw InputError("predict: " + what + " " + why);
  };
  refuse(options.force && options.workload.empty(), "--force", "is about a --workload");
  refuse(options.layout && options.workload.empty(), "--layout", "is about a --workload");
  const std::string why = "is of one plan on one machine: give one of each";
  refuse(predictions > 1 && !options.trace.empty(), "--trace", why);
  refuse(predictions > 1 && !options.costs.empty(), "--costs", why);
  refuse(predictions > 1 && options.timeline, "--timeline", why);
  refuse(predictions > 1 && options.page.wanted(), "--html", why);
  refuse(predictions > 1 && options.critical_path, "--critical-path", why);
  refuse_beside(options.document, "predict: --timeline", options.timeline);
  refuse_beside(options.document, "predict: --critical-path", options.critical_path);
}

}  // namespace

void predict(const PredictOptions& options, std::ostream& out) {
  std::vector<std::string> plans = options.plans_by_flag;
  plans.insert(plans.end(), options.plans.begin(), options.plans.end());
  if (plans.empty() && !options.workload.empty()) plans.push_back(options.workload);
  const std::vector<std::string> clusters =
      options.clusters.empty() ? std::vector<std::string>{""} : options.clusters;
  check(options, plans.size() * clusters.size());
  std::vector<NamedFile> inputs;
  for (const std::string& plan : plans) {
    if (plan != options.workload) inputs.push_back({"--plan", plan});
  }
  inputs.push_back(workload_file(options.workload, options.data_dir));
  for (const std::string& name : clusters) inputs.push_back(cluster_file(name, options.data_dir));
  require_outputs({{"--trace", options.trace},
                   {"--perfetto", options.perfetto},
                   {"--costs", options.costs},
                   page_output(options.page),
                   document_file(options.document)},
                  inputs);
  std::vector<Predicted> all;
  for (const std::string& cluster : clusters) {
    for (const std::string& plan : plans) all.push_back(predict_one(options, plan, cluster));
  }
  write_outputs(options, all);
  put_document(
      options.document, [&all] { return predictions_json(all); }, out);
  if (replaces_report(options.document)) return;
  if (all.size() == 1) {
    print_one(out, options, all.front());
  } else {
    print_several(out, options, all);
  }
  if (!options.perfetto.empty()) out << options.perfetto << ": open in ui.perfetto.dev\n";
}

}  // namespace dovetail::cli
