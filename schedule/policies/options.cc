// How a policy is typed and printed: what its definition lists, and the options that all policies take.
//
// Each term is read into decisions of its own. Then, for each of the eight, the term that decides it most
// firmly does; equals are refused. Sizes are always printed, other options where they differ from the
// term's default, each in the term that decides what it belongs to.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "schedule/policies/combinations.h"
#include "schedule/policies/definition.h"
#include "schedule/policies/policies.h"
#include "schedule/policies/typed.h"

namespace dovetail::schedule {
namespace {

using typed::small_number;
using typed::Typed;
using typed::word;

Merge& merging(Decisions& decisions) {
  if (!decisions.accumulation) decisions.accumulation.emplace();
  return *decisions.accumulation;
}
Merge merge_of(const Decisions& decisions) { return decisions.accumulation.value_or(Merge{}); }
BucketPlacement placement_of(const Decisions& decisions) {
  return decisions.placement.value_or(BucketPlacement{});
}
template <Worded Enum>
std::string text(Enum value) {
  return std::string(to_string(value));
}

// Micro-steps.
constexpr std::array<PolicyOption, 4> kMergeOptions = {{
    {"k", Decision::Accumulation,
     [](Decisions& decisions, const Typed& typed) {
       merging(decisions).micro_steps = small_number(typed, 1 << 16);
     },
     [](const Decisions& decisions) { return std::to_string(merge_of(decisions).micro_steps); }},
    {"sync", Decision::Accumulation,
     [](Decisions& decisions, const Typed& typed) {
       merging(decisions).sync = word<SyncPoint>(typed);
     },
     [](const Decisions& decisions) { return text(merge_of(decisions).sync); }},
    {"average", Decision::Accumulation,
     [](Decisions& decisions, const Typed& typed) {
       merging(decisions).op =
           word<Choice>(typed) == Choice::Yes ? ReduceOp::Average : ReduceOp::Sum;
     },
     [](const Decisions& decisions) {
       return text(merge_of(decisions).op == ReduceOp::Average ? Choice::Yes : Choice::No);
     }},
    {"sums", Decision::Accumulation,
     [](Decisions& decisions, const Typed& typed) {
       merging(decisions).dtype = word<DType>(typed);
     },
     [](const Decisions& decisions) { return text(merge_of(decisions).dtype); }},
}};

// Where a bucket lies and where it is waited for.
constexpr std::array<PolicyOption, 3> kPlaceOptions = {{
    {"mode", Decision::Placement,
     [](Decisions& decisions, const Typed& typed) {
       placing(decisions).mode = word<BucketMode>(typed);
     },
     [](const Decisions& decisions) { return text(placement_of(decisions).mode); }},
    {"wait", Decision::Placement,
     [](Decisions& decisions, const Typed& typed) {
       placing(decisions).wait = word<WaitPoint>(typed);
     },
     [](const Decisions& decisions) { return text(placement_of(decisions).wait); }},
    {"scope", Decision::Placement,
     [](Decisions& decisions, const Typed& typed) {
       placing(decisions).scope = word<WaitScope>(typed);
     },
     [](const Decisions& decisions) { return text(placement_of(decisions).scope); }},
}};

constexpr PolicyOption kScale = {"scale", Decision::Scaling,
                                 [](Decisions& decisions, const Typed& typed) {
                                   if (!decisions.scaling) decisions.scaling.emplace();
                                   decisions.scaling->asked = word<ScaleAt>(typed);
                                 },
                                 [](const Decisions& decisions) {
                                   const bool asked = decisions.scaling && decisions.scaling->asked;
                                   return asked ? text(*decisions.scaling->asked) : std::string();
                                 }};

constexpr PolicyOption kCollectives = {
    "collectives", Decision::OwnCollectives,
    [](Decisions& decisions, const Typed& typed) {
      decisions.collectives = word<OwnCollectives>(typed);
    },
    [](const Decisions& decisions) {
      return text(decisions.collectives.value_or(OwnCollectives::Inline));
    }};

constexpr std::int32_t kMostStreams = 16;
constexpr PolicyOption kStreams = {
    "streams", Decision::Placement,
    [](Decisions& decisions, const Typed& typed) {
      placing(decisions).streams = small_number(typed, kMostStreams);
    },
    [](const Decisions& decisions) { return std::to_string(placement_of(decisions).streams); }};

constexpr std::int32_t kMostCtas = 1024;
constexpr std::string_view kSearch = "search";
constexpr PolicyOption kCtas = {
    "ctas", Decision::Placement,
    [](Decisions& decisions, const Typed& typed) {
      const bool is_searched = typed.value == kSearch;
      placing(decisions).max_ctas = is_searched ? kSearchedCtas : small_number(typed, kMostCtas);
    },
    [](const Decisions& decisions) {
      const std::int32_t ctas = placement_of(decisions).max_ctas;
      return ctas == kSearchedCtas ? std::string(kSearch) : typed::positive(ctas);
    }};

// One term of a policy as it was typed, and what it decides alone.
struct Term {
  const PolicyDefinition* policy = nullptr;
  Decisions decisions = {};
  TypedOptions typed = {};
  std::vector<Decision> parts = {};  // that some option was typed for, or a value sets
};

// Reads what was typed, and returns its option. Throws InputError where the policy has none of this name.
PolicyOption read_option(const PolicyDefinition& policy, Decisions& decisions, const Typed& typed) {
  if (const std::optional<PolicyOption> found = option_of(policy, typed.key)) {
    found->read(decisions, typed);
    return *found;
  }
  const std::vector<PolicyOption> options = options_of(policy);
  std::string known;
  for (const PolicyOption& option : options) {
    known += (known.empty() ? "" : ", ") + std::string(option.key);
  }
  std::string others;
  for (const PolicyDefinition& other : all_policies()) {
    if (!option_of(other, typed.key)) continue;
    others += (others.empty() ? "" : ", ") + std::string(other.name);
  }
  typed::fail(typed.policy, "unknown option \"" + std::string(typed.key) + "\"; known: " + known +
                                (others.empty() ? "" : "; it is an option of " + others));
}

[[noreturn]] void fail_twice(std::string_view text, std::string_view key) {
  typed::fail(text, "option \"" + std::string(key) + "\" stands twice");
}

// What contradicts itself in any policy.
void check_options(const Policy& policy, std::string_view text,
                   const std::vector<std::string_view>& keys) {
  const auto has = [&](std::string_view key) { return std::ranges::count(keys, key) > 0; };
  const std::int32_t batch = placement(policy).batch;
  if (placement(policy).wait == WaitPoint::BeforeNextBatch && batch == 0) {
    typed::fail(text, "wait=before-next-batch needs batch=: there are no batches to wait between");
  }
  if (has("tail") && batch == 0) {
    typed::fail(text, "tail= needs batch=: without batches nothing is left over");
  }
  const bool merges = std::ranges::any_of(
      policy.terms, [](const std::string& term) { return find_definition(term)->merges; });
  for (const std::string_view key : {"sync", "average", "sums"}) {
    if (accumulation(policy).micro_steps > 1 || !has(key) || merges) continue;
    typed::fail(text, std::string(key) + "= needs k=: there is only one micro-step");
  }
}

// What the policy decides without options.
Decisions usual_of(const PolicyDefinition& policy) {
  Decisions decisions;
  if (policy.decide != nullptr) policy.decide(decisions);
  return decisions;
}

// The policy or preset of this name, with its defaults.
Term named_term(std::string_view text, std::string_view name, std::span<const Preset> presets);

TypedOptions cut(std::string_view text, std::string_view rest) {
  TypedOptions typed{.text = text, .options = {}};
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view option = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) {
      typed::fail(text, "expected key=value, found \"" + std::string(option) + "\"");
    }
    const std::string_view key = option.substr(0, equals);
    if (typed.has(key)) fail_twice(text, key);
    typed.options.push_back({text, key, option.substr(equals + 1)});
  }
  return typed;
}

