// Costs: how long everything takes on a machine when nothing else runs, and how much things slow
// each other down.
//
// A plain struct of functions and numbers; models/cluster.h makes one from a cluster file,
// models/profile.h from a measured profile. sim reads it, nothing else does.
//
// Bytes. Costs::collective is asked with the whole message of one rank: the buffer of an all-reduce,
// the input of a reduce-scatter or an all-to-all, the gathered result of an all-gather, what a
// broadcast or a send carries. A bucket's reduce-scatter and all-gather therefore cost by the bucket's
// whole size, as nccl-tests plots them; only the all-reduce of a shard over replicas counts the shard.
//
// Collectives. A lone collective and one in a busy queue differ: a queue hides latency, a shaped
// link has credit after a pause. Both times are measured; the simulator takes, for a collective
// that starts `gap` after the end of the previous one on its stream,
//     T(gap) = isolated        clamped to  [back_to_back - gap, back_to_back + gap]
// so T(0) = back_to_back and T(large) = isolated. A token bucket refunds at most the gap itself,
// and latency is hidden by at most the gap: hence the bound. Where only one time is known both are
// equal.
//
// Contention. Rates, not whole-op factors: while a compute op and a collective of one rank are in
// flight together, the op progresses at 1 / compute_slowdown and the collective at 1 /
// collective_slowdown.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <cstdint>
#include <functional>
#include <string>

namespace dovetail::models {

struct CollectiveTime {
  Duration isolated{};
  Duration back_to_back{};
  friend bool operator==(const CollectiveTime&, const CollectiveTime&) = default;
};

// How commands reach their stream.
//   Inline  the compute stream is the host thread: issuing costs compute time (the cpu backend)
//   Async   a host thread runs ahead of the device (GPUs): a command starts no earlier than it was
//           issued, plus the launch latency
struct HostModel {
  enum class Kind { Inline, Async } kind = Kind::Async;
  Duration run_op{};          // host time to issue one op (Async only)
  Duration collective{};      // to enqueue one collective
  Duration event{};           // to record an event or enqueue a wait
  Duration copy{};            // fixed cost of one copy command, beside its bytes
  Duration launch_latency{};  // issue to start on an idle stream (Async only)
  Duration launch_gap{};      // between two queued commands of one stream (Async only)
  friend bool operator==(const HostModel&, const HostModel&) = default;
};

// Slow-down factors >= 1 while both are in flight. `collective_cpu` is processor time that one
// collective takes from the compute stream of its rank besides (software transports); 0 on GPUs.
struct Contention {
  double compute_slowdown = 1;
  double collective_slowdown = 1;
  Duration collective_cpu{};
  [[nodiscard]] bool none() const {
    return compute_slowdown == 1 && collective_slowdown == 1 && collective_cpu == Duration{};
  }
  friend bool operator==(const Contention&, const Contention&) = default;
};

struct Costs {
  std::string machine;  // for provenance
  std::function<Duration(const schedule::Op&, Rank)> op;
  std::function<CollectiveTime(schedule::Collective, const schedule::ProcessGroup&, Bytes)>
      collective;
  std::function<Duration(Bytes)> copy;   // one direction of a pack or unpack
  std::function<Duration(Bytes)> scale;  // of a buffer in place; empty: as a copy
  HostModel host;
  // Per rank where ranks differ: contention(rank).
  std::function<Contention(Rank)> contention;
  // Ranks whose costs differ; the others behave like rank 0. A simulation follows only min(world,
  // distinct_ranks) ranks.
  std::int64_t distinct_ranks = 1;
};

}  // namespace dovetail::models
