// Multiplies one part of Costs (a rate, a latency, the host) by a factor, for questions of the
// kind "what if the network were twice as fast".
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/scaled_costs.h"

#include "base/error.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

void scale(std::optional<CopyModel>& copy, double factor) {
  if (!copy) return;
  copy->fixed = stretched(copy->fixed, factor);
  copy->ns_per_byte *= factor;
}

// The rules for ops that lowering makes.
OpModel slower(OpModel model, double factor) {
  model.skew = (1 + model.skew) * factor - 1;
  model.timed_stretch *= factor;
  scale(model.copy, factor);
  if (model.compute) {
    for (auto& [dtype, rate] : model.compute->gemm_peak) {
      rate = FlopPerSecond(rate.count() / factor);
    }
    for (auto& [operands, rate] : model.compute->narrow_peak) {
      rate = FlopPerSecond(rate.count() / factor);
    }
    model.compute->products_stretch *= factor;
    model.compute->memory = BytesPerSecond(model.compute->memory.count() / factor);
    model.compute->kernel_overhead = stretched(model.compute->kernel_overhead, factor);
  }
  return model;
}

void scale_compute(Costs& costs, double factor) {
  OpCosts ops(slower(costs.ops.model(), factor));
  for (KnownOp known : costs.ops.known()) {
    for (Duration& time : known.cost.by_class) time = stretched(time, factor);
    ops.set(std::move(known));
  }
  costs.ops = std::move(ops);
  for (std::optional<CopyModel>* const copy : {&costs.copies, &costs.splits, &costs.chunks})
    scale(*copy, factor);
  if (costs.scales) {
    costs.scales->fixed = stretched(costs.scales->fixed, factor);
    costs.scales->ns_per_byte *= factor;
  }
  for (Contention& contention : costs.contention_by_class) {
    contention.collective_cpu = stretched(contention.collective_cpu, factor);
    contention.start_delay = stretched(contention.start_delay, factor);
    if (auto& gpu = contention.multiprocessors; gpu && gpu->memory) {
      gpu->memory = BytesPerSecond(gpu->memory->count() / factor);
    }
  }
}

void scale_host(Costs& costs, double factor) {
  for (Duration* const time :
       {&costs.host.run_op, &costs.host.collective, &costs.host.event, &costs.host.copy,
        &costs.host.launch_latency, &costs.host.launch_gap}) {
    *time = stretched(*time, factor);
  }
  for (std::optional<Duration>* const time : {&costs.host.backward_op, &costs.host.update_op}) {
    if (*time) *time = stretched(**time, factor);
  }
  OpCosts ops(costs.ops.model());
  for (KnownOp known : costs.ops.known()) {
    if (known.cost.host) known.cost.host = stretched(*known.cost.host, factor);
    ops.set(std::move(known));
  }
  costs.ops = std::move(ops);
}

// Latency is one number for both kinds of time; of the lesser one it is no more than all of it.
CollectiveTable with_link(const CollectiveTable& table, CostPart part, double factor) {
  const auto latency = static_cast<double>(table.latency().count());
  const auto changed = [&](double ns) {
    const double fixed = std::min(latency, ns);
    return part == CostPart::Link ? fixed + (ns - fixed) * factor : ns + fixed * (factor - 1);
  };
  std::vector<CollectiveTable::Knot> knots = table.knots();
  for (CollectiveTable::Knot& knot : knots) {
    knot.isolated_ns = changed(knot.isolated_ns);
    knot.back_to_back_ns = changed(knot.back_to_back_ns);
    if (part != CostPart::Link) continue;
    knot.isolated_slope *= factor;
    knot.back_to_back_slope *= factor;
  }
  return CollectiveTable(std::move(knots));
}

}  // namespace

Costs scaled(const Costs& costs, CostPart part, double factor) {
  DOVETAIL_CHECK(factor > 0) << factor;
  Costs result = costs;
  switch (part) {
    case CostPart::Link:
    case CostPart::Latency:
      for (CollectiveCost& cost : result.collectives) {
        cost.time = with_link(cost.time, part, factor);
      }
      break;
    case CostPart::Compute:
      scale_compute(result, factor);
      break;
    case CostPart::Host:
      scale_host(result, factor);
      break;
  }
  return result;
}

}  // namespace dovetail::models