Term read_term(std::string_view text, std::string_view term, std::span<const Preset> presets) {
  const std::size_t colon = term.find(':');
  Term result = named_term(text, term.substr(0, colon), presets);
  const std::string_view rest = colon == std::string_view::npos ? "" : term.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) {
    typed::fail(text, "expected options after ':'");
  }
  result.typed = cut(text, rest);
  std::vector<std::string_view> keys;
  for (Typed& typed : result.typed.options) {
    const PolicyOption option = read_option(*result.policy, result.decisions, typed);
    if (std::ranges::count(keys, option.key) > 0) fail_twice(text, option.key);
    keys.push_back(option.key);
    typed.key = option.key;
    result.parts.push_back(option.part);
  }
  if (result.policy->complete != nullptr) result.policy->complete(result.decisions, result.typed);
  return result;
}

Term named_term(std::string_view text, std::string_view name, std::span<const Preset> presets) {
  if (const PolicyDefinition* policy = find_definition(name)) {
    return {.policy = policy, .decisions = usual_of(*policy)};
  }
  for (const Preset& preset : presets) {
    if (preset.name == name) return read_term(text, preset.stands_for, {});
  }
  std::vector<std::string> names = policy_names();
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  const std::string near = nearest_word(name, names);
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "; known: " : ", ") + known;
  typed::fail(text, "unknown policy" + (near.empty() ? list : "; did you mean \"" + near + "\"?"));
}

