// Reads what is asked of a machine and scales its costs.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/what_if.h"

#include "base/error.h"
#include "models/costs/scaled_costs.h"

#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace dovetail::models {
namespace {

struct Factor {
  const char* key;
  double WhatIf::*value;
  std::optional<CostPart> part;  // that it scales; absent: collectives are priced by it (cluster.h)
  bool is_speed = true;
};
constexpr std::array kFactors = {
    Factor{.key = "link", .value = &WhatIf::link, .part = CostPart::Link},
    Factor{
        .key = "latency", .value = &WhatIf::latency, .part = CostPart::Latency, .is_speed = false},
    Factor{.key = "compute", .value = &WhatIf::compute, .part = CostPart::Compute},
    Factor{.key = "host", .value = &WhatIf::host, .part = CostPart::Host},
    Factor{.key = "network", .value = &WhatIf::network, .part = std::nullopt},
    Factor{.key = "nvlink", .value = &WhatIf::nvlink, .part = std::nullopt}};

constexpr double kMost = 1000;  // so many times as much, or as little
constexpr std::int64_t kMostWorld = 1 << 20;

[[noreturn]] void refuse(const std::string& key, const std::string& expected,
                         const std::string& found) {
  throw InputError("--what-if " + key + ": expected " + expected + ", found \"" + found + "\"");
}

double parse_factor(const std::string& key, const std::string& text) {
  double factor = 0;
  const char* const end = text.data() + text.size() - (text.ends_with('x') ? 1 : 0);
  const auto [at, error] = std::from_chars(text.data(), end, factor);
  const bool in_range = factor >= 1 / kMost && factor <= kMost;  // false for NaN, too
  if (error != std::errc() || at != end || !in_range) refuse(key, "0.001x to 1000x", text);
  return factor;
}

std::int64_t parse_world(const std::string& text) {
  std::int64_t world = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, world);
  if (error != std::errc() || at != end || world < 1 || world > kMostWorld)
    refuse("world", "a whole number from 1 to 1048576", text);
  return world;
}

std::string factor_text(double factor) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), factor);
  return std::string(text.data(), end) + "x";
}

void parse_one(const std::string& key, const std::string& value, WhatIf& what_if) {
  for (const Factor& factor : kFactors) {
    if (key != factor.key) continue;
    what_if.*factor.value = parse_factor(key, value);
    return;
  }
  if (key == "world") {
    what_if.world = parse_world(value);
  } else if (key == "gpu" && !value.empty()) {
    what_if.gpu = value;
  } else {
    throw InputError(
        "--what-if: expected link=, network=, nvlink=, latency=, compute= or host= with a factor "
        "(2x), gpu=NAME or world=RANKS, found \"" +
        key + "=" + value + "\"");
  }
}

}  // namespace

WhatIf parse_what_if(const std::string& text) {
  WhatIf what_if{.is_given = !text.empty()};
  std::set<std::string> seen;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, equals);
    if (!seen.insert(key).second) refuse(key, "it once", text);
    parse_one(key, part.substr(std::min(equals + 1, part.size())), what_if);
  }
  return what_if;
}

std::string to_string(const WhatIf& what_if) {
  std::string text;
  const auto add = [&text](const std::string& key, const std::string& value) {
    text += (text.empty() ? "" : ",") + key + "=" + value;
  };
  for (const Factor& factor : kFactors) {
    if (what_if.*factor.value != 1) add(factor.key, factor_text(what_if.*factor.value));
  }
  if (!what_if.gpu.empty()) add("gpu", what_if.gpu);
  if (what_if.world) add("world", std::to_string(*what_if.world));
  return text;
}

void apply(const WhatIf& what_if, Costs& costs) {
  for (const Factor& factor : kFactors) {
    const double value = what_if.*factor.value;
    if (value == 1 || !factor.part) continue;
    costs = scaled(costs, *factor.part, factor.is_speed ? 1 / value : value);
  }
}

}  // namespace dovetail::models
