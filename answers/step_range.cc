// Holds the errors of public steps, and applies them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_range.h"

#include <algorithm>

#include "models/rates/op_model.h"

namespace dovetail::predict {
namespace {

constexpr PublicError kOneNode{.p5 = 0.70, .p50 = 1.16, .p95 = 1.47, .apart = 1.21};
constexpr PublicError kSeveralNodes{.p5 = 0.82, .p50 = 1.18, .p95 = 2.02, .apart = 2.96};

constexpr std::int64_t kNodeRanks = 8;  // where the cluster does not say

double percent_more(double ratio) { return (ratio - 1) * 100; }

}  // namespace

const PublicError* public_error(const models::Cluster& cluster, const schedule::Program& program) {
  if (!is_uncalibrated(cluster)) return nullptr;
  const auto is_timed = [](const schedule::Op& op) {
    return std::holds_alternative<schedule::TimedWork>(op.work);
  };
  const auto is_measured = [&](const schedule::Op& op) {
    return cluster.compute->has_measured(op);
  };
  if (std::ranges::any_of(program.ops, is_timed)) return nullptr;
  if (std::ranges::none_of(program.ops, is_measured)) return nullptr;
  const std::int64_t node = cluster.topology ? cluster.topology->node_ranks : kNodeRanks;
  return program.world_size <= node ? &kOneNode : &kSeveralNodes;
}

StepRange step_range(const PublicError& error, Duration step) {
  return {.p5 = stretched(step, error.p5),
          .p50 = stretched(step, error.p50),
          .p95 = stretched(step, error.p95)};
}

std::optional<StepRange> step_range(const std::optional<models::Cluster>& cluster,
                                    const schedule::Program& program, Duration step) {
  const PublicError* const error = cluster ? public_error(*cluster, program) : nullptr;
  return error == nullptr ? std::nullopt : std::optional(step_range(*error, step));
}

const std::array<models::CostRange, 4>& uncalibrated_ranges() {
  using enum models::CostPart;
  static constexpr std::array<models::CostRange, 4> kRanges = {
      {{.part = Link, .low = 0.8, .high = 1.2},
       {.part = Latency, .low = 0.8, .high = 1.2},
       {.part = Compute, .low = kOneNode.p5, .high = kOneNode.p95},
       {.part = Host, .low = 0.5, .high = 2}}};
  return kRanges;
}

Difference difference(const PublicError& error, Duration step, Duration than) {
  const double ratio = to_us(step) / to_us(than);
  return {.low = percent_more(ratio / error.apart),
          .middle = percent_more(ratio),
          .high = percent_more(ratio * error.apart)};
}

}  // namespace dovetail::predict
