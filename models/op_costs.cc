// Looking up, or estimating, one op at a time.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/op_costs.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

constexpr double kReachableMemory = 0.8;  // share of the nominal rate that streaming kernels reach

Duration roofline_time(const Cluster& cluster, const schedule::Op& op) {
  const Roofline& roofline = *cluster.compute;
  const auto peak = roofline.gemm_peak.find(op.dtype);
  if (peak == roofline.gemm_peak.end() && std::holds_alternative<schedule::GemmWork>(op.work)) {
    std::string known;
    for (const auto& [dtype, rate] : roofline.gemm_peak) {
      known += (known.empty() ? "" : ", ") + std::string(to_string(dtype));
    }
    throw InputError("cluster " + cluster.name + ": op " + op.name + " is a GEMM of " +
                     std::string(to_string(op.dtype)) + ", but compute.gemm.flop_per_s has only " +
                     (known.empty() ? "nothing" : known));
  }
  double seconds = seconds_to_move(roofline, op.bytes());
  if (peak != roofline.gemm_peak.end()) {
    seconds = std::max(seconds, op.flop().count() / (roofline.efficiency * peak->second.count()));
  }
  return from_us(seconds * 1e6) + roofline.kernel_overhead;
}

const PassModel* measured_pass(const Cluster& cluster, const schedule::Op& op) {
  const std::optional<PassKind> kind = pass_of(op);
  if (!kind) return nullptr;
  const auto pass = cluster.passes.find(*kind);
  return pass == cluster.passes.end() ? nullptr : &pass->second;
}

}  // namespace

double seconds_to_move(const Roofline& roofline, Bytes bytes) {
  return static_cast<double>(bytes.count()) / (kReachableMemory * roofline.memory.count());
}

bool uses_roofline(const Cluster& cluster, const KernelTable& kernels, const schedule::Op& op) {
  return !std::holds_alternative<schedule::TimedWork>(op.work) &&
         !std::holds_alternative<schedule::CollectiveWork>(op.work) &&
         !kernels.find(op).has_value() &&
         (measured_pass(cluster, op) == nullptr ||
          std::holds_alternative<schedule::GemmWork>(op.work));
}

OpCosts::OpCosts(const Cluster& cluster, const schedule::Program& program)
    : cluster_(cluster), kernels_(cluster) {
  cluster_.collectives.clear();  // what they cost is no op's business
  for (const schedule::Op& op : program.ops) {
    Known& known = known_[op.id];
    known = {.work = op.work, .by_rank = price(op)};
    distinct_ranks_ = std::max(distinct_ranks_, static_cast<std::int64_t>(known.by_rank.size()));
  }
}

Duration OpCosts::time(const schedule::Op& op, Rank rank) const {
  const auto on_rank = [rank](const std::vector<Duration>& times) {
    const auto index = static_cast<std::size_t>(rank.value);
    return times[index < times.size() ? index : 0];
  };
  if (const auto* timed = std::get_if<schedule::TimedWork>(&op.work);
      timed != nullptr && !timed->by_rank.empty()) {
    return on_rank(timed->by_rank);
  }
  const Known& known = known_.at(op.id);
  if (!known.by_rank.empty() && known.work == op.work) return on_rank(known.by_rank);
  return on_rank(price(op));
}

std::vector<Duration> OpCosts::price(const schedule::Op& op) const {
  if (std::holds_alternative<schedule::CollectiveWork>(op.work)) {
    return {Duration{}};  // Costs::collective has it
  }
  if (const auto* timed = std::get_if<schedule::TimedWork>(&op.work)) {
    if (timed->by_rank.empty()) throw InputError("op " + op.name + ": timed work without a time");
    return timed->by_rank;
  }
  if (const std::optional<Duration> time = measured(op)) {
    return {Duration(std::llround(static_cast<double>(time->count()) * (1 + cluster_.skew)))};
  }
  if (cluster_.compute) return {roofline_time(cluster_, op)};
  const auto* memory = std::get_if<schedule::MemoryWork>(&op.work);
  if (cluster_.copy && memory != nullptr) {
    // A copy of one byte moves two: it is read and written.
    const double ns = cluster_.copy->ns_per_byte * static_cast<double>(memory->bytes.count()) / 2;
    return {cluster_.copy->fixed + from_us(ns / 1e3)};
  }
  throw InputError("cluster " + cluster_.name + ": no duration for op " + op.name +
                   ": no measured kernel matches it and the cluster has no compute section");
}

// By kernels and passes.
std::optional<Duration> OpCosts::measured(const schedule::Op& op) const {
  if (const std::optional<Duration> time = kernels_.find_named(op)) return *time;
  const PassModel* pass = measured_pass(cluster_, op);
  const Duration passing = pass == nullptr ? Duration{} : pass->time(traffic_of(op));
  const bool is_pass_alone = !std::holds_alternative<schedule::GemmWork>(op.work);
  if (pass != nullptr && is_pass_alone) return passing;
  if (const std::optional<Duration> time = kernels_.find(op)) return *time + passing;
  return std::nullopt;
}

}  // namespace dovetail::models
