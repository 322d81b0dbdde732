// Asks the planner about a plan, and says what it found: the step, its longest chain, buckets, levers, rivals.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "answers/plan_machine.h"
#include "answers/prediction.h"
#include "base/count.h"
#include "base/json.h"
#include "cli/environment.h"
#include "cli/outputs.h"
#include "cli/step_words.h"
#include "cli/text.h"
#include "schedule/plan_json.h"
#include "search/explain.h"
#include "traces/critical_path.h"
#include "traces/metrics.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

struct WhyPlan {
  predict::Prediction found;
  predict::Traced traced;
  traces::StepReport report;  // of the median step
  search::Explanation why;

  // By how much longer than the plan's step.
  [[nodiscard]] double against(Duration step) const { return to_us(step) / to_us(why.step) - 1; }
};

std::string more_percent(double change) {
  constexpr double kNothing = 5e-5;
  if (std::abs(change) < kNothing) return "0";
  return fixed(100 * change, 2, "+") + " %";
}
std::string more_percent(const std::optional<double>& change) {
  return change ? more_percent(*change) : "-";
}

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json tried_json(const search::Tried& tried) {
  return {{"policy", schedule::to_string(tried.policy)},
          {"buckets", tried.buckets},
          {"step_us", to_us(tried.step)}};
}

std::string explanation_json(const std::string& file, const WhyPlan& one) {
  const search::Explanation& why = one.why;
  ordered_json buckets = ordered_json::array();
  for (const search::BucketBorders& row : why.buckets) {
    buckets.push_back({{"bucket", row.bucket.value},
                       {"gradients", row.gradients},
                       {"size_bytes", row.bytes.count()},
                       {"earlier", number_or_null(row.earlier)},
                       {"later", number_or_null(row.later)},
                       {"joined", number_or_null(row.joined)},
                       {"split", number_or_null(row.split)}});
  }
  ordered_json path = ordered_json::array();
  for (const traces::PathPart& part :
       traces::path_parts(one.traced.trace, one.traced.path, one.report.step)) {
    path.push_back({{"kind", std::string(traces::to_string(part.kind))},
                    {"what", part.what},
                    {"time_us", to_us(part.time)}});
  }
  ordered_json levers = ordered_json::array();
  for (const search::Lever& lever : why.levers) {
    levers.push_back({{"what", lever.what}, {"step_us", to_us(lever.step)}});
  }
  ordered_json tried = ordered_json::array();
  for (const search::Tried& other : why.tried) tried.push_back(tried_json(other));
  const ordered_json document = {
      {"schema", "dovetail.explain/1"},
      {"kind", "explain"},
      {"origin", "simulated"},
      {"plan", file},
      {"policy", one.found.plan.schedule.policy},
      {"workload", one.found.plan.summary.workload},
      {"cluster", one.found.machine.costs.machine},
      {"step_us", to_us(why.step)},
      {"exposed_us", to_us(one.found.exposed())},
      {"compute_us", to_us(one.report.compute_busy)},
      {"critical_path", std::move(path)},
      {"rows", std::move(buckets)},
      {"no_borders", why.no_borders},
      {"levers", std::move(levers)},
      {"tried", std::move(tried)},
      {"searched", why.searched ? tried_json(*why.searched) : ordered_json(nullptr)},
      {"lower_bound_us", why.bound ? ordered_json(to_us(*why.bound)) : ordered_json(nullptr)},
      {"bounded_schedules", why.bounded_schedules},
      {"notes", with_host_bound(one.found.host_bound, one.found.notes)}};
  return document.dump(1) + "\n";
}

// The longest chain of the step; of short parts in a row only how long those of each kind are together.
void print_path(std::ostream& out, const WhyPlan& one) {
  constexpr double kShort = 0.02;  // of the step
  out << "\nwhat makes the step as long as it is, one behind the other\n";
  TextTable table({"part", "ms", "share"});
  const double whole = to_us(one.report.step_time);
  const auto add = [&](double us, std::string what) {
    table.add({std::move(what), fixed(us / 1e3, 3), fixed(100 * us / whole, 1) + " %"});
  };
  std::vector<traces::PathPart> row;
  const auto add_row = [&] {
    std::map<traces::LinkKind, double> by_kind;
    double all = 0;
    for (const traces::PathPart& part : row) {
      by_kind[part.kind] += to_us(part.time);
      all += to_us(part.time);
    }
    std::string kinds;
    for (const auto& [kind, us] : by_kind) {
      kinds +=
          (kinds.empty() ? "" : ", ") + std::string(to_string(kind)) + " " + fixed(us / 1e3, 3);
    }
    if (row.size() == 1) add(all, row.front().what);
    if (row.size() > 1) add(all, std::to_string(row.size()) + " short parts: " + kinds);
    row.clear();
  };
  for (const traces::PathPart& part :
       traces::path_parts(one.traced.trace, one.traced.path, one.report.step)) {
    const bool is_short = to_us(part.time) < kShort * whole;
    if (!is_short) add_row();
    row.push_back(part);
    if (!is_short) add_row();
  }
  add_row();
  table.print(out);
}

