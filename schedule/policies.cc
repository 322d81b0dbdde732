// The grouping rules, and how a policy is typed.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"

namespace dovetail::schedule {
namespace {

constexpr std::array<std::pair<std::string_view, PolicyKind>, 8> kPolicies = {{
    {"naive", PolicyKind::Naive},
    {"no-overlap", PolicyKind::NoOverlap},
    {"no-overlap-per-tensor", PolicyKind::NoOverlapPerTensor},
    {"per-tensor", PolicyKind::PerTensor},
    {"one-bucket", PolicyKind::OneBucket},
    {"threshold", PolicyKind::Threshold},
    {"torch-ddp", PolicyKind::TorchDdp},
    {"exact", PolicyKind::Exact},
}};

[[noreturn]] void fail(std::string_view text, const std::string& message) {
  throw InputError("policy \"" + std::string(text) + "\": " + message);
}

template <class Enum, std::size_t N>
Enum word_value(std::string_view text, std::string_view key, std::string_view value,
                const std::array<Enum, N>& values) {
  std::string known;
  for (const Enum candidate : values) {
    if (value == to_string(candidate)) return candidate;
    known += (known.empty() ? "" : " or ") + std::string(to_string(candidate));
  }
  fail(text, "option " + std::string(key) + ": expected " + known + ", found \"" +
                 std::string(value) + "\"");
}

Bytes size_value(std::string_view text, std::string_view key, std::string_view value) {
  try {
    const Bytes size = parse_bytes(value);
    if (size < Bytes(1)) fail(text, "option " + std::string(key) + ": must be at least 1B");
    return size;
  } catch (const InputError& error) {
    fail(text, "option " + std::string(key) + ": " + error.what());
  }
}

// The options that each policy takes besides mode, wait and scope.
std::vector<std::string> size_options(PolicyKind kind) {
  if (kind == PolicyKind::Threshold) return {"threshold"};
  if (kind == PolicyKind::TorchDdp) return {"cap", "first"};
  return {};
}

void set_option(std::string_view text, PolicySpec& spec, std::string_view key,
                std::string_view value) {
  std::vector<std::string> known = size_options(spec.kind);
  const bool own_size = std::ranges::find(known, key) != known.end();
  if (own_size && key == "first") {
    spec.first_bucket = size_value(text, key, value);
  } else if (own_size) {
    spec.threshold = size_value(text, key, value);
  } else if (key == "mode") {
    spec.mode = word_value(text, key, value, std::array{BucketMode::View, BucketMode::Copy});
  } else if (key == "wait") {
    spec.wait =
        word_value(text, key, value, std::array{WaitPoint::FirstUse, WaitPoint::EndOfBackward});
  } else if (key == "scope") {
    spec.scope = word_value(text, key, value, std::array{WaitScope::Event, WaitScope::WholeStream});
  } else {
    known.insert(known.end(), {"mode", "wait", "scope"});
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    fail(text, "unknown option \"" + std::string(key) + "\"; known: " + list);
  }
}

// A size that parse_bytes reads back exactly.
std::string exact_size(Bytes size) {
  constexpr std::array<std::pair<std::string_view, int>, 3> kUnits = {
      {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};
  for (const auto& [unit, shift] : kUnits) {
    if (size.count() % (std::int64_t{1} << shift) == 0) {
      return std::to_string(size.count() >> shift) + std::string(unit);
    }
  }
  return std::to_string(size.count()) + "B";
}

bool is_inline(PolicyKind kind) { return kind == PolicyKind::Naive; }
bool is_after_backward(PolicyKind kind) {
  return kind == PolicyKind::NoOverlap || kind == PolicyKind::NoOverlapPerTensor;
}

std::vector<Bytes> limits_of(const PolicySpec& spec) {
  constexpr Bytes kNever(std::int64_t{1} << 62);
  switch (spec.kind) {
    case PolicyKind::Naive:
    case PolicyKind::NoOverlapPerTensor:
    case PolicyKind::PerTensor:
      return {Bytes(1)};
    case PolicyKind::NoOverlap:
    case PolicyKind::OneBucket:
      return {kNever};
    case PolicyKind::Threshold:
      return {spec.threshold};
    case PolicyKind::TorchDdp:
      return {spec.first_bucket, spec.threshold};
    case PolicyKind::Exact:
      break;
  }
  DOVETAIL_CHECK(false) << "policy exact has no limits";
  return {};
}

// What gradients must share to lie in one bucket.
using BucketKey = std::tuple<GroupId, DType, ReduceOp>;
BucketKey key_of(const OwedGradient& gradient) {
  return {gradient.group, gradient.dtype, gradient.op};
}

struct Grouping {
  std::vector<std::vector<OwedGradient>> buckets;  // in launch order
};

// Every key has its own open bucket and its own position in the list of limits.
Grouping group_by_limits(const std::vector<OwedGradient>& owed, std::span<const Bytes> limits) {
  struct Open {
    std::vector<OwedGradient> members;
    Bytes bytes;
    std::size_t limit = 0;
  };
  std::map<BucketKey, Open> open;
  Grouping result;
  for (const OwedGradient& gradient : owed) {
    Open& bucket = open[key_of(gradient)];
    bucket.members.push_back(gradient);
    bucket.bytes += gradient.bytes;
    if (bucket.bytes < limits[bucket.limit]) continue;
    result.buckets.push_back(std::exchange(bucket.members, {}));
    bucket.bytes = Bytes(0);
    bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
  }
  // What is still open closes in the order in which its last gradient became ready.
  std::vector<std::vector<OwedGradient>> rest;
  for (auto& [key, bucket] : open) {
    if (!bucket.members.empty()) rest.push_back(std::move(bucket.members));
  }
  std::ranges::stable_sort(rest, {},
                           [](const auto& members) { return members.back().producer_index; });
  for (auto& members : rest) result.buckets.push_back(std::move(members));
  return result;
}

Schedule to_schedule(const Grouping& grouping, const PolicySpec& spec) {
  Schedule schedule{.policy = to_string(spec), .buckets = {}};
  for (const auto& members : grouping.buckets) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    for (const OwedGradient& gradient : members) bucket.gradients.push_back(gradient.tensor);
    bucket.group = members.front().group;
    bucket.mode = spec.mode;
    bucket.wait = spec.wait;
    bucket.scope = spec.scope;
    if (is_inline(spec.kind)) bucket.stream = InlineStream{};
    if (is_after_backward(spec.kind)) bucket.launch = LaunchAfterBackward{};
    schedule.buckets.push_back(std::move(bucket));
  }
  return schedule;
}

}  // namespace

PolicySpec default_policy(PolicyKind kind) {
  PolicySpec spec{.kind = kind};
  if (kind == PolicyKind::TorchDdp) {
    spec.mode = BucketMode::Copy;
    spec.wait = WaitPoint::EndOfBackward;
  }
  return spec;
}

std::string_view name(PolicyKind kind) {
  for (const auto& [word, value] : kPolicies) {
    if (value == kind) return word;
  }
  return "?";
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const auto& [word, value] : kPolicies) names.emplace_back(word);
  return names;
}

