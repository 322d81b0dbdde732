// `dovetail explore`: runs a sweep over policies and sizes and prints its rows, best first, as a table.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "answers/page/report.h"
#include "answers/prediction.h"
#include "answers/step_range.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "cli/answer.h"
#include "cli/explore_job.h"
#include "cli/explore_json.h"
#include "cli/explore_page.h"
#include "cli/explored.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/step_words.h"
#include "cli/sweep_options.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "frameworks/units_note.h"
#include "schedule/data_parallel.h"
#include "schedule/plan_json.h"
#include "search/alike.h"
#include "search/planner.h"
#include "search/sweep.h"
#include "sim/interval.h"

namespace dovetail::cli {
namespace {

using answers::Exploration;
using predict::InputOptions;
using schedule::Policy;
using search::Sweep;
using search::SweepRow;

// Rows of one curve over bucket sizes: equal but for the size, and the first bucket where it follows.
Policy curve_key(const SweepRow& row) {
  Policy spec = row.candidate.spec;
  if (spec.decisions.grouping) {
    if (auto* limits = std::get_if<schedule::ByLimits>(&*spec.decisions.grouping)) {
      if (limits->first == limits->cap) limits->first = Bytes{};
      limits->cap = Bytes{};
    }
  }
  return spec;
}

// Rows by their step, by number: all, or the fastest that fit, a few that do not, the best, the fastest
// that is one setting, and what there is now.
std::vector<std::size_t> sweep_rows_shown(const Sweep& sweep, std::optional<std::size_t> now,
                                          const Detail& detail) {
  constexpr std::size_t kFitting = 10;
  constexpr std::size_t kTooLarge = 3;
  std::vector<std::size_t> order(sweep.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return step_ns(sweep.rows[i]); });
  const auto setting = std::ranges::find_if(order, [&](std::size_t i) {
    const std::optional<frameworks::Said>& said = sweep.rows[i].said;
    return said && said->by == frameworks::ToldBy::Setting && sweep.rows[i].fits;
  });
  std::vector<std::size_t> shown;
  std::size_t fitting = 0;
  std::size_t too_large = 0;
  for (const std::size_t i : order) {
    const bool is_early = sweep.rows[i].fits ? fitting++ < kFitting : too_large++ < kTooLarge;
    const bool is_setting = setting != order.end() && *setting == i;
    if (detail.all || is_early || is_setting || i == sweep.best || now == i) shown.push_back(i);
  }
  return shown;
}

void print_rows(std::ostream& out, const Exploration& one, const Detail& detail) {
  const Sweep& sweep = one.sweep;
  const std::vector<std::size_t> shown = sweep_rows_shown(sweep, one.now, detail);
  std::vector<std::reference_wrapper<const SweepRow>> rows;
  for (const std::size_t i : shown) rows.emplace_back(sweep.rows[i]);
  print_table(out, table_of(fields_of(one), rows,
                            [&](const SweepRow& row) { return tone_of(sweep, row); }));
  print_more_rows(out, sweep.rows.size() - shown.size());
  if (tells_memory(sweep)) {
    print_text(out,
               "keeps: parameters, gradients, their copies, and what is gathered; activations and "
               "what no op of the workload touches come on top");
  }
  if (std::ranges::any_of(sweep.rows, [&](const SweepRow& row) {
        return row.fits && step_ns(row) < step_ns(sweep.rows[sweep.best]);
      })) {
    print_text(out, "rows below 0 % need more than a setting of " +
                        std::string(sweep.framework->name) + ", shard updates, " +
                        (one.fastest ? "train with a larger batch, or are too little faster to tell"
                                     : "or train with a larger batch"));
  }
}

// "torch-ddp: from 1 MiB to 4 MiB within 1 % of its best size", for each policy that was swept.
void print_flat_ranges(std::ostream& out, const Sweep& sweep) {
  std::vector<std::pair<Policy, report::Curve>> curves;
  for (const SweepRow& row : sweep.rows) {
    if (!row.threshold) continue;
    report::CurvePoint point;
    point.threshold = *row.threshold;
    point.step = Duration(row.candidate.summary.step_ns);
    const Policy key = curve_key(row);
    auto curve = std::ranges::find(curves, key, &std::pair<Policy, report::Curve>::first);
    if (curve == curves.end()) curve = curves.emplace(curves.end(), key, report::Curve{});
    curve->second.points.push_back(std::move(point));
  }
  for (const auto& [key, curve] : curves) {
    if (curve.points.size() < 3) continue;
    const report::FlatRange flat = report::flat_range(curve);
    const std::string sizes = flat.from == flat.to
                                  ? "no size but " + to_string(flat.from)
                                  : "from " + to_string(flat.from) + " to " + to_string(flat.to);
    print_text(out, schedule::name(key) + ": " + sizes + " within " +
                        fixed(100 * report::kFlatShare, 0) + " % of its best size");
  }
}

// Rows that the costs of a machine that nobody calibrated do not tell from the best.
void print_alike(std::ostream& out, const Exploration& one) {
  const Sweep& sweep = one.sweep;
  std::string names;
  for (std::size_t i = 0; i < one.alike.size(); ++i) {
    if (!one.alike[i]) continue;
    const SweepRow& first = sweep.rows[i];
    names += (names.empty() ? "" : "; ") + first.candidate.name();
    const std::size_t from = i;
    while (first.threshold && i + 1 < one.alike.size() && one.alike[i + 1] &&
           sweep.rows[i + 1].threshold && curve_key(sweep.rows[i + 1]) == curve_key(first)) {
      ++i;
    }
    if (i > from) names += " to " + sweep.rows[i].candidate.name();
  }
  if (names.empty()) return;
  std::string line = "alike";
  const char* separator = " (times of ";
  for (const models::CostRange& range : predict::uncalibrated_ranges()) {
    line += separator + std::string(to_string(range.part)) + " " + fixed(range.low, 2) + " to " +
            fixed(range.high, 2);
    separator = ", ";
  }
  print_text(out, line + "): " + names);
}

// A row that is faster and cannot be set there, and who can run it.
void print_beyond(std::ostream& out, const Sweep& sweep) {
  if (!sweep.beyond) return;
  const SweepRow& row = sweep.rows[*sweep.beyond];
  print_text(out, "faster, but not by what " + std::string(sweep.framework->name) +
                      " can be told: " + row.candidate.name() + ", " +
                      to_string(compared_step(row)) + " (" +
                      fixed((step_ns(row) / step_ns(sweep.rows[sweep.best]) - 1) * 100, 1, "+") +
                      " %), by " + row_words(row));
}

void print_bound(std::ostream& out, const Sweep& sweep) {
  if (!sweep.bound_problem.empty()) print_text(out, sweep.bound_problem);
  if (!sweep.lower_bound) return;
  std::string line;
  if (sweep.best_bounded != sweep.best) {
    line =
        "best of those that the bound covers: " + sweep.rows[*sweep.best_bounded].candidate.name() +
        "; ";
  }
  line += "no schedule of " + sweep.bounded_schedules + " is faster than " +
          to_string(*sweep.lower_bound) + " on this model: gap " + fixed(sweep.gap * 100, 2) + " %";
  constexpr double kNone = 5e-5;  // printed as 0.00 %
  print_text(out, line + (sweep.gap < kNone ? ": it is optimal on this model" : ""));
}

// What the options say in a unit that frameworks mean otherwise.
std::vector<std::string> notes_on_typed(const ExploreOptions& options) {
  std::string typed = options.thresholds + " " + options.first_bucket;
  for (const std::string& policies : options.policies) typed += " " + policies;
  return frameworks::notes_on_units(typed);
}

void print_exploration(std::ostream& out, const ExploreOptions& options, const Exploration& one) {
  const Sweep& sweep = one.sweep;
  const schedule::Program& program = one.planner.program();
  print_answer(out, answer_of_sweep(one));
  const schedule::ReducedGradients reduced = schedule::reduced_gradients(program);
  out << '\n';
  print_text(out, one.given.workload + " on " + one.summary.cluster + ": " +
                      counted(program.world_size, "rank") + ", " +
                      counted(reduced.count, "gradient") + ", " + to_string(reduced.bytes) +
                      "; predicted (simulated), dovetail " + DOVETAIL_VERSION);
  print_host_bound(out, one.host_bound);
  std::vector<std::string> notes = notes_on_typed(options);
  notes.insert(notes.end(), one.notes.begin(), one.notes.end());
  notes.insert(notes.end(), one.sharding_notes.begin(), one.sharding_notes.end());
  print_notes(out, notes, options.detail);
  for (const std::string& policy : sweep.left_out) print_text(out, "  left out: " + policy, 4);
  print_rows(out, one, options.detail);
  const SweepRow& best = sweep.rows[sweep.best];
  if (sweep.interrupted) print_text(out, kCutShort, 2, Tone::Warning);
  std::string line =
      best.fits ? word_for_best(best) + ": " + best.candidate.name() : "best: none fits";
  if (micro_steps(best) > 1) {
    line += ", of rows with " + std::to_string(micro_steps(best)) +
            " micro-steps per update (a larger batch)";
  }
  print_text(out, line, 2, best.fits ? Tone::Good : Tone::Warning);
  if (!best.fits) return;
  print_flat_ranges(out, sweep);
  print_alike(out, one);
  print_beyond(out, sweep);
  print_bound(out, sweep);
}

void print_plot(std::ostream& out, const Sweep& sweep) {
  // One curve: that of the first policy that was swept.
  const auto swept = std::ranges::find_if(
      sweep.rows, [](const SweepRow& row) { return row.threshold.has_value(); });
  if (swept == sweep.rows.end()) return;
  const Policy curve = curve_key(*swept);
  std::vector<Bar> bars;
  const double best = to_us(Duration(sweep.rows[sweep.best].candidate.summary.step_ns));
  for (const SweepRow& row : sweep.rows) {
    if (!row.threshold || curve_key(row) != curve) continue;
    const double step = to_us(Duration(row.candidate.summary.step_ns));
    bars.push_back(
        {to_string(*row.threshold), step / 1e3, fixed((step / best - 1) * 100, 1, "+") + " %"});
  }
  if (bars.size() < 2) return;
  out << "\nstep time against fusion threshold (ms; the axis starts at the lower bound)\n";
  print_bars(out, bars, to_us(sweep.lower_bound.value_or(Duration{})) / 1e3);
}

// Ctrl-C ends it with the rows that are there; throws Interrupted where there is none.
Exploration explore_one(const ExploreOptions& options, const std::string& workload,
                        const std::string& cluster) {
  refuse_beside(options.document, "explore: --plot", options.plot);
  InputOptions given = options.inputs;
  given.workload = workload;
  given.cluster = cluster;
  const auto options_of = [&](const schedule::Program& program) {
    search::SweepOptions asked = sweep_options_of(options, program);
    for (const std::string& file : options.plans) {
      asked.plans.push_back({file, schedule::read_plan_onto(file, program).schedule});
    }
    return asked;
  };
  const auto watched = [&](search::Planner& planner, const search::SweepOptions& asked) {
    const AsksBeforeEnding keep_what_is_found(Asks::Anywhere);
    Progress progress("explore", "candidate", row_count(asked), options.yes);
    return run_sweep(planner, asked,
                     {.begins = [&](const std::string& policy) { progress.begin(policy); },
                      .goes_on = [&] { return progress.done(); }});
  };
  return answers::explore(std::move(given), options_of, watched);
}

void print_several(std::ostream& out, const ExploreOptions& options,
                   const std::vector<Exploration>& all) {
  out << "dovetail " << DOVETAIL_VERSION << "; best of each, predicted (simulated)\n";
  std::vector<std::string> told;
  for (const Exploration& one : all) {
    for (const std::string& note : with_host_bound(one.host_bound, one.notes)) {
      const std::string line = one.given.workload + " on " + one.summary.cluster + ": " + note;
      if (std::ranges::find(told, line) == told.end()) told.push_back(line);
    }
  }
  print_notes(out, told, options.detail);
  print_table(out, table_of(pair_fields(), all));
}

report::Report page_of(const ExploreOptions& options, const PageOptions& page, Exploration& one) {
  return report_of({.page = page,
                    .one = one,
                    .thresholds = parse_thresholds(options.thresholds, options.points),
                    .json = sweep_json(one),
                    .answer = answer_of_sweep(one)});
}

std::vector<std::string> clusters_of(const ExploreOptions& options) {
  return options.clusters.empty() ? std::vector<std::string>{""} : options.clusters;
}

}  // namespace

