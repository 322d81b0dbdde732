// From a Cluster and a Program to the Costs that the simulator reads.
//
// Everything that can be looked up is looked up once, here: a duration per op, a table per
// collective and group size. What the simulator then calls are searches in small tables.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "models/cluster.h"
#include "models/kernel_table.h"
#include "models/op_costs.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

constexpr std::array kReductions = {Collective::AllReduce, Collective::ReduceScatter,
                                    Collective::AllGather};

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

// Below this size every message costs about the same, so a table may begin there.
constexpr Bytes kSmallMessage = mib(1);

std::string extrapolation(const CollectiveSeries& series) {
  const auto* points = std::get_if<std::vector<CollectivePoint>>(&series.times);
  if (points == nullptr || points->front().bytes <= kSmallMessage) return "";
  return std::string(to_string(series.collective)) + " over " + std::to_string(series.ranks) +
         " ranks was measured from " + to_string(points->front().bytes) +
         " on; what smaller messages take is extrapolated";
}

// Which sizes of a table of two origins were measured.
std::string mixed_origin(const CollectiveSeries& series) {
  if (!series.measured) return "";
  return std::string(to_string(series.collective)) + " over " + std::to_string(series.ranks) +
         " ranks was measured from " + to_string(series.measured->from) + " to " +
         to_string(series.measured->to) + "; other sizes are those of " + series.measured->prior;
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
  auto ops = std::make_shared<const OpCosts>(cluster, program);
  Costs costs;
  costs.machine = cluster.name;
  costs.distinct_ranks = ops->distinct_ranks();
  costs.op = [ops](const schedule::Op& op, Rank rank) { return ops->time(op, rank); };
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
  if (const auto scale = cluster.passes.find(PassKind::Scale); scale != cluster.passes.end()) {
    costs.scale = [pass = scale->second](Bytes bytes) { return pass.time(bytes * 2); };
  }
  costs.host = cluster.host;
  costs.contention = [contention = cluster.contention](Rank) { return contention; };
  return costs;
}

std::vector<std::string> assumptions(const Cluster& cluster, const schedule::Program& program,
                                     const std::vector<Collective>& used) {
  std::vector<std::string> sentences;
  const std::set<CollectiveKey> spoken = spoken_of(program, used);
  for (const CollectiveKey& key : spoken) {
    std::string sentence = collective_assumption(cluster, key);
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  }
  for (const CollectiveSeries& series : cluster.collectives) {
    if (!spoken.contains({series.collective, series.ranks})) continue;
    for (std::string sentence : {extrapolation(series), mixed_origin(series)}) {
      if (!sentence.empty()) sentences.push_back(std::move(sentence));
    }
  }
  const KernelTable kernels(cluster);
  const auto estimated = std::ranges::count_if(
      program.ops, [&](const schedule::Op& op) { return uses_roofline(cluster, kernels, op); });
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
