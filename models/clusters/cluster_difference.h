// Two clusters laid side by side: the bus bandwidth of every collective that one has a table of and both can price, size by size.
//
//   for (const ClusterRow& row : rows_of_both(before, after)) row.ratio();    // 0.97: the second is 3 % slower
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"
#include "models/clusters/cluster.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::models {

// Which of two clusters has no table of a row, but links that model it.
enum class Modelled { Neither, First, Second };
constexpr auto words_of(Modelled) { return words("neither", "first", "second"); }

struct ClusterRow {
  schedule::Collective collective = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  Bytes bytes{};
  Modelled modelled = Modelled::Neither;
  double first_gb_s = 0,
         second_gb_s = 0;  // bus bandwidth as nccl-tests defines it, 10^9 bytes per second

  [[nodiscard]] double ratio() const { return second_gb_s / first_gb_s; }
};

// Tables over as many ranks that both have, at the sizes of either that both cover, between measured sizes on the line that
// predictions take; tables of one of them that the other, a machine with a topology, models. In the order of the first one's tables, then
// of the second's, sizes rising.
std::vector<ClusterRow> rows_of_both(const Cluster& first, const Cluster& second);

// "all-gather over 8 ranks": tables that only `one` has, and `other` cannot price.
std::vector<std::string> only_in(const Cluster& one, const Cluster& other);

}  // namespace dovetail::models
