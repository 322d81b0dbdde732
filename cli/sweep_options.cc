// Every flag must reach a policy that heeds it: one without effect is refused, because whoever typed it
// would read the table as if it had one.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_options.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/flags.h"
#include "frameworks/framework.h"

namespace dovetail::cli {
namespace {

using schedule::Policy;
using search::SweptPolicy;

schedule::BucketMode mode_of_flag(const std::string& word) {
  if (const auto mode = word_to<schedule::BucketMode>(word)) return *mode;
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

bool has_first_bucket(const Policy& policy) {
  const auto* limits = std::get_if<schedule::ByLimits>(&*policy.decisions.grouping);
  return limits != nullptr && limits->first.has_value();
}

// Throws InputError for an option that no policy of the sweep would heed.
void require_effects(const ExploreOptions& options, const std::vector<std::string>& names) {
  const auto refuse = [](bool given, const std::string& what) {
    if (given) throw InputError("explore: " + what);
  };
  bool any_sweeps = false;
  bool any_first = false;
  for (const std::string& name : names) {
    const Policy policy = frameworks::parse_policy(name);
    const bool is_plain = name.find(':') == std::string::npos;
    any_sweeps = any_sweeps || (is_plain && search::is_swept(policy));
    any_first = any_first || (is_plain && has_first_bucket(policy));
    refuse(!options.mode.empty() && has_option(name, "mode"),
           "--mode " + options.mode + " contradicts mode= of " + name + ": give one of them");
    refuse(!options.wait.empty() && has_option(name, "wait"),
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

// Without options of its own, a policy that is swept is tried with all thresholds.
SweptPolicy policy_of(const std::string& text) {
  SweptPolicy policy{.spec = frameworks::parse_policy(text), .is_named = true};
  if (policy.spec.decisions.stages) {
    throw InputError(
        "explore: a pipeline changes which rank computes what, so its step cannot be " +
        ("compared with the others: use dovetail plan --policy " + text));
  }
  const bool is_plain = text.find(':') == std::string::npos;
  if (is_plain && search::is_swept(policy.spec)) policy.sizes = SweptPolicy::Sizes::Each;
  return policy;
}

std::vector<std::string> named_in(const ExploreOptions& options) {
  std::vector<std::string> names;
  for (const std::string& list : options.policies) {
    for (std::string& name : schedule::split_policies(list)) names.push_back(std::move(name));
  }
  return names;
}

// Whether `all` is asked for. Throws InputError for other policies beside it, and for sizes, which none takes then.
bool asks_for_all(const ExploreOptions& options) {
  const std::vector<std::string> names = named_in(options);
  if (std::ranges::count(names, "all") == 0) return false;
  const auto refuse = [](bool given, const std::string& what) {
    if (given) throw InputError("explore: " + what);
  };
  refuse(names.size() > 1, "--policies all has every policy already: name no other beside it");
  const std::string why = " has no effect: with --policies all each policy has its own sizes";
  refuse(!options.thresholds.empty(), "--thresholds" + why);
  refuse(options.points.has_value(), "--points" + why);
  refuse(!options.first_bucket.empty(), "--first-bucket" + why);
  return true;
}

std::vector<SweptPolicy> named_policies(const ExploreOptions& options) {
  const std::vector<std::string> names = named_in(options);
  require_effects(options, names);
  std::vector<SweptPolicy> policies;
  for (const std::string& name : names) policies.push_back(policy_of(name));
  return policies;
}

// The first bucket of torch-ddp where its size is swept: as --first-bucket says, else as the version does it.
void set_first_bucket(SweptPolicy& policy, const ExploreOptions& options,
                      const frameworks::Framework& framework) {
  if (!has_first_bucket(policy.spec) || policy.sizes != SweptPolicy::Sizes::Each) return;
  if (!options.first_bucket.empty()) {
    std::get<schedule::ByLimits>(*policy.spec.decisions.grouping).first =
        size_of_flag("--first-bucket", options.first_bucket);
    policy.set_in = nullptr;
    return;
  }
  policy.set_in = framework.id.starts_with("torch") ? &framework : &frameworks::framework("torch");
}

// What the framework does by itself, beside what somebody named; and where that is exact, exact as the framework can
// be told. Where all that was named has micro-steps they have the fewest of these.
void add_usual(search::SweepOptions& sweep, const schedule::Program& program) {
  const std::vector<SweptPolicy> named = sweep.policies;
  const schedule::Merge merge = std::ranges::min(named, {}, [](const SweptPolicy& policy) {
                                  return schedule::accumulation(policy.spec).micro_steps;
                                }).spec.decisions.accumulation.value_or(schedule::Merge{});
  const auto add = [&](SweptPolicy policy) {
    policy.spec.decisions.accumulation = merge;
    if (merge == schedule::Merge{}) policy.spec.decisions.accumulation.reset();
    // One that is tried at each threshold is not the row of its own size.
    const auto is_same = [&](const SweptPolicy& other) {
      return other.spec == policy.spec && other.sizes == policy.sizes;
    };
    if (std::ranges::none_of(sweep.policies, is_same)) sweep.policies.push_back(policy);
  };
  for (const SweptPolicy& policy : search::usual_policies(*sweep.framework, program)) add(policy);
  const bool has_exact = std::ranges::any_of(named, [&](const SweptPolicy& policy) {
    return is_searched(policy.spec) && !sweep.framework->says(policy.spec, {});
  });
  for (const std::string_view text : sweep.framework->more) {
    const Policy spec = schedule::parse_policy(text);
    if (has_exact && is_searched(spec)) add({spec});
  }
}

}  // namespace

std::vector<Bytes> parse_thresholds(const std::string& given, std::optional<int> count) {
  if (given.empty() && !count) return search::usual_thresholds();
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
    return search::log_range(low, high, points);
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

search::SweepOptions sweep_options_of(const ExploreOptions& options,
                                      const schedule::Program& program) {
  search::SweepOptions sweep{.policies = {},
                             .thresholds = parse_thresholds(options.thresholds, options.points)};
  std::optional<schedule::BucketMode> mode;
  std::optional<schedule::WaitPoint> wait;
  if (!options.mode.empty()) mode = mode_of_flag(options.mode);
  if (!options.wait.empty()) wait = wait_of_flag(options.wait);
  const auto set_flags = [&](std::vector<SweptPolicy>& policies) {
    for (SweptPolicy& policy : policies) {
      schedule::BucketPlacement placement = schedule::placement(policy.spec);
      placement.mode = mode.value_or(placement.mode);
      placement.wait = wait.value_or(placement.wait);
      policy.spec = schedule::placed(std::move(policy.spec), placement);
      set_first_bucket(policy, options, *sweep.framework);
    }
  };
  const bool in_shards = options.inputs.layout && options.inputs.layout->dp_shard > 1;
  if (!options.framework.empty()) {
    sweep.framework =
        &frameworks::parse_framework("--framework", options.framework, frameworks::has_rows);
  } else if (in_shards) {
    sweep.framework = &frameworks::framework("fsdp");
  }
  if (asks_for_all(options)) {
    sweep.chosen = search::SweepOptions::Chosen::Every;
    sweep.policies = search::every_policy(program);
    set_flags(sweep.policies);
    add_usual(sweep, program);
    return sweep;
  }
  if (options.policies.empty()) {
    sweep.policies = search::comparable_policies(*sweep.framework, program);
    set_flags(sweep.policies);
    for (const SweptPolicy& policy : search::usual_policies(*sweep.framework, program)) {
      const bool is_there = std::ranges::find(sweep.policies, policy) != sweep.policies.end();
      if (!is_there) sweep.policies.push_back(policy);
    }
    return sweep;
  }
  sweep.chosen = search::SweepOptions::Chosen::Named;
  sweep.policies = named_policies(options);
  set_flags(sweep.policies);
  if (options.framework.empty()) {
    sweep.framework = &search::framework_of(sweep.policies);
    set_flags(sweep.policies);
  }
  add_usual(sweep, program);
  return sweep;
}

}  // namespace dovetail::cli
