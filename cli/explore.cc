// The sweep, as a table or as JSON.
//
// Rows with k micro-steps per update are compared by step time / k, but only rows with the fewest
// micro-steps of the sweep can be best: the others train with larger batches.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "cli/explore_page.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "exports/export.h"
#include "exports/words.h"
#include "search/planner.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using schedule::PolicyKind;
using schedule::PolicySpec;

struct Row {
  search::Candidate candidate;
  std::optional<Bytes> threshold;
  std::optional<Bytes> first_bucket;
};

struct Sweep {
  std::vector<Row> rows;
  std::size_t best = 0;
  std::optional<std::size_t> best_bounded;  // of the rows that the lower bound bounds
  std::optional<Duration> lower_bound;      // absent with best_bounded, or with a reason:
  std::string bound_problem;                // why the bound that was found is none
  double gap = 0;                           // of best_bounded
  std::size_t simulated = 0;
  std::vector<std::string> left_out;  // policies, and steps of them, that do not apply, and why
};

bool sweeps(PolicyKind kind) {
  return kind == PolicyKind::Threshold || kind == PolicyKind::TorchDdp;
}

// The policies of a command line, which was cut at every comma: "sharded:p=2" "k=4" is one.
std::vector<std::string> joined_policies(const std::vector<std::string>& pieces) {
  std::vector<std::string> names;
  for (const std::string& piece : pieces) {
    const bool option = piece.find('=') < piece.find(':');
    if (option && !names.empty() && names.back().find(':') != std::string::npos) {
      names.back() += "," + piece;
    } else {
      names.push_back(piece);
    }
  }
  return names;
}

// All but pipeline, which changes the Program.
std::vector<std::string> comparable_policies() {
  std::vector<std::string> names = schedule::policy_names();
  std::erase(names, std::string(schedule::name(PolicyKind::Pipeline)));
  // It pays time for memory, and is compared where somebody asks for it.
  std::erase(names, std::string(schedule::name(PolicyKind::Fsdp)));
  // The best that DDP can be told stands beside the best.
  const auto exact = std::ranges::find(names, schedule::name(PolicyKind::Exact));
  if (exact != names.end()) names.insert(exact + 1, "exact:mode=copy,wait=end-of-backward");
  return names;
}

std::int32_t micro_steps(const Row& row) { return row.candidate.spec.merge.micro_steps; }

// Of one micro-step.
double step_ns(const Row& row) {
  return static_cast<double>(row.candidate.summary.step_ns) / micro_steps(row);
}

std::vector<PolicySpec> policies_of(const ExploreOptions& options,
                                    const std::vector<std::string>& names) {
  std::vector<PolicySpec> specs;
  for (const std::string& text : names) {
    // A plain torch-ddp takes --first-bucket, and the mode and wait of the command line.
    const bool plain = text.find(':') == std::string::npos;
    PolicySpec spec = schedule::parse_policy(text);
    if (spec.kind == PolicyKind::Pipeline) {
      throw InputError(
          "explore: a pipeline changes which rank computes what, so its step cannot be " +
          ("compared with the others: use dovetail plan --policy " + text));
    }
    if (plain && spec.kind == PolicyKind::TorchDdp) {
      spec.first_bucket = size_of_flag("--first-bucket", options.first_bucket);
    }
    if (!options.mode.empty()) {
      spec.mode = schedule::parse_policy("exact:mode=" + options.mode).mode;
    }
    if (!options.wait.empty()) {
      spec.wait = schedule::parse_policy("exact:wait=" + options.wait).wait;
    }
    specs.push_back(spec);
  }
  return specs;
}

// The rows of one policy, which sweeps the thresholds unless it was given one.
std::vector<Row> evaluate(search::Planner& planner, PolicySpec spec,
                          std::span<const Bytes> thresholds) {
  std::vector<Row> rows;
  const auto add = [&](std::optional<Bytes> threshold) {
    Row row{planner.evaluate(spec), threshold, {}};
    if (spec.kind == PolicyKind::TorchDdp) row.first_bucket = spec.first_bucket;
    rows.push_back(std::move(row));
  };
  if (!sweeps(spec.kind)) {
    add(std::nullopt);
    return rows;
  }
  for (const Bytes threshold : thresholds) {
    spec.threshold = threshold;
    add(threshold);
  }
  return rows;
}