// Calls `act` with each part and the member of both that holds it.
template <class Act>
void each_part(Decisions& to, const Decisions& from, Act act) {
  act(Decision::Stages, to.stages, from.stages);
  act(Decision::Grouping, to.grouping, from.grouping);
  act(Decision::Sharding, to.sharding, from.sharding);
  act(Decision::Gathers, to.gathers, from.gathers);
  act(Decision::Accumulation, to.accumulation, from.accumulation);
  act(Decision::Scaling, to.scaling, from.scaling);
  act(Decision::OwnCollectives, to.collectives, from.collectives);
  act(Decision::Placement, to.placement, from.placement);
}

// The same of a value.
Term term_of(std::string_view text, const PolicyTerm& given) {
  const PolicyDefinition& policy = *find_definition(given.name);
  Term term{
      .policy = &policy, .decisions = usual_of(policy), .typed = {.text = text, .options = {}}};
  each_part(term.decisions, given.decisions, [&](Decision part, auto& to, const auto& from) {
    if (to == from) return;
    to = from;
    term.parts.push_back(part);
  });
  if (policy.complete != nullptr) policy.complete(term.decisions, term.typed);
  return term;
}

Firmness firmness(const Term& term, Decision part) {
  if (std::ranges::count(term.parts, part) > 0) return Firmness::Decided;
  const bool may_yield = part == Decision::Grouping || part == Decision::Scaling;
  return may_yield ? term.policy->grouping : Firmness::Decided;
}

Policy joined(std::string_view text, const std::vector<Term>& terms) {
  Policy policy;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    policy.terms.emplace_back(terms[i].policy->name);
    const auto join = [&](Decision part, auto& to, const auto& from) {
      if (!from) return;
      std::int8_t& by = policy.decided_by[static_cast<std::size_t>(part)];
      if (by >= 0) {
        const Term& other = terms[static_cast<std::size_t>(by)];
        const Firmness theirs = firmness(other, part);
        const Firmness mine = firmness(terms[i], part);
        if (theirs == mine) {
          typed::fail(text, std::string(other.policy->name) + " and " +
                                std::string(terms[i].policy->name) + " both decide " +
                                std::string(to_string(part)));
        }
        if (theirs > mine) return;
      }
      to = from;
      by = static_cast<std::int8_t>(i);
    };
    each_part(policy.decisions, terms[i].decisions, join);
  }
  return policy;
}

