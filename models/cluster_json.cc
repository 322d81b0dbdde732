// Cluster files: strict reading, and writing such that reading gives the same value back.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "models/cluster.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <initializer_list>
#include <set>
#include <utility>

namespace dovetail::models {
namespace {

using nlohmann::ordered_json;
using schedule::Collective;
using schedule::DType;

constexpr std::string_view kSchema = "dovetail.cluster/1";
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
constexpr double kMostUs = 1e12;    // eleven days
constexpr double kLeastUs = 0.001;  // one nanosecond: a time of 0 is a missing measurement
constexpr double kLeastRate = 1;    // bytes or FLOP per second
constexpr double kMostSkew = 100;   // a rank a hundred times as late
constexpr double kMostRate = 1e21;  // beyond any machine
constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;

constexpr std::array kCollectives = {Collective::AllReduce, Collective::ReduceScatter,
                                     Collective::AllGather, Collective::AllToAll,
                                     Collective::Broadcast, Collective::SendRecv};
constexpr std::array kDTypes = {DType::F32, DType::F16, DType::BF16, DType::F64};
constexpr std::array kBackends = {BackendKind::Cuda, BackendKind::Cpu};
constexpr std::array<std::string_view, 2> kHostKinds = {"inline", "async"};

// The value among `values` whose name stands in the file.
template <class T, std::size_t N>
T named(const JsonValue& value, const std::array<T, N>& values) {
  std::vector<std::string_view> words;
  for (const T candidate : values) words.push_back(to_string(candidate));
  return values.at(value.word(words));
}

// Optional keys of an object: known, so that a misspelt one is told the right word.
void optional_keys(JsonObject& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) object.ignore(key);
}

Duration positive_us(JsonObject& object, std::string_view key) {
  return from_us(object.number(key, kLeastUs, kMostUs));
}

Duration us_or(JsonObject& object, std::string_view key, Duration fallback) {
  object.ignore(key);
  return object.has(key) ? from_us(object.number(key, 0, kMostUs)) : fallback;
}

std::optional<Duration> optional_us(JsonObject& object, std::string_view key) {
  object.ignore(key);
  if (!object.has(key)) return std::nullopt;
  return positive_us(object, key);
}

std::optional<double> optional_number(JsonObject& object, std::string_view key) {
  object.ignore(key);
  if (!object.has(key)) return std::nullopt;
  return object.number(key);
}

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
  series.collective = named(object.at("collective"), kCollectives);
  series.ranks = object.integer("ranks", 1, kMostRanks);
  optional_keys(object, {"nodes", "points", "measured"});
  if (object.has("measured")) series.measured = read_measured(object.object("measured"));
  series.nodes = object.integer_or("nodes", 1, 1, kMostRanks);
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

std::vector<CollectiveSeries> read_collectives(const JsonArray& array) {
  std::vector<CollectiveSeries> all;
  std::set<std::pair<Collective, std::int64_t>> seen;
  for (const JsonValue item : array) {
    CollectiveSeries series = read_series(item);
    if (!seen.insert({series.collective, series.ranks}).second) {
      item.fail("expected one table of " + std::string(to_string(series.collective)) + " over " +
                std::to_string(series.ranks) + " ranks, found a second one");
    }
    all.push_back(std::move(series));
  }
  return all;
}

Roofline read_roofline(JsonObject object) {
  Roofline roofline;
  JsonObject gemm = object.object("gemm");
  JsonObject rates = gemm.object("flop_per_s");
  for (const DType dtype : kDTypes) {
    const std::string_view name = to_string(dtype);
    rates.ignore(name);
    if (!rates.has(name)) continue;
    roofline.gemm_peak[dtype] = FlopPerSecond(rates.number(name, kLeastRate, kMostRate));
  }
  rates.done();
  roofline.efficiency = gemm.number("efficiency", 1e-6, 1);
  gemm.done();
  roofline.memory = BytesPerSecond(object.number("memory_bytes_per_s", kLeastRate, kMostRate));
  roofline.kernel_overhead = us_or(object, "kernel_overhead_us", Duration{});
  object.done();
  return roofline;
}

schedule::GemmWork read_gemm(JsonObject object) {
  schedule::GemmWork work;
  work.m = object.integer("m", 1, kMostExtent);
  work.n = object.integer("n", 1, kMostExtent);
  work.k = object.integer("k", 1, kMostExtent);
  object.ignore("count");
  work.count = object.integer_or("count", 1, 1, kMostExtent);
  object.done();
  return work;
}

KernelWork read_work(JsonObject& object) {
  if (object.has("gemm")) return read_gemm(object.object("gemm"));
  if (!object.has("memory")) {
    object.value().fail("expected \"gemm\" or \"memory\", found neither");
  }
  JsonObject memory = object.object("memory");
  schedule::MemoryWork work;
  work.bytes = Bytes(memory.integer("bytes", 1, kMostBytes));
  memory.ignore("flop");
  work.flop = Flop(memory.number_or("flop", 0, 0));
  memory.done();
  return work;
}

std::vector<MeasuredKernel> read_kernels(const JsonArray& array) {
  std::vector<MeasuredKernel> kernels;
  for (const JsonValue item : array) {
    JsonObject object = item.object();
    MeasuredKernel kernel;
    if (object.has("op")) kernel.op = object.string("op");
    kernel.dtype = named(object.at("dtype"), kDTypes);
    kernel.work = read_work(object);
    kernel.time = positive_us(object, "us");
    kernel.p10 = optional_us(object, "p10_us");
    kernel.p90 = optional_us(object, "p90_us");
    object.done();
    for (const MeasuredKernel& other : kernels) {
      if (other.op == kernel.op && other.dtype == kernel.dtype && other.work == kernel.work) {
        item.fail("expected each kernel once, found the same dtype and work a second time");
      }
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

UnitKernel read_unit_kernel(JsonObject object) {
  UnitKernel unit;
  object.ignore("dtype");
  if (object.has("dtype")) unit.dtype = named(object.at("dtype"), kDTypes);
  unit.gemm = read_gemm(object.object("gemm"));
  unit.time = positive_us(object, "us");
  object.done();
  return unit;
}

CopyModel read_copy(JsonObject object) {
  CopyModel copy;
  copy.fixed = us_or(object, "fixed_us", Duration{});
  if (object.has("bytes_per_s")) {
    copy.ns_per_byte = 1e9 / object.number("bytes_per_s", kLeastRate, kMostRate);
  } else if (object.has("ns_per_byte")) {
    copy.ns_per_byte = object.number("ns_per_byte", 0, kMostUs);
  } else {
    object.value().fail("expected \"bytes_per_s\" or \"ns_per_byte\", found neither");
  }
  object.done();
  return copy;
}

std::map<PassKind, PassModel> read_passes(JsonObject object) {
  std::map<PassKind, PassModel> passes;
  for (const PassKind kind : kPassKinds) {
    const std::string_view word = to_string(kind);
    object.ignore(word);
    if (!object.has(word)) continue;
    JsonObject pass = object.object(word);
    passes[kind] = {.fixed = us_or(pass, "fixed_us", Duration{}),
                    .ns_per_byte = pass.number("ns_per_byte", 0, kMostUs)};
    pass.done();
  }
  object.done();
  return passes;
}

// Keys that are absent keep the backend's default where the kind is the same, else 0.
HostModel read_host(JsonObject object, BackendKind backend) {
  HostModel host = default_host(backend);
  object.ignore("kind");
  if (object.has("kind")) {
    const auto kind =
        object.word("kind", kHostKinds) == 0 ? HostModel::Kind::Inline : HostModel::Kind::Async;
    if (kind != host.kind) host = HostModel{.kind = kind};
  }
  host.run_op = us_or(object, "run_op_us", host.run_op);
  host.collective = us_or(object, "collective_us", host.collective);
  host.event = us_or(object, "event_us", host.event);
  host.copy = us_or(object, "copy_us", host.copy);
  host.launch_latency = us_or(object, "launch_latency_us", host.launch_latency);
  host.launch_gap = us_or(object, "launch_gap_us", host.launch_gap);
  object.done();
  return host;
}

Contention read_contention(JsonObject object) {
  Contention contention;
  optional_keys(object, {"compute_slowdown", "collective_slowdown"});
  contention.compute_slowdown = object.number_or("compute_slowdown", 1, 1, 1e6);
  contention.collective_slowdown = object.number_or("collective_slowdown", 1, 1, 1e6);
  contention.collective_cpu = us_or(object, "collective_cpu_us", Duration{});
  object.done();
  return contention;
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

double finite(double value) {
  DOVETAIL_CHECK(std::isfinite(value)) << value;
  return value;
}

void put(ordered_json& object, const char* key, const std::optional<Duration>& time) {
  if (time) object[key] = to_us(*time);
}

void put(ordered_json& object, const char* key, const std::optional<double>& number) {
  if (number) object[key] = finite(*number);
}

void put(ordered_json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

ordered_json written(const CollectiveSeries& series) {
  ordered_json object = {{"collective", to_string(series.collective)},
                         {"ranks", series.ranks},
                         {"nodes", series.nodes}};
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

ordered_json written(const Roofline& roofline) {
  ordered_json rates = ordered_json::object();
  for (const auto& [dtype, rate] : roofline.gemm_peak) {
    rates[std::string(to_string(dtype))] = finite(rate.count());
  }
  return {{"gemm", {{"flop_per_s", rates}, {"efficiency", finite(roofline.efficiency)}}},
          {"memory_bytes_per_s", finite(roofline.memory.count())},
          {"kernel_overhead_us", to_us(roofline.kernel_overhead)}};
}

ordered_json written(const schedule::GemmWork& work) {
  return {{"m", work.m}, {"n", work.n}, {"k", work.k}, {"count", work.count}};
}

ordered_json written(const MeasuredKernel& kernel) {
  ordered_json object;
  if (!kernel.op.empty()) object["op"] = kernel.op;
  object["dtype"] = to_string(kernel.dtype);
  if (const auto* gemm = std::get_if<schedule::GemmWork>(&kernel.work)) {
    object["gemm"] = written(*gemm);
  } else {
    const auto& memory = std::get<schedule::MemoryWork>(kernel.work);
    object["memory"] = {{"bytes", memory.bytes.count()}, {"flop", finite(memory.flop.count())}};
  }
  object["us"] = to_us(kernel.time);
  put(object, "p10_us", kernel.p10);
  put(object, "p90_us", kernel.p90);
  return object;
}

ordered_json written(const UnitKernel& unit) {
  return {{"dtype", to_string(unit.dtype)}, {"gemm", written(unit.gemm)}, {"us", to_us(unit.time)}};
}

ordered_json written(const HostModel& host) {
  return {{"kind", kHostKinds.at(host.kind == HostModel::Kind::Inline ? 0 : 1)},
          {"run_op_us", to_us(host.run_op)},
          {"collective_us", to_us(host.collective)},
          {"event_us", to_us(host.event)},
          {"copy_us", to_us(host.copy)},
          {"launch_latency_us", to_us(host.launch_latency)},
          {"launch_gap_us", to_us(host.launch_gap)}};
}

ordered_json written(const Contention& contention) {
  return {{"compute_slowdown", finite(contention.compute_slowdown)},
          {"collective_slowdown", finite(contention.collective_slowdown)},
          {"collective_cpu_us", to_us(contention.collective_cpu)}};
}

ordered_json written(const Quality& quality) {
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

template <class T>
ordered_json list_of(const std::vector<T>& items) {
  ordered_json list = ordered_json::array();
  for (const T& item : items) list.push_back(written(item));
  return list;
}

}  // namespace

Cluster cluster_from_json(JsonObject root) {
  root.schema(kSchema);
  optional_keys(root, {"origin", "licence", "date", "notes", "ranks", "backend", "compute",
                       "kernels", "unit_kernel", "copy", "passes", "skew", "host",
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
  if (root.has("backend")) cluster.backend = named(root.at("backend"), kBackends);
  cluster.collectives = read_collectives(root.array("collectives"));
  const std::int64_t first = cluster.collectives.empty() ? 1 : cluster.collectives.front().ranks;
  cluster.ranks = root.integer_or("ranks", first, 1, kMostRanks);
  if (root.has("compute")) cluster.compute = read_roofline(root.object("compute"));
  if (root.has("kernels")) cluster.kernels = read_kernels(root.array("kernels"));
  if (root.has("unit_kernel")) cluster.unit_kernel = read_unit_kernel(root.object("unit_kernel"));
  if (root.has("copy")) cluster.copy = read_copy(root.object("copy"));
  if (root.has("passes")) cluster.passes = read_passes(root.object("passes"));
  cluster.skew = root.number_or("skew", 0, 0, kMostSkew);
  cluster.host = root.has("host") ? read_host(root.object("host"), cluster.backend)
                                  : default_host(cluster.backend);
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
  root["collectives"] = list_of(cluster.collectives);
  if (cluster.compute) root["compute"] = written(*cluster.compute);
  if (!cluster.kernels.empty()) root["kernels"] = list_of(cluster.kernels);
  if (cluster.unit_kernel) root["unit_kernel"] = written(*cluster.unit_kernel);
  if (cluster.copy) {
    root["copy"] = {{"ns_per_byte", finite(cluster.copy->ns_per_byte)},
                    {"fixed_us", to_us(cluster.copy->fixed)}};
  }
  for (const auto& [kind, pass] : cluster.passes) {
    root["passes"][std::string(to_string(kind))] = {{"ns_per_byte", finite(pass.ns_per_byte)},
                                                    {"fixed_us", to_us(pass.fixed)}};
  }
  if (cluster.skew > 0) root["skew"] = finite(cluster.skew);
  root["host"] = written(cluster.host);
  root["contention"] = written(cluster.contention);
  if (cluster.network_shield > Duration{}) {
    root["network_shield_us"] = to_us(cluster.network_shield);
  }
  if (cluster.quality) root["quality"] = written(*cluster.quality);
  return root.dump(1) + "\n";
}

void save_cluster(const Cluster& cluster, const std::string& path) {
  write_file(path, cluster_to_json(cluster));
}

}  // namespace dovetail::models
