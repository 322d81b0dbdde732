// Writes Costs as JSON, and reads them strictly: every table, link and class of ranks that an
// entry names must be in the file.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/costs_json.h"

#include "models/costs/cost_fields.h"
#include "schedule/id_table.h"

#include <algorithm>
#include <utility>

namespace dovetail::models {
namespace {

constexpr double kMostNs = kMostUs * 1e3;

// A file's parts, where Costs keep them behind an interface.
struct RulesInFile {
  std::optional<Roofline> compute;
  std::vector<MeasuredKernel> kernels;
  std::optional<UnitKernel> unit_kernel;
  std::optional<CopyModel> copy;
  std::map<PassKind, PassModel> passes;
  double skew = 0;
  double timed_stretch = 1;
};

struct CollectiveInFile {
  CollectiveKey key;
  std::vector<LinkLoad> loads;
  std::vector<CollectiveTable::Knot> knots;
};

struct CostsInFile {
  std::string machine;
  std::int64_t distinct_ranks = 1;
  std::vector<std::int64_t> unit_ranks;
  std::vector<KnownOp> ops;
  RulesInFile rules;
  std::vector<std::string> links;
  std::vector<CollectiveInFile> collectives;
  std::optional<CopyModel> copies, splits, chunks, scales;
  HostModel host;
  std::vector<Contention> contention;
};

// An index into the links of the file, which stand before it.
struct LinkValue {
  void read(const JsonValue& value, std::int32_t& link, const CostsInFile& file) const {
    as_integer(0, static_cast<std::int64_t>(file.links.size()) - 1).read(value, link, file);
  }
  ordered_json write(std::int32_t link, const auto& /*context*/) const { return link; }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return as_integer(0).schema<T>();
  }
};

constexpr auto kSpreadFields = written_where(
    &Spread::known, fields<Spread>(defaulted("p10", &Spread::p10, as_number(0, 1),
                                             "10th percentile as a share of the median"),
                                   defaulted("p90", &Spread::p90, as_number(1, kMostFactor),
                                             "90th percentile as a share of the median")));

constexpr auto kOpFields = fields<KnownOp>(
    required("id", &KnownOp::id, as_integer(0, schedule::kLargestId)),
    required("name", &KnownOp::name, as_text()),
    alternatives(&KnownOp::work, kNoKernel,
                 with<schedule::TimedWork>(required("timed_us", &schedule::TimedWork::by_rank,
                                                    as_list(kTime, 1, "time"),
                                                    "recorded, microseconds per rank")),
                 kKernelsChoice, kGemmChoice, kMemoryChoice),
    inlined(&KnownOp::cost,
            fields<OpCost>(required("us", &OpCost::by_class, as_list(kTime, 1, "time"),
                                    "microseconds per class of ranks"),
                           inlined(&OpCost::spread, kSpreadFields),
                           optional("host_us", &OpCost::host, kMeasuredTime,
                                    "to issue it; absent: host.run_op_us"),
                           required("kernel", &OpCost::kernel, as_word(),
                                    "class, by which contention slows it down"))));

constexpr auto kRulesFields = fields<RulesInFile>(
    optional("compute", &RulesInFile::compute, as_object(kRooflineFields), kComputeWords),
    optional("kernels", &RulesInFile::kernels, kMeasuredKernels, kKernelsWords),
    optional("unit_kernel", &RulesInFile::unit_kernel, as_object(kUnitKernelFields),
             kUnitKernelWords),
    optional("copy", &RulesInFile::copy, as_object(kCopyFields), kCopyWords),
    optional("passes", &RulesInFile::passes, as_object(kPassesFields), kPassesWords),
    required("skew", &RulesInFile::skew, as_number(0, 100)),
    required("timed_stretch", &RulesInFile::timed_stretch, as_number(1, 100)));

using Knot = CollectiveTable::Knot;
constexpr auto kSlope = as_number(-kMostNs, kMostNs);
constexpr auto kKnotFields = fields<Knot>(
    required("bytes", &Knot::bytes, as_number(0, static_cast<double>(kMostBytes))),
    required("isolated_ns", &Knot::isolated_ns, as_number(0, kMostNs)),
    required("back_to_back_ns", &Knot::back_to_back_ns, as_number(0, kMostNs)),
    required("isolated_slope", &Knot::isolated_slope, kSlope, "ns per byte up to the next knot"),
    required("back_to_back_slope", &Knot::back_to_back_slope, kSlope,
             "ns per byte up to the next knot"),
    inlined(&Knot::spread, kSpreadFields));

void check_rise(const JsonValue& item, const std::vector<Knot>& before, const Knot& knot) {
  if (before.empty() || knot.bytes > before.back().bytes) return;
  item.object().at("bytes").fail(
      "expected more than the size before it (sizes rise, each stands once)");
}

void check_slopes(const JsonArray& array, const std::vector<Knot>& knots) {
  for (std::size_t i = 0; i + 1 < knots.size(); ++i) {
    const Knot& knot = knots[i];
    const double width = knots[i + 1].bytes - knot.bytes;
    const double isolated_ns = knot.isolated_ns + knot.isolated_slope * width;
    const double back_to_back_ns = knot.back_to_back_ns + knot.back_to_back_slope * width;
    if (std::min(isolated_ns, back_to_back_ns) >= -0.5) continue;  // which rounding may leave
    array[i].fail("expected slopes that leave times of 0 or more at the next knot");
  }
  if (knots.back().isolated_slope < 0 || knots.back().back_to_back_slope < 0) {
    array.value().fail("expected slopes of 0 or more at the last knot, which goes on for ever");
  }
}

template <std::size_t kAt>
constexpr auto kWider = [](auto& key) -> auto& {
  return std::get<kAt>(key.wider);
};
constexpr std::string_view kWiderWords =
    "on which those lie; absent: the machine has no such level";

constexpr auto kCollectiveFields = fields<CollectiveInFile>(
    inlined(
        &CollectiveInFile::key,
        fields<CollectiveKey>(required("collective", &CollectiveKey::collective, as_word()),
                              required("ranks", &CollectiveKey::ranks, as_integer(0, kMostRanks),
                                       "of the group; 0: any number"),
                              optional("nodes", &CollectiveKey::nodes, as_integer(1, kMostRanks),
                                       "on which the group's ranks lie; with unit_ranks only"),
                              optional("racks", kWider<0>, as_integer(1, kMostRanks), kWiderWords),
                              optional("pods", kWider<1>, as_integer(1, kMostRanks), kWiderWords))),
    required("loads", &CollectiveInFile::loads,
             as_list(as_object(fields<LinkLoad>(
                 required("link", &LinkLoad::link, LinkValue{}, "index into links"),
                 required("share", &LinkLoad::share, as_number(0, 1))))),
             "links that it loads while it is in flight"),
    required("knots", &CollectiveInFile::knots,
             as_list(as_object(kKnotFields), 1, "knot",
                     [](const JsonValue& item, const std::vector<Knot>& before, const Knot& knot,
                        auto&) { check_rise(item, before, knot); }),
             "the curve: time by size, linear between knots"),
    check([](JsonObject& object, const CollectiveInFile& cost, auto&) {
      check_slopes(object.array("knots"), cost.knots);
    }));

constexpr auto kCostsFields = as_object(fields<CostsInFile>(
    document(kCostsSchema, "costs"), required("machine", &CostsInFile::machine, as_text()),
    required("distinct_ranks", &CostsInFile::distinct_ranks, as_integer(1, kMostRanks),
             "ranks whose costs differ; the others are as rank 0"),
    optional(
        "unit_ranks", &CostsInFile::unit_ranks, as_list(as_integer(1, kMostRanks)),
        "that share a node, a rack, a pod: rank r lies on node r / the first; absent: not known, "
        "collectives have no nodes"),
    check([](JsonObject& object, const CostsInFile& file, auto&) {
      if (file.unit_ranks.size() < kMostLevels && std::ranges::is_sorted(file.unit_ranks)) return;
      object.find("unit_ranks")
          ->fail("expected at most " + std::to_string(kMostLevels - 1) + " numbers that rise");
    }),
    required("ops", &CostsInFile::ops, as_list(as_object(kOpFields))),
    required("rules", &CostsInFile::rules, as_object(kRulesFields),
             "how ops are priced that lowering adds; as in a cluster file"),
    required("links", &CostsInFile::links, as_list(as_text()), "that every rank has, out and in"),
    required("collectives", &CostsInFile::collectives, as_list(as_object(kCollectiveFields))),
    optional("copies", &CostsInFile::copies, as_object(kCopyFields), kCopyWords),
    optional("splits", &CostsInFile::splits, as_object(kCopyFields),
             "copies of what a gather brought into parameters; absent: as copies"),
    optional("chunks", &CostsInFile::chunks, as_object(kCopyFields),
             "copies of gradients into the buffer of a reduce-scatter; absent: as copies"),
    optional("scales", &CostsInFile::scales, as_object(kCopyFields),
             "scaling a buffer in place: fixed plus per byte; absent: as a copy"),
    required("host", &CostsInFile::host, as_object(kHostFields), kHostWords),
    required("contention", &CostsInFile::contention, as_list(as_object(kContentionFields)),
             "per class of ranks; one: of all; none: no contention")));

}  // namespace

