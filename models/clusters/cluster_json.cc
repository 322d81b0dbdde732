// Reads cluster files strictly, and writes them such that reading gives the same value back.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/clusters/cluster.h"
#include "models/costs/cost_json.h"

#include <array>
#include <set>
#include <utility>

namespace dovetail::models {
namespace {

using nlohmann::ordered_json;
using schedule::Collective;

constexpr std::string_view kSchema = "dovetail.cluster/1";
constexpr double kMostSkew = 100;  // a rank a hundred times as late

// ---------------------------------------------------------------------------------- reading

CollectivePoint read_point(const JsonValue& value, Bytes previous) {
  JsonObject object = value.object();
  CollectivePoint point;
  point.bytes = Bytes(object.integer("bytes", 1, kMostBytes));
  if (point.bytes <= previous) {
    object.at("bytes").fail(
        "expected more than the size before it, " + std::to_string(previous.count()) +
        " (sizes rise, each stands once), found " + std::to_string(point.bytes.count()));
  }
  point.isolated = positive_us(object, "isolated_us");
  point.back_to_back = optional_us(object, "back_to_back_us");
  point.p10 = optional_us(object, "p10_us");
  point.p90 = optional_us(object, "p90_us");
  object.done();
  return point;
}

MeasuredRange read_measured(JsonObject object) {
  MeasuredRange range;
  range.from = Bytes(object.integer("from_bytes", 1, kMostBytes));
  range.to = Bytes(object.integer("to_bytes", range.from.count(), kMostBytes));
  range.prior = object.string("prior");
  object.done();
  return range;
}

CollectiveSeries read_series(const JsonValue& value) {
  JsonObject object = value.object();
  CollectiveSeries series;
  series.collective = object.one_of<schedule::Collective>("collective");
  series.ranks = object.integer("ranks", 1, kMostRanks);
  optional_keys(object, {"nodes", "points", "measured", "link", "origin"});
  series.link = object.string_or("link", series.link);
  series.origin = object.string_or("origin", "");
  if (object.has("measured")) series.measured = read_measured(object.object("measured"));
  if (object.has("nodes")) series.nodes = object.integer("nodes", 1, kMostRanks);
  if (object.has("points")) {
    const JsonArray array = object.array("points");
    if (array.size() < 2) {
      array.value().fail("expected at least 2 points, found " + std::to_string(array.size()));
    }
    std::vector<CollectivePoint> points;
    for (const JsonValue item : array) {
      points.push_back(read_point(item, points.empty() ? Bytes(0) : points.back().bytes));
    }
    series.times = std::move(points);
  } else if (object.has("alpha_us")) {
    AlphaBeta line;
    line.alpha = from_us(object.number("alpha_us", 0, kMostUs));
    line.ns_per_byte = object.number("beta_ns_per_byte", 0, kMostUs);
    series.times = line;
  } else {
    value.fail("expected \"points\", or \"alpha_us\" with \"beta_ns_per_byte\"; found neither");
  }
  object.done();
  return series;
}

BytesPerSecond rate_of(JsonObject& object, std::string_view key) {
  return BytesPerSecond(object.number(key, kLeastRate, kMostRate));
}

EnvelopePoint read_envelope(const JsonValue& value, const std::vector<EnvelopePoint>& before) {
  JsonObject object = value.object();
  EnvelopePoint point;
  point.collective = object.one_of<schedule::Collective>("collective");
  const bool continues = !before.empty() && before.back().collective == point.collective;
  point.nodes = object.integer("nodes", continues ? before.back().nodes + 1 : 1, kMostRanks);
  point.worst = rate_of(object, "worst_bytes_per_s");
  point.mean = rate_of(object, "mean_bytes_per_s");
  point.best = rate_of(object, "best_bytes_per_s");
  if (point.worst > point.mean || point.mean > point.best) {
    value.fail("expected worst_bytes_per_s <= mean_bytes_per_s <= best_bytes_per_s");
  }
  object.done();
  return point;
}

Topology read_topology(JsonObject object) {
  Topology topology;
  optional_keys(object, {"gpu"});
  topology.node_ranks = object.integer("node_ranks", 1, kMostRanks);
  if (object.has("gpu")) topology.gpu = object.one_of<NcclGpu>("gpu");
  JsonObject node = object.object("node");
  optional_keys(node, {"link", "all_reduce_bytes_per_s"});
  topology.node.link = node.string_or("link", topology.node.link);
  topology.node.rate = rate_of(node, "bytes_per_s");
  if (node.has("all_reduce_bytes_per_s")) {
    topology.node.all_reduce_rate = rate_of(node, "all_reduce_bytes_per_s");
  }
  topology.node.hop = from_us(node.number("hop_us", 0, kMostUs));
  node.done();
  JsonObject network = object.object("network");
  optional_keys(network, {"link", "start_us", "envelope"});
  topology.network.link = network.string_or("link", topology.network.link);
  topology.network.rate = rate_of(network, "bytes_per_s");
  topology.network.hop = from_us(network.number("hop_us", 0, kMostUs));
  topology.network.start = us_or(network, "start_us", Duration{});
  if (network.has("envelope")) {
    for (const JsonValue item : network.array("envelope")) {
      topology.network.envelope.push_back(read_envelope(item, topology.network.envelope));
    }
  }
  network.done();
  object.done();
  return topology;
}

// With a topology there may be several of one number of ranks, on other nodes.
std::vector<CollectiveSeries> read_collectives(const JsonArray& array,
                                               const std::optional<Topology>& topology) {
  std::vector<CollectiveSeries> all;
  std::set<CollectiveKey> seen;
  for (const JsonValue item : array) {
    CollectiveSeries series = read_series(item);
    CollectiveKey key{series.collective, series.ranks};
    if (topology) {
      const std::int64_t fewest = nodes_of_neighbours(series.ranks, topology->node_ranks);
      key.nodes = series.nodes.value_or(fewest);
      if (key.nodes < fewest || key.nodes > series.ranks) {
        item.fail("expected " + std::to_string(series.ranks) + " ranks on " +
                  std::to_string(fewest) + " to " + std::to_string(series.ranks) +
                  " nodes, found " + std::to_string(key.nodes));
      }
    }
    if (!seen.insert(key).second) {
      item.fail("expected one table of " + title_of(key) + ", found a second one");
    }
    all.push_back(std::move(series));
  }
  return all;
}

Quality read_quality(JsonObject object) {
  Quality quality;
  optional_keys(object, {"why", "figures"});
  quality.valid = object.at("valid").boolean();
  if (object.has("why")) {
    for (const JsonValue reason : object.array("why")) quality.why.push_back(reason.string());
  }
  quality.outside_cpu = optional_number(object, "outside_cpu");
  quality.steal = optional_number(object, "steal");
  quality.fit_residual = optional_number(object, "fit_residual");
  if (object.has("figures")) {
    JsonObject figures = object.object("figures");
    for (const std::string& key : figures.keys()) quality.figures[key] = figures.number(key);
  }
  object.done();
  return quality;
}

// ---------------------------------------------------------------------------------- writing

ordered_json series_json(const CollectiveSeries& series) {
  ordered_json object = {{"collective", to_string(series.collective)}, {"ranks", series.ranks}};
  if (series.nodes) object["nodes"] = *series.nodes;
  if (series.link != CollectiveSeries{}.link) object["link"] = series.link;
  put(object, "origin", series.origin);
  if (series.measured) {
    object["measured"] = {{"from_bytes", series.measured->from.count()},
                          {"to_bytes", series.measured->to.count()},
                          {"prior", series.measured->prior}};
  }
  if (const auto* line = std::get_if<AlphaBeta>(&series.times)) {
    object["alpha_us"] = to_us(line->alpha);
    object["beta_ns_per_byte"] = finite(line->ns_per_byte);
    return object;
  }
  ordered_json points = ordered_json::array();
  for (const auto& point : std::get<std::vector<CollectivePoint>>(series.times)) {
    ordered_json item = {{"bytes", point.bytes.count()}, {"isolated_us", to_us(point.isolated)}};
    put(item, "back_to_back_us", point.back_to_back);
    put(item, "p10_us", point.p10);
    put(item, "p90_us", point.p90);
    points.push_back(std::move(item));
  }
  object["points"] = std::move(points);
  return object;
}

ordered_json topology_json(const Topology& topology) {
  ordered_json node = {{"link", topology.node.link},
                       {"bytes_per_s", finite(topology.node.rate.count())}};
  if (topology.node.all_reduce_rate) {
    node["all_reduce_bytes_per_s"] = finite(topology.node.all_reduce_rate->count());
  }
  node["hop_us"] = to_us(topology.node.hop);
  ordered_json network = {{"link", topology.network.link},
                          {"bytes_per_s", finite(topology.network.rate.count())},
                          {"hop_us", to_us(topology.network.hop)},
                          {"start_us", to_us(topology.network.start)}};
  for (const EnvelopePoint& point : topology.network.envelope) {
    network["envelope"].push_back({{"collective", to_string(point.collective)},
                                   {"nodes", point.nodes},
                                   {"worst_bytes_per_s", finite(point.worst.count())},
                                   {"mean_bytes_per_s", finite(point.mean.count())},
                                   {"best_bytes_per_s", finite(point.best.count())}});
  }
  return {{"node_ranks", topology.node_ranks},
          {"gpu", to_string(topology.gpu)},
          {"node", std::move(node)},
          {"network", std::move(network)}};
}

ordered_json quality_json(const Quality& quality) {
  ordered_json object = {{"valid", quality.valid}, {"why", quality.why}};
  put(object, "outside_cpu", quality.outside_cpu);
  put(object, "steal", quality.steal);
  put(object, "fit_residual", quality.fit_residual);
  if (!quality.figures.empty()) {
    ordered_json figures = ordered_json::object();
    for (const auto& [name, value] : quality.figures) figures[name] = finite(value);
    object["figures"] = std::move(figures);
  }
  return object;
}

}  // namespace

Cluster cluster_from_json(JsonObject root) {
  root.schema(kSchema);
  optional_keys(root, {"origin", "licence", "date", "notes", "ranks", "backend", "topology",
                       "compute", "kernels", "unit_kernel", "copy", "passes", "skew", "host",
                       "network_shield_us", "contention", "quality"});
  constexpr std::array<std::string_view, 1> kKinds = {"cluster"};
  static_cast<void>(root.word("kind", kKinds));
  Cluster cluster;
  cluster.name = root.string("name");
  if (cluster.name.empty()) root.at("name").fail("expected a name, found \"\"");
  cluster.origin = root.string_or("origin", "");
  cluster.licence = root.string_or("licence", "");
  cluster.date = root.string_or("date", "");
  if (root.has("notes")) {
    JsonObject notes = root.object("notes");
    for (const std::string& key : notes.keys()) cluster.notes[key] = notes.string(key);
  }
  if (root.has("backend")) cluster.backend = root.one_of<BackendKind>("backend");
  if (root.has("topology")) cluster.topology = read_topology(root.object("topology"));
  cluster.collectives = read_collectives(root.array("collectives"), cluster.topology);
  const std::int64_t first = cluster.collectives.empty() ? 1 : cluster.collectives.front().ranks;
  cluster.ranks = root.integer_or("ranks", first, 1, kMostRanks);
  if (root.has("compute")) cluster.compute = read_roofline(root.object("compute"));
  if (root.has("kernels")) cluster.kernels = read_kernels(root.array("kernels"));
  if (root.has("unit_kernel")) cluster.unit_kernel = read_unit_kernel(root.object("unit_kernel"));
  if (root.has("copy")) cluster.copy = read_copy(root.object("copy"));
  if (root.has("passes")) cluster.passes = read_passes(root.object("passes"));
  cluster.skew = root.number_or("skew", 0, 0, kMostSkew);
  cluster.host = default_host(cluster.backend);
  if (root.has("host")) cluster.host = read_host(root.object("host"), cluster.host);
  if (root.has("contention")) cluster.contention = read_contention(root.object("contention"));
  if (root.has("network_shield_us"))
    cluster.network_shield = us_or(root, "network_shield_us", Duration{});
  if (root.has("quality")) cluster.quality = read_quality(root.object("quality"));
  root.done();
  return cluster;
}

Cluster parse_cluster(const std::string& file_name, std::string_view text) {
  const JsonFile file(file_name, text);
  return cluster_from_json(file.root());
}

std::string cluster_to_json(const Cluster& cluster) {
  ordered_json root = {{"schema", kSchema}, {"kind", "cluster"}, {"name", cluster.name}};
  put(root, "origin", cluster.origin);
  put(root, "licence", cluster.licence);
  put(root, "date", cluster.date);
  if (!cluster.notes.empty()) root["notes"] = cluster.notes;
  root["ranks"] = cluster.ranks;
  root["backend"] = to_string(cluster.backend);
  root["collectives"] = ordered_json::array();
  for (const CollectiveSeries& series : cluster.collectives) {
    root["collectives"].push_back(series_json(series));
  }
  if (cluster.topology) root["topology"] = topology_json(*cluster.topology);
  if (cluster.compute) root["compute"] = written(*cluster.compute);
  for (const MeasuredKernel& kernel : cluster.kernels) root["kernels"].push_back(written(kernel));
  if (cluster.unit_kernel) root["unit_kernel"] = written(*cluster.unit_kernel);
  if (cluster.copy) root["copy"] = written(*cluster.copy);
  if (!cluster.passes.empty()) root["passes"] = written(cluster.passes);
  if (cluster.skew > 0) root["skew"] = finite(cluster.skew);
  root["host"] = written(cluster.host);
  root["contention"] = written(cluster.contention);
  if (cluster.network_shield > Duration{}) {
    root["network_shield_us"] = to_us(cluster.network_shield);
  }
  if (cluster.quality) root["quality"] = quality_json(*cluster.quality);
  return root.dump(1) + "\n";
}

void save_cluster(const Cluster& cluster, const std::string& path) {
  write_file(path, cluster_to_json(cluster));
}

}  // namespace dovetail::models
