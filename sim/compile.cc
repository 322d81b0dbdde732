// From commands and costs to a Graph: first the commands with their dependencies, then one node per
// rank.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"
#include "sim/graph.h"

namespace dovetail::sim {
namespace {

using models::HostModel;
using schedule::Command;

class Compiler {
 public:
  Compiler(const schedule::ScheduledProgram& program, const models::Costs& costs,
           std::int32_t steps, Graph memory)
      : program_(program),
        costs_(costs),
        commands_(program.roles.front().commands),
        inline_host_(costs.host.kind == HostModel::Kind::Inline),
        graph_(std::move(memory)) {
    graph_.clear();
    DOVETAIL_CHECK(program.roles.size() == 1) << "one role expected";
    DOVETAIL_CHECK(steps >= 1) << steps << " steps";
    graph_.steps = steps;
    graph_.ranks = static_cast<std::int32_t>(
        std::min(program.program.world_size, std::max<std::int64_t>(1, costs.distinct_ranks)));
    graph_.launch_gap = inline_host_ ? 0 : costs.host.launch_gap.count();
    frontier_.resize(program.streams.size());
    last_collective_.resize(program.streams.size(), kNoNode);
    look_up_costs();
  }

  Graph run() {
    for (std::int32_t step = 0; step < graph_.steps; ++step) {
      events_.clear();
      for (std::size_t i = 0; i < commands_.size(); ++i) issue(step, i);
    }
    link();
    return std::move(graph_);
  }

 private:
  // Costs do not change from step to step: ask once per op and rank.
  void look_up_costs() {
    const auto ranks = static_cast<std::size_t>(graph_.ranks);
    op_costs_.reserve(program_.program.ops.size() * ranks);
    for (const schedule::Op& op : program_.program.ops) {
      op_cost_begin_[op.id] = static_cast<std::int32_t>(op_costs_.size());
      for (std::int32_t rank = 0; rank < graph_.ranks; ++rank) {
        op_costs_.push_back(costs_.op(op, Rank{rank}).count());
      }
    }
    for (const schedule::BucketLayout& bucket : program_.buckets) {
      layouts_[bucket.bucket] = &bucket;
    }
  }

  void issue(std::int32_t step, std::size_t index) {
    const Command& command = commands_[index];
    const auto at = static_cast<std::int32_t>(index);
    schedule::visit(
        command.action,
        [&](const schedule::RunOp& run) {
          spend_host(costs_.host.run_op);
          const auto begin = static_cast<std::size_t>(op_cost_begin_.at(run.op));
          add_node(step, at, NodeKind::Compute, command.stream,
                   std::span(op_costs_).subspan(begin, static_cast<std::size_t>(graph_.ranks)));
        },
        [&](const schedule::Copy& copy) {
          spend_host(costs_.host.copy);
          const std::int64_t ns = copy_cost(copy);
          add_node(step, at, NodeKind::Copy, command.stream, same_on_all_ranks(ns));
        },
        [&](const schedule::RunCollective& collective) {
          issue_collective(step, at, command.stream, collective);
        },
        [&](const schedule::RecordEvent& record) {
          spend_host(costs_.host.event);
          events_[record.event] = frontier(command.stream);
        },
        [&](const schedule::WaitEvent& wait) { issue_wait(step, at, command.stream, wait); },
        [&](const schedule::Scale& scale) {
          spend_host(costs_.host.copy);
          const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
          const Duration time = costs_.copy(layouts_.at(scale.bucket)->size) + fixed;
          add_node(step, at, NodeKind::Copy, command.stream, same_on_all_ranks(time.count()));
        });
  }

