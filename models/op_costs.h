// How long each op takes on a cluster: ops of the Program are looked up once, and ops that lowering
// made of them (micro-steps, sums, sharded updates) when they are met.
//
//   const OpCosts ops(cluster, program);
//   ops.time(op, rank);
//
// The first that knows a time gives it: the op itself (timed work), the measured kernel with its
// name and work, the line of its kind of pass (passes.h; added to the kernel of a sharded update that
// repeats a product), a measured kernel with its work, the unit kernel, the roofline, the copy model.
//
// Kernels and passes are medians over steps and ranks; a synchronous step takes longer than its
// medians add up to, because in each step some op is late on some rank and the others wait. So they
// are stretched by the skew that the calibration saw in steps without communication. Leaves out that
// ranks which wait for each other more than once per step wait more.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "models/cluster.h"
#include "models/kernel_table.h"
#include "schedule/id_table.h"
#include "schedule/program.h"

#include <cstdint>
#include <vector>

namespace dovetail::models {

class OpCosts {
 public:
  // Throws InputError when an op of the Program has no duration on this cluster.
  OpCosts(const Cluster& cluster, const schedule::Program& program);

  // Ops are told apart by id and work: a rewritten op may keep its id. Throws as above.
  [[nodiscard]] Duration time(const schedule::Op& op, Rank rank) const;

  // Ranks whose ops take different times; the others are like rank 0.
  [[nodiscard]] std::int64_t distinct_ranks() const { return distinct_ranks_; }

 private:
  struct Known {
    schedule::Work work;
    std::vector<Duration> by_rank;  // empty: no op of the Program; one entry: the same on all ranks
  };
  [[nodiscard]] std::vector<Duration> price(const schedule::Op& op) const;
  [[nodiscard]] std::optional<Duration> measured(const schedule::Op& op) const;

  Cluster cluster_;
  KernelTable kernels_;
  schedule::IdTable<OpId, Known> known_;
  std::int64_t distinct_ranks_ = 1;
};

// Whether the op's time comes from the cluster's peak rates, not from anything measured.
bool uses_roofline(const Cluster& cluster, const KernelTable& kernels, const schedule::Op& op);

// Bytes that stream through memory, at the share of its nominal rate that they reach.
double seconds_to_move(const Roofline& roofline, Bytes bytes);

}  // namespace dovetail::models
