// Fills the HTML report of `explore`: the curves of frameworks over bucket sizes, and the lines to
// paste.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_page.h"

#include <utility>

#include "cli/plan_page.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "policies/policies.h"
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
                            .spec = schedule::to_string(spec)});
  }
  return curve;
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
      to_string(fastest->threshold) + ", " + fixed(to_us(fastest->step) / 1e3, 3) + " ms (" +
      fixed(100 * share, 1, "+") + " %), --policy " + fastest->spec +
      ". The lower bound does not cover it where it shards updates.");
}

}  // namespace

report::Report report_of(const SweepOnPage& sweep) {
  const schedule::Program& program = sweep.planner.program();
  report::Report report =
      start_page(sweep.page, sweep.summary.workload + " on " + sweep.summary.cluster);
  report.facts = {{"workload", sweep.summary.workload}, {"machine", sweep.summary.cluster}};
  add_facts(report, program);
  add_notes(report, sweep.notes);
  for (const frameworks::Framework& framework : frameworks::all()) {
    if (framework.curve.empty()) continue;
    report::Curve curve = curve_over_sizes(framework, sweep.planner, sweep.thresholds);
    if (!curve.points.empty()) report.curves.push_back(std::move(curve));
  }
  schedule::Plan plan{
      .program = program, .schedule = sweep.best.schedule, .summary = sweep.summary};
  plan.summary.predicted = {.step = Duration(sweep.best.summary.step_ns),
                            .exposed = Duration(sweep.best.summary.exposed_ns),
                            .lower_bound = sweep.lower_bound};
  const schedule::ScheduledProgram lowered = sweep.planner.verified(sweep.best.schedule);
  const sim::SteadyState steady = predict::steady_state(lowered, sweep.planner.costs());
  report.results.push_back(sweep.json);
  add_plan(report, {.plan = plan,
                    .lowered = lowered,
                    .costs = sweep.planner.costs(),
                    .steady = steady,
                    .file = "plan.json",
                    .lower_bound = sweep.lower_bound});
  const schedule::Policy usual = schedule::parse_policy("torch-ddp");
  if (!sweep.planner.refusal_of(usual)) {
    const search::Planned ddp = sweep.planner.plan(usual);
    add_timeline(report, "PyTorch DDP's default",
                 {.program = ddp.program, .costs = sweep.planner.costs(), .steady = ddp.steady});
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