report::Report report_of_sweep(const ExploreOptions& options, const PageOptions& page) {
  Exploration one = explore_one(options, options.workloads.front(), clusters_of(options).front());
  return page_of(options, page, one);
}

int explore(const ExploreOptions& options, std::ostream& out) {
  if (!options.job.empty()) return explore_job(options, out);
  if (options.workloads.empty()) throw InputError("explore: name a --workload or a --job");
  if (options.whole) throw InputError("explore: --whole is about a --job");
  const std::vector<std::string> clusters = clusters_of(options);
  if (options.page.wanted() && options.workloads.size() * clusters.size() > 1) {
    throw InputError("explore: --html is of one workload on one machine: give one of each");
  }
  std::vector<NamedFile> files;
  for (const std::string& name : options.workloads) {
    files.push_back(workload_file(name, options.inputs.data_dir));
  }
  for (const std::string& name : clusters) {
    files.push_back(cluster_file(name, options.inputs.data_dir));
  }
  for (const std::string& plan : options.plans) files.push_back({"--plan", plan});
  require_outputs({document_file(options.document), page_output(options.page)}, files);
  std::vector<Exploration> all;
  for (const std::string& workload : options.workloads) {
    for (const std::string& cluster : clusters) {
      if (!all.empty() && all.back().sweep.interrupted) continue;
      try {
        all.push_back(explore_one(options, workload, cluster));
      } catch (const Interrupted&) {  // before its first row
        if (all.empty()) throw;
        all.back().sweep.interrupted = true;
      }
    }
  }
  const int code = all.back().sweep.interrupted ? AsksBeforeEnding::exit_code() : 0;
  Exploration& one = all.front();
  if (options.page.wanted()) {
    const NewFile page = page_file(options.page, page_of(options, options.page, one));
    write_file(page.path, page.content);
  }
  const bool is_one = all.size() == 1;
  put_document(options.document,
               {.json = [&] { return is_one ? sweep_json(one) : sweeps_json(all); },
                .table =
                    [&] {
                      return is_one ? table_of(fields_of(one), one.sweep.rows)
                                    : table_of(pair_fields(), all);
                    }},
               out);
  if (replaces_report(options.document)) return code;
  if (all.size() > 1) {
    print_several(out, options, all);
    return code;
  }
  print_exploration(out, options, one);
  if (options.plot || options.terminal) print_plot(out, one.sweep);
  return code;
}

}  // namespace dovetail::cli
