// `dovetail reshard`: prints the cheapest path between two layouts, beside the fixed order, and
// the steps of each rank.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/reshard.h"

#include "base/attempt.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "schedule/reshard/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using schedule::DType;
using schedule::reshard::Layout;
using schedule::reshard::make_mesh;
using schedule::reshard::Mesh;
using schedule::reshard::parse_layout;
using schedule::reshard::parse_shape;
using schedule::reshard::Path;
using schedule::reshard::Value;

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    if (text == schedule::to_string(dtype)) return dtype;
  }
  throw InputError("--dtype " + text + ": expected f32, f16, bf16 or f64");
}

// The largest tensor of a program file.
constexpr double kMostBytes = 0x1p44;
// The least time that an Instant can no longer add up safely: nine years.
constexpr double kMostNanoseconds = 0x1p58;
// Layouts times ranks that a search can hold; of two meshes their product, which is the number of
// messages to look at; and ranks whose steps can be printed.
constexpr double kMostPlaces = 0x1p23;
constexpr double kMostMessages = 0x1p27;
constexpr std::size_t kMostPrinted = 1024;
// Pairs of ranks for which the baseline between two meshes is counted.
constexpr std::size_t kMostCompared = std::size_t{1} << 20;

Value parse_value(const ReshardOptions& options) {
  Value value{.shape = parse_shape(options.shape), .dtype = parse_dtype(options.dtype)};
  auto bytes = static_cast<double>(schedule::element_size(value.dtype).count());
  for (const std::int64_t extent : value.shape) bytes *= static_cast<double>(extent);
  if (bytes > kMostBytes) throw InputError("--shape " + options.shape + ": larger than 16 TiB");
  return value;
}

// How many ways there are to cut so many dimensions by so many axes: choose k axes, order them, and
// deal them to the dimensions.
double layouts_of(std::size_t dimensions, std::size_t axes) {
  double ways = 1;
  double sum = 1;
  for (std::size_t k = 1; k <= axes; ++k) {
    ways *= static_cast<double>(axes - k + 1) * static_cast<double>(dimensions + k - 1) /
            static_cast<double>(k);
    sum += ways;
  }
  return sum;
}

// Refuses what would take too long to search, or add up to times beyond any clock.
void require_feasible(const Value& value, const Layout& from, const Layout& to,
                      const schedule::reshard::ReshardCosts& costs) {
  const auto places = [&](const Mesh& mesh) {
    return layouts_of(value.shape.size(), mesh.shape.size()) * static_cast<double>(mesh.size());
  };
  if (from.mesh != to.mesh && places(from.mesh) * places(to.mesh) > kMostMessages) {
    throw InputError("too many messages between the two meshes: expected fewer ranks or axes");
  }
  if (std::max(places(from.mesh), places(to.mesh)) > kMostPlaces) {
    throw InputError("too many layouts to search: expected fewer mesh axes, dimensions or ranks");
  }
  const auto ranks = static_cast<double>(std::max(from.mesh.size(), to.mesh.size()));
  const auto bytes = static_cast<double>(schedule::element_size(value.dtype).count()) *
                     static_cast<double>(schedule::reshard::elements(value.shape));
  const double longest =
      ranks * (static_cast<double>(costs.latency.count()) + bytes / costs.wire.count() * 1e9) +
      8 * bytes / costs.copy.count() * 1e9;
  if (longest > kMostNanoseconds) {
    throw InputError(
        "this could take nine years: expected a faster --wire or --copy, or a smaller --latency");
  }
}

std::string exact_bytes(Bytes bytes) { return std::to_string(bytes.count()) + " bytes"; }

// What the fixed order would do, where it can.
std::optional<Path> fixed_order(const Value& value, const Layout& from, const Layout& to,
                                const schedule::reshard::ReshardCosts& costs) {
  if (from.mesh != to.mesh) return std::nullopt;
  return attempt([&] { return fixed_order_path(value, from, to, costs); }).value;
}

// What would leave ranks between two meshes if each reader were sent the whole parts of holders, as
// Paddle's resharding does; nothing where that baseline is not defined or too large to count.
std::optional<Bytes> whole_parts(const Value& value, const Layout& from, const Layout& to) {
  const bool is_defined = from.mesh != to.mesh && from.partial.empty() && to.partial.empty();
  if (!is_defined || from.mesh.size() * to.mesh.size() > kMostCompared) return std::nullopt;
  return schedule::element_size(value.dtype) *
         elements_sent(whole_part_exchange(value.shape, from, to));
}

