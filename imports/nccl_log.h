// NCCL's own log (NCCL_DEBUG=INFO): which communicators there were, which channels, algorithms and
// protocols they use, which collectives were called, and NCCL's own model of their times.
//
//   node0:4321:4399 [0] NCCL INFO comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
//   node0:4321:4399 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels
//   node0:4321:4321 [0] NCCL INFO AllReduce: opCount 1a sendbuff .. count 262144 datatype 7 op 0 root 0 ..
//   node0:4321:4399 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}
//   node0:4321:4399 [0] NCCL INFO  AllReduce |    9.0/   2.4 |   18.0/   0.0 |   60.0/   0.0 | ...
//
// Source of the format: github.com/NVIDIA/nccl at 5067397c (2.30.7): src/init.cc, src/enqueue.cc,
// src/graph/tuning.cc, src/debug.cc; older lines ("-> Algo 1 proto 2 time 123.4") are known too. The
// table with '|' (NCCL_DEBUG_SUBSYS=INIT,TUNING, printed by rank 0) has for each collective, algorithm and
// protocol a latency in us and a bandwidth in GB/s. NCCL chooses by latency + bytes / bandwidth
// (ncclTopoGetAlgoTime); the least of these is taken as the collective's time. That is NCCL's model, no
// measurement: 15 to 50 % off on the machines whose measurements we have. Left out: its correction
// factors for trees.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imports/collective_log.h"
#include "imports/text.h"

#include <span>

namespace dovetail::imports {

// Samples only where the log has the table. Throws InputError where no line is NCCL's.
CollectiveLog read_nccl_log(std::span<const Source> files);

}  // namespace dovetail::imports
