// What each kind of collective does, as one table: who sends what, what comes of it and where, and what others call
// it. Costs, known values, messages of ops, importers and checks ask it instead of naming kinds.
//
//                   makes   sends  holds    in place  NCCL           nccl-tests           PyTorch
//   all-reduce      sum     whole  whole    yes       AllReduce      all_reduce_perf      all_reduce
//   reduce-scatter  sum     whole  part     yes       ReduceScatter  reduce_scatter_perf  reduce_scatter
//   all-gather      joined  part   whole    yes       AllGather      all_gather_perf      all_gather
//   all-to-all      joined  whole  whole    no        AlltoAll       alltoall_perf        all_to_all
//   broadcast       root's  whole  whole    yes       Broadcast      broadcast_perf       broadcast
//   send-recv       root's  whole  whole    yes                      sendrecv_perf
//
// The whole is CollectiveWork::bytes, a part the share of one of n ranks. What is sent as a whole to be joined is
// taken apart: part i goes to the rank at index i.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dovetail::schedule {

enum class Made { Sum, Joined, OfRoot };
enum class Extent { Whole, Part };

struct CollectiveTraits {
  Collective kind = Collective::AllReduce;
  Made makes = Made::Sum;
  Extent sends = Extent::Whole;  // of each rank; of what only the root has: at the root
  Extent holds = Extent::Whole;  // each rank afterwards, of what is made
  bool in_place = true;          // what it makes may lie where what it sends lay
  bool pair = false;             // of two ranks: the root only sends, the other only receives
  // How often the whole, but for one's own part, crosses a rank's link: nccl-tests' bus bandwidth counts
  // crossings x (n - 1) / n; 0: it counts the whole itself.
  std::int32_t crossings = 1;
  // Empty: has none, or is never told by it.
  std::string_view nccl = {};        // in NCCL's logs, and behind "nccl" its call
  std::string_view nccl_tests = {};  // the program that measures it
  std::string_view torch = {};       // in torch.distributed

  [[nodiscard]] constexpr bool reduces() const { return makes == Made::Sum; }
  [[nodiscard]] constexpr bool rooted() const { return makes == Made::OfRoot; }
  // Whether one side of it is a part: one of the halves of which a ring's all-reduce consists.
  [[nodiscard]] constexpr bool is_half() const { return sends != holds && !rooted(); }
  // Whether the whole is cut into one part for each rank.
  [[nodiscard]] constexpr bool is_cut() const { return sends != holds || makes == Made::Joined; }
};

inline constexpr std::array<CollectiveTraits, kAllOf<Collective>.size()> kCollectiveTraits = {
    {{.kind = Collective::AllReduce,
      .makes = Made::Sum,
      .crossings = 2,
      .nccl = "AllReduce",
      .nccl_tests = "all_reduce_perf",
      .torch = "all_reduce"},
     {.kind = Collective::ReduceScatter,
      .makes = Made::Sum,
      .holds = Extent::Part,
      .nccl = "ReduceScatter",
      .nccl_tests = "reduce_scatter_perf",
      .torch = "reduce_scatter"},
     {.kind = Collective::AllGather,
      .makes = Made::Joined,
      .sends = Extent::Part,
      .nccl = "AllGather",
      .nccl_tests = "all_gather_perf",
      .torch = "all_gather"},
     {.kind = Collective::AllToAll,
      .makes = Made::Joined,
      .in_place = false,
      .nccl = "AlltoAll",
      .nccl_tests = "alltoall_perf",
      .torch = "all_to_all"},
     {.kind = Collective::Broadcast,
      .makes = Made::OfRoot,
      .crossings = 0,
      .nccl = "Broadcast",
      .nccl_tests = "broadcast_perf",
      .torch = "broadcast"},
     {.kind = Collective::SendRecv,
      .makes = Made::OfRoot,
      .pair = true,
      .crossings = 0,
      .nccl_tests = "sendrecv_perf"}}};
static_assert(
    [] {
      for (std::size_t i = 0; i < kCollectiveTraits.size(); ++i) {
        if (static_cast<std::size_t>(kCollectiveTraits[i].kind) != i) return false;
      }
      return true;
    }(),
    "the rows stand in the order of the enumerators");

constexpr const CollectiveTraits& traits_of(Collective kind) {
  return kCollectiveTraits[static_cast<std::size_t>(kind)];
}

// The kind that somebody calls so: collective_named(&CollectiveTraits::torch, "all_gather").
constexpr std::optional<Collective> collective_named(std::string_view CollectiveTraits::*whose,
                                                     std::string_view name) {
  const auto found = std::ranges::find(kCollectiveTraits, name, whose);
  if (name.empty() || found == kCollectiveTraits.end()) return std::nullopt;
  return found->kind;
}

// Bus bandwidth over algorithm bandwidth as nccl-tests defines them (its doc/PERFORMANCE.md): 2 (n - 1) / n
// for an all-reduce, (n - 1) / n for an all-gather, a reduce-scatter and an all-to-all, 1 for a broadcast
// and a send.
constexpr double bus_factor(Collective collective, std::int64_t ranks) {
  const std::int32_t crossings = traits_of(collective).crossings;
  const auto n = static_cast<double>(ranks);
  return crossings == 0 ? 1 : crossings * (n - 1) / n;
}

}  // namespace dovetail::schedule
