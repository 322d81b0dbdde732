// From a Cluster and a Program to the Costs that the simulator reads.
//
// Everything that can be looked up is looked up once, here: a duration per op, a curve per
// collective and placement of a group.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/decimal.h"
#include "base/error.h"
#include "base/statistics.h"
#include "models/clusters/cluster.h"
#include "models/rates/op_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

// An all-reduce, and its halves.
constexpr std::array kReductions = {Collective::AllReduce, Collective::ReduceScatter,
                                    Collective::AllGather};

CollectiveKey key_of(const Cluster& cluster, Collective kind, const schedule::ProcessGroup& group) {
  return cluster.topology ? models::key_of(kind, group, cluster.topology->unit_ranks())
                          : CollectiveKey{kind, group.size()};
}

// What the Program communicates: these collectives of each group that owes a reduction, and what
// its ops say. Groups of one rank need no network.
std::set<CollectiveKey> keys_of(const Cluster& cluster, const schedule::Program& program,
                                std::span<const Collective> reductions) {
  std::set<CollectiveKey> keys;
  for (const schedule::Reduction& reduction : program.reductions) {
    for (const Collective kind : reductions) {
      keys.insert(key_of(cluster, kind, program.group(reduction.group)));
    }
  }
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work != nullptr) keys.insert(key_of(cluster, work->kind, program.group(work->group)));
  }
  std::erase_if(keys, [](const CollectiveKey& key) { return key.ranks <= 1; });
  return keys;
}

// What lowering may ask for besides: every collective over every group, and sends between two ranks.
std::set<CollectiveKey> further_keys_of(const Cluster& cluster, const schedule::Program& program) {
  std::set<CollectiveKey> keys;
  const std::size_t levels = cluster.topology ? cluster.topology->levels.size() : 1;
  for (std::size_t apart = 0; apart < levels; ++apart) {  // in one node, one rack, ...
    std::vector<std::int64_t> unit_ranks;
    if (cluster.topology) unit_ranks = cluster.topology->unit_ranks();
    keys.insert(placed(Collective::SendRecv, 2, unit_ranks, [&](std::int64_t ranks) {
      return apart > 0 && ranks <= unit_ranks.at(apart - 1) ? 2 : 1;
    }));
  }
  for (const schedule::ProcessGroup& group : program.groups) {
    if (group.size() == 1) continue;
    for (const Collective kind : kAllOf<Collective>) keys.insert(key_of(cluster, kind, group));
  }
  return keys;
}

// One that was measured is for every kind of copy. Each byte is read once and written once.
std::optional<CopyModel> copy_model(const Cluster& cluster, schedule::Access access,
                                    schedule::DType dtype) {
  if (cluster.copy) return cluster.copy;
  if (!cluster.compute) return std::nullopt;
  const Roofline& gpu = *cluster.compute;
  const std::optional<MemoryRate> rate =
      gpu.passes == nullptr ? std::nullopt : gpu.passes->rate(access, dtype, 0);
  if (!rate) return CopyModel{Duration{}, seconds_to_move(gpu, Bytes(2)) * 1e9};
  return CopyModel{rate->fixed + gpu.kernel_overhead, 2e9 / (rate->share * gpu.memory.count())};
}

// Of gradients.
schedule::DType gradient_type(const schedule::Program& program) {
  const auto gradient =
      std::ranges::find(program.tensors, schedule::TensorKind::Gradient, &schedule::Tensor::kind);
  return gradient == program.tensors.end() ? schedule::DType::F32 : gradient->dtype;
}

// Which collectives nobody measured, and from what they are modelled.
std::string modelled_ones(const Cluster& cluster, const std::set<CollectiveKey>& keys) {
  std::string list;
  for (const CollectiveKey& key : keys) {
    const std::optional<CollectivePrice> price = collective_price(cluster, key);
    if (!price || !price->is_modelled || !price->sources.empty()) continue;
    list += (list.empty() ? "" : ", ") + title_of(key);
  }
  if (list.empty()) return "";
  return list + ": modelled, not measured; from " + to_string(*cluster.topology);
}

// Below this size messages cost about the same, so a table may begin there.
constexpr Bytes kSmallMessage = kib(64);
// From here on a message's time is its rate, so a table may end there.
constexpr Bytes kLargeMessage = mib(64);

// Medians and 90th percentiles of the shipped tables, cut at 8 MiB (tests/models/small_messages_test.cc).
constexpr std::string_view kSmallerInNode =
    " on; smaller messages follow NCCL's own estimate from there: off by 17 % in the median, 40 % "
    "in one of ten";