// The name by which an option that stands for itself is printed.
std::string_view key_of(const Policy& policy, std::string_view name) {
  for (const std::string& term : policy.terms) {
    if (const auto option = option_of(*find_definition(term), name)) return option->key;
  }
  return name;
}

// An option that stands for itself: of any term that takes it, typed nowhere else.
void add_option(Policy& policy, const Typed& typed) {
  for (std::size_t i = 0; i < policy.terms.size(); ++i) {
    for (const PolicyOption& option : options_of(*find_definition(policy.terms[i]))) {
      if (!option.is(typed.key)) continue;
      std::int8_t& by = policy.decided_by[static_cast<std::size_t>(option.part)];
      if (by >= 0 && static_cast<std::size_t>(by) != i) break;
      option.read(policy.decisions, typed);
      by = static_cast<std::int8_t>(i);
      return;
    }
  }
  read_option(*find_definition(policy.terms.front()), policy.decisions, typed);
}

// What is as if nobody had decided it.
void drop_plain(Decisions& decisions) {
  if (decisions.accumulation == Merge{}) decisions.accumulation.reset();
  if (decisions.scaling == ScaleDecision{}) decisions.scaling.reset();
  if (decisions.collectives == OwnCollectives::Inline) decisions.collectives.reset();
  if (decisions.placement == BucketPlacement{}) decisions.placement.reset();
}

// How far ahead parameters are gathered where nobody said so.
void decide_prefetch(Policy& policy, std::string_view text) {
  if (!policy.decisions.gathers) return;
  Gathers& gathers = *policy.decisions.gathers;
  const bool searches = is_searched(policy);
  for (std::int32_t* const ahead : {&gathers.forward, &gathers.backward}) {
    if (*ahead == kUsualPrefetch) *ahead = searches ? kSearchedPrefetch : 1;
    if (*ahead != kSearchedPrefetch || searches) continue;
    typed::fail(text, "prefetch=search goes with blocks that are searched: fsdp+exact");
  }
}

// The whole, looked at once more.
Policy finished(Policy policy, std::string_view text, const std::vector<std::string_view>& keys) {
  check_options(policy, text, keys);
  decide_prefetch(policy, text);
  drop_plain(policy.decisions);
  if (const auto reason = cannot_combine(policy)) typed::fail(text, *reason);
  return policy;
}

}  // namespace

std::vector<PolicyOption> options_of(const PolicyDefinition& policy) {
  std::vector<PolicyOption> all = policy.sizes;
  const auto add = [&all](const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(kMergeOptions);
  add(kPlaceOptions);
  add(policy.batches);
  all.push_back(kScale);
  all.push_back(kCollectives);
  add(policy.others);
  all.push_back(kStreams);
  all.push_back(kCtas);
  return all;
}

std::optional<PolicyOption> option_of(const PolicyDefinition& policy, std::string_view name) {
  for (const PolicyOption& option : options_of(policy)) {
    if (option.is(name)) return option;
  }
  return std::nullopt;
}

std::string name(const Policy& policy) {
  std::string text;
  for (const std::string& term : policy.terms) text += (text.empty() ? "" : "+") + term;
  return text;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const PolicyDefinition& policy : all_policies()) names.emplace_back(policy.name);
  return names;
}

std::vector<PolicyHelp> policy_help(std::span<const Preset> presets) {
  std::vector<PolicyHelp> help;
  for (const PolicyDefinition& policy : all_policies()) {
    PolicyHelp& row = help.emplace_back();
    row.name = policy.name;
    row.purpose = policy.purpose;
    row.defaults = to_string(parse_policy(policy.name));
    for (const PolicyOption& option : options_of(policy)) row.options.emplace_back(option.key);
  }
  for (const Preset& preset : presets) {
    PolicyHelp& row = help.emplace_back();
    row.name = preset.name;
    row.purpose = "stands for " + std::string(preset.stands_for);
    row.defaults = preset.stands_for;
  }
  return help;
}

