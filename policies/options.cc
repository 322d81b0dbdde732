// How a policy is typed and printed: what its definition lists, and the options that all policies take.
//
// Sizes are always printed, other options where they differ from the policy's default.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"
#include "policies/definition.h"
#include "policies/policies.h"
#include "policies/typed.h"

namespace dovetail::schedule {
namespace {

using typed::small_number;
using typed::Typed;
using typed::word;

constexpr std::array kModes = {BucketMode::View, BucketMode::Copy};
constexpr std::array kWaits = {WaitPoint::FirstUse, WaitPoint::EndOfBackward,
                               WaitPoint::BeforeNextBatch};
constexpr std::array kScopes = {WaitScope::Event, WaitScope::WholeStream};
constexpr std::array kScales = {ScaleAt::Collective, ScaleAt::BeforeCollective,
                                ScaleAt::AfterCollective, ScaleAt::LossGradient,
                                ScaleAt::Optimizer};
constexpr std::array kSyncs = {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep,
                               SyncPoint::LastMicroStep};
constexpr std::array kDTypes = {DType::F32, DType::F16, DType::BF16, DType::F64};

// Micro-steps.
constexpr std::array<PolicyOption, 4> kMergeOptions = {{
    {"k",
     [](PolicySpec& spec, const Typed& typed) {
       spec.merge.micro_steps = small_number(typed, 1 << 16);
     },
     [](const PolicySpec& spec) { return std::to_string(spec.merge.micro_steps); }},
    {"sync", [](PolicySpec& spec, const Typed& typed) { spec.merge.sync = word(typed, kSyncs); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.merge.sync)); }},
    {"average",
     [](PolicySpec& spec, const Typed& typed) {
       spec.merge.op =
           word(typed, typed::kChoices) == Choice::Yes ? ReduceOp::Average : ReduceOp::Sum;
     },
     [](const PolicySpec& spec) {
       return std::string(to_string(spec.merge.op == ReduceOp::Average ? Choice::Yes : Choice::No));
     }},
    {"sums", [](PolicySpec& spec, const Typed& typed) { spec.merge.dtype = word(typed, kDTypes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.merge.dtype)); }},
}};

// Where a bucket lies and where it is waited for.
constexpr std::array<PolicyOption, 3> kPlaceOptions = {{
    {"mode", [](PolicySpec& spec, const Typed& typed) { spec.mode = word(typed, kModes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.mode)); }},
    {"wait", [](PolicySpec& spec, const Typed& typed) { spec.wait = word(typed, kWaits); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.wait)); }},
    {"scope", [](PolicySpec& spec, const Typed& typed) { spec.scope = word(typed, kScopes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.scope)); }},
}};

constexpr PolicyOption kScale = {
    "scale", [](PolicySpec& spec, const Typed& typed) { spec.scale = word(typed, kScales); },
    [](const PolicySpec& spec) {
      return spec.scale ? std::string(to_string(*spec.scale)) : std::string();
    }};

constexpr PolicyOption kCollectives = {
    "collectives",
    [](PolicySpec& spec, const Typed& typed) {
      spec.collectives = word(typed, std::array{OwnCollectives::Inline, OwnCollectives::Async});
    },
    [](const PolicySpec& spec) { return std::string(to_string(spec.collectives)); }};

void read_option(PolicySpec& spec, const Typed& typed) {
  const std::vector<PolicyOption> options = options_of(spec.kind);
  const auto found = std::ranges::find(options, typed.key, &PolicyOption::key);
  if (found != options.end()) return found->read(spec, typed);
  std::string known;
  for (const PolicyOption& option : options) {
    known += (known.empty() ? "" : ", ") + std::string(option.key);
  }
  std::string others;
  for (const PolicyKind kind : all_policies()) {
    const std::vector<PolicyOption> of = options_of(kind);
    if (std::ranges::find(of, typed.key, &PolicyOption::key) == of.end()) continue;
    others += (others.empty() ? "" : ", ") + std::string(name(kind));
  }
  typed::fail(typed.policy, "unknown option \"" + std::string(typed.key) + "\"; known: " + known +
                                (others.empty() ? "" : "; it is an option of " + others));
}

