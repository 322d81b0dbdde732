// Trying every policy and threshold.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/progress.h"

namespace dovetail::cli {
namespace {

using schedule::PolicyKind;
using schedule::PolicySpec;

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

// Sharded updates as Megatron overlaps them: parameters are gathered beside the next forward. Of the swept
// sizes the best one is shown.
constexpr std::string_view kShardedRule = "sharded:p=1,gather=next-forward";

// All but pipeline, which changes the Program.
std::vector<std::string> comparable_policies() {
  std::vector<std::string> names = schedule::policy_names();
  std::erase(names, std::string(schedule::name(PolicyKind::Pipeline)));
  // It pays time for memory, and is compared where somebody asks for it.
  std::erase(names, std::string(schedule::name(PolicyKind::Fsdp)));
  // The best that DDP can be told stands beside the best.
  const auto exact = std::ranges::find(names, schedule::name(PolicyKind::Exact));
  if (exact != names.end()) names.insert(exact + 1, "exact:mode=copy,wait=end-of-backward");
  names.emplace_back(kShardedRule);
  return names;
}

Bytes first_bucket_of(const ExploreOptions& options) {
  return size_of_flag("--first-bucket",
                      options.first_bucket.empty() ? "1MiB" : options.first_bucket);
}

schedule::BucketMode mode_of_flag(const std::string& word) {
  for (const auto mode : {schedule::BucketMode::View, schedule::BucketMode::Copy}) {
    if (to_string(mode) == word) return mode;
  }
  throw InputError("--mode: expected view or copy, found \"" + word + "\"");
}

schedule::WaitPoint wait_of_flag(const std::string& word) {
  for (const auto wait : {schedule::WaitPoint::FirstUse, schedule::WaitPoint::EndOfBackward}) {
    if (to_string(wait) == word) return wait;
  }
  throw InputError("--wait: expected first-use or end-of-backward, found \"" + word + "\"");
}

bool has_option(const std::string& policy, const std::string& key) {
  return policy.find(":" + key + "=") != std::string::npos ||
         policy.find("," + key + "=") != std::string::npos;
}

// Throws InputError for an option that no policy of the sweep would heed.
void require_effects(const ExploreOptions& options, const std::vector<std::string>& names) {
  const auto refuse = [](bool given, const std::string& what) {
    if (given) throw InputError("explore: " + what);
  };
  if (!options.mode.empty()) static_cast<void>(mode_of_flag(options.mode));
  if (!options.wait.empty()) static_cast<void>(wait_of_flag(options.wait));
  const bool are_typed = !options.policies.empty();
  bool any_sweeps = false;
  bool any_first = false;
  for (const std::string& name : names) {
    const PolicyKind kind = schedule::parse_policy(name).kind;
    const bool is_plain = name.find(':') == std::string::npos;
    any_sweeps = any_sweeps || (is_plain && sweeps(kind));
    any_first = any_first || (is_plain && kind == PolicyKind::TorchDdp);
    refuse(are_typed && !options.mode.empty() && has_option(name, "mode"),
           "--mode " + options.mode + " contradicts mode= of " + name + ": give one of them");
    refuse(are_typed && !options.wait.empty() && has_option(name, "wait"),
           "--wait " + options.wait + " contradicts wait= of " + name + ": give one of them");
  }
  refuse(
      !options.thresholds.empty() && !any_sweeps,
      "--thresholds has no effect: none of these policies is swept (threshold and torch-ddp are, "
      "without options of their own)");
  refuse(options.points.has_value() && !any_sweeps, "--points has no effect: no policy is swept");
  refuse(!options.first_bucket.empty() && !any_first,
         "--first-bucket has no effect: it is for torch-ddp without options; write "
         "torch-ddp:first=" +
             options.first_bucket);
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
      spec.first_bucket = first_bucket_of(options);
    }
    if (!options.mode.empty()) spec.mode = mode_of_flag(options.mode);
    if (!options.wait.empty()) spec.wait = wait_of_flag(options.wait);
    specs.push_back(spec);
  }
  return specs;
}

// The rows of one policy, which sweeps the thresholds unless it was given one; fewer after Ctrl-C.
std::vector<SweepRow> evaluate(search::Planner& planner, PolicySpec spec,
                               std::span<const Bytes> thresholds, Progress& progress) {
  std::vector<SweepRow> rows;
  const auto add = [&](std::optional<Bytes> threshold) {
    SweepRow row{planner.evaluate(spec), threshold, {}};
    if (spec.kind == PolicyKind::TorchDdp) row.first_bucket = spec.first_bucket;
    rows.push_back(std::move(row));
    return progress.done();
  };
  if (!sweeps(spec.kind)) {
    add(std::nullopt);
    return rows;
  }
  for (const Bytes threshold : thresholds) {
    spec.threshold = threshold;
    if (!add(threshold)) break;
  }
  return rows;
}

