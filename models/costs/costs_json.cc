// Writes Costs as JSON, and reads them strictly: every table, link and class of ranks that an
// entry names must be in the file.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/costs_json.h"

#include "base/error.h"
#include "base/json.h"
#include "models/costs/cost_json.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"

#include <array>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

using nlohmann::ordered_json;

constexpr double kMostNs = kMostUs * 1e3;

// ---------------------------------------------------------------------------------- writing

void put_spread(ordered_json& object, const Spread& spread) {
  if (!spread.known()) return;
  object["p10"] = finite(spread.p10);
  object["p90"] = finite(spread.p90);
}

ordered_json times_in_us(const std::vector<Duration>& times) {
  ordered_json list = ordered_json::array();
  for (const Duration time : times) list.push_back(to_us(time));
  return list;
}

ordered_json op_json(const KnownOp& op) {
  ordered_json object = {{"id", op.id.value}, {"name", op.name}};
  schedule::visit(
      op.work,
      [&](const schedule::TimedWork& timed) { object["timed_us"] = times_in_us(timed.by_rank); },
      [&](const schedule::CollectiveWork&) {
        DOVETAIL_CHECK(false) << op.name << " communicates, which has no cost of an op";
      },
      [&](const auto& work) { put_work(object, work); });
  object["us"] = times_in_us(op.cost.by_class);
  put_spread(object, op.cost.spread);
  put(object, "host_us", op.cost.host);
  object["kernel"] = to_string(op.cost.kernel);
  return object;
}

ordered_json rules_json(const OpModel& model) {
  ordered_json object = ordered_json::object();
  if (model.compute) object["compute"] = written(*model.compute);
  for (const MeasuredKernel& kernel : model.kernels.kernels()) {
    object["kernels"].push_back(written(kernel));
  }
  if (model.kernels.unit()) object["unit_kernel"] = written(*model.kernels.unit());
  if (model.copy) object["copy"] = written(*model.copy);
  if (!model.passes.empty()) object["passes"] = written(model.passes);
  object["skew"] = finite(model.skew);
  object["timed_stretch"] = finite(model.timed_stretch);
  return object;
}

ordered_json collective_json(const CollectiveCost& cost) {
  ordered_json knots = ordered_json::array();
  for (const CollectiveTable::Knot& knot : cost.time.knots()) {
    ordered_json item = {{"bytes", finite(knot.bytes)},
                         {"isolated_ns", finite(knot.isolated_ns)},
                         {"back_to_back_ns", finite(knot.back_to_back_ns)},
                         {"isolated_slope", finite(knot.isolated_slope)},
                         {"back_to_back_slope", finite(knot.back_to_back_slope)}};
    put_spread(item, knot.spread);
    knots.push_back(std::move(item));
  }
  ordered_json loads = ordered_json::array();
  for (const LinkLoad& load : cost.loads) {
    loads.push_back({{"link", load.link}, {"share", finite(load.share)}});
  }
  ordered_json object = {{"collective", to_string(cost.key.collective)}, {"ranks", cost.key.ranks}};
  if (cost.key.nodes > 0) object["nodes"] = cost.key.nodes;
  object["loads"] = std::move(loads);
  object["knots"] = std::move(knots);
  return object;
}

// ---------------------------------------------------------------------------------- reading

Spread read_spread(JsonObject& object) {
  optional_keys(object, {"p10", "p90"});
  return {.p10 = object.number_or("p10", 1, 0, 1), .p90 = object.number_or("p90", 1, 1, 1e6)};
}

std::vector<Duration> read_times(const JsonArray& array) {
  if (array.size() == 0) array.value().fail("expected at least one time, found none");
  std::vector<Duration> times;
  for (const JsonValue item : array) times.push_back(from_us(item.number(0, kMostUs)));
  return times;
}

KnownOp read_op(const JsonValue& value) {
  JsonObject object = value.object();
  KnownOp op;
  op.id = OpId{static_cast<std::int32_t>(object.integer("id", 0, schedule::kLargestId))};
  op.name = object.string("name");
  if (object.has("timed_us")) {
    op.work = schedule::TimedWork{read_times(object.array("timed_us"))};
  } else {
    std::visit([&op](const auto& work) { op.work = work; }, read_work(object));
  }
  op.cost.by_class = read_times(object.array("us"));
  op.cost.spread = read_spread(object);
  op.cost.host = optional_us(object, "host_us");
  op.cost.kernel = object.one_of<KernelClass>("kernel");
  object.done();
  return op;
}

OpModel read_rules(JsonObject object, const std::string& machine) {
  optional_keys(object, {"compute", "kernels", "unit_kernel", "copy", "passes"});
  OpModel model{.machine = machine};
  if (object.has("compute")) model.compute = read_roofline(object.object("compute"));
  std::vector<MeasuredKernel> kernels;
  if (object.has("kernels")) kernels = read_kernels(object.array("kernels"));
  std::optional<UnitKernel> unit;
  if (object.has("unit_kernel")) unit = read_unit_kernel(object.object("unit_kernel"));
  model.kernels = KernelTable(std::move(kernels), unit);
  if (object.has("copy")) model.copy = read_copy(object.object("copy"));
  if (object.has("passes")) model.passes = read_passes(object.object("passes"));
  model.skew = object.number("skew", 0, 100);
  model.timed_stretch = object.number("timed_stretch", 1, 100);
  object.done();
  return model;
}

