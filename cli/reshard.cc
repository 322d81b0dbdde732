// A path and its plan as text.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/reshard.h"

#include "base/error.h"
#include "base/units.h"
#include "schedule/reshard/plan.h"

#include <array>
#include <optional>
#include <utility>

namespace dovetail::cli {
namespace {

using schedule::DType;
using schedule::reshard::Layout;
using schedule::reshard::make_mesh;
using schedule::reshard::Mesh;
using schedule::reshard::parse_layout;
using schedule::reshard::parse_shape;
using schedule::reshard::ReshardPlan;
using schedule::reshard::Value;

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    if (text == schedule::to_string(dtype)) return dtype;
  }
  throw InputError("--dtype " + text + ": expected f32, f16, bf16 or f64");
}

BytesPerSecond parse_rate(const std::string& text, const std::string& flag) {
  const Bytes bytes = parse_bytes(text);
  if (bytes <= Bytes(0)) throw InputError(flag + " " + text + ": expected more than nothing");
  return BytesPerSecond(static_cast<double>(bytes.count()));
}

std::string exact_bytes(Bytes bytes) { return std::to_string(bytes.count()) + " bytes"; }

// What the fixed order would do, where it can.
std::optional<ReshardPlan> fixed_order(const Value& value, const Layout& from, const Layout& to,
                                       const schedule::reshard::ReshardCosts& costs) {
  if (from.mesh != to.mesh) return std::nullopt;
  try {
    return plan_path(value, fixed_order_path(value, from, to, costs));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

void reshard(const ReshardOptions& options, std::ostream& out) {
  const Value value{.shape = parse_shape(options.shape), .dtype = parse_dtype(options.dtype)};
  if (options.to_first_rank < 0) throw InputError("--to-first-rank: expected a rank from 0 on");
  const Mesh source = make_mesh(parse_shape(options.mesh));
  const bool is_other = !options.to_mesh.empty() || options.to_first_rank != 0;
  const std::string& target_shape = options.to_mesh.empty() ? options.mesh : options.to_mesh;
  const Mesh target =
      is_other ? make_mesh(parse_shape(target_shape), Rank{options.to_first_rank}) : source;
  const Layout from = parse_layout(options.from, source, value.shape.size());
  const Layout to = parse_layout(options.to, target, value.shape.size());
  const schedule::reshard::ReshardCosts costs{.latency = parse_duration(options.latency),
                                              .wire = parse_rate(options.wire, "--wire"),
                                              .copy = parse_rate(options.copy, "--copy")};
  const ReshardPlan plan = plan_reshard(value, from, to, {.path = {.costs = costs}});
  const Bytes whole =
      schedule::element_size(value.dtype) * schedule::reshard::elements(value.shape);
  out << "tensor       " << options.shape << ' ' << options.dtype << ", " << exact_bytes(whole)
      << "\nfrom         " << from << "\nto           " << to << "\npath         "
      << describe(plan.path) << "\ncost         " << to_string(plan.path.cost)
      << " (modelled, alone on the network)\nwire         " << exact_bytes(plan.total_wire())
      << '\n';
  if (const auto fixed = fixed_order(value, from, to, costs)) {
    out << "fixed order  " << describe(fixed->path) << ": " << to_string(fixed->path.cost) << ", "
        << exact_bytes(fixed->total_wire()) << '\n';
  }
  if (options.steps) out << describe(plan);
}

}  // namespace dovetail::cli