// What contradicts itself in any policy.
void check_combination(const PolicySpec& spec, const TypedOptions& typed) {
  if (spec.wait == WaitPoint::BeforeNextBatch && spec.batch == 0) {
    typed::fail(typed.text,
                "wait=before-next-batch needs batch=: there are no batches to wait between");
  }
  if (typed.has("tail") && spec.batch == 0) {
    typed::fail(typed.text, "tail= needs batch=: without batches nothing is left over");
  }
  for (const std::string_view key : {"sync", "average", "sums"}) {
    if (spec.merge.micro_steps > 1 || !typed.has(key) || definition_of(spec.kind).merges) continue;
    typed::fail(typed.text, std::string(key) + "= needs k=: there is only one micro-step");
  }
  if (spec.wait == WaitPoint::BeforeNextBatch && spec.merge.micro_steps > 1 &&
      spec.merge.sync == SyncPoint::AfterLastMicroStep) {
    typed::fail(
        typed.text,
        "wait=before-next-batch with sync=after: nothing is launched before the end of backward; "
        "use sync=last");
  }
}

// The policy or preset of this name, with its defaults.
PolicySpec named_policy(std::string_view text, std::string_view name,
                        std::span<const Preset> presets) {
  for (const PolicyKind kind : all_policies()) {
    if (schedule::name(kind) == name) return default_policy(kind);
  }
  for (const Preset& preset : presets) {
    if (preset.name == name) return parse_policy(preset.stands_for);
  }
  std::vector<std::string> names = policy_names();
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  const std::string near = nearest_word(name, names);
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "; known: " : ", ") + known;
  typed::fail(text, "unknown policy" + (near.empty() ? list : "; did you mean \"" + near + "\"?"));
}

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
    if (typed.has(key)) typed::fail(text, "option \"" + std::string(key) + "\" stands twice");
    typed.options.push_back({text, key, option.substr(equals + 1)});
  }
  return typed;
}

}  // namespace

std::string_view to_string(OwnCollectives own) {
  return own == OwnCollectives::Inline ? "inline" : "async";
}
std::string_view to_string(Blocks blocks) { return blocks == Blocks::Layer ? "layer" : "size"; }
std::string_view to_string(Choice choice) { return choice == Choice::Yes ? "yes" : "no"; }
std::string_view to_string(Tail tail) {
  return tail == Tail::AfterBackward ? "after-backward" : "last-gradient";
}

std::vector<PolicyOption> options_of(PolicyKind kind) {
  const PolicyDefinition& policy = definition_of(kind);
  std::vector<PolicyOption> all = policy.sizes;
  const auto add = [&all](const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(kMergeOptions);
  add(kPlaceOptions);
  add(policy.batches);
  all.push_back(kScale);
  all.push_back(kCollectives);
  add(policy.others);
  return all;
}

PolicySpec default_policy(PolicyKind kind) {
  PolicySpec spec{.kind = kind};
  const PolicyDefinition& policy = definition_of(kind);
  if (policy.set_defaults != nullptr) policy.set_defaults(spec);
  return spec;
}

std::string_view name(PolicyKind kind) { return definition_of(kind).name; }

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const PolicyKind kind : all_policies()) names.emplace_back(name(kind));
  return names;
}

std::vector<PolicyHelp> policy_help(std::span<const Preset> presets) {
  std::vector<PolicyHelp> help;
  for (const PolicyKind kind : all_policies()) {
    PolicyHelp& row = help.emplace_back();
    row.name = name(kind);
    row.purpose = definition_of(kind).purpose;
    row.defaults = to_string(default_policy(kind));
    for (const PolicyOption& option : options_of(kind)) row.options.emplace_back(option.key);
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
    const bool is_option = piece.find('=') < piece.find(':');
    if (is_option && !policies.empty() && policies.back().find(':') != std::string::npos) {
      policies.back() += "," + piece;
    } else {
      policies.push_back(piece);
    }
    begin = comma + 1;
  }
  return policies;
}

PolicySpec parse_policy(std::string_view text, std::span<const Preset> presets) {
  const std::size_t colon = text.find(':');
  PolicySpec spec = named_policy(text, text.substr(0, colon), presets);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty())
    typed::fail(text, "expected options after ':'");
  const TypedOptions typed = cut(text, rest);
  for (const Typed& option : typed.options) read_option(spec, option);
  const PolicyDefinition& policy = definition_of(spec.kind);
  if (policy.complete != nullptr) policy.complete(spec, typed);
  check_combination(spec, typed);
  return spec;
}

std::string to_string(const PolicySpec& spec) {
  const PolicySpec usual = default_policy(spec.kind);
  std::string text;
  for (const PolicyOption& option : options_of(spec.kind)) {
    const std::string value = option.print(spec);
    if (value.empty() || (!option.always && value == option.print(usual))) continue;
    text += (text.empty() ? ":" : ",") + std::string(option.key) + "=" + value;
  }
  return std::string(name(spec.kind)) + text;
}

}  // namespace dovetail::schedule