// The best of the thresholds, as one candidate of the progress.
SweepRow best_size(search::Planner& planner, PolicySpec spec, const std::vector<Bytes>& thresholds,
                   Progress& progress) {
  std::optional<SweepRow> best;
  for (const Bytes threshold : thresholds_for(spec, planner.program(), thresholds)) {
    spec.threshold = threshold;
    SweepRow row{planner.evaluate(spec), std::nullopt, {}};
    if (!best || step_ns(row) < step_ns(*best)) best = std::move(row);
  }
  progress.done();
  return std::move(*best);
}

// How many rows these policies have.
std::int64_t row_count(const std::vector<std::string>& names, std::span<const PolicySpec> specs,
                       std::size_t thresholds) {
  std::size_t rows = 0;
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const bool is_plain = names[p].find(':') == std::string::npos;
    rows += is_plain && sweeps(specs[p].kind) ? thresholds : 1;
  }
  return static_cast<std::int64_t>(rows);
}

// Where nobody named the policies, one that shards updates is only compared: it is another training job.
enum class Asked { No, ByName };

void find_best(Sweep& sweep, Asked asked) {
  const auto better = [&](const SweepRow& a, const SweepRow& b) {
    if (micro_steps(a) != micro_steps(b)) return micro_steps(a) < micro_steps(b);
    const bool shards = a.candidate.sharded();
    if (asked == Asked::No && shards != b.candidate.sharded()) return !shards;
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

}  // namespace

std::int32_t micro_steps(const SweepRow& row) { return row.candidate.spec.merge.micro_steps; }

double step_ns(const SweepRow& row) {
  return static_cast<double>(row.candidate.summary.step_ns) / micro_steps(row);
}

std::vector<Bytes> parse_thresholds(const std::string& given, std::optional<int> count) {
  const std::string text = given.empty() ? "0.5MiB:128MiB" : given;
  const int points = count.value_or(17);
  if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
    const Bytes low = size_of_flag("--thresholds", text.substr(0, colon));
    const Bytes high = size_of_flag("--thresholds", text.substr(colon + 1));
    if (high < low) {
      throw InputError("--thresholds: LOW is above HIGH in LOW:HIGH, found \"" + text + "\"");
    }
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
  if (count) {
    throw InputError("--points has no effect on a list of thresholds: it is for a range LOW:HIGH");
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

std::vector<Bytes> thresholds_for(const PolicySpec& spec, const schedule::Program& program,
                                  const std::vector<Bytes>& thresholds) {
  if (spec.kind != PolicyKind::Sharded) return thresholds;
  Bytes total;
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    total += gradient.bytes;
  }
  std::vector<Bytes> few;
  for (const Bytes threshold : thresholds) {
    if (total.count() / threshold.count() < kMostCutBuckets) few.push_back(threshold);
  }
  if (few.empty()) few.push_back(thresholds.back());
  return few;
}

Sweep run_sweep(search::Planner& planner, const ExploreOptions& options) {
  const std::vector<Bytes> range = parse_thresholds(options.thresholds, options.points);
  refuse_beside(options.document, "explore: --plot", options.plot);
  Sweep sweep;
  const bool all = options.policies.empty();
  const std::vector<std::string> names =
      all ? comparable_policies() : joined_policies(options.policies);
  require_effects(options, names);
  const std::vector<PolicySpec> specs = policies_of(options, names);
  const AsksBeforeEnding keep_what_is_found;
  Progress progress("explore", "candidate", row_count(names, specs, range.size()), options.yes);
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const PolicySpec& spec = specs[p];
    // What was not asked for by name is left out where it does not apply.
    const search::Planner::Fit fit = planner.fit_of(spec);
    if (all && fit.refusal) {
      std::string line = std::string(schedule::name(spec.kind)) + ": " + *fit.refusal;
      if (std::ranges::find(sweep.left_out, line) == sweep.left_out.end()) {
        sweep.left_out.push_back(std::move(line));
      }
      continue;
    }
    for (const std::string& step : fit.left_out) {
      sweep.left_out.push_back(schedule::to_string(spec) + ": " + step);
    }
    const bool given = names[p].find(':') != std::string::npos;
    const std::vector<Bytes> own = {spec.threshold};
    progress.begin(std::string(schedule::name(spec.kind)));
    if (all && names[p] == kShardedRule) {
      sweep.rows.push_back(best_size(planner, spec, range, progress));
    } else {
      for (SweepRow& row : evaluate(planner, spec, given ? own : range, progress)) {
        sweep.rows.push_back(std::move(row));
      }
    }
    sweep.interrupted = progress.is_interrupted();
    if (sweep.interrupted) break;
  }
  find_best(sweep, all ? Asked::No : Asked::ByName);
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

}  // namespace dovetail::cli
