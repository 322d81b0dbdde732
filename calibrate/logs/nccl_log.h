// NCCL's own log (NCCL_DEBUG=INFO): which communicators there were, which channels, algorithms and
// protocols they use, which collectives were called with which sizes, and NCCL's own model of their times.
//
//   node0:4321:4399 [0] NCCL INFO comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
//   node0:4321:4399 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels
//   node0:4321:4399 [0] NCCL INFO  AllReduce |    9.0/   2.4 |   18.0/   0.0 |   60.0/   0.0 | ...
//   node0:4321:4399 [0] NCCL INFO comm 0x55d0 rank 0 nranks 16 .. commId 0x840f1304d3f4d41a - Init COMPLETE
//   node0:4321:4321 [0] NCCL INFO AllReduce: opCount 1a .. count 262144 datatype 7 .. comm 0x55d0 [nranks=16] ..
//   node0:4321:4399 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}
//
// Source of the format: github.com/NVIDIA/nccl, tags v2.3.7-1 to v2.30.7-1: src/init.cc, src/enqueue.cc, src/graph/tuning.cc,
// src/debug.cc; its branch dev (2.31.0), src/tuning; format strings in the libraries of 2.31.2 and 2.32.3. What versions differ in:
//   - nNodes is said from 2.20 on. Before, the nodes are the hosts in the lines' fronts, if all ranks are seen; else unknown.
//   - AMD's RCCL writes the same lines, and its version as "RCCL version : 2.22.3-HEAD:271856d".
//   - a communicator is known on all its ranks by its commId (2.16 on), or by what it was split from (2.24 on). Before, and
//     in a log of COLL lines alone, it is not: those of equally many ranks that different processes show are taken for
//     one, as far as their ranks allow it. The pointer is only its name within a process.
//   - lines without a communicator (channels, the table of times) belong to the one that the same thread is initialising:
//     its "Init COMPLETE" comes after them.
//   - the choice of algorithm and protocol is a line of numbers without the collective's name, with NCCL's model time
//     ("1048576 Bytes -> Algo 1 proto 2 time 25.229528"): as TRACE to 2.19, as INFO of rank 0 in 2.20 to 2.22, with the
//     name in 2.23, in words and without the time from 2.24 on. Without a name it is that of the call before it.
//   - sizes in lines of choices are a rank's share from 2.24 on; the line of the call before tells the whole.
//   - what does not exist has 0.0/ 0.0 in the table to 2.30, since then -1.0/-1.0; what NCCL_ALGO or NCCL_PROTO rules out has
//     no bandwidth to 2.30, and since then that which it would have: such a table is left out.
// Lines of several processes may be glued into one (log_lines.h).
//
// A collective is one opCount of one communicator; its ranks call it once each, and several times where calls are
// grouped. Sizes are those of models::CollectivePoint.
//
// The table with '|' (NCCL_DEBUG_SUBSYS=INIT,TUNING, printed by rank 0) has for each collective, algorithm and
// protocol a latency in us and a bandwidth in GB/s. NCCL chooses by latency + bytes / bandwidth
// (ncclTopoGetAlgoTime); the least of these is taken as the collective's time, and where there is no table the time of
// the choice itself. That is NCCL's model, no measurement: 15 to 50 % off on the machines whose measurements we
// have. Left out: its correction factors for trees.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"
#include "recordings/text.h"

#include <span>

namespace dovetail::imports {

// Samples only where the log has NCCL's model. Throws InputError where no line is NCCL's.
CollectiveLog read_nccl_log(std::span<const Source> files);

}  // namespace dovetail::imports
