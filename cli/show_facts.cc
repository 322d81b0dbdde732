// Prints what is known of one machine, model, policy or trace as a table of facts.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/show_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/logs/collective_log.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "traces/metrics.h"

namespace dovetail::cli {
namespace {

void print_row(std::ostream& out, const std::string& name, const std::string& text) {
  constexpr std::size_t kWidth = 12;
  if (text.empty()) return;
  out << "  " << name << std::string(kWidth - std::min(kWidth - 1, name.size()), ' ') << text
      << '\n';
}

std::string rate(FlopPerSecond value) { return fixed(value.count() / 1e12, 0) + " TFLOP/s"; }

std::string compute_of(const models::Cluster& cluster) {
  std::string text;
  if (cluster.compute) {
    for (const auto& [dtype, peak] : cluster.compute->gemm_peak) {
      text += (text.empty() ? "" : ", ") + std::string(to_string(dtype)) + " " + rate(peak);
    }
    for (const auto& [operands, peak] : cluster.compute->narrow_peak) {
      text += ", " + std::string(to_string(operands)) + " " + rate(peak);
    }
    text += "; " + fixed(cluster.compute->efficiency * 100, 0) + " % of it is taken; memory " +
            fixed(cluster.compute->memory.count() / 1e9, 0) + " GB/s";
    if (cluster.compute->capacity) text += ", " + to_string(*cluster.compute->capacity);
  }
  if (!cluster.kernels.empty()) {
    text += (text.empty() ? "" : "; ") + counted(cluster.kernels.size(), "kernel") + " measured";
  }
  return text;
}

std::string host_of(const models::HostModel& host) {
  if (host.kind == models::HostModel::Kind::Inline) return "issues and computes on the same core";
  return "issues an op in " + to_string(host.run_op) + ", a collective in " +
         to_string(host.collective) + "; a launch arrives after " + to_string(host.launch_latency);
}

std::string contention_of(const models::Contention& contention) {
  if (const auto& gpu = contention.multiprocessors) {
    return "a collective holds " + std::to_string(gpu->ctas) + " of " + std::to_string(gpu->count) +
           " multiprocessors, an all-reduce " + std::to_string(gpu->all_reduce_ctas) +
           ", one over several nodes " + std::to_string(gpu->network_ctas) + by_class(contention);
  }
  return "compute takes x" + fixed(contention.compute_slowdown, 3) +
         " beside a collective, a collective x" + fixed(contention.collective_slowdown, 3) +
         " beside compute" + by_class(contention);
}

constexpr Bytes kSmall = mib(1);
constexpr Bytes kLarge = mib(25);

void print_collectives(std::ostream& out, const models::Cluster& cluster) {
  struct Series {
    const models::CollectiveSeries* of;
    models::CollectiveTable times;
    const std::vector<models::CollectivePoint>* points;  // nothing: a formula
    [[nodiscard]] Duration large() const { return times.time(kLarge).isolated; }
  };
  std::vector<Series> rows;
  for (const models::CollectiveSeries& series : cluster.collectives) {
    rows.push_back({&series,
                    models::collective_table(
                        cluster, {series.collective, series.ranks, series.nodes.value_or(0)}),
                    std::get_if<std::vector<models::CollectivePoint>>(&series.times)});
  }
  const Table table = table_of<Series>(
      {{{"", "collective"}, [](const Series& row) { return row.of->collective; }},
       {{"", "ranks"}, [](const Series& row) { return row.of->ranks; }},
       {{"", "nodes", Unit::Own, {}, 0, Align::Right, "unknown"},
        [](const Series& row) { return row.of->nodes; }},
       {{"", "from", Unit::Own, {}, 0, Align::Right, "any"},
        [](const Series& row) { return row.points ? Cell(row.points->front().bytes) : Cell(); }},
       {{"", "to", Unit::Own, {}, 0, Align::Right, "any"},
        [](const Series& row) { return row.points ? Cell(row.points->back().bytes) : Cell(); }},
       {{"", "1 MiB us", Unit::Microseconds, {1}},
        [](const Series& row) { return row.times.time(kSmall).isolated; }},
       {{"", "25 MiB us", Unit::Microseconds, {1}}, &Series::large},
       {{"", "busbw GB/s at 25 MiB", Unit::Own, {1}},
        [](const Series& row) {
          return imports::algorithm_bandwidth(kLarge, row.large()) *
                 imports::bus_factor(row.of->collective, row.of->ranks);
        }}},
      rows);
  print_table(out, table);
}

// "layer3.0.conv1" of "layer3.0.conv1.weight.grad" and "layer3.0.conv1.forward".
std::string layer_of(const std::string& name) {
  std::size_t first = name.size();
  for (const char* const end : {".weight", ".bias", ".grad", ".forward", ".backward", ".update"}) {
    first = std::min(first, name.find(end));
  }
  return name.substr(0, first);
}

struct Layer {
  std::string name;
  std::int64_t gradients = 0;
  Bytes bytes;
  double forward_flop = 0;
  double backward_flop = 0;
};

// In the order in which gradients become ready.
std::vector<Layer> layers_of(const schedule::Program& program) {
  std::vector<Layer> layers;
  std::map<std::string, std::size_t> position;
  std::set<TensorId>
      seen;  // what is reduced over shards and over their replicas stands there twice
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    if (!seen.insert(gradient.tensor).second) continue;
    const std::string name = layer_of(program.tensor(gradient.tensor).name);
    const auto [at, is_new] = position.try_emplace(name, layers.size());
    if (is_new) layers.push_back({.name = name, .gradients = 0, .bytes = {}});
    ++layers[at->second].gradients;
    layers[at->second].bytes += gradient.bytes;
  }
  for (const schedule::Op& op : program.ops) {
    const auto at = position.find(layer_of(op.name));
    if (at == position.end() || op.phase == schedule::Phase::Optimizer) continue;
    Layer& layer = layers[at->second];
    double& sum = op.phase == schedule::Phase::Forward ? layer.forward_flop : layer.backward_flop;
    sum += op.flop().count();
  }
  return layers;
}

}  // namespace