// How much a bucket's borders matter: the most that another one changes.
double weight(const search::BucketBorders& row) {
  double most = 0;
  for (const auto& change : {row.earlier, row.later, row.joined, row.split}) {
    if (change) most = std::max(most, std::abs(*change));
  }
  return most;
}

void print_borders(std::ostream& out, const search::Explanation& why, bool all) {
  constexpr std::size_t kShown = 10;
  out << "\nwhy each bucket ends where it does: the step with another border at its end\n";
  if (why.buckets.empty()) {
    out << "  not told: " << why.no_borders << '\n';
    return;
  }
  std::vector<search::BucketBorders> rows = why.buckets;
  if (!all && rows.size() > kShown) {
    std::ranges::stable_sort(rows, std::ranges::greater(), weight);
    rows.resize(kShown);
    std::ranges::sort(rows, {}, &search::BucketBorders::bucket);
  }
  TextTable table({"bucket", "gradients", "size", "earlier", "later", "joined with next", "split"});
  for (const search::BucketBorders& row : rows) {
    table.add({std::to_string(row.bucket.value), std::to_string(row.gradients),
               dovetail::to_string(row.bytes), more_percent(row.earlier), more_percent(row.later),
               more_percent(row.joined), more_percent(row.split)});
  }
  table.print(out);
  if (rows.size() < why.buckets.size()) {
    out << "the " << rows.size() << " of " << why.buckets.size()
        << " that matter most; --all prints every one\n";
  }
}

void print_levers(std::ostream& out, const WhyPlan& one) {
  out << "\nwhat would help: this plan where something costs less\n";
  TextTable table({"change", "step ms", "step"});
  for (const search::Lever& lever : one.why.levers) {
    table.add(
        {lever.what, fixed(to_us(lever.step) / 1e3, 3), more_percent(one.against(lever.step))});
  }
  table.print(out);
}

void print_tried(std::ostream& out, const WhyPlan& one) {
  if (one.why.tried.empty()) return;
  out << "\ntried instead\n";
  TextTable table({"policy", "buckets", "step ms", "against this plan"});
  for (const search::Tried& tried : one.why.tried) {
    table.add({schedule::to_string(tried.policy), std::to_string(tried.buckets),
               fixed(to_us(tried.step) / 1e3, 3), more_percent(one.against(tried.step))});
  }
  table.print(out);
}

void print_left(std::ostream& out, const WhyPlan& one) {
  const search::Explanation& why = one.why;
  constexpr double kWorth = 0.001;
  if (why.searched && one.against(why.searched->step) < -kWorth) {
    print_text(out, "faster, of the same kind: " + schedule::to_string(why.searched->policy) +
                        ", " + counted(why.searched->buckets, "bucket") + ", " +
                        more_percent(one.against(why.searched->step)));
  } else if (why.searched) {
    out << "the search finds no grouping of this kind that is 0.1 % faster\n";
  }
  if (why.bound) {
    print_text(out, "at most " + fixed(100 * std::max(0.0, -one.against(*why.bound)), 2) +
                        " % is left: no schedule of " + why.bounded_schedules + " is faster than " +
                        fixed(to_us(*why.bound) / 1e3, 3) + " ms on this model");
  } else {
    out << "no lower bound is known for this kind of plan\n";
  }
}

}  // namespace

void explain(const ExplainOptions& options, std::ostream& out) {
  require_outputs({document_file(options.document)},
                  {{"PLAN", options.plan}, cluster_file(options.cluster, options.data_dir)});
  schedule::Plan plan = schedule::read_plan(options.plan);
  predict::Machine machine = predict::machine_of({.command = "explain",
                                                  .cluster = options.cluster,
                                                  .data_dir = options.data_dir,
                                                  .what_if = options.what_if},
                                                 plan);
  predict::Prediction found =
      predict::predict_plan(std::move(plan), std::move(machine), options.plan);
  predict::Traced traced = predict::trace_of(found, predict::kTraceSteps);
  traces::StepReport report = traces::median_step(traced.trace);
  search::Planner planner(found.plan.program, found.machine.costs);
  search::Explanation why = search::explain(planner, found.plan.schedule);
  const WhyPlan one{std::move(found), std::move(traced), std::move(report), std::move(why)};
  put_document(
      options.document, [&] { return explanation_json(options.plan, one); }, out);
  if (replaces_report(options.document)) return;
  print_text(out, std::string("dovetail ") + DOVETAIL_VERSION + "; plan " + options.plan + " (" +
                      one.found.plan.schedule.policy + ") on " + one.found.machine.costs.machine +
                      "; predicted (simulated)");
  print_host_bound(out, one.found.host_bound);
  print_notes(out, one.found.notes, options.detail);
  out << counted(one.found.plan.schedule.buckets.size(), "bucket") << ", step "
      << fixed(to_us(one.why.step) / 1e3, 3) << " ms: compute "
      << fixed(to_us(one.report.compute_busy) / 1e3, 3) << ", exposed communication "
      << fixed(to_us(one.found.exposed()) / 1e3, 3) << '\n';
  print_left(out, one);
  print_path(out, one);
  print_borders(out, one.why, options.detail.all);
  print_levers(out, one);
  print_tried(out, one);
}

}  // namespace dovetail::cli