std::vector<LinkLoad> read_loads(const JsonArray& array, std::int64_t links) {
  std::vector<LinkLoad> loads;
  for (const JsonValue item : array) {
    JsonObject load = item.object();
    loads.push_back({.link = static_cast<std::int32_t>(load.integer("link", 0, links - 1)),
                     .share = load.number("share", 0, 1)});
    load.done();
  }
  return loads;
}

CollectiveCost read_collective(const JsonValue& value, std::int64_t links) {
  JsonObject object = value.object();
  CollectiveKey key{object.one_of<schedule::Collective>("collective"),
                    object.integer("ranks", 0, kMostRanks)};
  key.nodes = object.integer_or("nodes", key.nodes, 1, kMostRanks);
  const std::vector<LinkLoad> loads = read_loads(object.array("loads"), links);
  const JsonArray array = object.array("knots");
  if (array.size() == 0) array.value().fail("expected at least one knot, found none");
  std::vector<CollectiveTable::Knot> knots;
  for (const JsonValue item : array) {
    JsonObject entry = item.object();
    CollectiveTable::Knot knot;
    knot.bytes = entry.number("bytes", 0, static_cast<double>(kMostBytes));
    if (!knots.empty() && knot.bytes <= knots.back().bytes) {
      entry.at("bytes").fail(
          "expected more than the size before it (sizes rise, each stands once)");
    }
    knot.isolated_ns = entry.number("isolated_ns", 0, kMostNs);
    knot.back_to_back_ns = entry.number("back_to_back_ns", 0, kMostNs);
    knot.isolated_slope = entry.number("isolated_slope", -kMostNs, kMostNs);
    knot.back_to_back_slope = entry.number("back_to_back_slope", -kMostNs, kMostNs);
    knot.spread = read_spread(entry);
    entry.done();
    knots.push_back(knot);
  }
  for (std::size_t i = 0; i + 1 < knots.size(); ++i) {
    const CollectiveTable::Knot& knot = knots[i];
    const double width = knots[i + 1].bytes - knot.bytes;
    const double isolated_ns = knot.isolated_ns + knot.isolated_slope * width;
    const double back_to_back_ns = knot.back_to_back_ns + knot.back_to_back_slope * width;
    if (std::min(isolated_ns, back_to_back_ns) >= -0.5) continue;  // which rounding may leave
    array[i].fail("expected slopes that leave times of 0 or more at the next knot");
  }
  if (knots.back().isolated_slope < 0 || knots.back().back_to_back_slope < 0) {
    array.value().fail("expected slopes of 0 or more at the last knot, which goes on for ever");
  }
  object.done();
  return {.key = key, .time = CollectiveTable(std::move(knots)), .loads = loads};
}

}  // namespace

std::string costs_to_json(const Costs& costs) {
  ordered_json root = {{"schema", kCostsSchema},
                       {"kind", "costs"},
                       {"machine", costs.machine},
                       {"distinct_ranks", costs.distinct_ranks}};
  if (costs.node_ranks > 0) root["node_ranks"] = costs.node_ranks;
  root["ops"] = ordered_json::array();
  for (const KnownOp& op : costs.ops.known()) root["ops"].push_back(op_json(op));
  root["rules"] = rules_json(costs.ops.model());
  root["links"] = costs.links;
  root["collectives"] = ordered_json::array();
  for (const CollectiveCost& cost : costs.collectives) {
    root["collectives"].push_back(collective_json(cost));
  }
  if (costs.copies) root["copies"] = written(*costs.copies);
  if (costs.scales) {
    root["scales"] = written(CopyModel{costs.scales->fixed, costs.scales->ns_per_byte});
  }
  root["host"] = written(costs.host);
  root["contention"] = ordered_json::array();
  for (const Contention& contention : costs.contention_by_class) {
    root["contention"].push_back(written(contention));
  }
  return root.dump(1) + "\n";
}

Costs costs_from_json(JsonObject root) {
  root.schema(kCostsSchema);
  constexpr std::array<std::string_view, 1> kKinds = {"costs"};
  static_cast<void>(root.word("kind", kKinds));
  optional_keys(root, {"copies", "scales"});
  Costs costs;
  costs.machine = root.string("machine");
  costs.distinct_ranks = root.integer("distinct_ranks", 1, kMostRanks);
  costs.node_ranks = root.integer_or("node_ranks", costs.node_ranks, 1, kMostRanks);
  costs.ops = OpCosts(read_rules(root.object("rules"), costs.machine));
  for (const JsonValue item : root.array("ops")) costs.ops.set(read_op(item));
  costs.links.clear();
  for (const JsonValue item : root.array("links")) costs.links.push_back(item.string());
  for (const JsonValue item : root.array("collectives")) {
    costs.collectives.push_back(
        read_collective(item, static_cast<std::int64_t>(costs.links.size())));
  }
  if (root.has("copies")) costs.copies = read_copy(root.object("copies"));
  if (root.has("scales")) {
    const CopyModel scales = read_copy(root.object("scales"));
    costs.scales = PassModel{.fixed = scales.fixed, .ns_per_byte = scales.ns_per_byte};
  }
  costs.host = read_host(root.object("host"), HostModel{});
  for (const JsonValue item : root.array("contention")) {
    costs.contention_by_class.push_back(read_contention(item.object()));
  }
  root.done();
  return costs;
}

Costs parse_costs(const std::string& file_name, std::string_view text) {
  const JsonFile file(file_name, text);
  return costs_from_json(file.root());
}

}  // namespace dovetail::models