constexpr std::string_view kSmallerOnNodes =
    " on; smaller messages follow NCCL's own estimate from there: off by 15 % in the median, 61 % "
    "in one of ten";

Bytes bytes_of(const schedule::Program& program, schedule::TensorKind kind) {
  Bytes bytes;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind == kind) bytes += tensor.bytes();
  }
  return bytes;
}

// At which end of its table sizes are asked for that nobody measured.
std::string extrapolation(const Cluster& cluster, const CollectiveSeries& series,
                          const schedule::Program& program) {
  const auto* points = std::get_if<std::vector<CollectivePoint>>(&series.times);
  if (points == nullptr) return "";
  const std::string title = std::string(to_string(series.collective)) + " over " +
                            std::to_string(series.ranks) + " ranks was measured ";
  if (points->front().bytes > kSmallMessage) {
    return title + "from " + to_string(points->front().bytes) +
           (cluster.backend == BackendKind::Cpu
                ? " on; smaller messages are taken to last as long as that"
            : series.nodes.value_or(1) > 1 ? std::string(kSmallerOnNodes)
                                           : std::string(kSmallerInNode));
  }
  const Bytes asked = std::min(kLargeMessage, bytes_of(program, schedule::TensorKind::Gradient));
  if (points->back().bytes >= asked) return "";
  return title + "up to " + to_string(points->back().bytes) +
         "; what larger messages take is extrapolated";
}

// Which sizes of a table of two origins were measured.
std::string mixed_origin(const CollectiveSeries& series) {
  if (!series.measured) return "";
  return std::string(to_string(series.collective)) + " over " + std::to_string(series.ranks) +
         " ranks was measured from " + to_string(series.measured->from) + " to " +
         to_string(series.measured->to) + "; other sizes are those of " + series.measured->prior;
}

// Of tables of different people's systems, of which a prediction uses one: another plan of the same machine may use the others.
std::string several_systems(const Cluster& cluster, const std::set<const CollectiveSeries*>& used) {
  std::map<std::string, std::set<Collective>> systems;  // what was measured where
  for (const CollectiveSeries& series : cluster.collectives) {
    const bool is_comparable = std::ranges::any_of(
        used, [&](const CollectiveSeries* one) { return one->ranks == series.ranks; });
    if (is_comparable) systems[series.origin].insert(series.collective);
  }
  if (systems.size() < 2) return "";
  std::string sentence =
      "tables of different people's systems, so what shards and what all-reduces cannot be "
      "compared here:";
  for (const auto& [origin, kinds] : systems) {
    std::string what;
    for (const Collective kind : kinds)
      what += (what.empty() ? "" : ", ") + std::string(to_string(kind));
    sentence += (sentence.back() == ':' ? " " : "; ") + what + " of " +
                (origin.empty() ? "the cluster's own" : origin);
  }
  return sentence;
}

// What of the GPU stands elsewhere in the file is added.
Contention contention_of(const Cluster& cluster) {
  Contention contention = cluster.contention;
  if (!contention.multiprocessors) return contention;
  Multiprocessors& gpu = *contention.multiprocessors;
  if (cluster.compute && !gpu.memory) gpu.memory = cluster.compute->memory;
  if (cluster.topology && !gpu.cta_rate) {
    const Level& node = cluster.topology->node();
    set_cta_rates(gpu, node.rate, node.all_reduce_rate.value_or(node.rate));
  }
  return contention;
}

// "products measured by others on a100, other kernels on h100 as shares of the memory's rate, and "
std::string measured_rates(const Roofline& compute) {
  const std::string device(compute.products.begin()->second->device());
  std::string text = "products measured by others on " + device;
  if (compute.passes == nullptr) return text + " and ";
  text += ", other kernels ";
  const std::string_view measured = measured_for(device);
  if (measured != device) text += "on " + std::string(measured) + " ";
  return text + "as shares of the memory's rate, and ";
}

}  // namespace

OpModel op_model(const Cluster& cluster, std::int64_t world) {
  double skew = cluster.skew;
  if (skew > 0 && cluster.ranks > 1) {
    skew *= expected_maximum(world) / expected_maximum(cluster.ranks);
  }
  return {.machine = cluster.name,
          .compute = cluster.compute,
          .kernels = KernelTable(cluster.kernels, cluster.unit_kernel),
          .copy = cluster.copy,
          .passes = cluster.passes,
          .skew = skew};
}

