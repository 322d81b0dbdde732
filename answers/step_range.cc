// Holds the errors of public steps, and applies them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_range.h"

#include <algorithm>
#include <variant>

#include "models/costs/topology.h"
#include "models/networks/step_kind.h"
#include "models/rates/op_model.h"

namespace dovetail::predict {
namespace {

constexpr PublicError kOneNode{.p5 = 0.90, .p50 = 1.05, .p95 = 1.43, .apart = 1.20};
// The quantiles are 0.88 and 1.12, within which 73 % of one source's rows lie where the others make them; within these 88 % and more of each that has
// more than two.
constexpr PublicError kSeveralNodes{.p5 = 0.80, .p50 = 1.00, .p95 = 1.20, .apart = 1.23};
constexpr PublicError kWideTensors{.p5 = 0.83, .p50 = 1.01, .p95 = 3.24, .apart = 2.92};
constexpr PublicError kExperts{.p5 = 0.74, .p50 = 1.44, .p95 = 1.70, .apart = 1.56};

const PublicError& error_of(jobs::StepKind kind) {
  switch (kind) {
    case jobs::StepKind::Experts:
      return kExperts;
    case jobs::StepKind::WideTensors:
      return kWideTensors;
    case jobs::StepKind::OneNode:
      return kOneNode;
    case jobs::StepKind::SeveralNodes:
      return kSeveralNodes;
  }
  return kSeveralNodes;
}

// As step_kind of a job, by the groups of its collectives.
jobs::StepKind kind_of(const schedule::Program& program, std::int64_t node_ranks) {
  bool is_wide = false;
  for (const schedule::Op& op : program.ops) {
    const auto* collective = std::get_if<schedule::CollectiveWork>(&op.work);
    if (collective == nullptr) continue;
    if (collective->purpose == schedule::Purpose::ExpertParallel) return jobs::StepKind::Experts;
    is_wide |= collective->purpose == schedule::Purpose::TensorParallel &&
               models::nodes_of(program.group(collective->group), node_ranks) > 1;
  }
  if (is_wide) return jobs::StepKind::WideTensors;
  return program.world_size <= node_ranks ? jobs::StepKind::OneNode : jobs::StepKind::SeveralNodes;
}

constexpr std::int64_t kNodeRanks = 8;  // where the cluster does not say

double percent_more(double ratio) { return (ratio - 1) * 100; }

}  // namespace

const PublicError* public_error(const models::Cluster& cluster, const schedule::Program& program) {
  if (!is_uncalibrated(cluster)) return nullptr;
  const auto is_timed = [](const schedule::Op& op) { return schedule::is_timed(op.work); };
  const auto is_measured = [&](const schedule::Op& op) {
    return cluster.compute->has_measured(op);
  };
  if (std::ranges::any_of(program.ops, is_timed)) return nullptr;
  if (std::ranges::none_of(program.ops, is_measured)) return nullptr;
  const std::int64_t node = cluster.topology ? cluster.topology->node_ranks() : kNodeRanks;
  return &error_of(kind_of(program, node));
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
