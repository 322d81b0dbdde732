// Replaces the one process group of a replicated step, and what its gradients owe.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/data_parallel.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

// By the moments at which ops have ended on the latest rank.
void take_latest_ranks(Program& program) {
  std::vector<Duration> ends;
  Duration latest{};
  for (Op& op : program.ops) {
    auto* work = std::get_if<TimedWork>(&op.work);
    if (work == nullptr) continue;
    ends.resize(std::max(ends.size(), work->by_rank.size()), latest);
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      ends[rank] += work->by_rank[std::min(rank, work->by_rank.size() - 1)];
    }
    const Duration before = std::exchange(latest, std::ranges::max(ends));
    work->by_rank = {latest - before};
  }
}

}  // namespace

std::string to_string(const DataParallel& degrees) {
  if (degrees.dp_shard == 1) return "dp=" + std::to_string(degrees.dp);
  const std::string shard = "dp_shard=" + std::to_string(degrees.dp_shard);
  return degrees.dp == 1 ? shard : shard + ",dp=" + std::to_string(degrees.dp);
}

std::string layout_refusal(const Program& program) {
  if (program.stages > 1) return "it is a pipeline";
  for (const Op& op : program.ops) {
    if (std::holds_alternative<CollectiveWork>(op.work)) return "op " + op.name + " communicates";
  }
  std::set<TensorId> reduced;
  for (const Reduction& reduction : program.reductions) {
    const std::string& name = program.tensor(reduction.gradient).name;
    if (!reduced.insert(reduction.gradient).second) return name + " is reduced more than once";
    if (program.group(reduction.group).size() != program.world_size) {
      return name + " is not reduced over all ranks";
    }
  }
  return "";
}

Program lay_out(Program program, const DataParallel& degrees) {
  DOVETAIL_CHECK(layout_refusal(program).empty() && degrees.dp >= 1 && degrees.dp_shard >= 1);
  if (degrees.world() != program.world_size) take_latest_ranks(program);
  program.world_size = degrees.world();
  const bool is_hybrid = degrees.dp > 1 && degrees.dp_shard > 1;
  const std::int64_t inner = is_hybrid ? degrees.dp_shard : degrees.world();
  program.groups = {{.id = GroupId{0},
                     .name = "dp",
                     .ranks = strided_ranks(degrees.world(), inner, 1),
                     .instance_size = is_hybrid ? inner : 0}};
  std::vector<Reduction> reductions;
  for (Reduction reduction : program.reductions) {
    reduction.group = GroupId{0};
    reductions.push_back(reduction);
    if (!is_hybrid) continue;
    reductions.push_back({.gradient = reduction.gradient, .group = GroupId{1}, .op = reduction.op});
  }
  program.reductions = std::move(reductions);
  if (is_hybrid) {
    program.groups.push_back({.id = GroupId{1},
                              .name = "hsdp",
                              .ranks = strided_ranks(degrees.world(), degrees.dp, inner),
                              .instance_size = degrees.dp});
  }
  return program;
}

ReducedGradients reduced_gradients(const Program& program) {
  ReducedGradients reduced;
  std::set<TensorId> seen;
  for (const Reduction& reduction : program.reductions) {
    if (!seen.insert(reduction.gradient).second) continue;
    reduced.count += 1;
    reduced.bytes += program.tensor(reduction.gradient).bytes();
  }
  return reduced;
}

std::vector<Rank> strided_ranks(std::int64_t world, std::int64_t size, std::int64_t stride) {
  std::vector<Rank> ranks;
  ranks.reserve(static_cast<std::size_t>(world));
  for (std::int64_t block = 0; block < world; block += size * stride) {
    for (std::int64_t offset = 0; offset < stride; ++offset) {
      for (std::int64_t i = 0; i < size; ++i) {
        ranks.push_back(Rank{static_cast<std::int32_t>(block + i * stride + offset)});
      }
    }
  }
  return ranks;
}

}  // namespace dovetail::schedule