  void issue_collective(std::int32_t step, std::int32_t at, StreamId stream,
                        const schedule::RunCollective& collective) {
    if (inline_host_ && stream != schedule::kComputeStream && costs_.host.collective > Duration{}) {
      add_node(step, at, NodeKind::Enqueue, schedule::kComputeStream,
               same_on_all_ranks(costs_.host.collective.count()));
      const std::int32_t enqueue = last_command_node();
      if (std::ranges::count(frontier(stream), enqueue) == 0) frontier(stream).push_back(enqueue);
    }
    spend_host(costs_.host.collective);
    const models::CollectiveTime time =
        costs_.collective(collective.kind, program_.program.group(collective.group),
                          layouts_.at(collective.bucket)->size);
    NodeId& previous = last_collective_[static_cast<std::size_t>(stream.value)];
    const auto table_entry = static_cast<std::int64_t>(graph_.collectives.size());
    const NodeId node = graph_.size();
    graph_.collectives.push_back(
        {node, previous, time.isolated.count(), time.back_to_back.count()});
    previous = node;
    const std::int64_t work = ~table_entry;
    add_node(step, at, NodeKind::Collective, stream, std::span(&work, 1));
  }

  void issue_wait(std::int32_t step, std::int32_t at, StreamId stream,
                  const schedule::WaitEvent& wait) {
    const std::vector<std::int32_t>& event = events_.at(wait.event);
    graph_.waits.push_back({at, step, stream, frontier(stream), event, -1});
    for (const std::int32_t dependency : event) {
      if (std::ranges::count(frontier(stream), dependency) == 0) {
        frontier(stream).push_back(dependency);
      }
    }
    // With an inline host a wait costs the wake-up of the compute thread.
    if (inline_host_ && stream == schedule::kComputeStream && costs_.host.event > Duration{}) {
      add_node(step, at, NodeKind::WakeUp, stream, same_on_all_ranks(costs_.host.event.count()));
      graph_.waits.back().wake_up = last_command_node();
    } else {
      spend_host(costs_.host.event);
    }
  }

  [[nodiscard]] std::int64_t copy_cost(const schedule::Copy& copy) const {
    Bytes bytes;
    for (const TensorId id : copy.gradients) bytes += program_.program.tensor(id).bytes();
    const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
    return (costs_.copy(bytes) + fixed).count();
  }

  std::span<const std::int64_t> same_on_all_ranks(std::int64_t ns) {
    scratch_.assign(static_cast<std::size_t>(graph_.ranks), ns);
    return scratch_;
  }

  void spend_host(Duration cost) {
    if (!inline_host_) host_clock_ += cost.count();
  }

  std::vector<std::int32_t>& frontier(StreamId stream) {
    return frontier_[static_cast<std::size_t>(stream.value)];
  }

  [[nodiscard]] std::int32_t last_command_node() const {
    return static_cast<std::int32_t>(graph_.command_nodes.size()) - 1;
  }

  // One entry of `work` per rank, or a single one for a collective.
  void add_node(std::int32_t step, std::int32_t at, NodeKind kind, StreamId stream,
                std::span<const std::int64_t> work) {
    const std::int32_t self = last_command_node() + 1;
    const NodeId first = graph_.size();
    const auto count = kind == NodeKind::Collective ? 1 : static_cast<std::int32_t>(work.size());
    graph_.command_nodes.push_back({at, step, graph_.size(), count, kind, stream});
    std::vector<std::int32_t>& before = frontier(stream);
    dependency_begin_.push_back(static_cast<std::int32_t>(dependencies_.size()));
    dependencies_.insert(dependencies_.end(), before.begin(), before.end());
    before.assign(1, self);
    const std::int64_t issued =
        host_clock_ + costs_.host.launch_latency.count() - graph_.launch_gap;
    for (const std::int64_t ns : work) {
      graph_.work.push_back(kind == NodeKind::Collective ? ns : ns + graph_.launch_gap);
      if (!inline_host_) graph_.release.push_back(std::max<std::int64_t>(0, issued));
      graph_.command_node.push_back(self);
      const bool transfer = kind == NodeKind::Collective;
      graph_.slot.push_back(transfer ? ~stream.value : graph_.size() - 1 - first);
    }
  }

