// Tells which ops are passes over memory and how many bytes they move, and fits the line of each
// kind of pass to measured samples.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/passes.h"

#include "base/error.h"
#include "models/rates/fit.h"
#include "schedule/visit.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace dovetail::models {
namespace {

bool repeats_product(const schedule::Op& op) {
  return std::holds_alternative<schedule::GemmWork>(op.work);
}

}  // namespace

std::optional<PassKind> pass_of(const schedule::Op& op) {
  using Kind = std::optional<PassKind>;
  if (std::holds_alternative<schedule::TimedWork>(op.work) ||
      std::holds_alternative<schedule::CollectiveWork>(op.work)) {
    return std::nullopt;
  }
  return schedule::visit(
      op.effect, [](const schedule::Opaque&) { return Kind(); },
      [](const schedule::FillLossGradient&) { return Kind(); },
      [](const schedule::Accumulate&) { return Kind(PassKind::Accumulate); },
      [](const schedule::ZeroFill&) { return Kind(PassKind::ZeroFill); },
      [&op](const schedule::Update&) {
        return repeats_product(op) ? Kind() : Kind(PassKind::Update);
      },
      [](const schedule::ShardUpdate&) { return Kind(PassKind::ShardUpdate); },
      [](const schedule::GlobalNorm&) { return Kind(PassKind::GlobalNorm); });
}

Bytes traffic_of(const schedule::Op& op) {
  const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect);
  return update != nullptr && repeats_product(op) ? update->traffic : op.bytes();
}

Duration PassModel::time(Bytes traffic) const {
  return fixed + from_us(ns_per_byte * static_cast<double>(traffic.count()) / 1e3);
}

std::map<PassKind, PassModel> fit_passes(std::span<const PassSample> samples) {
  std::map<PassKind, std::vector<TimedBytes>> by_kind;
  for (const PassSample& sample : samples) {
    if (sample.traffic <= Bytes(0) || sample.time <= Duration{}) continue;
    by_kind[sample.kind].push_back({.bytes = sample.traffic, .time = sample.time});
  }
  std::map<PassKind, PassModel> passes;
  for (const auto& [kind, timed] : by_kind) {
    const auto [least, most] = std::ranges::minmax(timed, {}, &TimedBytes::bytes);
    if (least.bytes < most.bytes) {
      const AlphaBeta line = fit_alpha_beta(timed).line;
      passes[kind] = {.fixed = line.alpha, .ns_per_byte = line.ns_per_byte};
      continue;
    }
    double ns = 0;
    for (const TimedBytes& one : timed) ns += static_cast<double>(one.time.count());
    passes[kind].ns_per_byte =
        ns / static_cast<double>(timed.size()) / static_cast<double>(least.bytes.count());
  }
  return passes;
}

}  // namespace dovetail::models