std::vector<std::string> split_policies(std::string_view list) {
  std::vector<std::string> policies;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    const std::string piece(list.substr(begin, comma - begin));
    const bool is_option = piece.find('=') < piece.find_first_of(":+");
    if (is_option && !policies.empty() &&
        policies.back().find_first_of(":=") != std::string::npos) {
      policies.back() += "," + piece;
    } else {
      policies.push_back(piece);
    }
    begin = comma + 1;
  }
  return policies;
}

PolicyTerm usual_term(std::string_view name) {
  return {std::string(name), usual_of(*find_definition(name))};
}

Policy join(const std::vector<PolicyTerm>& terms) {
  std::string names;
  for (const PolicyTerm& term : terms) names += (names.empty() ? "" : "+") + term.name;
  std::vector<Term> all;
  for (const PolicyTerm& term : terms) all.push_back(term_of(names, term));
  return finished(joined(names, all), names, {});
}

Policy parse_policy(std::string_view text, std::span<const Preset> presets,
                    std::span<const PolicyTerm> before) {
  std::vector<Term> terms;
  for (const PolicyTerm& term : before) terms.push_back(term_of(text, term));
  TypedOptions bare{.text = text, .options = {}};
  std::vector<std::string_view> keys;
  const auto note = [&](const Typed& option) { keys.push_back(option.key); };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t plus = std::min(text.find('+', begin), text.size());
    const std::string_view term = text.substr(begin, plus - begin);
    begin = plus + 1;
    if (terms.size() > before.size() && term.find('=') < term.find(':')) {
      for (const Typed& option : cut(text, term).options) bare.options.push_back(option);
      continue;
    }
    terms.push_back(read_term(text, term, presets));
    std::ranges::for_each(terms.back().typed.options, note);
  }
  Policy policy = joined(text, terms);
  for (const Typed& typed : bare.options) {
    Typed option = typed;
    option.key = key_of(policy, typed.key);
    if (std::ranges::count(keys, option.key) > 0) fail_twice(text, option.key);
    add_option(policy, typed);
    note(option);
  }
  return finished(std::move(policy), text, keys);
}

std::string to_string(const Policy& policy) {
  std::string text;
  std::vector<std::string_view> printed;
  for (std::size_t i = 0; i < policy.terms.size(); ++i) {
    const PolicyDefinition& term = *find_definition(policy.terms[i]);
    const Decisions usual = usual_of(term);
    std::string options;
    for (const PolicyOption& option : options_of(term)) {
      const std::int8_t by = policy.decided_by[static_cast<std::size_t>(option.part)];
      if (by >= 0 ? static_cast<std::size_t>(by) != i
                  : std::ranges::count(printed, option.key) > 0) {
        continue;
      }
      const std::string value = option.print(policy.decisions);
      if (value.empty() || (!option.always && value == option.print(usual))) continue;
      printed.push_back(option.key);
      options += (options.empty() ? ":" : ",") + std::string(option.key) + "=" + value;
    }
    text += (text.empty() ? "" : "+") + policy.terms[i] + options;
  }
  return text;
}

std::string_view groups_by(const Schedule& schedule) {
  const std::optional<Policy> policy = attempt([&] { return parse_policy(schedule.policy); }).value;
  if (!policy) return "";  // a person or another tool wrote it
  const std::int8_t by = policy->decided_by[static_cast<std::size_t>(Decision::Grouping)];
  return by < 0 ? "" : find_definition(policy->terms[static_cast<std::size_t>(by)])->groups_by;
}

}  // namespace dovetail::schedule
