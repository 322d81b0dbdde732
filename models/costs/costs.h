// Costs: how long everything takes on a machine when nothing else runs, and how much things slow
// each other down. A plain value: compared, printed, sampled, written and read.
//
//   Costs costs = costs_for(cluster, program);        // cluster.h; of a measured profile: profile.h
//   costs.op(op, rank);                               // Duration
//   costs.collective(Collective::AllReduce, group, mib(25)).isolated;
//   costs.find({Collective::AllReduce, 8})->time.hull(TimeKind::Smaller);
//
// Bytes. A collective is asked for with the whole message of one rank: the buffer of an all-reduce,
// the input of a reduce-scatter or an all-to-all, the gathered result of an all-gather, what a
// broadcast or a send carries. A bucket's reduce-scatter and all-gather therefore cost by the bucket's
// whole size, as nccl-tests plots them; only the all-reduce of a shard over replicas counts the shard.
//
// Collectives. A lone collective and one in a busy queue differ: a queue hides latency, a shaped
// link has credit after a pause. Both times are measured; the simulator takes, for a collective
// that starts `gap` after the end of the previous one on its stream, or on the links that it loads most,
//     T(gap) = isolated        clamped to  [back_to_back - gap, back_to_back + gap]
// so T(0) = back_to_back and T(large) = isolated. A token bucket refunds at most the gap itself,
// and latency is hidden by at most the gap: hence the bound. Where only one time is known both are
// equal. Without contention an earlier end of one collective never delays the next where isolated <=
// back_to_back: it ends at max(start + isolated, previous end + back_to_back). Where isolated is the
// larger one it can, by at most isolated - back_to_back: a faster link may then make a step longer.
//
// Contention. Rates, not whole-op factors: while a compute op and a collective of one rank are in
// flight together, the op progresses at 1 / compute_slowdown and the collective at 1 /
// collective_slowdown, both by the class of the op where that was measured; or, where only the GPU is known, the op at what the
// collective leaves it of multiprocessors and memory (multiprocessors.h). Several collectives at once share the links that they
// load (sim/rates.h).
//
// Start delay. The thread blocks of a product hold all multiprocessors: a collective that begins beside one waits until some of
// them are done. It waits `start_delay`, but not beyond the end of the products that ran when it began, on any of its ranks; and
// no longer than the pause since the collective before it, whose multiprocessors it has where it follows at once. While it waits,
// the blocks that have come hold what a moving collective takes from compute. On one H100 (132 multiprocessors, products of 0.1 to
// 5 ms) it was some 0.1 to 0.17 ms, a tile's time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/random.h"
#include "base/units.h"
#include "base/words.h"
#include "models/costs/multiprocessors.h"
#include "models/costs/op_costs.h"
#include "models/rates/collective_table.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace dovetail::models {

// How commands reach their stream.
//   Inline  the compute stream is the host thread: issuing costs compute time (the cpu backend)
//   Async   a host thread runs ahead of the device (GPUs): a command starts no earlier than it was
//           issued, plus the launch latency
struct HostModel {
  enum class Kind { Inline, Async } kind = Kind::Async;
  Duration run_op{};  // host time to issue one op (Async only),
  // or one of backward, or the update of one parameter; absent: as run_op. Python issues forward, C++ backward, and fused optimizers
  // pass over lists of tensors.
  std::optional<Duration> backward_op{}, update_op{};
  Duration collective{};      // to enqueue one collective
  Duration event{};           // to record an event or enqueue a wait
  Duration copy{};            // fixed cost of one copy command, beside its bytes
  Duration launch_latency{};  // issue to start on an idle stream (Async only)
  Duration launch_gap{};      // between two queued commands of one stream (Async only)
  [[nodiscard]] Duration op(schedule::Phase phase) const {
    if (phase == schedule::Phase::Backward) return backward_op.value_or(run_op);
    return phase == schedule::Phase::Optimizer ? update_op.value_or(run_op) : run_op;
  }
  friend bool operator==(const HostModel&, const HostModel&) = default;
};
constexpr auto words_of(HostModel::Kind) { return words("inline", "async"); }

// The host that a recorded step had, which issues it wherever it is taken: as a Program holds it
// (Op::issue, Program::bucket_call). It runs ahead of the device where it was seen to issue ops;
// else a bucket's launch takes its time from compute. Nothing where none was seen: then the
// machine's own is meant.
std::optional<HostModel> recorded_host(const schedule::Program& program);

// Slow-down factors >= 1 while both are in flight. `collective_cpu` is processor time that one
// collective takes from the compute stream of its rank besides (software transports); 0 on GPUs.
// Beside a GPU of which only multiprocessors are known there are no slow-downs, but there may be a start delay.
struct Contention {
  double compute_slowdown = 1;
  double collective_slowdown = 1;
  Duration collective_cpu{};
  // Of ops of one class, where it was measured apart; absent: compute_slowdown.
  std::optional<double> gemm_slowdown{};
  std::optional<double> memory_slowdown{};
  // Of collectives beside ops of one class, likewise; absent: collective_slowdown.
  std::optional<double> collective_gemm_slowdown{};
  std::optional<double> collective_memory_slowdown{};
  Duration start_delay{};                            // of a collective that begins beside a product
  std::optional<Multiprocessors> multiprocessors{};  // of a GPU on which no slow-down was measured

