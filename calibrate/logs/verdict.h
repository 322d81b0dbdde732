// What a log of collectives says of its machine: how it stands beside a shipped machine of that GPU, where its bandwidth dips,
// and from which size on it is worth fusing.
//
//   const auto like = shipped_like(log.gpu, series, data_dir);       // h100x8
//   for (const SizeVerdict& size : verdicts(series, like ? &*like : nullptr)) size.words;
//   half_bandwidth(series)->bytes                                    // 8 MiB
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/clusters/cluster.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::imports {

// The shipped machine of this GPU over as many ranks that has a table of this collective, else one that models it; absent: there is none.
std::optional<models::Cluster> shipped_like(const std::string& gpu,
                                            const models::CollectiveSeries& series,
                                            const std::string& data_dir);

// Bus bandwidths within this share of each other count as alike: public times by several versions of NCCL lie so close in
// nine of ten cases (answers/step_range.h).
inline constexpr double kAlikeShare = 0.17;
// Below this share of what a smaller size had reached the bandwidth dips.
inline constexpr double kDipShare = 0.85;

enum class Beside { Unknown, Alike, Faster, Slower };

struct SizeVerdict {
  double bus_gb_s = 0;                 // 10^9 bytes per second, as nccl-tests has it
  std::optional<double> other_gb_s{};  // of the machine beside it
  Beside beside = Beside::Unknown;
  bool dips = false;
  std::string
      words{};  // "-3 %", "slower: -38 %", "-3 %, dip"; "" where nothing is known and nothing dips
};

// One for each point; slower or faster only than what was measured. REQUIRES: the series has points; `other`, if any, a table of the collective over its ranks.
std::vector<SizeVerdict> verdicts(const models::CollectiveSeries& series,
                                  const models::Cluster* other);

// Over several nodes: the largest bus bandwidth of messages from 64 MiB on beside what the links can carry, all interfaces of a node or
// the node itself (as the machine beside it has them, or as the log's own table of one node says).
struct LineVerdict {
  double reached_gb_s = 0;
  double line_gb_s = 0;
  double interface_gb_s = 0;  // of each rank
  std::int64_t per_node = 1;  // ranks
  [[nodiscard]] double share() const { return reached_gb_s / line_gb_s; }
  // Shipped tables over several nodes reach 0.72 and more (with EFA from GiB on), those of interfaces of half the rate 0.55.
  [[nodiscard]] bool is_sick() const { return share() < 0.6; }
};
// Absent in one node, of small messages, and where the number of nodes or their links are unknown. `own`: the other tables of the log.
std::optional<LineVerdict> line_verdict(const models::CollectiveSeries& series,
                                        const models::Cluster& other,
                                        std::span<const models::CollectiveSeries> own);
// "187 of the 384 GB/s that 8 interfaces of 48 GB/s and the node carry: half of the rails, or interfaces of another rate?"
std::string in_words(const LineVerdict& verdict);

struct HalfBandwidth {
  Bytes
      bytes{};  // where the algorithm bandwidth reaches half of its peak; between two sizes by interpolation
  double peak_gb_s = 0;   // of algorithm bandwidth
  bool is_below = false;  // the smallest size that was measured is there already
  bool still_rises =
      false;  // the largest size is over 10 % above the one before: the peak is not reached
};
// Absent with fewer than two points.
std::optional<HalfBandwidth> half_bandwidth(const models::CollectiveSeries& series);

// "fuse above 8 MiB on this machine: from there on all-reduce over 8 ranks has half of its 243 GB/s"; "" where nothing is known.
std::string fusing_in_words(const models::CollectiveSeries& series);

}  // namespace dovetail::imports
