// A step that is replicated over ranks, put onto another number of them or into shards and replicas.
//
//   program mlp  world 2                      dp {0 1}
//   lay_out(program, {.dp = 2, .dp_shard = 4})
//   program mlp  world 8                      dp {0 1 2 3} {4 5 6 7}   hsdp {0 4} {1 5} {2 6} {3 7}
//
// Tensors and ops stay: what a rank computes does not depend on how many others do the same. With both degrees every
// gradient owes two reductions, over the ranks that hold its shards and over the replicas of a shard, which lie
// dp_shard apart as in PyTorch's mesh (dp_replicate, dp_shard). That anything is sharded is for a Schedule to
// decide: dp_shard = 8 alone is a group of eight, as dp = 8 is. Times that were measured rank by rank become those of the
// latest rank: an op ends when it has ended on all of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::schedule {

// Ranks = dp x dp_shard, the latter innermost.
struct DataParallel {
  std::int64_t dp = 1;        // replicas
  std::int64_t dp_shard = 1;  // ranks over which each replica is sharded

  [[nodiscard]] std::int64_t world() const { return dp * dp_shard; }
  friend bool operator==(const DataParallel&, const DataParallel&) = default;
};

// "dp_shard=4,dp=2", as --layout takes it.
std::string to_string(const DataParallel& degrees);

// Why a Program cannot be laid out: it has stages, ops that communicate, or gradients that are not reduced once, over all
// ranks. "": it can.
std::string layout_refusal(const Program& program);

// REQUIRES: layout_refusal(program) is empty; degrees of at least 1.
Program lay_out(Program program, const DataParallel& degrees);

// Gradients that are reduced; one that owes two reductions counts once.
struct ReducedGradients {
  std::size_t count = 0;
  Bytes bytes;
};
ReducedGradients reduced_gradients(const Program& program);

// `size` ranks that are `stride` apart, again and again until all ranks are in one.
std::vector<Rank> strided_ranks(std::int64_t world, std::int64_t size, std::int64_t stride);

}  // namespace dovetail::schedule