void find_best(Sweep& sweep) {
  const auto better = [&](const Row& a, const Row& b) {
    if (micro_steps(a) != micro_steps(b)) return micro_steps(a) < micro_steps(b);
    if (step_ns(a) != step_ns(b)) return step_ns(a) < step_ns(b);
    return a.candidate.buckets() < b.candidate.buckets();
  };
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    if (better(sweep.rows[i], sweep.rows[sweep.best])) sweep.best = i;
    if (!sweep.rows[i].candidate.bounded) continue;
    if (!sweep.best_bounded || better(sweep.rows[i], sweep.rows[*sweep.best_bounded])) {
      sweep.best_bounded = i;
    }
  }
}

Sweep run_sweep(search::Planner& planner, const ExploreOptions& options) {
  const std::vector<Bytes> range = parse_thresholds(options.thresholds, options.points);
  Sweep sweep;
  const bool all = options.policies.empty();
  const std::vector<std::string> names =
      all ? comparable_policies() : joined_policies(options.policies);
  const std::vector<PolicySpec> specs = policies_of(options, names);
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const PolicySpec& spec = specs[p];
    // What was not asked for by name is left out where it does not apply.
    const search::Planner::Fit fit = planner.fit_of(spec);
    if (all && fit.refusal) {
      sweep.left_out.push_back(std::string(schedule::name(spec.kind)) + ": " + *fit.refusal);
      continue;
    }
    for (const std::string& step : fit.left_out) {
      sweep.left_out.push_back(schedule::to_string(spec) + ": " + step);
    }
    const bool given = names[p].find(':') != std::string::npos;
    const std::vector<Bytes> own = {spec.threshold};
    for (Row& row : evaluate(planner, spec, given ? own : range)) {
      sweep.rows.push_back(std::move(row));
    }
  }
  find_best(sweep);
  static_cast<void>(planner.verified(sweep.rows[sweep.best].candidate.schedule));
  sweep.simulated = planner.simulated();
  if (!sweep.best_bounded) return sweep;
  search::Bound checked =
      checked_bound(planner.lower_bound(), sweep.rows[*sweep.best_bounded].candidate);
  sweep.lower_bound = checked.time;
  sweep.bound_problem = std::move(checked.problem);
  if (!sweep.lower_bound) return sweep;
  const auto bound = static_cast<double>(sweep.lower_bound->count());
  const auto found = static_cast<double>(sweep.rows[*sweep.best_bounded].candidate.summary.step_ns);
  sweep.gap = bound > 0 ? found / bound - 1 : 0;
  return sweep;
}

double us(std::int64_t ns) { return to_us(Duration(ns)); }

ordered_json row_json(const Row& row) {
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? ordered_json(bytes->count()) : ordered_json(nullptr);
  };
  const sim::StepSummary& summary = row.candidate.summary;
  return {{"policy", std::string(schedule::name(row.candidate.spec.kind))},
          {"threshold_bytes", size(row.threshold)},
          {"first_bucket_bytes", size(row.first_bucket)},
          {"mode", std::string(to_string(row.candidate.spec.mode))},
          {"wait", std::string(to_string(row.candidate.spec.wait))},
          {"buckets", row.candidate.buckets()},
          {"micro_steps", micro_steps(row)},
          {"step_us", us(summary.step_ns)},
          {"exposed_us", us(summary.exposed_ns)},
          {"communication_us", us(summary.communication_ns)},
          {"compute_us", us(summary.compute_ns)},
          {"spec", schedule::to_string(row.candidate.spec)},
          {"in_words", exports::in_words(row.candidate.spec)}};
}

bool shards(const Sweep& sweep) {
  return std::ranges::any_of(sweep.rows, [](const Row& row) { return row.candidate.sharded(); });
}