std::string by_class(const models::Contention& contention) {
  std::string text;
  const auto tell = [&text](const std::string& what, const std::optional<double>& slowdown,
                            const std::string& beside) {
    if (!slowdown) return;
    text += (text.empty() ? "; " : ", ") + what + " x" + fixed(*slowdown, 3) + beside;
  };
  tell("products", contention.gemm_slowdown, "");
  tell("memory-bound ops", contention.memory_slowdown, "");
  tell("a collective", contention.collective_gemm_slowdown, " beside products");
  tell("a collective", contention.collective_memory_slowdown, " beside memory-bound ops");
  if (contention.start_delay > Duration{}) {
    text += "; one that begins beside a product waits up to " + to_string(contention.start_delay);
  }
  return text;
}

void print_machine(std::ostream& out, const models::Cluster& cluster) {
  out << cluster.name << ": " << counted(cluster.ranks, "rank") << ", "
      << to_string(cluster.backend) << '\n';
  print_row(out, "origin", cluster.origin);
  print_row(out, "date", cluster.date);
  print_row(out, "licence", cluster.licence);
  print_row(out, "compute", compute_of(cluster));
  if (cluster.topology) {
    print_row(out, "topology",
              "nodes of " + counted(cluster.topology->node_ranks(), "rank") + "; " +
                  to_string(*cluster.topology) + "; what is not below is modelled from it");
  }
  print_row(out, "host", host_of(cluster.host));
  print_row(out, "contention", contention_of(cluster.contention));
  for (const auto& [name, note] : cluster.notes) print_row(out, "note", name + ": " + note);
  if (cluster.quality) {
    std::string verdict = cluster.quality->valid ? "calibration valid" : "calibration NOT valid";
    for (const std::string& reason : cluster.quality->why) verdict += "; " + reason;
    print_row(out, "quality", verdict);
  }
  print_collectives(out, cluster);
}

void print_model(std::ostream& out, const schedule::Program& program, const std::string& name) {
  std::vector<Layer> layers = layers_of(program);
  Layer sum{.name = "all of them", .gradients = 0, .bytes = {}};
  for (const Layer& layer : layers) {
    sum.gradients += layer.gradients;
    sum.bytes += layer.bytes;
    sum.forward_flop += layer.forward_flop;
    sum.backward_flop += layer.backward_flop;
  }
  out << name << ": " << counted(program.world_size, "rank") << ", "
      << counted(sum.gradients, "gradient") << ", " << sum.bytes << ", "
      << counted(program.ops.size(), "op")
      << "\nlayers in the order in which gradients are ready\n";
  layers.push_back(sum);
  const auto gflop = [](double Layer::*flop) {
    return
        [flop](const Layer& layer) { return layer.*flop > 0 ? Cell(layer.*flop / 1e9) : Cell(); };
  };
  print_table(
      out, table_of<Layer>({{{"", "layer"}, &Layer::name},
                            {{"", "gradients"}, &Layer::gradients},
                            {{"", "size"}, &Layer::bytes},
                            {{"", "forward GFLOP", Unit::Own, {2}}, gflop(&Layer::forward_flop)},
                            {{"", "backward GFLOP", Unit::Own, {2}}, gflop(&Layer::backward_flop)}},
                           layers));
}

void print_policy(std::ostream& out, const schedule::Policy& spec,
                  const schedule::PolicyHelp& help) {
  out << help.name << ": " << help.purpose << '\n';
  print_row(out, "in full", schedule::to_string(spec));
  print_row(out, "words of", frameworks::in_words(spec));
  std::string options;
  for (const std::string& option : help.options) {
    options += (options.empty() ? "" : ", ") + option;
  }
  print_row(out, "options", options);
  out << "docs/schedules.md says what each option does; dovetail plan --policy takes it\n";
}

void print_trace(std::ostream& out, const traces::Trace& trace) {
  const traces::Provenance& from = trace.provenance;
  out << "trace of " << from.workload << " (" << from.policy << ") on " << from.machine << ", "
      << from.backend << ": " << counted(trace.world_size, "rank") << ", of which "
      << trace.ranks.size() << " traced, " << counted(std::int64_t{trace.steps}, "step") << '\n';
  for (const auto& [name, note] : from.notes) print_row(out, "note", name + ": " + note);
  traces::print(out, traces::median_step(trace));
}

}  // namespace dovetail::cli
