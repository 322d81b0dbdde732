// Words a sweep's answer: the line or the commands that use its best row, its step beside what there is now, and its bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explored.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "cli/step_words.h"
#include "frameworks/framework.h"
#include "schedule/policies/policies.h"

namespace dovetail::cli {
namespace {

using predict::InputOptions;
using search::Sweep;
using search::SweepRow;

// "does not fit", "best", or how much slower than the best it is.
std::string verdict_on(const Sweep& sweep, const SweepRow& row) {
  const SweepRow& best = sweep.rows[sweep.best];
  if (!row.fits) return "does not fit";
  if (&row == &best) return word_for_best(best);
  return fixed((step_ns(row) / step_ns(best) - 1) * 100, 1, "+") + " %";
}

// Its name, said of one that the framework changes.
Cell name_cell(const SweepRow& row) {
  std::string name = row.candidate.name();
  return Cell(name).shown_as(name + (row.is_changed ? " (as run there)" : ""));
}

// Whether it cannot be told from the best; nothing of a machine that was measured.
Cell alike_cell(const Exploration& one, const SweepRow& row) {
  if (one.alike.empty()) return {};
  return bool{one.alike[static_cast<std::size_t>(&row - one.sweep.rows.data())]};
}

// How the best row gets into its framework: nothing where that does it by itself, a line to paste, or commands that
// write the file.
std::vector<std::string> way_out(const Sweep& sweep, const InputOptions& inputs) {
  const SweepRow& best = sweep.rows[sweep.best];
  if (best.is_recorded || (best.said && best.said->by == frameworks::ToldBy::Default)) return {};
  if (best.said && best.said->by == frameworks::ToldBy::Setting) return {best.said->paste};
  if (best.candidate.plan) {
    const std::string own = "dovetail export " + *best.candidate.plan + " --to ";
    return {best.said ? own + std::string(sweep.framework->id)
                      : frameworks::export_command(*best.candidate.plan)};
  }
  std::string plan = "dovetail plan --workload " + inputs.workload;
  if (!inputs.cluster.empty()) plan += " --cluster " + inputs.cluster;
  if (inputs.world) plan += " --world " + std::to_string(*inputs.world);
  if (inputs.layout) plan += " --layout " + to_string(*inputs.layout);
  if (!inputs.what_if.nothing()) plan += " --what-if " + to_string(inputs.what_if);
  plan += " --policy " + schedule::to_string(best.candidate.spec) + " -o plan.json";
  if (!best.said) return {plan, frameworks::export_command("plan.json")};
  return {plan, "dovetail export plan.json --to " + std::string(sweep.framework->id)};
}

// "; the fastest, exact:..., is predicted to take 0.8 % less, too little to tell".
std::string fastest_text(const Exploration& one) {
  if (!one.fastest) return "";
  const SweepRow& fastest = one.sweep.rows[*one.fastest];
  return "; the fastest, " + fastest.candidate.name() + ", is predicted to take " +
         change_text(compared_step(fastest), compared_step(one.best())) +
         ", which on a machine that nobody calibrated is too little to tell";
}

std::string gain_of_sweep(const Exploration& one) {
  const Sweep& sweep = one.sweep;
  const std::optional<std::size_t>& now = one.now;
  const SweepRow& best = one.best();
  std::string step = to_string(compared_step(best)) +
                     (micro_steps(best) > 1 ? " a micro-step" : " a step") +
                     spread_text(one.range, one.interval);
  if (!now) return step;
  const SweepRow& before = sweep.rows[*now];
  if (&before == &best) {
    return step + ", what you have now (" + row_words(before) + ")" + fastest_text(one);
  }
  if (!before.fits) {
    return step + "; what you have now (" + row_words(before) + ") does not fit";
  }
  std::string text = step + " against " + to_string(compared_step(before)) + " now (" +
                     row_words(before) +
                     "): " + change_text(compared_step(best), compared_step(before));
  return text + fastest_text(one);
}

std::string rest_of_sweep(const Sweep& sweep) {
  const SweepRow& best = sweep.rows[sweep.best];
  if (!sweep.lower_bound)
    return "no bound" +
           (sweep.bound_problem.empty() ? " for such schedules" : ": " + sweep.bound_problem);
  return at_most_text(compared_step(best), *sweep.lower_bound) + ": no schedule of " +
         sweep.bounded_schedules + " is faster than " + to_string(*sweep.lower_bound);
}

}  // namespace

std::string row_words(const SweepRow& row) {
  if (row.said) return row.said->words;
  if (row.is_recorded) return "as recorded";
  return row.candidate.plan ? "a plan file" : frameworks::in_words(row.candidate.spec);
}

Duration compared_step(const SweepRow& row) {
  return Duration(static_cast<std::int64_t>(step_ns(row)));
}

const SweepRow* default_of_ddp(const Sweep& sweep) {
  const auto row = std::ranges::find_if(sweep.rows, [](const SweepRow& candidate) {
    return !candidate.candidate.plan &&
           candidate.candidate.spec == schedule::parse_policy("torch-ddp");
  });
  return row == sweep.rows.end() ? nullptr : &*row;
}

std::optional<double> gap_percent(const Sweep& sweep) {
  const Duration step = compared_step(sweep.rows[sweep.best]);
  if (!sweep.lower_bound || step < *sweep.lower_bound) return std::nullopt;
  return 100 * (to_us(step) / to_us(*sweep.lower_bound) - 1);
}

bool tells_memory(const Sweep& sweep) {
  if (!std::ranges::all_of(sweep.rows, &SweepRow::fits)) return true;
  const Bytes least = std::ranges::min_element(sweep.rows, {}, &SweepRow::resident)->resident;
  const Bytes most = std::ranges::max_element(sweep.rows, {}, &SweepRow::resident)->resident;
  constexpr std::int64_t kTimes = 2;  // copies of gradients alone are less
  return most.count() >= kTimes * least.count();
}

std::string word_for_best(const SweepRow& row) {
  return micro_steps(row) == 1 ? "best" : "fastest";
}

Tone tone_of(const Sweep& sweep, const SweepRow& row) {
  if (!row.fits) return Tone::Warning;
  return &row == &sweep.rows[sweep.best] ? Tone::Good : Tone::Plain;
}

std::vector<Field<SweepRow>> fields_of(const Exploration& one) {
  const Sweep& sweep = one.sweep;
  const Digits digits{decimals_of(step_ns(sweep.rows[sweep.best]) / 1e6)};
  const auto titled = [](bool is_told, const char* title) {
    return is_told ? std::optional<std::string>(title) : std::nullopt;
  };
  const bool is_merged =
      std::ranges::any_of(sweep.rows, [](const SweepRow& row) { return micro_steps(row) > 1; });
  const auto placed = [](const SweepRow& row) { return schedule::placement(row.candidate.spec); };
  const auto summary = [](std::int64_t sim::StepSummary::*time) {
    return [time](const SweepRow& row) -> Cell { return Duration(row.candidate.summary.*time); };
  };
  const auto of_policy = [](auto of) {  // a plan file has none
    return [of](const SweepRow& row) { return row.candidate.plan ? Cell() : Cell(of(row)); };
  };
  // Rows of merged steps are compared by the micro-step.
  const dovetail::Column step{"step_us", "step ms", Unit::Milliseconds, digits, is_merged ? 3 : 0};
  return {
      {{"policy", "policy"}, [](const SweepRow& row) { return name_cell(row); }},
      {{"rule"}, of_policy([](const SweepRow& row) { return schedule::name(row.candidate.spec); })},
      {{"threshold_bytes"}, &SweepRow::threshold},
      {{"first_bucket_bytes"}, &SweepRow::first_bucket},
      {{"mode"}, of_policy([=](const SweepRow& row) { return placed(row).mode; })},
      {{"wait"}, of_policy([=](const SweepRow& row) { return placed(row).wait; })},
      {{"buckets", "buckets", Unit::Own, {}, 1},
       [](const SweepRow& row) { return row.candidate.buckets(); }},
      {{"micro_steps"}, search::micro_steps},
      {step, summary(&sim::StepSummary::step_ns)},
      {{"exposed_us", "exposed ms", Unit::Milliseconds, digits, 2},
       summary(&sim::StepSummary::exposed_ns)},
      {{"communication_us"}, summary(&sim::StepSummary::communication_ns)},
      {{"compute_us"}, summary(&sim::StepSummary::compute_ns)},
      {{"", titled(is_merged, "per micro-step"), Unit::Milliseconds, digits},
       [](const SweepRow& row) { return compared_step(row); }},
      {{"resident_bytes", titled(tells_memory(sweep), "keeps GiB"), Unit::Gib, {1}},
       &SweepRow::resident},
      {{"fits"}, &SweepRow::fits},
      {{"runs"}, [](const SweepRow& row) { return row.said.has_value(); }},
      {{"as_run"}, &SweepRow::is_changed},
      {{"", "against best"}, [&](const SweepRow& row) { return verdict_on(sweep, row); }},
      {{"in_words", "in the words of", Unit::Own, {}, 0, Align::Left}, row_words},
      {{"alike"}, [&one](const SweepRow& row) { return alike_cell(one, row); }},
  };
}

std::vector<Field<Exploration>> pair_fields() {
  // Of a micro-step, as far as its size asks for.
  const auto in_ms = [](const Exploration& one, Duration time, double shown_ns) {
    return Cell(time).shown_as(fixed(shown_ns / 1e6, decimals_of(step_ns(one.best()) / 1e6)));
  };
  const auto ddp_of = [](const Exploration& one) -> Cell {
    const SweepRow* const ddp = default_of_ddp(one.sweep);
    if (ddp == nullptr) return {};
    return Cell(Duration(ddp->candidate.summary.step_ns))
        .shown_as(fixed((step_ns(*ddp) / step_ns(one.best()) - 1) * 100, 1, "+") + " %");
  };
  return {{{"workload", "workload"}, [](const Exploration& one) { return one.given.workload; }},
          {{"cluster", "cluster", Unit::Own, {}, 0, Align::Left},
           [](const Exploration& one) { return one.summary.cluster; }},
          {{"world_size", "ranks", Unit::Own, {}, 2},
           [](const Exploration& one) { return one.planner.program().world_size; }},
          {{"step_us", "step ms"},
           [=](const Exploration& one) {
             const Duration step(one.best().candidate.summary.step_ns);
             return in_ms(one, step, step_ns(one.best()));
           }},
          {{"exposed_us", "exposed ms", Unit::Own, {}, 1},
           [=](const Exploration& one) {
             const Duration exposed(one.best().candidate.summary.exposed_ns);
             return in_ms(one, exposed, static_cast<double>(exposed.count()));
           }},
          {{"gap_percent", "gap", Unit::Percent, {2}, 3},
           [](const Exploration& one) { return gap_percent(one.sweep); }},
          {{"ddp_default_step_us", "DDP's default"}, ddp_of},
          {{"lower_bound_us"}, [](const Exploration& one) { return one.sweep.lower_bound; }},
          {{"best", "best", Unit::Own, {}, 0, Align::Left},
           [](const Exploration& one) { return one.best().candidate.name(); }}};
}

Answer answer_of_sweep(const Exploration& one) {
  const Sweep& sweep = one.sweep;
  const std::optional<std::size_t>& now = one.now;
  Answer answer{
      .set = way_out(sweep, one.given), .gives = gain_of_sweep(one), .left = rest_of_sweep(sweep)};
  const SweepRow& best = sweep.rows[sweep.best];
  if (!best.fits) {
    return {.set = {},
            .why_nothing = "none of these fits into memory",
            .gives = "a rank keeps at least " + to_string(best.resident) + ", a device has " +
                     to_string(one.capacity.value_or(Bytes{})),
            .left = best.candidate.schedule.parameters == schedule::ParameterSync::EachUse
                        ? "more ranks"
                        : "shard the parameters: --policies fsdp, or --job with dp_shard, tp or pp",
            .tone = Tone::Warning};
  }
  if (now == sweep.best && one.fastest) {
    answer.set.clear();
    answer.why_nothing = "too little to tell";
  } else if (answer.set.empty() && best.is_recorded) {
    answer.why_nothing = "keep the buckets you have";
  } else if (answer.set.empty()) {
    answer.why_nothing = "it is what " + std::string(sweep.framework->name) + " does by itself";
  }
  if (one.answer && micro_steps(best) == 1) {
    answer.gives = search::in_words(*one.answer);
    if (!one.answer->is_told()) {
      answer.set.clear();
      answer.why_nothing = "keep the buckets you have";
      answer.gives = "nothing that can be told: " + answer.gives;
    }
  }
  // As diagnose says of a trace: what is gained there is less than can be told.
  constexpr double kTold = 0.99;
  const auto step = [&](std::size_t row) { return to_us(compared_step(sweep.rows[row])); };
  if (one.host_bound && now && step(sweep.best) >= kTold * step(*now)) {
    answer.set.clear();
    answer.why_nothing = "the host is what the step waits for";
    if (!one.answer) {
      answer.gives = "nothing that can be told: the best buckets take " + answer.gives;
    }
    answer.left = rest_of_host_bound(*one.host_bound);
  }
  return answer;
}

}  // namespace dovetail::cli