// What was found, and what it is laid beside.
struct Found {
  const Value& value;
  const Layout& from;
  const Layout& to;
  Path path;
  std::optional<Path> fixed;
  std::optional<Bytes> whole_parts;
};

Bytes size_of(const Value& value) {
  return schedule::element_size(value.dtype) * schedule::reshard::elements(value.shape);
}

struct Ordered {
  const char* order;
  const Path* path;
};

Table path_table(const Found& found) {
  std::vector<Ordered> rows = {{"cheapest", &found.path}};
  if (found.fixed) rows.push_back({"fixed", &*found.fixed});
  return table_of<Ordered>(
      {{{"order", "order"}, &Ordered::order},
       {{"path", "path", Unit::Own, {}, 0, Align::Left},
        [](const Ordered& row) { return describe(*row.path); }},
       {{"layouts"},
        [](const Ordered& row) {
          std::vector<std::string> layouts;
          for (const auto& move : row.path->moves) layouts.push_back(to_string(move.to));
          return layouts;
        }},
       {{"cost_us", "cost"}, [](const Ordered& row) { return row.path->cost; }},
       {{"wire_bytes", "wire"},
        [&found](const Ordered& row) { return wire_of(found.value, *row.path); }}},
      rows);
}

std::string to_json(const ReshardOptions& options, const Found& found) {
  const ordered_json document = {
      {"schema", "dovetail.reshard/1"},
      {"kind", "reshard"},
      {"origin", "simulated"},
      {"shape", options.shape},
      {"dtype", options.dtype},
      {"size_bytes", size_of(found.value).count()},
      {"from", to_string(found.from)},
      {"to", to_string(found.to)},
      {"rows", rows_json(path_table(found))},
      {"whole_parts_bytes",
       found.whole_parts ? ordered_json(found.whole_parts->count()) : ordered_json(nullptr)}};
  return document.dump(1) + "\n";
}

void print_found(std::ostream& out, const ReshardOptions& options, const Found& found) {
  out << "tensor       " << options.shape << ' ' << options.dtype << ", "
      << exact_bytes(size_of(found.value)) << "\nfrom         " << found.from << "\nto           "
      << found.to << "\npath         " << describe(found.path) << "\ncost         "
      << dovetail::to_string(found.path.cost) << " (modelled, alone on the network)\nwire         "
      << exact_bytes(wire_of(found.value, found.path)) << '\n';
  if (found.fixed) {
    out << "fixed order  " << describe(*found.fixed) << ": "
        << dovetail::to_string(found.fixed->cost) << ", "
        << exact_bytes(wire_of(found.value, *found.fixed)) << '\n';
  }
  if (found.whole_parts) {
    out << "whole parts  " << exact_bytes(*found.whole_parts)
        << " on the wire, if each reader were sent the whole parts of holders\n";
  }
}

}  // namespace

void reshard(const ReshardOptions& options, std::ostream& out) {
  const Value value = parse_value(options);
  if (options.to_first_rank < 0) throw InputError("--to-first-rank: expected a rank from 0 on");
  const Mesh source = make_mesh(parse_shape(options.mesh));
  const bool is_other = !options.to_mesh.empty() || options.to_first_rank != 0;
  const std::string& target_shape = options.to_mesh.empty() ? options.mesh : options.to_mesh;
  const Mesh target =
      is_other ? make_mesh(parse_shape(target_shape), Rank{options.to_first_rank}) : source;
  const Layout from = parse_layout(options.from, source, value.shape.size());
  const Layout to = parse_layout(options.to, target, value.shape.size());
  const schedule::reshard::ReshardCosts costs{.latency = time_of_flag("--latency", options.latency),
                                              .wire = rate_of_flag("--wire", options.wire),
                                              .copy = rate_of_flag("--copy", options.copy)};
  require_feasible(value, from, to, costs);
  if (options.steps && std::max(source.size(), target.size()) > kMostPrinted) {
    throw InputError("--steps: expected meshes of at most " + std::to_string(kMostPrinted) +
                     " ranks");
  }
  refuse_beside(options.document, "reshard: --steps", options.steps);
  require_outputs({document_file(options.document)}, {});
  const Found found = {.value = value,
                       .from = from,
                       .to = to,
                       .path = cheapest_path(value, from, to, costs),
                       .fixed = fixed_order(value, from, to, costs),
                       .whole_parts = whole_parts(value, from, to)};
  put_document(
      options.document,
      {.json = [&] { return to_json(options, found); }, .table = [&] { return path_table(found); }},
      out);
  if (replaces_report(options.document)) return;
  print_found(out, options, found);
  if (options.steps) out << describe(plan_path(value, found.path));
}

}  // namespace dovetail::cli
