// Draws the benchmark step (a DAG of ops with gradients) from a seed, as the source system's own
// benchmark does.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/benchmark_dag.h"

#include "base/random.h"
#include "tests/support/python_random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace dovetail::support {
namespace {

using std::chrono::microseconds;
using Kind = BenchmarkOp::Kind;

constexpr std::int64_t kSizeUnit = 100'000;  // bytes that the link moves in one microsecond
constexpr std::int64_t kCollectiveLatency = 20;
constexpr std::int64_t kOptimizer = 100;

struct Layer {
  std::int64_t forward_us;
  std::int64_t gradient_bytes;
};

// Log-normal: forward about 20 us, gradients about 3.8 MB.
std::vector<Layer> draw_layers(std::int32_t count, std::uint32_t seed) {
  PythonRandom random(seed);
  std::vector<Layer> layers;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto forward = round_half_even(20 * std::exp(random.gauss(-0.125, 0.5)));
    const auto units = round_half_even(38 * std::exp(random.gauss(-0.5, 1.0)));
    layers.push_back(
        {std::max<std::int64_t>(5, forward), kSizeUnit * std::max<std::int64_t>(1, units)});
  }
  return layers;
}

}  // namespace

BenchmarkDag make_benchmark_dag(const BenchmarkShape& shape) {
  const std::vector<Layer> layers = draw_layers(shape.compute_ops / 2, shape.seed);
  BenchmarkDag dag;
  dag.cap = shape.cap;
  const auto next_id = [&] { return static_cast<std::int32_t>(dag.ops.size()); };
  for (const Layer& layer : layers) {
    dag.ops.push_back({Kind::Forward, microseconds(layer.forward_us), Bytes(0), {}});
  }
  std::vector<std::int32_t> members;
  std::vector<std::int32_t> collectives;
  std::int64_t bytes = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const Layer& layer = layers[i];
    members.push_back(next_id());
    bytes += layer.gradient_bytes;
    dag.ops.push_back(
        {Kind::Backward, microseconds(2 * layer.forward_us), Bytes(layer.gradient_bytes), {}});
    if (bytes < shape.cap.count() && i > 0) continue;
    collectives.push_back(next_id());
    dag.ops.push_back({Kind::Collective, microseconds(kCollectiveLatency + bytes / kSizeUnit),
                       Bytes(bytes), std::exchange(members, {})});
    bytes = 0;
  }
  dag.ops.push_back({Kind::Optimizer, microseconds(kOptimizer), Bytes(0), std::move(collectives)});
  return dag;
}

std::string to_text(const BenchmarkDag& dag) {
  const auto count = [&](auto matches) {
    return std::to_string(std::count_if(dag.ops.begin(), dag.ops.end(), matches));
  };
  const std::string buckets = count([](const BenchmarkOp& op) { return op.is_collective(); });
  const std::string compute = count(
      [](const BenchmarkOp& op) { return op.kind == Kind::Forward || op.kind == Kind::Backward; });
  std::string text = "# dovetail perf dag v1\n# compute=" + compute + " buckets=" + buckets +
                     " ops=" + std::to_string(dag.ops.size()) +
                     " cap=" + std::to_string(dag.cap.count()) + "\n";
  std::size_t id = 0;
  for (const BenchmarkOp& op : dag.ops) {
    text += std::to_string(id++) + ' ' + static_cast<char>(op.kind);
    text += op.is_collective() ? " 1 " : " 0 ";
    text += std::to_string(op.duration.count()) + ' ' + std::to_string(op.bytes.count()) + ' ' +
            std::to_string(op.after.size());
    for (const std::int32_t before : op.after) text += ' ' + std::to_string(before);
    text += '\n';
  }
  return text;
}

microseconds duration_on_rank(const BenchmarkDag& dag, std::size_t op, std::int32_t rank,
                              std::int32_t ranks) {
  const BenchmarkOp& what = dag.ops[op];
  if (ranks == 1 || what.is_collective()) return what.duration;
  const std::uint64_t key = static_cast<std::uint64_t>(rank) << 32 | op;
  const auto jitter = static_cast<std::int64_t>(splitmix64(key) % 9) - 4;
  return std::max(microseconds(1), what.duration + microseconds(jitter));
}

std::span<const Conformance> conformance_makespans() {
  static constexpr std::array<Conformance, 12> kMakespans{{
      {100, 1, microseconds(3'553)},
      {100, 8, microseconds(3'562)},
      {100, 64, microseconds(3'618)},
      {1'000, 1, microseconds(30'596)},
      {1'000, 8, microseconds(30'743)},
      {1'000, 64, microseconds(30'831)},
      {10'000, 1, microseconds(302'685)},
      {10'000, 8, microseconds(302'874)},
      {10'000, 64, microseconds(303'076)},
      {100'000, 1, microseconds(3'032'908)},
      {100'000, 8, microseconds(3'033'326)},
      {100'000, 64, microseconds(3'034'335)},
  }};
  return kMakespans;
}

std::optional<microseconds> conformance_makespan(std::int32_t compute_ops, std::int32_t ranks) {
  for (const Conformance& known : conformance_makespans()) {
    if (known.compute_ops == compute_ops && known.ranks == ranks) return known.makespan;
  }
  return std::nullopt;
}

}  // namespace dovetail::support
