// Reads cluster files strictly, and writes them such that reading gives the same value back.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "models/clusters/cluster.h"
#include "models/costs/cost_fields.h"

#include <set>
#include <utility>

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
      const std::int64_t fewest = nodes_of_neighbours(series.ranks, cluster.topology->node_ranks);
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

constexpr auto kTopologyFields = fields<Topology>(
    required("node_ranks", &Topology::node_ranks, kRankCount, "rank r lies on node r / node_ranks"),
    defaulted("gpu", &Topology::gpu, as_word(),
              "whose limits NCCL's estimate keeps; absent: hopper"),
    required("node", &Topology::node,
             as_object(fields<NodeLinks>(
                 defaulted("link", &NodeLinks::link, as_text(), "its name; absent: nvlink"),
                 required("bytes_per_s", &NodeLinks::rate, kRate, "bus bandwidth of each rank"),
                 optional("all_reduce_bytes_per_s", &NodeLinks::all_reduce_rate, kRate,
                          "bus bandwidth of an all-reduce that the switch adds up; absent: as "
                          "bytes_per_s"),
                 required("hop_us", &NodeLinks::hop, kTime, "from rank to rank"))),
             "links inside a node"),
    required(
        "network", &Topology::network,
        as_object(fields<NetworkLinks>(
            defaulted("link", &NetworkLinks::link, as_text(), "its name; absent: network"),
            required("bytes_per_s", &NetworkLinks::rate, kRate, "of each rank, in one direction"),
            required("hop_us", &NetworkLinks::hop, kTime, "from rank to rank"),
            defaulted("start_us", &NetworkLinks::start, kTime, "of one collective; absent: 0"),
            defaulted("block_us", &NetworkLinks::block, kTime,
                      "of each block of a ring, at every link between nodes; absent: 0"))),
        "links between nodes"));

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
