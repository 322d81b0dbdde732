// Costs in which one part takes more or less time than it was thought to: what a prediction rests on, put to the
// test.
//
//   scaled(costs, CostPart::Link, 1.2)       every byte on a link takes 20 % longer, latencies stay
//
//   Link      the part of every collective's time that grows with its bytes
//   Latency   the rest of it (CollectiveTable::latency), which is its time at 0 bytes
//   Compute   ops, bucket copies, scaling, and the processor time that a collective takes
//   Host      all of HostModel, and what an op takes to be issued
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"
#include "models/costs/costs.h"

#include <array>
#include <string_view>

namespace dovetail::models {

using dovetail::to_string;

enum class CostPart { Link, Latency, Compute, Host };
constexpr auto words_of(CostPart) {
  return words("link bandwidth", "link latency", "compute", "host");
}

// By which factors the time of a part may be off.
struct CostRange {
  CostPart part = CostPart::Link;
  double low = 1, high = 1;
};

// `factor` times the time. REQUIRES: factor > 0.
Costs scaled(const Costs& costs, CostPart part, double factor);

}  // namespace dovetail::models