std::string costs_to_json(const Costs& costs) {
  const OpModel& model = costs.ops.model();
  CostsInFile file{.machine = costs.machine,
                   .distinct_ranks = costs.distinct_ranks,
                   .unit_ranks = costs.unit_ranks,
                   .ops = costs.ops.known(),
                   .rules = {.compute = model.compute,
                             .kernels = model.kernels.kernels(),
                             .unit_kernel = model.kernels.unit(),
                             .copy = model.copy,
                             .passes = model.passes,
                             .skew = model.skew,
                             .timed_stretch = model.timed_stretch},
                   .links = costs.links,
                   .collectives = {},
                   .copies = costs.copies,
                   .splits = costs.splits,
                   .chunks = costs.chunks,
                   .scales = {},
                   .host = costs.host,
                   .contention = costs.contention_by_class};
  if (costs.scales) file.scales = CopyModel{costs.scales->fixed, costs.scales->ns_per_byte};
  for (const CollectiveCost& cost : costs.collectives) {
    file.collectives.push_back({cost.key, cost.loads, cost.time.knots()});
  }
  return as_json(kCostsFields, file).dump(1) + "\n";
}

Costs costs_from_json(JsonObject root) {
  CostsInFile file;
  kCostsFields.read(std::move(root), file, file);
  Costs costs;
  costs.machine = file.machine;
  costs.distinct_ranks = file.distinct_ranks;
  costs.unit_ranks = std::move(file.unit_ranks);
  RulesInFile& rules = file.rules;
  costs.ops = OpCosts({.machine = file.machine,
                       .compute = std::move(rules.compute),
                       .kernels = KernelTable(std::move(rules.kernels), rules.unit_kernel),
                       .copy = rules.copy,
                       .passes = std::move(rules.passes),
                       .skew = rules.skew,
                       .timed_stretch = rules.timed_stretch});
  for (KnownOp& op : file.ops) costs.ops.set(std::move(op));
  costs.links = std::move(file.links);
  for (CollectiveInFile& cost : file.collectives) {
    costs.collectives.push_back({.key = cost.key,
                                 .time = CollectiveTable(std::move(cost.knots)),
                                 .loads = std::move(cost.loads)});
  }
  costs.copies = file.copies;
  costs.splits = file.splits;
  costs.chunks = file.chunks;
  if (file.scales) costs.scales = PassModel{file.scales->fixed, file.scales->ns_per_byte};
  costs.host = file.host;
  costs.contention_by_class = std::move(file.contention);
  return costs;
}

Costs parse_costs(const std::string& file_name, std::string_view text) {
  const JsonFile file(file_name, text);
  return costs_from_json(file.root());
}

ordered_json costs_schema() {
  return schema_of<CostsInFile>(
      kCostsFields, "dovetail.costs/1: what a prediction was made of",
      "What every op, collective, copy and host command costs on one machine. Written by `dovetail "
      "predict --costs`; read by --cluster.");
}

}  // namespace dovetail::models