std::string to_json(const Sweep& sweep, const Inputs& inputs, const ExploreOptions& options,
                    const schedule::Program& program) {
  ordered_json rows = ordered_json::array();
  for (const Row& row : sweep.rows) rows.push_back(row_json(row));
  ordered_json bound_us = nullptr;
  if (sweep.lower_bound) bound_us = to_us(*sweep.lower_bound);
  std::vector<std::string> notes = inputs.notes;
  if (shards(sweep)) {
    notes.insert(notes.end(), inputs.sharding_notes.begin(), inputs.sharding_notes.end());
  }
  if (!sweep.bound_problem.empty()) notes.push_back(sweep.bound_problem);
  const ordered_json result = {{"schema", "dovetail.explore/1"},
                               {"kind", "explore"},
                               {"origin", "simulated"},
                               {"version", DOVETAIL_VERSION},
                               {"workload", options.inputs.workload},
                               {"cluster", inputs.cluster},
                               {"world_size", program.world_size},
                               {"notes", std::move(notes)},
                               {"rows", std::move(rows)},
                               {"best", row_json(sweep.rows[sweep.best])},
                               {"lower_bound_us", bound_us},
                               {"gap", sweep.lower_bound ? ordered_json(sweep.gap) : nullptr},
                               {"simulated", sweep.simulated},
                               {"left_out", sweep.left_out}};
  return result.dump(1) + "\n";
}

// A swept policy by its sizes, unless it has other options of its own.
std::string label(const Row& row) {
  const PolicySpec& spec = row.candidate.spec;
  PolicySpec plain = schedule::default_policy(spec.kind);
  plain.threshold = spec.threshold;
  plain.first_bucket = spec.first_bucket;
  if (!row.threshold || spec != plain) return schedule::to_string(spec);
  std::string text(schedule::name(spec.kind));
  text += " " + to_string(*row.threshold);
  if (row.first_bucket) text += ", first " + to_string(*row.first_bucket);
  return text;
}

// One that trains with a larger batch is not called best.
std::string word_for_best(const Row& row) { return micro_steps(row) == 1 ? "best" : "fastest"; }

void print_rows(std::ostream& out, const Sweep& sweep) {
  const bool merged =
      std::ranges::any_of(sweep.rows, [](const Row& row) { return micro_steps(row) > 1; });
  std::vector<std::string> header = {"policy",     "buckets",   "step ms",
                                     "exposed ms", "over best", "in the words of"};
  if (merged) header.insert(header.end() - 2, "per micro-step");
  TextTable table(std::move(header));
  const Row& best = sweep.rows[sweep.best];
  for (const Row& row : sweep.rows) {
    std::vector<std::string> cells = {label(row), std::to_string(row.candidate.buckets()),
                                      fixed(us(row.candidate.summary.step_ns) / 1e3, 3),
                                      fixed(us(row.candidate.summary.exposed_ns) / 1e3, 3)};
    if (merged) cells.push_back(fixed(step_ns(row) / 1e6, 3));
    cells.push_back(&row == &best ? word_for_best(best)
                                  : fixed((step_ns(row) / step_ns(best) - 1) * 100, 1, "+") + " %");
    cells.push_back(exports::in_words(row.candidate.spec));
    table.add(std::move(cells));
  }
  table.print(out);
}

// How the best row gets into a framework: commands.
std::vector<std::string> way_out(const Row& best, const InputOptions& inputs) {
  std::string plan = "dovetail plan --workload " + inputs.workload;
  if (!inputs.cluster.empty()) plan += " --cluster " + inputs.cluster;
  if (inputs.world) plan += " --world " + std::to_string(*inputs.world);
  plan += " --policy " + schedule::to_string(best.candidate.spec) + " -o plan.json";
  return {plan, exports::export_command("plan.json")};
}

void print_table(std::ostream& out, const Sweep& sweep, const Inputs& inputs,
                 const schedule::Program& program, const InputOptions& given) {
  Bytes total;
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    total += gradient.bytes;
  }
  out << given.workload << " on " << inputs.cluster << ": " << counted(program.world_size, "rank")
      << ", " << counted(program.reductions.size(), "gradient") << ", " << total
      << "; predicted (simulated), dovetail " << DOVETAIL_VERSION << '\n';
  print_notes(out, inputs.notes);
  if (shards(sweep)) print_notes(out, inputs.sharding_notes);
  for (const std::string& policy : sweep.left_out) out << "  left out: " << policy << '\n';
  print_rows(out, sweep);
  const Row& best = sweep.rows[sweep.best];
  out << word_for_best(best) << ": " << schedule::to_string(best.candidate.spec);
  if (micro_steps(best) > 1) {
    out << ", of rows with " << micro_steps(best) << " micro-steps per update (a larger batch)";
  }
  out << '\n';
  const std::vector<std::string> commands = way_out(best, given);
  out << "to use it: " << commands[0] << "; " << commands[1] << '\n';
  if (!sweep.bound_problem.empty()) out << sweep.bound_problem << '\n';
  if (!sweep.lower_bound) return;
  if (sweep.best_bounded != sweep.best) {
    out << "best of those that the bound covers: "
        << schedule::to_string(sweep.rows[*sweep.best_bounded].candidate.spec) << "; ";
  }
  out << "no schedule of whole gradients in consecutive buckets on one stream is faster than "
      << fixed(to_us(*sweep.lower_bound) / 1e3, 3) << " ms on this model: gap "
      << fixed(sweep.gap * 100, 2) << " %\n";
}

