// Reads cluster files strictly, and writes them such that reading gives the same value back.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "models/clusters/cluster.h"
#include "models/costs/cost_fields.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

constexpr double kMostSkew = 100;  // a rank a hundred times as late
constexpr auto kRankCount = as_integer(1, kMostRanks);
constexpr auto kMessageSize = as_integer(1, kMostBytes);

// ------------------------------------------------------------------------------ collectives

constexpr auto kPointFields = fields<CollectivePoint>(
    required("bytes", &CollectivePoint::bytes, kMessageSize, "of the message; sizes rise"),
    required("isolated_us", &CollectivePoint::isolated, kMeasuredTime, "one at a time"),
    optional("back_to_back_us", &CollectivePoint::back_to_back, kMeasuredTime, "in a queue"),
    optional("p10_us", &CollectivePoint::p10, kMeasuredTime),
    optional("p90_us", &CollectivePoint::p90, kMeasuredTime));

void check_rise(const JsonValue& item, const std::vector<CollectivePoint>& before,
                const CollectivePoint& point) {
  if (before.empty() || point.bytes > before.back().bytes) return;
  item.object().at("bytes").fail(
      "expected more than the size before it, " + std::to_string(before.back().bytes.count()) +
      " (sizes rise, each stands once), found " + std::to_string(point.bytes.count()));
}

constexpr auto kMeasuredFields = fields<MeasuredRange>(
    required("from_bytes", &MeasuredRange::from, kMessageSize),
    required("to_bytes", &MeasuredRange::to, kMessageSize),
    check([](JsonObject& object, const MeasuredRange& range, auto&) {
      static_cast<void>(object.integer("to_bytes", range.from.count(), kMostBytes));
    }),
    required("prior", &MeasuredRange::prior, as_text(),
             "name of the cluster that the other sizes are of"));

constexpr auto kSeriesFields = fields<CollectiveSeries>(
    required("collective", &CollectiveSeries::collective, as_word(), "kind of collective"),
    required("ranks", &CollectiveSeries::ranks, kRankCount),
    optional("nodes", &CollectiveSeries::nodes, kRankCount,
             "on which the ranks lie, equally many on each; absent: unknown, with a topology as "
             "few as can be"),
    optional("link", &CollectiveSeries::link, as_text(),
             "which link of a rank it loads: collectives in flight together share one of a name; "
             "absent: link"),
    optional("origin", &CollectiveSeries::origin, as_text(),
             "whose system it was measured on, where a cluster's tables are of several; absent: "
             "the cluster's own"),
    optional("measured", &CollectiveSeries::measured, as_object(kMeasuredFields),
             "sizes that this file measured itself"),
    alternatives(
        &CollectiveSeries::times,
        R"(expected "points", or "alpha_us" with "beta_ns_per_byte"; found neither)",
        with<std::vector<CollectivePoint>>(required(
            "points", kSelf,
            as_list(as_object(kPointFields), 2, "point",
                    [](const JsonValue& item, const std::vector<CollectivePoint>& before,
                       const CollectivePoint& point, auto&) { check_rise(item, before, point); }),
            "a table")),
        with<AlphaBeta>(required("alpha_us", &AlphaBeta::alpha, kTime, "fixed cost, microseconds"),
                        required("beta_ns_per_byte", &AlphaBeta::ns_per_byte, kNsPerByte,
                                 "per byte of the message"))));

// With a topology there may be several of one number of ranks, on other nodes.
void check_collectives(const JsonArray& array, const Cluster& cluster) {
  std::set<CollectiveKey> seen;
  for (std::size_t i = 0; i < cluster.collectives.size(); ++i) {
    const CollectiveSeries& series = cluster.collectives[i];
    CollectiveKey key{series.collective, series.ranks};
    if (cluster.topology) {
      const std::int64_t fewest = nodes_of_neighbours(series.ranks, cluster.topology->node_ranks());
      key.nodes = series.nodes.value_or(fewest);
      if (key.nodes < fewest || key.nodes > series.ranks) {
        array[i].fail("expected " + std::to_string(series.ranks) + " ranks on " +
                      std::to_string(fewest) + " to " + std::to_string(series.ranks) +
                      " nodes, found " + std::to_string(key.nodes));
      }
    }
    if (!seen.insert(key).second) {
      array[i].fail("expected one table of " + title_of(key) + ", found a second one");
    }
  }
}

