// What a collective takes of the GPUs that it runs on, beside their links: multiprocessors and memory traffic.
//
//   const Multiprocessors h100{.count = 132, .ctas = 24, .all_reduce_ctas = 16, .network_ctas = 16};
//   h100.ctas_of({.kind = Collective::AllReduce, .ranks = 8, .bytes = mib(25)});      // 16
//
// Each thread block (CTA) of a collective holds one of the S multiprocessors from its start to its end, also while it waits. Beside c
// of them an op of many waves takes S / (S - c) its time. An op that streams through memory takes 1 / (1 - rho) as long on top
// of that, up to twice as long, from where on the collective becomes slower, too (sim/rates.h). rho is what the collective moves of
// the rate that such ops reach:
//   rho = kappa * bus bandwidth / (0.8 * memory)
//   kappa  bytes read and written in memory for each byte on the bus of a ring: 2 where it is passed on, 3 where it is added up to
//          one's own part; an all-reduce does one after the other, 2.5
//   c      one for each 32 KiB of the message, at most as many as NCCL has channels for it
// Each CTA moves 1 / 19 of what 24 of them reach, so with fewer a collective is as slow as they are, and not slower than its link.
//
// Sources: NVIDIA/nccl v2.28 src/graph, src/enqueue.cc (channels); public times of DeepEP on H100 by multiprocessors lent to it
// (ai-dynamo/aiconfigurator at 095f58a51): 4.60, 2.38, 1.62, 1.24, 1.06 times those of 24 with 4, 8, 12, 16, 20; by the rule 4.75, 2.38,
// 1.58, 1.19, 1. On B200 and GB200 they are 5.0 and 4.5 with 4, 1.9 with 12, 1.45 with 16: a sixth to a fifth more than the rule from 12 on.
// Beside an all-to-all compute was seen to take 1.05 times its time whatever its CTAs, so that and a send are taken to hold none. Range: ops of
// many waves. One that fills the GPU once may take twice its time, one that leaves multiprocessors free nothing more; that is left out, and so are
// clocks, and what compute does to a collective, but for memory that both want (sim/rates.h). Measured beside an all-gather on
// A100: 1.76 for products, by the rule 1.29: it is a floor.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::models {

// One collective of `ranks`, which lie on so many nodes (0: not known). max_ctas 0: the library's choice.
struct GpuMessage {
  schedule::Collective kind = schedule::Collective::AllReduce;
  std::int64_t ranks = 2;
  std::int64_t nodes = 0;
  Bytes bytes = Bytes(0);  // as Costs counts them
  std::int32_t max_ctas = 0;
};

struct Multiprocessors {
  std::int64_t count = 0;                       // of the GPU
  std::int64_t ctas = 0;                        // of a collective within a node
  std::int64_t all_reduce_ctas = 0;             // of an all-reduce there
  std::int64_t network_ctas = 0;                // of one over several nodes
  std::optional<BytesPerSecond> memory = {};    // of the GPU; absent: nothing is known of traffic
  std::optional<BytesPerSecond> cta_rate = {};  // bus bandwidth of one; absent: not known
  std::optional<BytesPerSecond> all_reduce_cta_rate = {};

  // How many thread blocks it has.
  [[nodiscard]] std::int64_t ctas_of(const GpuMessage& message) const;
  // The least time with as many as it may have at most; 0 where it has its choice.
  [[nodiscard]] Duration least_time(const GpuMessage& message) const;
  // rho, if it takes so long; above 1 where memory does not let it (sim/rates.h).
  [[nodiscard]] double memory_share(const GpuMessage& message, Duration time) const;
  friend bool operator==(const Multiprocessors&, const Multiprocessors&) = default;
};

// Of a machine whose nodes have these bus bandwidths.
void set_cta_rates(Multiprocessors& gpu, BytesPerSecond node, BytesPerSecond all_reduce);

}  // namespace dovetail::models
