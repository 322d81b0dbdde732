// Small Programs and Costs for tests, by hand and at random.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "models/costs/costs.h"
#include "schedule/policies/policies.h"
#include "schedule/program.h"

namespace dovetail::testing {

// One layer of a chain: its backward op produces one gradient of `bytes` (a multiple of 4).
struct Layer {
  Duration forward{};
  Duration backward{};
  Bytes bytes;
  Duration update{};
};

// Forward ops of all layers in order, backward ops in reverse, updates in gradient-ready order.
// Layers are named l0, l1, ...; the first gradient that is ready is that of the last layer.
// Durations are timed work, equal on all ranks unless `jitter(rank, op index)` adds to them.
schedule::Program chain(const std::vector<Layer>& layers, std::int64_t world = 2,
                        const std::function<Duration(std::int32_t, std::size_t)>& jitter = {});

// A job that trains adapters only, as LoRA does: layers h.0, h.1, ... of a frozen matrix ("h.0.base") and an adapter
// behind it ("h.0.adapter"), two ops each in forward and in backward, where the adapter's comes first.
schedule::Program with_adapters(int layers, Bytes base, Bytes adapter, Duration op,
                                std::int64_t world = 2);

// Costs of such a Program: timed work, T(bytes) as given, copies at `copy_ns_per_byte`, memory work
// (of passes over the Program) at half of that, no host cost, no contention, all ranks simulated.
struct SimpleMachine {
  models::CollectiveTable collective{models::AlphaBeta{}};
  double copy_ns_per_byte = 0;
  models::HostModel host{.kind = models::HostModel::Kind::Inline};
  models::Contention contention{};
  // What every collective loads; none: two at once do not slow each other down.
  std::vector<models::LinkLoad> loads{};
};
models::Costs costs_of(const SimpleMachine& machine, const schedule::Program& program);

// alpha + bytes * ns_per_byte, alone and in a queue alike.
models::CollectiveTable line(Duration alpha, std::int64_t ns_per_byte);

// A table that is exact at these sizes. REQUIRES: two at least, rising, times > 0.
models::CollectiveTable table_at(const std::vector<std::pair<Bytes, Duration>>& times);

// The same table and loads for every collective over any number of ranks.
std::vector<models::CollectiveCost> every_collective(
    const models::CollectiveTable& table, const std::vector<models::LinkLoad>& loads = {});

// Makes the machine one with contention of all kinds, or some, and a link that is shared or not.
void contend(Random& random, SimpleMachine& machine);

Duration us(std::int64_t n);

// A chain of 1..max_layers layers with random times and sizes (some zero times, some equal ready
// times).
schedule::Program random_chain(Random& random, std::int64_t max_layers, std::int64_t world);

// A random host model, copy cost and collective table, contention off.
SimpleMachine random_machine(Random& random);

// Some ops become products, some passes over memory; each takes the time that it took.
void draw_kernels(Random& random, schedule::Program& program, models::Costs& costs);

// A random Schedule from the whole language: grouping, order of ready buckets, mode, stream,
// launch, wait and scope. Legal.
schedule::Schedule random_schedule(Random& random, const schedule::Program& program,
                                   std::int64_t most_streams = 2);

// All 2^(n-1) groupings of n gradients into consecutive buckets, as exclusive ends.
std::vector<std::vector<std::size_t>> all_groupings(std::size_t n);

}  // namespace dovetail::testing
