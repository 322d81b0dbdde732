// From a Cluster and a Program to the Costs that the simulator reads.
//
// Everything that can be looked up is looked up once, here: a duration per op, a table per
// collective and group size. What the simulator then calls are searches in small tables.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "models/cluster.h"
#include "models/kernel_table.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

constexpr double kReachableMemory = 0.8;  // share of the nominal rate that streaming kernels reach
constexpr std::array kReductions = {Collective::AllReduce, Collective::ReduceScatter,
                                    Collective::AllGather};

// Durations of one op: one for all ranks, or one per rank. A rewrite may change the work of an op
// that keeps its id.
struct OpTime {
  schedule::Work work;
  std::vector<Duration> by_rank;

  [[nodiscard]] Duration at(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank.value);
    return by_rank[index < by_rank.size() ? index : 0];
  }
};
using OpTimes = std::unordered_map<OpId, OpTime>;

double seconds_to_move(const Roofline& roofline, Bytes bytes) {
  return static_cast<double>(bytes.count()) / (kReachableMemory * roofline.memory.count());
}

Duration roofline_time(const Cluster& cluster, const schedule::Op& op) {
  const Roofline& roofline = *cluster.compute;
  const auto peak = roofline.gemm_peak.find(op.dtype);
  if (peak == roofline.gemm_peak.end() && std::holds_alternative<schedule::GemmWork>(op.work)) {
    std::string known;
    for (const auto& [dtype, rate] : roofline.gemm_peak) {
      known += (known.empty() ? "" : ", ") + std::string(to_string(dtype));
    }
    throw InputError("cluster " + cluster.name + ": op " + op.name + " is a GEMM of " +
                     std::string(to_string(op.dtype)) + ", but compute.gemm.flop_per_s has only " +
                     (known.empty() ? "nothing" : known));
  }
  double seconds = seconds_to_move(roofline, op.bytes());
  if (peak != roofline.gemm_peak.end()) {
    seconds = std::max(seconds, op.flop().count() / (roofline.efficiency * peak->second.count()));
  }
  return from_us(seconds * 1e6) + roofline.kernel_overhead;
}

std::vector<Duration> op_times(const Cluster& cluster, const KernelTable& kernels,
                               const schedule::Op& op) {
  if (std::holds_alternative<schedule::CollectiveWork>(op.work))
    return {Duration{}};  // collective()
  if (const auto* timed = std::get_if<schedule::TimedWork>(&op.work)) {
    if (timed->by_rank.empty()) throw InputError("op " + op.name + ": timed work without a time");
    return timed->by_rank;
  }
  if (const std::optional<Duration> time = kernels.find(op)) return {*time};
  const auto* memory = std::get_if<schedule::MemoryWork>(&op.work);
  if (!cluster.compute && cluster.copy && memory != nullptr) {
    // A copy of one byte moves two: it is read and written.
    const double ns = cluster.copy->ns_per_byte * static_cast<double>(memory->bytes.count()) / 2;
    return {cluster.copy->fixed + from_us(ns / 1e3)};
  }
  if (!cluster.compute) {
    throw InputError("cluster " + cluster.name + ": no duration for op " + op.name +
                     ": no measured kernel matches it and the cluster has no compute section");
  }
  return {roofline_time(cluster, op)};
}

// What the Program communicates: the halves of an all-reduce and itself for each group that owes a
// reduction, and what its ops say. Groups of one rank need no network.
std::set<CollectiveKey> keys_of(const schedule::Program& program) {
  std::set<CollectiveKey> keys;
  for (const schedule::Reduction& reduction : program.reductions) {
    for (const Collective kind : kReductions) {
      keys.insert({kind, program.group(reduction.group).size()});
    }
  }
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work != nullptr) keys.insert({work->kind, program.group(work->group).size()});
  }
  std::erase_if(keys, [](const CollectiveKey& key) { return key.ranks <= 1; });
  return keys;
}

struct SizedTable {
  CollectiveKey key;
  CollectiveTable table;
};

// Answers for the keys it was made with; any other key is the cluster's InputError.
class CollectiveTimes {
 public:
  CollectiveTimes(Cluster cluster, const std::set<CollectiveKey>& keys)
      : cluster_(std::move(cluster)) {
    for (const CollectiveKey& key : keys) tables_.push_back({key, collective_table(cluster_, key)});
  }

  [[nodiscard]] CollectiveTime time(CollectiveKey key, Bytes bytes) const {
    if (key.ranks == 1) return {};
    for (const SizedTable& sized : tables_) {
      if (sized.key == key) return sized.table.time(bytes);
    }
    return collective_table(cluster_, key).time(bytes);
  }

 private:
  Cluster cluster_;
  std::vector<SizedTable> tables_;
};

