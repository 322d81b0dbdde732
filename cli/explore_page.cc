// Sweeping the rules of frameworks over bucket sizes.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_page.h"

#include <array>
#include <string_view>
#include <utility>

#include "cli/plan_page.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "policies/policies.h"
#include "search/sweep.h"

namespace dovetail::cli {
namespace {

// What docs/settings.md says that a framework's setting stands for.
struct Rule {
  std::string_view label, policy;
};
constexpr std::array<Rule, 5> kRules = {{
    {"PyTorch DDP: bucket_cap_mb", "torch-ddp"},
    {"JAX / XLA: combine threshold", "threshold"},
    {"Horovod: fusion threshold", "threshold:wait=end-of-backward,mode=copy"},
    {"Megatron --overlap-param-gather: bucket size", "sharded:p=1,gather=next-forward"},
    {"Paddle pass without its limits: cap", "source-improved"},
}};

report::Curve curve_of(const Rule& rule, search::Planner& planner,
                       const std::vector<Bytes>& thresholds) {
  schedule::PolicySpec spec = frameworks::parse_policy(rule.policy);
  report::Curve curve{std::string(schedule::name(spec.kind)), std::string(rule.label), {}};
  if (planner.refusal_of(spec)) return curve;
  for (const Bytes threshold : search::thresholds_for(spec, planner.program(), thresholds)) {
    spec.threshold = threshold;
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
  for (const Rule& rule : kRules) {
    report::Curve curve = curve_of(rule, sweep.planner, sweep.thresholds);
    if (!curve.points.empty()) report.curves.push_back(std::move(curve));
  }
  schedule::Plan plan{
      .program = program, .schedule = sweep.best.schedule, .summary = sweep.summary};
  plan.summary.predicted = {.step = Duration(sweep.best.summary.step_ns),
                            .exposed = Duration(sweep.best.summary.exposed_ns),
                            .lower_bound = sweep.lower_bound};
  const schedule::ScheduledProgram lowered = sweep.planner.verified(sweep.best.schedule);
  const sim::SteadyState steady = predict::steady_state(lowered, sweep.planner.costs());
  add_plan(report, {.plan = plan,
                    .lowered = lowered,
                    .costs = sweep.planner.costs(),
                    .steady = steady,
                    .file = "plan.json",
                    .lower_bound = sweep.lower_bound});
  const schedule::PolicySpec usual = schedule::default_policy(schedule::PolicyKind::TorchDdp);
  if (!sweep.planner.refusal_of(usual)) {
    const search::Planned ddp = sweep.planner.plan(usual);
    add_timeline(report, "PyTorch DDP's default",
                 {.program = ddp.program, .costs = sweep.planner.costs(), .steady = ddp.steady});
  }
  add_faster_curve(report);
  report.results.push_back(sweep.json);
  report.next = sweep.next;
  return report;
}

}  // namespace dovetail::cli
