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
#include "base/table.h"
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

// By how much a step is longer, as a part of it.
Cell more(const std::optional<double>& change) {
  constexpr double kNothing = 5e-5;
  const Cell cell(change);
  return change && std::abs(*change) < kNothing ? cell.shown_as("0") : cell;
}
constexpr Digits kMorePercent{2, Sign::Always};
std::string more_percent(double change) {
  return more(change).text({.key = "", .title = "", .unit = Unit::Share, .digits = kMorePercent});
}

Table border_table(const std::vector<search::BucketBorders>& rows) {
  using search::BucketBorders;
  const auto changed = [](std::optional<double> BucketBorders::*where) {
    return [where](const BucketBorders& row) { return more(row.*where); };
  };
  return table_of<BucketBorders>(
      {{{"bucket", "bucket"}, [](const BucketBorders& row) { return row.bucket.value; }},
       {{"gradients", "gradients"}, &BucketBorders::gradients},
       {{"size_bytes", "size"}, &BucketBorders::bytes},
       {{"earlier", "earlier", Unit::Share, kMorePercent}, changed(&BucketBorders::earlier)},
       {{"later", "later", Unit::Share, kMorePercent}, changed(&BucketBorders::later)},
       {{"joined", "joined with next", Unit::Share, kMorePercent}, changed(&BucketBorders::joined)},
       {{"split", "split", Unit::Share, kMorePercent}, changed(&BucketBorders::split)}},
      rows);
}

// Of a plan whose step this row's is told against.
template <class Row>
Field<Row> against_field(const WhyPlan& one, const char* title) {
  return {{"", title, Unit::Share, kMorePercent},
          [&one](const Row& row) { return more(one.against(row.step)); }};
}

Table lever_table(const WhyPlan& one) {
  using search::Lever;
  return table_of<Lever>({{{"what", "change"}, &Lever::what},
                          {{"step_us", "step ms", Unit::Milliseconds, {3}}, &Lever::step},
                          against_field<Lever>(one, "step")},
                         one.why.levers);
}

Table tried_table(const WhyPlan& one, const std::vector<search::Tried>& rows) {
  using search::Tried;
  return table_of<Tried>(
      {{{"policy", "policy"}, [](const Tried& row) { return schedule::to_string(row.policy); }},
       {{"buckets", "buckets"}, &Tried::buckets},
       {{"step_us", "step ms", Unit::Milliseconds, {3}}, &Tried::step},
       against_field<Tried>(one, "against this plan")},
      rows);
}

Table path_table(const WhyPlan& one) {
  using traces::PathPart;
  return table_of<PathPart>(
      {{{"kind", "kind"}, [](const PathPart& part) { return traces::to_string(part.kind); }},
       {{"what", "part", Unit::Own, {}, 0, Align::Left}, &PathPart::what},
       {{"time_us", "ms", Unit::Milliseconds, {3}}, &PathPart::time}},
      traces::path_parts(one.traced.trace, one.traced.path, one.report.step));
}

// The rows that CSV has: the buckets, or the longest chain where nothing is told of them.
Table explained_table(const WhyPlan& one) {
  return one.why.buckets.empty() ? path_table(one) : border_table(one.why.buckets);
}

std::string explanation_json(const std::string& file, const WhyPlan& one) {
  const search::Explanation& why = one.why;
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
      {"critical_path", rows_json(path_table(one))},
      {"rows", rows_json(border_table(why.buckets))},
      {"no_borders", why.no_borders},
      {"levers", rows_json(lever_table(one))},
      {"tried", rows_json(tried_table(one, why.tried))},
      {"searched", why.searched ? row_json(tried_table(one, {*why.searched}), 0) : nullptr},
      {"lower_bound_us", why.bound ? ordered_json(to_us(*why.bound)) : ordered_json(nullptr)},
      {"bounded_schedules", why.bounded_schedules},
      {"notes", with_host_bound(one.found.host_bound, one.found.notes)}};
  return document.dump(1) + "\n";
}

// The longest chain of the step; of short parts in a row only how long those of each kind are together.
void print_path(std::ostream& out, const WhyPlan& one) {
  constexpr double kShort = 0.02;  // of the step
  out << "\nwhat makes the step as long as it is, one behind the other\n";
  struct Part {
    std::string what;
    Duration time;
  };
  std::vector<Part> parts;
  const Duration whole = one.report.step_time;
  std::vector<traces::PathPart> row;
  const auto add_row = [&] {
    std::map<traces::LinkKind, Duration> by_kind;
    Duration all{};
    for (const traces::PathPart& part : row) {
      by_kind[part.kind] += part.time;
      all += part.time;
    }
    std::string kinds;
    for (const auto& [kind, time] : by_kind) {
      kinds += (kinds.empty() ? "" : ", ") + std::string(to_string(kind)) + " " +
               fixed(to_us(time) / 1e3, 3);
    }
    if (row.size() == 1) parts.push_back({row.front().what, all});
    if (row.size() > 1)
      parts.push_back({std::to_string(row.size()) + " short parts: " + kinds, all});
    row.clear();
  };
  for (const traces::PathPart& part :
       traces::path_parts(one.traced.trace, one.traced.path, one.report.step)) {
    const bool is_short = to_us(part.time) < kShort * to_us(whole);
    if (!is_short) add_row();
    row.push_back(part);
    if (!is_short) add_row();
  }
  add_row();
  print_table(
      out, table_of<Part>({{{"", "part"}, &Part::what},
                           {{"", "ms", Unit::Milliseconds, {3}}, &Part::time},
                           {{"", "share", Unit::Share, {1}},
                            [whole](const Part& part) { return to_us(part.time) / to_us(whole); }}},
                          parts));
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
  print_table(out, border_table(rows));
  if (rows.size() < why.buckets.size()) {
    out << "the " << rows.size() << " of " << why.buckets.size()
        << " that matter most; --all prints every one\n";
  }
}

void print_levers(std::ostream& out, const WhyPlan& one) {
  out << "\nwhat would help: this plan where something costs less\n";
  print_table(out, lever_table(one));
}

void print_tried(std::ostream& out, const WhyPlan& one) {
  if (one.why.tried.empty()) return;
  out << "\ntried instead\n";
  print_table(out, tried_table(one, one.why.tried));
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
  put_document(options.document,
               {.json = [&] { return explanation_json(options.plan, one); },
                .table = [&] { return explained_table(one); }},
               out);
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