  [[nodiscard]] double slowdown_of(KernelClass kernel) const {
    if (kernel == KernelClass::Gemm) return gemm_slowdown.value_or(compute_slowdown);
    if (kernel == KernelClass::Memory) return memory_slowdown.value_or(compute_slowdown);
    return compute_slowdown;
  }
  // Of a collective, beside an op of this class.
  [[nodiscard]] double collective_slowdown_beside(KernelClass kernel) const {
    if (kernel == KernelClass::Gemm) return collective_gemm_slowdown.value_or(collective_slowdown);
    if (kernel == KernelClass::Memory)
      return collective_memory_slowdown.value_or(collective_slowdown);
    return collective_slowdown;
  }
  [[nodiscard]] bool none() const { return *this == Contention{}; }
  friend bool operator==(const Contention&, const Contention&) = default;
};

// Levels of links at most: in a node, between nodes of a rack, between racks, ... (topology.h).
inline constexpr std::size_t kMostLevels = 4;

// A collective over a number of ranks, which lie on so many nodes. nodes 0: where they lie is not known, as on a machine of
// which only a table by ranks is known.
struct CollectiveKey {
  schedule::Collective collective = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  std::int64_t nodes = 0;
  // On how many units of each further level the nodes lie, racks first; 0: the machine has no such level.
  std::array<std::int64_t, kMostLevels - 2> wider = {};

  // Of the units that a level joins: nodes, racks, ...; 1 beyond the machine's last.
  [[nodiscard]] std::int64_t units(std::size_t level) const {
    if (level == 0) return nodes;
    return level > wider.size() ? 1 : std::max<std::int64_t>(1, wider.at(level - 1));
  }
  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

// "all-reduce over 64 ranks on 8 nodes", without the nodes where they are not known.
std::string title_of(const CollectiveKey& key);

// What a collective puts on one link of each rank that takes part, while it transfers at full rate, as a
// share of what the link carries in one direction.
struct LinkLoad {
  std::int32_t link = 0;  // index into Costs::links
  double share = 1;       // 0..1
  friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};

// What one collective over groups of one size costs.
struct CollectiveCost {
  CollectiveKey key;                 // ranks 0: any number of them
  CollectiveTable time;              // curve, hull and spread
  std::vector<LinkLoad> loads = {};  // none: it shares no link with others
  friend bool operator==(const CollectiveCost&, const CollectiveCost&) = default;
};

// What is copied into a bucket or out of it: anything, or for gathers of parameters before each use.
enum class CopyKind { Any, Split, Chunk };

struct Costs {
  std::string machine;  // for provenance
  OpCosts ops;
  std::vector<std::string> links = {"link"};  // that every rank has, out and in
  std::vector<CollectiveCost> collectives;
  std::optional<CopyModel>
      copies;  // one direction of a pack or unpack; absent: nothing can be copied
  // The same where parameters are gathered before each use: what a gather brought split into parameters, and gradients put together for a
  // reduce-scatter. Absent: as `copies`.
  std::optional<CopyModel> splits, chunks;
  std::optional<PassModel>
      scales;  // of a buffer in place, 2 bytes of traffic each; absent: as a copy
  HostModel host;
  std::vector<Contention> contention_by_class;  // per rank class; one: of all; empty: none
  // Ranks whose costs differ; the others behave like rank 0. A simulation follows only min(world,
  // distinct_ranks) ranks.
  std::int64_t distinct_ranks = 1;
  std::vector<std::int64_t> unit_ranks;  // that share a node, a rack, ...; none: not known

  // How long an op takes. Throws InputError when it has no duration on this machine.
  [[nodiscard]] Duration op(const schedule::Op& what, Rank rank) const {
    return ops.time(what, rank);
  }
  // How long the host is busy issuing it (Async only).
  [[nodiscard]] Duration issue(const schedule::Op& what) const;
  [[nodiscard]] CollectiveKey key(schedule::Collective kind,
                                  const schedule::ProcessGroup& group) const;
  // Null where the machine has no curve.
  [[nodiscard]] const CollectiveCost* find(CollectiveKey key) const;
  // A group of one rank that has no curve communicates in no time. Throws InputError where there is no curve.
  [[nodiscard]] CollectiveTime collective(schedule::Collective kind,
                                          const schedule::ProcessGroup& group, Bytes bytes) const;
  // Throws InputError where nothing is known of copies.
  [[nodiscard]] Duration copy(Bytes bytes, CopyKind kind = CopyKind::Any) const;
  [[nodiscard]] Duration scale(Bytes bytes) const;
  [[nodiscard]] Contention contention(Rank rank) const;
  // Whether the spread of anything was measured.
  [[nodiscard]] bool has_spread() const;

  friend bool operator==(const Costs&, const Costs&) = default;
};

// Of an all-to-all over `key` whose rows stand `copies` times among its bytes, each to an expert of its own, those of one that takes
// as long and sends every row by itself. To a rank one copy goes, over the network one to a node, which NVLink there hands on; between
// nodes only the network is counted (DeepEP publishes 45 of its 50 GB/s a rank, two and four nodes of 8 H100). Of n equal
// places that each of k experts may be at, n (1 - (1 - 1/n)^k) are expected to be one's.
Bytes without_copies(Bytes bytes, std::int64_t copies, const CollectiveKey& key);

// Prices the ops of another Program on this machine, issued by its own host where one was recorded.
// REQUIRES: nothing was scaled yet. Throws InputError when an op has no duration there.
void reprice(Costs& costs, const schedule::Program& program);

// One draw of what a step may cost: every op and every collective takes its median times a factor
// drawn from its spread, the same on all ranks and sizes. What has no spread stays.
Costs sampled(const Costs& costs, Random& random);

// A table for people: ops, collectives at a few sizes, host, contention.
std::ostream& operator<<(std::ostream& out, const Costs& costs);

}  // namespace dovetail::models
