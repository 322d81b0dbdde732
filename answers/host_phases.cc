// Adds up what the host and the device take for each phase.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/host_phases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/decimal.h"
#include "models/costs/op_prices.h"

namespace dovetail::predict {
namespace {

constexpr double kBound = 0.85;
constexpr double kSpread = 1.7;  // of one host, from run to run
constexpr std::size_t kPhaseCount = kWordCount<schedule::Phase>;

struct PhaseTimes {
  Duration host{}, device{};
};
using RoleTimes = std::array<PhaseTimes, kPhaseCount>;

// A phase ends when the device has run its ops, none of which begins before the host has issued it.
void find_bound(const RoleTimes& times, std::array<std::optional<HostPhase>, kPhaseCount>& most) {
  double issued = 0, done = 0;
  std::vector<HostPhase> bound;
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const double host = to_us(times[i].host);
    const double before = done;
    issued += host;
    done = std::max(done + to_us(times[i].device), issued);
    const double took = done - before;
    if (host <= kBound * took || issued <= kBound * done) continue;
    bound.push_back({.phase = kAllOf<schedule::Phase>[i],
                     .host = times[i].host,
                     .device = times[i].device,
                     .share = std::min(1.0, host / took)});
  }
  for (HostPhase& one : bound) {
    one.of_step = to_us(one.host) / done;
    std::optional<HostPhase>& known = most[static_cast<std::size_t>(one.phase)];
    if (!known || known->share < one.share) known = one;
  }
}

}  // namespace

std::vector<HostPhase> host_bound_phases(const schedule::Program& program,
                                         const models::Costs& costs, std::int64_t more) {
  if (costs.host.kind == models::HostModel::Kind::Inline) return {};
  std::map<std::int32_t, RoleTimes> roles;
  models::OpPrices prices(costs);
  for (const schedule::Op& op : program.ops) {
    PhaseTimes& times = roles[program.role_of(op)][static_cast<std::size_t>(op.phase)];
    const bool travels = std::holds_alternative<schedule::CollectiveWork>(op.work);
    const std::int64_t count = 1 + (schedule::is_repeated(op) && op.micro_step == 1 ? more : 0);
    times.host += (travels ? costs.host.collective : costs.issue(op)) * count;
    if (!travels) times.device += prices.time(op, Rank{0}) * count;
  }
  std::array<std::optional<HostPhase>, kPhaseCount> most{};
  for (const auto& [role, times] : roles) find_bound(times, most);
  std::vector<HostPhase> bound;
  for (const std::optional<HostPhase>& one : most) {
    if (one) bound.push_back(*one);
  }
  return bound;
}

StepRange widened(const StepRange& range, Duration step, std::span<const HostPhase> phases) {
  double less = 0, more = 0;  // of the step
  for (const HostPhase& phase : phases) {
    more += phase.of_step * (kSpread - 1);
    const double device = phase.of_step * to_us(phase.device) / to_us(phase.host);
    less += std::max(0.0, phase.of_step - std::max(device, phase.of_step / kSpread));
  }
  const auto times = [&](double factor) { return from_us(to_us(step) * factor); };
  return {.p5 = std::min(range.p5, times(1 - less)),
          .p50 = range.p50,
          .p95 = std::max(range.p95, times(1 + more))};
}

std::string to_string(std::span<const HostPhase> phases) {
  std::string text;
  for (const HostPhase& one : phases) {
    text += (text.empty() ? "host-bound: " : ", ") + std::string(schedule::to_string(one.phase)) +
            " (host " + fixed(100 * one.share, 0) + " %)";
  }
  return text;
}

}  // namespace dovetail::predict