// --------------------------------------------------------------------------------- topology

constexpr auto kLevelFields = fields<Level>(
    optional(
        "ranks", &Level::ranks, kRankCount,
        "of a node, a rack, ... that these links make: rank r lies on number r / ranks; absent: "
        "the outermost"),
    required(
        "bytes_per_s", &Level::rate, kRate,
        "of each rank, in one direction: bus bandwidth in a node; its share of what leaves the "
        "node, the rack, ..."),
    optional("all_reduce_bytes_per_s", &Level::all_reduce_rate, kRate,
             "in a node: bus bandwidth of an all-reduce that the switch adds up; absent: as "
             "bytes_per_s"),
    required("hop_us", &Level::hop, kTime, "from rank to rank"),
    defaulted("start_us", &Level::start, kTime, "of one collective; absent: 0"),
    defaulted("block_us", &Level::block, kTime,
              "of each block of a ring, at every link of this level; absent: 0"),
    defaulted("ll128", &Level::ll128, as_bool(),
              "whether NCCL uses its protocol LL128 between nodes; absent: true"));

// By the names of the links; from the innermost level on.
struct LevelsValue {
  static void read(const JsonValue& value, std::vector<Level>& levels, auto& context) {
    std::map<std::string, Level> named;
    as_keyed(as_object(kLevelFields)).read(value, named, context);
    for (auto& [link, level] : named) {
      level.link = link;
      levels.push_back(std::move(level));
    }
    std::ranges::stable_sort(levels, {}, [](const Level& level) {
      return level.ranks == 0 ? kMostRanks + 1 : level.ranks;
    });
    check(value, levels);
  }
  static void check(const JsonValue& value, const std::vector<Level>& levels) {
    const auto outermost = std::ranges::count(levels, 0, &Level::ranks);
    if (levels.size() < 2 || levels.size() > kMostLevels || outermost != 1) {
      value.fail("expected 2 to " + std::to_string(kMostLevels) +
                 " kinds of links, one of them without \"ranks\", found " +
                 std::to_string(levels.size()) + ", " + std::to_string(outermost) + " without");
    }
    for (std::size_t i = 1; i < levels.size(); ++i) {
      const Level& inner = levels[i - 1];
      const Level& outer = levels[i];
      if (outer.ranks != 0 && (outer.ranks == inner.ranks || outer.ranks % inner.ranks != 0)) {
        value.object()
            .at(outer.link)
            .fail("expected a multiple of the " + std::to_string(inner.ranks) + " ranks of \"" +
                  inner.link + "\", found " + std::to_string(outer.ranks));
      }
      if (outer.all_reduce_rate) {
        value.object()
            .at(outer.link)
            .object()
            .at("all_reduce_bytes_per_s")
            .fail("expected it of the links in a node only");
      }
    }
  }
  static ordered_json write(const std::vector<Level>& levels, const auto& context) {
    ordered_json by_name = ordered_json::object();
    for (const Level& level : levels)
      by_name[level.link] = as_object(kLevelFields).write(level, context);
    return by_name;
  }
  template <class T>
  [[nodiscard]] static ordered_json schema() {
    return as_keyed(as_object(kLevelFields)).template schema<std::map<std::string, Level>>();
  }
};

constexpr auto kTopologyFields = fields<Topology>(
    defaulted("gpu", &Topology::gpu, as_word(),
              "whose limits NCCL's estimate keeps; absent: hopper"),
    required(
        "levels", &Topology::levels, LevelsValue{},
        "links by name: those in a node, between nodes, and where the network is a tree between "
        "racks and pods"));

// ----------------------------------------------------------------------------------- cluster

