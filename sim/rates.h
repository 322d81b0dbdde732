// Rates: how fast what is in flight together progresses, 1 being the speed of each when it is alone.
//
// Resources, each with a capacity of 1, and what uses them:
//   links     each link of each rank, out and in apart. A transfer wants `amount` of them: the share of
//             its time that is no latency, times what the collective puts on the link (LinkLoad). So
//             latencies pass side by side and bandwidth is shared: all together move no more than the largest
//             rate that the collective's table shows. All-reduces and the like load both
//             directions of every rank that takes part, a send its sender's out and its receiver's in
//   compute   of each rank: what its op runs on (SMs, memory, caches). A collective beside it takes
//             1 - 1 / slow-down of it, by the class of the op's kernel, as calibrated
//   core      of each rank whose host is its compute stream: a collective takes its processor time,
//             spread over its duration
//   GPU       where no slow-down was measured (models/costs/multiprocessors.h): the multiprocessors that a transfer holds, of any
//             op; and memory, which transfers want by their traffic and an op that streams through memory as a whole
// A transfer that moves at a part of its rate takes that part from compute, core and memory; it holds multiprocessors all the same.
//
// Transfers are served in max-min fairness: the amounts that they use rise together until a link is
// full, which stops those on it, or until a transfer moves at its full rate; the others rise on.
//
//   two transfers that want 1 and 1 of a link      1/2 and 1/2
//   1 and 0.2                                      0.8 and 0.2, i.e. rates 0.8 and 1
//   a wants 1 of links p and q, b of p, c of q     1/2 each
//
// Compute is not shared this way: what a collective holds of it is not given up to an op.
//
// Memory is: by a rank's transfers, at the rates that their links allow, and by the op that streams, in max-min fairness of what
// each uses of it. Whoever wants less than an equal part has all that it wants; the others have equal parts of the rest.
//
//   transfer 0.38, op 1                 0.38 and 0.62
//   transfers 0.76 and 0.52, op 1       1/3 each: the transfers at rates 0.44 and 0.64
//   transfer 1.5, nothing else          1: at rate 2/3
//
// Why max-min and not in proportion to what each wants: a memory controller serves whoever asks in turn, and one that asks
// seldom waits for no more than the requests before it; only those that ask faster than they are served queue up. Either way all
// bytes are moved at the memory's rate, so that a faster link, which moves the same bytes, takes nothing more from anybody. What a
// transfer that memory holds back leaves of its links goes to no other one; it goes at the pace of the slowest of its ranks.
//
// Used by the event loop (player.cc) and by whoever must agree with it. Rates are whole multiples of
// 2^-20, rounded to the nearest, at least 1; progress is kept in 2^-20 ns; ends are rounded up to ns.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/costs/costs.h"
#include "sim/graph.h"

namespace dovetail::sim {

using step::Demand;

inline constexpr int kFractionBits = 20;
inline constexpr std::int64_t kFullRate = std::int64_t{1}
                                          << kFractionBits;  // one ns of work per ns

// A rate in units of 2^-20. REQUIRES: 0 <= rate <= 1.
std::int64_t whole_rate(double rate);

// Solves for the rates of a few transfers. Allocates only until it has seen the most of them.
class LinkShares {
 public:
  explicit LinkShares(std::size_t resources) : local_(resources, -1) {}

  void clear();
  // Adds a transfer that wants `part` of these demands. REQUIRES: 0 <= part <= 1.
  void add(std::span<const Demand> demands, double part);
  // The rate of each transfer, in (0, 1], in the order in which they were added.
  std::span<const double> solve();

 private:
  struct Use {
    std::int32_t transfer;
    std::int32_t resource;  // local
    double amount;
  };
  // Fills all that is left at the highest common level; false when nobody was left.
  bool fill();

  std::vector<std::int32_t> local_;  // of each resource: index among those in use, or -1
  std::vector<std::int32_t> used_;   // those in use
  std::vector<Use> uses_;
  std::vector<double> largest_;  // of each transfer: its largest amount
  std::vector<double> rates_;    // 0: not settled yet
  std::vector<double> settled_;  // of each resource in use: what settled transfers take
  std::vector<double> rising_;   // and how fast the others' use rises with the level
};

// Up to where each that wants a part of a memory has all that it wants; infinity where there is enough for all. `streams`: an op
// wants the whole of it besides.
double memory_level(std::span<const double> wants, bool streams);

// What collectives in flight take from the compute and the core of one rank.
struct Taken {
  double core = 0;
  std::array<double, 3> compute{};  // by models::KernelClass
  step::GpuShare gpu = {};

  // A collective that moves at `rate` and takes `alone` at full rate.
  struct Transfer {
    double rate = 1;
    std::int64_t alone = 1;
    step::GpuShare gpu = {};
  };
  void add(const models::Contention& contention, const Transfer& transfer);
  // One that waits for some of its thread blocks: those that it has hold what they will need.
  void add_waiting(const models::Contention& contention, const step::GpuShare& takes);
  // What is left for an op of this class; at least 1/64.
  [[nodiscard]] double left(models::KernelClass kernel) const;

 private:
  void hold(const models::Contention& contention, double part);
};

}  // namespace dovetail::sim
