// Fills the HTML report of `explore`: the curves of frameworks, the plan that is best, and what a job without one runs.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_page.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "cli/plan_page.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "schedule/policies/policies.h"
#include "search/sweep.h"

namespace dovetail::cli {
namespace {

// A framework's option over bucket sizes.
report::Curve curve_over_sizes(const frameworks::Framework& framework, search::Planner& planner,
                               const std::vector<Bytes>& thresholds) {
  search::SweptPolicy policy{.spec = schedule::parse_policy(framework.curve)};
  // PyTorch's first bucket follows the cap.
  const auto* limits = std::get_if<schedule::ByLimits>(&*policy.spec.decisions.grouping);
  if (limits != nullptr && limits->first) policy.set_in = &framework;
  report::Curve curve{schedule::name(policy.spec), std::string(framework.axis), {}};
  if (planner.refusal_of(policy.spec)) return curve;
  for (const Bytes threshold : search::thresholds_for(policy.spec, planner.program(), thresholds)) {
    const schedule::Policy spec = search::at_size(policy, threshold, planner.program());
    const search::Candidate candidate = planner.evaluate(spec);
    curve.points.push_back({.threshold = threshold,
                            .buckets = candidate.buckets(),
                            .step = Duration(candidate.summary.step_ns),
                            .exposed = Duration(candidate.summary.exposed_ns),
                            .policy = schedule::to_string(spec)});
  }
  return curve;
}

bool gathers(const search::SweepRow& row) {
  return !row.candidate.plan && row.candidate.spec.decisions.gathers.has_value();
}

// What the framework does by itself, further and further ahead, in as many micro-steps as the row.
report::Prefetch curves_over_prefetch(const frameworks::Framework& of, const search::SweepRow& row,
                                      search::Planner& planner) {
  constexpr std::array kAhead = {0, 1, 2, 3, 4, 6, 8};
  schedule::Policy by_itself = schedule::parse_policy(of.curve);
  by_itself.decisions.accumulation = row.candidate.spec.decisions.accumulation;
  report::Prefetch found{.axis = std::string(of.axis),
                         .bytes_are = "parameters gathered at a time",
                         .usual = schedule::to_string(by_itself),
                         .usual_words = std::string(of.name) + "'s default",
                         .curves = {}};
  if (planner.refusal_of(by_itself)) return found;
  for (const schedule::Choice reshard : {schedule::Choice::Yes, schedule::Choice::No}) {
    const bool reshards = reshard == schedule::Choice::Yes;
    report::PrefetchCurve curve{std::string(reshards ? of.reshards : of.keeps), {}};
    for (const std::int32_t ahead : kAhead) {
      schedule::Policy policy = by_itself;
      schedule::Gathers& gathers = *policy.decisions.gathers;
      gathers.forward = gathers.backward = ahead;
      gathers.reshard = reshard;
      const search::Candidate candidate = planner.evaluate(policy);
      curve.points.push_back({.ahead = ahead,
                              .step = Duration(candidate.summary.step_ns),
                              .bytes = candidate.most_gathered,
                              .setting = candidate.name()});
    }
    found.curves.push_back(std::move(curve));
  }
  return found;
}

// Over bucket sizes, unless all that was asked for has its parameters come and go; over prefetching, if anything has.
void add_curves(report::Report& report, const SweepOnPage& sweep) {
  const std::vector<search::SweepRow>& rows = sweep.one.sweep.rows;
  const auto is_prefetched = [](const frameworks::Framework& framework) {
    return !framework.curve.empty() && schedule::parse_policy(framework.curve).decisions.gathers;
  };
  if (const auto row = std::ranges::find_if(rows, gathers); row != rows.end()) {
    // That of the sweep where it gathers before each use, else FSDP2.
    const frameworks::Framework& own = *sweep.one.sweep.framework;
    report.prefetch = curves_over_prefetch(is_prefetched(own) ? own : frameworks::framework("fsdp"),
                                           *row, sweep.one.planner);
    if (std::ranges::all_of(rows, gathers)) return;
  }
  for (const frameworks::Framework& framework : frameworks::all()) {
    if (framework.curve.empty() || is_prefetched(framework)) continue;
    report::Curve curve = curve_over_sizes(framework, sweep.one.planner, sweep.thresholds);
    if (!curve.points.empty()) report.curves.push_back(std::move(curve));
  }
}

// The sweep's best is the best of its rows; a curve can be faster, most of all where updates are sharded, which
// the bound of all-reduces does not cover either.
void add_faster_curve(report::Report& report) {
  const report::CurvePoint* fastest = nullptr;
  const report::Curve* of = nullptr;
  for (const report::Curve& curve : report.curves) {
    for (const report::CurvePoint& point : curve.points) {
      if (fastest != nullptr && point.step >= fastest->step) continue;
      fastest = &point;
      of = &curve;
    }
  }
  if (fastest == nullptr || fastest->step >= report.found->step) return;
  const double share =
      static_cast<double>(fastest->step.count()) / static_cast<double>(report.found->step.count()) -
      1;
  report.remarks.push_back(
      "Faster than our plan, which is the best row of the sweep: " + of->label + " at " +
      to_string(fastest->threshold) + ", " + to_string(fastest->step) + " (" +
      fixed(100 * share, 1, "+") + " %), --policy " + fastest->policy +
      ". The lower bound does not cover it where it shards updates.");
}

}  // namespace

report::Report report_of(const SweepOnPage& sweep) {
  const schedule::Program& program = sweep.one.planner.program();
  report::Report report =
      start_page(sweep.page, sweep.one.summary.workload + " on " + sweep.one.summary.cluster);
  report.answer = answer_on_page(sweep.answer);
  report.facts = {{"workload", sweep.one.summary.workload}, {"machine", sweep.one.summary.cluster}};
  add_facts(report, program);
  add_notes(report, sweep.one.all_notes());
  add_curves(report, sweep);
  const search::Candidate& best = sweep.one.sweep.rows[sweep.one.sweep.best].candidate;
  const std::optional<Duration> bound = best.bounded ? sweep.one.sweep.lower_bound : std::nullopt;
  schedule::Plan plan{.program = program, .schedule = best.schedule, .summary = sweep.one.summary};
  plan.summary.predicted = {.step = Duration(best.summary.step_ns),
                            .exposed = Duration(best.summary.exposed_ns),
                            .lower_bound = bound};
  const std::optional<std::size_t> now = sweep.one.now;
  const search::Candidate* const before = now ? &sweep.one.sweep.rows[*now].candidate : nullptr;
  std::optional<schedule::Policy> usual;
  if (before != nullptr && !before->plan) usual = before->spec;
  const schedule::ScheduledProgram lowered = sweep.one.planner.verified(best.schedule);
  const sim::SteadyState steady = predict::steady_state(lowered, sweep.one.planner.costs());
  report.results.push_back(sweep.json);
  add_plan(report, {.plan = plan,
                    .lowered = lowered,
                    .costs = sweep.one.planner.costs(),
                    .steady = steady,
                    .file = "plan.json",
                    .lower_bound = bound,
                    .usual = usual});
  if (before != nullptr) {
    const search::Planned planned = sweep.one.planner.plan(
        usual ? search::Start(*usual)
              : search::Start(search::NamedSchedule{*before->plan, before->schedule}));
    add_timeline(
        report,
        usual ? std::string(sweep.one.sweep.framework->name) + "'s default" : "What was recorded",
        {.program = planned.program, .costs = sweep.one.planner.costs(), .steady = planned.steady});
  }
  report.next = sweep.answer.set;
  if (report.next.empty()) {
    report.paste.clear();  // nothing is to be set anywhere
  } else {
    add_faster_curve(report);
  }
  return report;
}

}  // namespace dovetail::cli