PolicySpec parse_policy(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const auto known = std::ranges::find(kPolicies, word, &decltype(kPolicies)::value_type::first);
  if (known == kPolicies.end()) {
    const std::vector<std::string> names = policy_names();
    const std::string near = nearest_word(word, names);
    std::string list;
    for (const std::string& candidate : names) list += (list.empty() ? "" : ", ") + candidate;
    fail(text, "unknown policy" +
                   (near.empty() ? "; known: " + list : "; did you mean \"" + near + "\"?"));
  }
  PolicySpec spec = default_policy(known->second);
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) fail(text, "expected options after ':'");
  std::set<std::string_view> seen;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view option = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) {
      fail(text, "expected key=value, found \"" + std::string(option) + "\"");
    }
    const std::string_view key = option.substr(0, equals);
    if (!seen.insert(key).second) fail(text, "option \"" + std::string(key) + "\" stands twice");
    set_option(text, spec, key, option.substr(equals + 1));
  }
  return spec;
}

std::string to_string(const PolicySpec& spec) {
  std::string options;
  const auto add = [&](const std::string& option) {
    options += (options.empty() ? ":" : ",") + option;
  };
  for (const std::string& key : size_options(spec.kind)) {
    add(key + "=" + exact_size(key == "first" ? spec.first_bucket : spec.threshold));
  }
  const PolicySpec usual = default_policy(spec.kind);
  if (spec.mode != usual.mode) add("mode=" + std::string(to_string(spec.mode)));
  if (spec.wait != usual.wait) add("wait=" + std::string(to_string(spec.wait)));
  if (spec.scope != usual.scope) add("scope=" + std::string(to_string(spec.scope)));
  return std::string(name(spec.kind)) + options;
}

Schedule make_schedule(const Program& program, const PolicySpec& spec) {
  const std::vector<Bytes> limits = limits_of(spec);
  return to_schedule(group_by_limits(owed_gradients(program), limits), spec);
}

Schedule partition(const Program& program, std::span<const std::size_t> ends,
                   const PolicySpec& spec) {
  const std::vector<OwedGradient> owed = owed_gradients(program);
  DOVETAIL_CHECK(!ends.empty() && ends.back() == owed.size()) << "ends do not cover the gradients";
  Grouping grouping;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    DOVETAIL_CHECK(end > begin) << "bucket ends must rise";
    const std::vector<OwedGradient> members(owed.begin() + static_cast<std::ptrdiff_t>(begin),
                                            owed.begin() + static_cast<std::ptrdiff_t>(end));
    for (const OwedGradient& gradient : members) {
      if (key_of(gradient) == key_of(members.front())) continue;
      throw InputError("bucket " + std::to_string(grouping.buckets.size()) +
                       " would mix process groups, dtypes or reductions: " +
                       program.tensor(members.front().tensor).name + " and " +
                       program.tensor(gradient.tensor).name);
    }
    grouping.buckets.push_back(members);
    begin = end;
  }
  return to_schedule(grouping, spec);
}

}  // namespace dovetail::schedule