constexpr auto kQualityFields = fields<Quality>(
    required("valid", &Quality::valid, as_bool()),
    defaulted("why", &Quality::why, as_list(as_text()), "why not"),
    optional("outside_cpu", &Quality::outside_cpu, as_number(),
             "share of processor time taken by other programs"),
    optional("steal", &Quality::steal, as_number(), "share taken by the hypervisor"),
    optional("fit_residual", &Quality::fit_residual, as_number(),
             "largest relative residual of the fits"),
    optional("figures", &Quality::figures, as_keyed(as_number())));

constexpr auto kClusterFields = as_object(fields<Cluster>(
    document("dovetail.cluster/1", "cluster"), required("name", &Cluster::name, as_name()),
    optional("of", &Cluster::of, as_text(),
             "a shipped machine that this file changes: its keys are laid over that one's (JSON "
             "Merge Patch, RFC 7396)"),
    optional("origin", &Cluster::origin, as_text(), "where the figures come from"),
    optional("licence", &Cluster::licence, as_text()), optional("date", &Cluster::date, as_text()),
    optional("notes", &Cluster::notes, as_keyed(as_text())),
    defaulted("ranks", &Cluster::ranks, kRankCount,
              "of the machine; absent: of the first collective"),
    defaulted("backend", &Cluster::backend, as_word(),
              "which backend executes plans here; absent: cuda"),
    defaulted("collectives", &Cluster::collectives, as_list(as_object(kSeriesFields)),
              "measured or fitted; one per collective and number of ranks (with a topology: and of "
              "nodes); absent: none, with \"of\" those of that machine"),
    optional("topology", &Cluster::topology, as_object(kTopologyFields),
             "which ranks share a node, and the links from which collectives are modelled that "
             "were not measured (models/costs/topology.h); absent: only what was measured has a "
             "price"),
    check([](JsonObject& object, Cluster& cluster, auto&) {
      if (!cluster.of.empty()) {
        object.find("of")->fail("expected a file of its own: what it is of is read beside it");
      }
      if (object.has("collectives")) check_collectives(object.array("collectives"), cluster);
      if (!object.find("ranks") && !cluster.collectives.empty()) {
        cluster.ranks = cluster.collectives.front().ranks;
      }
      cluster.host = default_host(cluster.backend);
    }),
    optional("compute", &Cluster::compute, as_object(kRooflineFields), kComputeWords),
    optional("kernels", &Cluster::kernels, kMeasuredKernels, kKernelsWords),
    optional("unit_kernel", &Cluster::unit_kernel, as_object(kUnitKernelFields), kUnitKernelWords),
    optional("copy", &Cluster::copy, as_object(kCopyFields), kCopyWords),
    optional("passes", &Cluster::passes, as_object(kPassesFields), kPassesWords),
    optional("skew", &Cluster::skew, as_number(0, kMostSkew),
             "by how much the slowest rank of a step is later than the median says, as a share of "
             "compute"),
    defaulted("host", &Cluster::host, as_object(kHostFields), kHostWords),
    defaulted("contention", &Cluster::contention, as_object(kContentionFields)),
    optional("network_shield_us", &Cluster::network_shield, kTime,
             "how long a collective goes on while a core is away"),
    optional("quality", &Cluster::quality, as_object(kQualityFields), "of the calibration")));

}  // namespace

Cluster cluster_from_json(const JsonObject& root) { return read_as<Cluster>(kClusterFields, root); }

Cluster parse_cluster(const std::string& file_name, std::string_view text) {
  const JsonFile file(file_name, text);
  return cluster_from_json(file.root());
}

std::string cluster_to_json(const Cluster& cluster) {
  return as_json(kClusterFields, cluster).dump(1) + "\n";
}

ordered_json cluster_schema() {
  return schema_of<Cluster>(
      kClusterFields, "dovetail.cluster/1: a machine",
      "How fast one machine is: collectives, kernels, copies, host, contention. Shipped files are "
      "published measurements; `dovetail calibrate` writes one of the machine it runs on. Read by "
      "--cluster.");
}

void save_cluster(const Cluster& cluster, const std::string& path) {
  write_file(path, cluster_to_json(cluster));
}

}  // namespace dovetail::models
