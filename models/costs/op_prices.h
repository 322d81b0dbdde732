// What many ops cost, of which most are copies of a few: kernels that copies of an op share (KernelsWork) are priced once.
//
//   OpPrices prices(costs);
//   for (const schedule::Op& op : program.ops) prices.time(op, rank);      // as costs.op(op, rank)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <variant>
#include <vector>

#include "models/costs/costs.h"

namespace dovetail::models {

class OpPrices {
 public:
  // Keeps a reference. REQUIRES: ops that are asked for outlive it.
  explicit OpPrices(const Costs& costs)
      : costs_(costs), by_name_(!costs.ops.model().kernels.kernels().empty()) {}

  // Throws as Costs::op does.
  [[nodiscard]] Duration time(const schedule::Op& op, Rank rank) {
    const auto* several = std::get_if<schedule::KernelsWork>(&op.work);
    // Of an op that the table has the time may be its own; with measured kernels it may be that of its name.
    if (several == nullptr || by_name_ || costs_.ops.knows(op)) return costs_.op(op, rank);
    std::vector<Known>& alike = known_[several->kernels.begin()];
    for (const Known& one : alike) {
      if (one.dtype == op.dtype && one.phase == op.phase) return one.time;
    }
    alike.push_back({op.dtype, op.phase, costs_.op(op, rank)});
    return alike.back().time;
  }

 private:
  struct Known {
    schedule::DType dtype;
    schedule::Phase phase;
    Duration time;  // of kernels nobody measured: the same on all ranks
  };
  const Costs& costs_;
  const bool by_name_;
  std::unordered_map<const schedule::Kernel*, std::vector<Known>> known_;  // by the first of them
};

}  // namespace dovetail::models