CopyModel copy_model(const Cluster& cluster) {
  if (cluster.copy) return *cluster.copy;
  // Each byte is read once and written once.
  return {Duration{}, seconds_to_move(*cluster.compute, Bytes(2)) * 1e9};
}

bool uses_roofline(const KernelTable& kernels, const schedule::Op& op) {
  return !std::holds_alternative<schedule::TimedWork>(op.work) &&
         !std::holds_alternative<schedule::CollectiveWork>(op.work) &&
         !kernels.find(op).has_value();
}

// The collectives whose origin a report must tell: those of buckets that are in use, and all of ops.
std::set<CollectiveKey> spoken_of(const schedule::Program& program,
                                  const std::vector<Collective>& used) {
  std::set<CollectiveKey> of_buckets;
  std::set<CollectiveKey> of_ops;
  for (const schedule::Reduction& reduction : program.reductions) {
    const std::int64_t ranks = program.group(reduction.group).size();
    for (const Collective kind : used) {
      if (ranks > 1) of_buckets.insert({kind, ranks});
    }
  }
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work == nullptr) continue;
    const std::int64_t ranks = program.group(work->group).size();
    if (ranks > 1) of_ops.insert({work->kind, ranks});
  }
  of_buckets.merge(of_ops);
  return of_buckets;
}

}  // namespace

std::function<CollectiveTime(Collective, const schedule::ProcessGroup&, Bytes)> collective_costs(
    const Cluster& cluster, const schedule::Program& program) {
  auto collectives = std::make_shared<const CollectiveTimes>(cluster, keys_of(program));
  return [collectives](Collective kind, const schedule::ProcessGroup& group, Bytes bytes) {
    return collectives->time({kind, group.size()}, bytes);
  };
}

Costs costs_for(const Cluster& cluster, const schedule::Program& program) {
  const KernelTable kernels(cluster);
  auto times = std::make_shared<OpTimes>();
  Costs costs;
  costs.machine = cluster.name;
  for (const schedule::Op& op : program.ops) {
    std::vector<Duration> by_rank = op_times(cluster, kernels, op);
    costs.distinct_ranks =
        std::max(costs.distinct_ranks, static_cast<std::int64_t>(by_rank.size()));
    times->insert_or_assign(op.id, OpTime{op.work, std::move(by_rank)});
  }
  // Ops that lowering made (sums, casts, sharded updates) are not of this Program: priced when asked.
  costs.op = [times = std::shared_ptr<const OpTimes>(std::move(times)),
              rest = std::make_shared<const std::pair<Cluster, KernelTable>>(cluster, kernels)](
                 const schedule::Op& op, Rank rank) {
    const auto entry = times->find(op.id);
    if (entry != times->end() && entry->second.work == op.work) return entry->second.at(rank);
    return OpTime{op.work, op_times(rest->first, rest->second, op)}.at(rank);
  };

  costs.collective = collective_costs(cluster, program);

  if (cluster.copy || cluster.compute) {
    const CopyModel copy = copy_model(cluster);
    costs.copy = [copy](Bytes bytes) {
      const double ns = copy.ns_per_byte * static_cast<double>(bytes.count());
      return copy.fixed + from_us(ns / 1e3);
    };
  } else {
    costs.copy = [name = cluster.name](Bytes) -> Duration {
      throw InputError("cluster " + name +
                       ": the plan copies into buckets, but the cluster has neither a copy nor a "
                       "compute section; buckets that are views need no copy");
    };
  }
  costs.host = cluster.host;
  costs.contention = [contention = cluster.contention](Rank) { return contention; };
  return costs;
}

std::vector<std::string> assumptions(const Cluster& cluster, const schedule::Program& program,
                                     const std::vector<Collective>& used) {
  std::vector<std::string> sentences;
  for (const CollectiveKey& key : spoken_of(program, used)) {
    std::string sentence = collective_assumption(cluster, key);
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  }
  const KernelTable kernels(cluster);
  const auto estimated = std::ranges::count_if(
      program.ops, [&](const schedule::Op& op) { return uses_roofline(kernels, op); });
  if (estimated > 0) {
    sentences.push_back(std::to_string(estimated) + " of " + std::to_string(program.ops.size()) +
                        " ops take their time from peak rates, uncalibrated");
  }
  if (!cluster.copy && cluster.compute) {
    sentences.emplace_back("bucket copies are assumed to run at 0.8 of the memory rate");
  }
  if (cluster.quality && !cluster.quality->valid) {
    std::string why;
    for (const std::string& reason : cluster.quality->why) {
      why += (why.empty() ? ": " : "; ") + reason;
    }
    sentences.push_back("the calibration was not valid" + why);
  }
  return sentences;
}

}  // namespace dovetail::models