CollectiveCosts collective_costs(const Cluster& cluster, const schedule::Program& program) {
  CollectiveCosts result;
  const auto link_named = [&result](const std::string& name) {
    const auto known = std::ranges::find(result.links, name);
    const auto index = static_cast<std::int32_t>(known - result.links.begin());
    if (known == result.links.end()) result.links.push_back(name);
    return index;
  };
  const auto add = [&](const CollectiveKey& key) {
    std::optional<CollectivePrice> price = collective_price(cluster, key);
    if (!price) return;
    std::vector<LinkLoad> loads;
    for (const NamedLoad& load : price->loads) {
      loads.push_back({.link = link_named(load.link), .share = load.share});
    }
    result.costs.push_back({.key = key, .time = std::move(price->time), .loads = std::move(loads)});
  };
  const std::set<CollectiveKey> needed = keys_of(cluster, program, kReductions);
  for (const CollectiveKey& key : needed) {
    static_cast<void>(collective_table(cluster, key));  // throws where there is no source
    add(key);
  }
  for (const CollectiveKey& key : further_keys_of(cluster, program)) {
    if (!needed.contains(key)) add(key);
  }
  return result;
}

Costs costs_for(const Cluster& cluster, const schedule::Program& program) {
  Costs costs;
  costs.machine = cluster.name;
  costs.ops = OpCosts(op_model(cluster, program.world_size), program);
  costs.distinct_ranks = costs.ops.rank_classes();
  CollectiveCosts collectives = collective_costs(cluster, program);
  costs.collectives = std::move(collectives.costs);
  costs.links = std::move(collectives.links);
  if (cluster.topology) costs.unit_ranks = cluster.topology->unit_ranks();
  const schedule::DType gradient = gradient_type(program);
  costs.copies = copy_model(cluster, schedule::Access::Plain, gradient);
  if (!cluster.copy) {
    costs.splits = copy_model(cluster, schedule::Access::Split, gradient);
    costs.chunks = copy_model(cluster, schedule::Access::Chunked, gradient);
  }
  if (const auto scale = cluster.passes.find(PassKind::Scale); scale != cluster.passes.end()) {
    costs.scales = scale->second;
  }
  costs.host = recorded_host(program).value_or(cluster.host);
  if (!cluster.contention.none()) costs.contention_by_class = {contention_of(cluster)};
  apply(cluster.what_if, costs);
  return costs;
}

std::vector<std::string> assumptions(const Cluster& cluster, const schedule::Program& program,
                                     const std::vector<Collective>& used) {
  std::vector<std::string> sentences;
  std::set<const CollectiveSeries*> sources;
  const std::set<CollectiveKey> keys = keys_of(cluster, program, used);
  for (const CollectiveKey& key : keys) {
    const std::optional<CollectivePrice> price = collective_price(cluster, key);
    if (!price) continue;
    const bool is_told_below = price->is_modelled && price->sources.empty();
    if (!price->assumption.empty() && !is_told_below) sentences.push_back(price->assumption);
    sources.insert(price->sources.begin(), price->sources.end());
  }
  if (std::string sentence = modelled_ones(cluster, keys); !sentence.empty()) {
    sentences.push_back(std::move(sentence));
  }
  for (const CollectiveSeries& series : cluster.collectives) {
    if (!sources.contains(&series)) continue;
    for (std::string sentence : {extrapolation(cluster, series, program), mixed_origin(series)}) {
      if (!sentence.empty()) sentences.push_back(std::move(sentence));
    }
  }
  if (std::string sentence = several_systems(cluster, sources); !sentence.empty()) {
    sentences.push_back(std::move(sentence));
  }
  const OpModel model = op_model(cluster, program.world_size);
  const auto estimated = std::ranges::count_if(
      program.ops, [&](const schedule::Op& op) { return model.uses_roofline(op); });
  if (estimated > 0) {
    const bool has_products = std::ranges::any_of(program.ops, [&](const schedule::Op& op) {
      return model.uses_roofline(op) && model.compute->has_measured(op);
    });
    sentences.push_back(std::to_string(estimated) + " of " + std::to_string(program.ops.size()) +
                        " ops take their time from " +
                        (has_products ? measured_rates(*model.compute) : "") +
                        "peak rates, uncalibrated");
  }
  if (!cluster.copy && cluster.compute) {
    const auto rate =
        cluster.compute->passes == nullptr
            ? std::nullopt
            : cluster.compute->passes->rate(schedule::Access::Plain, schedule::DType::F32, 0);
    sentences.push_back("bucket copies are assumed to run at " +
                        fixed(rate ? rate->share : 0.8, 1) + " of the memory rate");
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