  // All dependencies between single nodes, in both directions.
  void link() {
    const auto nodes = static_cast<std::size_t>(graph_.size());
    dependency_begin_.push_back(static_cast<std::int32_t>(dependencies_.size()));
    graph_.pending.assign(nodes, 0);
    graph_.predecessors.reserve(dependencies_.size() * static_cast<std::size_t>(graph_.ranks));
    graph_.predecessor_begin.reserve(nodes + 1);
    std::vector<std::int32_t> out_degree(nodes + 1, 0);
    for (std::size_t c = 0; c < graph_.command_nodes.size(); ++c) {
      const CommandNode& entry = graph_.command_nodes[c];
      for (std::int32_t rank = 0; rank < entry.count; ++rank) {
        graph_.predecessor_begin.push_back(static_cast<std::int32_t>(graph_.predecessors.size()));
        for (std::int32_t k = dependency_begin_[c]; k < dependency_begin_[c + 1]; ++k) {
          append_predecessors(entry, dependencies_[static_cast<std::size_t>(k)], rank);
        }
        const auto node = static_cast<std::size_t>(entry.first + rank);
        const auto begin = static_cast<std::size_t>(graph_.predecessor_begin[node]);
        graph_.pending[node] = static_cast<std::int32_t>(graph_.predecessors.size() - begin);
        for (std::size_t k = begin; k < graph_.predecessors.size(); ++k) {
          ++out_degree[static_cast<std::size_t>(graph_.predecessors[k]) + 1];
        }
      }
    }
    graph_.predecessor_begin.push_back(static_cast<std::int32_t>(graph_.predecessors.size()));
    std::partial_sum(out_degree.begin(), out_degree.end(), out_degree.begin());
    graph_.successor_begin.assign(out_degree.begin(), out_degree.end());
    graph_.successors.resize(graph_.predecessors.size());
    for (std::size_t node = 0; node < nodes; ++node) {
      for (const std::int32_t from : graph_.predecessors_of(static_cast<NodeId>(node))) {
        graph_.successors[static_cast<std::size_t>(out_degree[static_cast<std::size_t>(from)]++)] =
            static_cast<std::int32_t>(node);
      }
    }
  }

  // A collective depends on the command of every rank; everything else on its own rank's.
  void append_predecessors(const CommandNode& entry, std::int32_t dependency, std::int32_t rank) {
    const CommandNode& from = graph_.command_nodes[static_cast<std::size_t>(dependency)];
    if (entry.kind != NodeKind::Collective || from.count == 1) {
      graph_.predecessors.push_back(graph_.on_rank(dependency, rank));
      return;
    }
    for (std::int32_t r = 0; r < from.count; ++r) graph_.predecessors.push_back(from.first + r);
  }

  const schedule::ScheduledProgram& program_;
  const models::Costs& costs_;
  const std::vector<Command>& commands_;
  const bool inline_host_;
  Graph graph_;
  std::vector<std::int64_t> op_costs_;  // [op][rank]
  schedule::IdTable<OpId, std::int32_t> op_cost_begin_;
  schedule::IdTable<BucketId, const schedule::BucketLayout*> layouts_;
  std::vector<std::int64_t> scratch_;
  std::vector<std::vector<std::int32_t>> frontier_;  // per stream: what its next command waits for
  std::vector<NodeId> last_collective_;              // per stream
  std::unordered_map<EventId, std::vector<std::int32_t>> events_;
  std::vector<std::int32_t> dependency_begin_, dependencies_;  // CSR: of each command node
  std::int64_t host_clock_ = 0;
};

}  // namespace

void Graph::clear() {
  ranks = steps = 1;
  launch_gap = 0;
  for (auto* list : {&work, &release}) list->clear();
  for (auto* list : {&pending, &successor_begin, &successors, &predecessor_begin, &predecessors,
                     &command_node, &slot}) {
    list->clear();
  }
  collectives.clear();
  command_nodes.clear();
  waits.clear();
}

Graph compile(const schedule::ScheduledProgram& program, const models::Costs& costs,
              std::int32_t steps, Graph memory) {
  return Compiler(program, costs, steps, std::move(memory)).run();
}

}  // namespace dovetail::sim