void print_plot(std::ostream& out, const Sweep& sweep) {
  // One curve: that of the first policy that was swept.
  const auto swept =
      std::ranges::find_if(sweep.rows, [](const Row& row) { return row.threshold.has_value(); });
  if (swept == sweep.rows.end()) return;
  const PolicyKind kind = swept->candidate.spec.kind;
  std::vector<Bar> bars;
  const double best = us(sweep.rows[sweep.best].candidate.summary.step_ns);
  for (const Row& row : sweep.rows) {
    if (!row.threshold || row.candidate.spec.kind != kind) continue;
    const double step = us(row.candidate.summary.step_ns);
    bars.push_back(
        {to_string(*row.threshold), step / 1e3, fixed((step / best - 1) * 100, 1, "+") + " %"});
  }
  if (bars.size() < 2) return;
  out << "\nstep time against fusion threshold (ms; the axis starts at the lower bound)\n";
  print_bars(out, bars, to_us(sweep.lower_bound.value_or(Duration{})) / 1e3);
}

}  // namespace

std::vector<Bytes> parse_thresholds(const std::string& text, int points) {
  if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
    const Bytes low = size_of_flag("--thresholds", text.substr(0, colon));
    const Bytes high = size_of_flag("--thresholds", text.substr(colon + 1));
    if (high < low) throw InputError("--thresholds: expected LOW:HIGH, found \"" + text + "\"");
    if (points < 2)
      throw InputError("--points: expected at least 2, found " + std::to_string(points));
    std::set<Bytes> range;
    const double first = std::log(static_cast<double>(low.count()));
    const double last = std::log(static_cast<double>(high.count()));
    for (int i = 0; i < points; ++i) {
      const double at = first + (last - first) * i / (points - 1);
      range.insert(std::clamp(Bytes(std::llround(std::exp(at))), low, high));
    }
    return {range.begin(), range.end()};
  }
  std::set<Bytes> list;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    list.insert(size_of_flag("--thresholds", text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  return {list.begin(), list.end()};
}

namespace {

report::Report page_of(const ExploreOptions& options, const PageOptions& page, const Inputs& inputs,
                       search::Planner& planner, const Sweep& sweep) {
  const Row& best = sweep.rows[sweep.best];
  return report_of(
      {.page = page,
       .given = options.inputs,
       .inputs = inputs,
       .planner = planner,
       .best = best.candidate,
       .lower_bound = sweep.best_bounded == sweep.best ? sweep.lower_bound : std::nullopt,
       .thresholds = parse_thresholds(options.thresholds, options.points),
       .json = to_json(sweep, inputs, options, planner.program()),
       .next = way_out(best, options.inputs)});
}

}  // namespace

report::Report report_of_sweep(const ExploreOptions& options, const PageOptions& page) {
  Inputs inputs = load_inputs(options.inputs);
  search::Planner planner(std::move(inputs.program), std::move(inputs.costs));
  const Sweep sweep = run_sweep(planner, options);
  return page_of(options, page, inputs, planner, sweep);
}

void explore(const ExploreOptions& options, std::ostream& out) {
  require_outputs({page_output(options.page)},
                  {workload_file(options.inputs.workload, options.inputs.data_dir),
                   cluster_file(options.inputs.cluster, options.inputs.data_dir)});
  Inputs inputs = load_inputs(options.inputs);
  search::Planner planner(std::move(inputs.program), std::move(inputs.costs));
  const Sweep sweep = run_sweep(planner, options);
  if (options.page.wanted()) {
    const NewFile page =
        page_file(options.page, page_of(options, options.page, inputs, planner, sweep));
    write_file(page.path, page.content);
  }
  if (options.json) {
    out << to_json(sweep, inputs, options, planner.program());
    return;
  }
  print_table(out, sweep, inputs, planner.program(), options.inputs);
  if (options.terminal) print_plot(out, sweep);
}

}  // namespace dovetail::cli
