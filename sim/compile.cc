// Walks the commands of all roles, step after step, and says what each becomes: how long it takes, when its host has
// issued it, and what it waits for. Costs are asked once per op and lane; steps differ only in when hosts issue.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "models/costs/op_prices.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"
#include "sim/command_graph.h"
#include "sim/communication.h"
#include "sim/compile.h"
#include "sim/event_table.h"
#include "sim/issue_order.h"
#include "sim/lanes.h"

namespace dovetail::sim {

using models::HostModel;
using schedule::Command;

class Compiler {
 public:
  Compiler(const schedule::ScheduledProgram& program, const models::Costs& costs,
           CompiledProgram memory)
      : program_(program),
        costs_(costs),
        inline_host_(costs.host.kind == HostModel::Kind::Inline),
        gathers_each_use_(std::ranges::any_of(program.buckets,
                                              [](const schedule::BucketLayout& one) {
                                                return one.residence == schedule::Residence::Shard;
                                              })),
        lanes_(program, costs.distinct_ranks),
        moved_bytes_(program),
        builder_(lanes_, program.streams.size(), costs.links.size(), std::move(memory)) {
    DOVETAIL_CHECK(!program.roles.empty()) << "no roles";
    StepGraph& graph = builder_.made().graph;
    graph.launch_gap = inline_host_ ? 0 : costs.host.launch_gap.count();
    for (const Rank rank : lanes_.ranks()) graph.contention.push_back(costs.contention(rank));
    if (std::ranges::all_of(graph.contention, &models::Contention::none)) graph.contention.clear();
    look_up_costs();
    walk_hosts();
    for (const schedule::RankProgram& role : program.roles) events_.emplace_back(role);
    if (program.roles.size() > 1) {
      order_ = issue_order(program, enqueue_takes_time() ? Enqueues::Timed : Enqueues::Free);
    }
  }

  const CompiledProgram& of(std::int32_t steps) {
    DOVETAIL_CHECK(steps >= 1 && steps >= step_) << steps << " steps, there are " << step_;
    for (const std::int64_t clock : host_step_) check_run(static_cast<double>(clock) * steps);
    if (is_alike_ && step_ < steps) builder_.reserve_steps(steps);
    for (; step_ < steps; ++step_) {
      throw_if_interrupted();
      if (is_alike_) {
        builder_.repeat_step(
            [this](const CommandNode& entry) { return issued(entry.role, entry.command); });
      } else {
        add_step();
        is_alike_ = builder_.ends_alike();
        if (step_ == 0) builder_.reserve_steps(steps);
      }
    }
    return builder_.linked();
  }

  CompiledProgram take() { return builder_.take(); }

 private:
  [[nodiscard]] const Command& command(const Side& side) const {
    return program_.roles[static_cast<std::size_t>(side.role)]
        .commands[static_cast<std::size_t>(side.command)];
  }
  [[nodiscard]] bool enqueue_takes_time() const {
    return inline_host_ && costs_.host.collective > Duration{};
  }

  // Costs do not change from step to step: ask once per op and lane of its role.
  void look_up_costs() {
    models::OpPrices prices(costs_);
    for (const schedule::Op& op : program_.program.ops) {
      if (std::holds_alternative<schedule::CollectiveWork>(op.work)) continue;
      op_cost_begin_[op.id] = static_cast<std::int32_t>(op_costs_.size());
      const LaneRange& lanes =
          lanes_.roles()[static_cast<std::size_t>(program_.program.role_of(op))];
      for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
        const Rank rank = lanes_.ranks()[static_cast<std::size_t>(lane)];
        op_costs_.push_back(prices.time(op, rank).count());
      }
      op_kernel_[op.id] = models::kernel_class(op);
      if (!inline_host_) op_issue_[op.id] = costs_.issue(op);
    }
  }

  // A host that runs ahead issues its list from top to bottom, step after step: when each command
  // has been issued does not depend on the device.
  void walk_hosts() {
    issued_.resize(program_.roles.size());
    host_step_.assign(program_.roles.size(), 0);
    if (inline_host_) return;
    for (std::size_t role = 0; role < program_.roles.size(); ++role) {
      std::int64_t& clock = host_step_[role];
      for (const Command& command : program_.roles[role].commands) {
        clock += host_cost(command).count();
        check_run(static_cast<double>(clock));
        issued_[role].push_back(clock);
      }
    }
  }

  [[nodiscard]] Duration host_cost(const Command& command) const {
    const HostModel& host = costs_.host;
    return schedule::visit(
        command.action, [&](const schedule::RunOp& run) { return op_issue_.at(run.op); },
        [&](const schedule::Communicate&) { return host.collective; },
        [&](const schedule::Copy&) { return host.copy; },
        [&](const schedule::RecordEvent&) { return host.event; },
        [&](const schedule::WaitEvent&) { return host.event; },
        [&](const schedule::Scale&) { return host.copy; },
        [](const schedule::Release&) { return Duration{}; });
  }

  [[nodiscard]] Place place(const Side& side, StreamId stream) const {
    return {side.role, side.command, step_, stream, issued(side.role, side.command)};
  }

  // When the host lets the command start in the step at hand.
  [[nodiscard]] std::int64_t issued(std::int32_t role, std::int32_t command) const {
    if (inline_host_) return 0;
    const auto r = static_cast<std::size_t>(role);
    const std::int64_t issued =
        step_ * host_step_[r] + issued_[r][static_cast<std::size_t>(command)];
    return std::max<std::int64_t>(
        0, issued + costs_.host.launch_latency.count() - costs_.host.launch_gap.count());
  }

  void add_step() {
    builder_.made().graph.begin_step();
    if (program_.roles.size() == 1) {
      for (std::size_t i = 0; i < program_.roles.front().commands.size(); ++i) issue_alone(i);
      return;
    }
    for (const Issue& issue : order_.issues) {
      if (issue.kind == Issue::Kind::Enqueue) {
        issue_enqueue(order_.sides_of(issue).front());
      } else {
        play(order_.sides_of(issue));
      }
    }
  }

  void issue_alone(std::size_t index) {
    const Side side{0, static_cast<std::int32_t>(index)};
    const Command& alone = program_.roles.front().commands[index];
    if (alone.transfer && enqueue_takes_time() && alone.stream != schedule::kComputeStream) {
      issue_enqueue(side);
    }
    play(std::span(&side, 1));
  }

  void issue_enqueue(const Side& side) {
    const bool launched = command(side).launch.has_value();
    enqueued_[{side.role, side.command}] = builder_.add(
        place(side, schedule::kComputeStream), launched ? NodeKind::Enqueue : NodeKind::Call,
        same_on_all_lanes(side.role, costs_.host.collective));
  }

  // One command, or those of several roles that meet.
  void play(std::span<const Side> sides) {
    const Side& side = sides.front();
    const Command& action = command(side);
    if (action.transfer) {
      play_collective(sides, program_.transfer(action));
      return;
    }
    schedule::visit(
        action.action,
        [&](const schedule::RunOp& run) {
          const auto first = static_cast<std::size_t>(op_cost_begin_.at(run.op));
          builder_.add(place(side, action.stream), NodeKind::Compute,
                       std::span(op_costs_).subspan(first), op_kernel_.at(run.op));
        },
        [&](const schedule::Communicate&) { static_cast<void>(program_.transfer(action)); },
        [&](const schedule::Copy& copy) {
          play_pass(side, action.stream, costs_.copy(moved_bytes_.of(copy), kind_of(copy)));
        },
        [&](const schedule::RecordEvent& record) {
          events_[static_cast<std::size_t>(side.role)][record.event] =
              builder_.note_waited_for(side.role, action.stream);
        },
        [&](const schedule::WaitEvent& wait) { play_wait(side, action.stream, wait); },
        [&](const schedule::Scale& scale) {
          const Bytes bytes = moved_bytes_.of(scale);
          play_pass(side, action.stream, costs_.scale(bytes));
        },
        [](const schedule::Release&) {});
  }

  [[nodiscard]] models::CopyKind kind_of(const schedule::Copy& copy) const {
    if (!gathers_each_use_) return models::CopyKind::Any;
    return copy.direction == schedule::CopyDirection::Pack ? models::CopyKind::Chunk
                                                           : models::CopyKind::Split;
  }

  // A pass over a bucket: a copy or a scale.
  void play_pass(const Side& side, StreamId stream, Duration time) {
    const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
    builder_.add(place(side, stream), NodeKind::Copy, same_on_all_lanes(side.role, time + fixed),
                 models::KernelClass::Memory);
  }

  void play_collective(std::span<const Side> sides, const schedule::Transfer& transfer) {
    places_.clear();
    for (const Side& side : sides) {
      const StreamId stream = command(side).stream;
      places_.push_back(place(side, stream));
      if (!enqueue_takes_time() || stream == schedule::kComputeStream) continue;
      builder_.wait_for(side.role, stream, enqueued_.at({side.role, side.command}),
                        step::EdgeKind::Launch);
    }
    const schedule::ProcessGroup& group = program_.program.group(transfer.group);
    builder_.add_collective(places_, group, cost_of(transfer, group));
  }

  // Of the few kinds of messages of a group.
  const TransferCost& cost_of(const schedule::Transfer& transfer,
                              const schedule::ProcessGroup& group) {
    const MessageKind kind{transfer.kind, transfer.bytes, transfer.copies, transfer.max_ctas,
                           transfer.root};
    std::vector<std::pair<MessageKind, TransferCost>>& known = transfer_costs_[group.id];
    const auto found = std::ranges::find(known, kind, &std::pair<MessageKind, TransferCost>::first);
    if (found != known.end()) return found->second;
    constexpr std::size_t kMost = 64;
    if (known.size() == kMost) known.clear();
    return known.emplace_back(kind, transfer_cost(costs_, transfer, group)).second;
  }

  void play_wait(const Side& side, StreamId stream, const schedule::WaitEvent& wait) {
    const EntryRange until = events_[static_cast<std::size_t>(side.role)][wait.event];
    std::vector<WaitRecord>& waits = builder_.made().waits;
    waits.push_back({side.command, step_, side.role, stream,
                     builder_.note_waited_for(side.role, stream), until});
    for (const std::int32_t dependency : builder_.made().entries(until)) {
      builder_.wait_for(side.role, stream, dependency, step::EdgeKind::Event);
    }
    // With an inline host a wait costs the wake-up of the compute thread.
    if (inline_host_ && stream == schedule::kComputeStream && costs_.host.event > Duration{}) {
      waits.back().wake_up = builder_.add(place(side, stream), NodeKind::WakeUp,
                                          same_on_all_lanes(side.role, costs_.host.event));
    }
  }

  std::span<const std::int64_t> same_on_all_lanes(std::int32_t role, Duration time) {
    const LaneRange lanes = lanes_.roles()[static_cast<std::size_t>(role)];
    scratch_.assign(static_cast<std::size_t>(lanes.end - lanes.begin), time.count());
    return scratch_;
  }

  const schedule::ScheduledProgram& program_;
  const models::Costs& costs_;
  const bool inline_host_;
  const bool gathers_each_use_;
  const Lanes lanes_;
  const MovedBytes moved_bytes_;
  CommandGraph builder_;
  IssueOrder order_;                    // of one step; with one role it is that of the list
  std::int32_t step_ = 0;               // the next one
  bool is_alike_ = false;               // further steps repeat the last one
  std::vector<std::int64_t> op_costs_;  // [op][lane of its role]
  schedule::IdTable<OpId, std::int32_t> op_cost_begin_;
  schedule::IdTable<OpId, Duration> op_issue_;
  schedule::IdTable<OpId, models::KernelClass> op_kernel_{models::KernelClass::Other};
  std::vector<std::vector<std::int64_t>> issued_;  // [role][command], from the start of the step
  std::vector<std::int64_t> host_step_;            // [role]: host time of one step
  std::vector<EventTable<EntryRange>> events_;     // [role]: what each stands for
  // The enqueue of each command of a role, once it has a node.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> enqueued_;
  struct MessageKind {
    schedule::Collective kind = schedule::Collective::AllReduce;
    Bytes bytes;
    std::int64_t copies = 1;
    std::int32_t max_ctas = 0, root = 0;
    friend bool operator==(const MessageKind&, const MessageKind&) = default;
  };
  schedule::IdTable<GroupId, std::vector<std::pair<MessageKind, TransferCost>>> transfer_costs_;
  std::vector<std::int64_t> scratch_;
  std::vector<Place> places_;
};

StepCompiler::StepCompiler(const schedule::ScheduledProgram& program, const models::Costs& costs,
                           CompiledProgram memory)
    : compiler_(std::make_unique<Compiler>(program, costs, std::move(memory))) {}
StepCompiler::~StepCompiler() = default;
const CompiledProgram& StepCompiler::of(std::int32_t steps) { return compiler_->of(steps); }
CompiledProgram StepCompiler::take() && { return compiler_->take(); }

CompiledProgram compile(const schedule::ScheduledProgram& program, const models::Costs& costs,
                        std::int32_t steps, CompiledProgram memory) {
  Compiler compiler(program, costs, std::move(memory));
  static_cast<void>(compiler.of(steps));
  return compiler.take();
}

std::vector<std::int64_t> compute_of_lanes(const schedule::ScheduledProgram& program,
                                           const CompiledProgram& compiled, bool updates) {
  std::vector<std::int64_t> of_lane(compiled.rank_of_lane.size());
  schedule::IdTable<OpId, schedule::Phase> phase(schedule::Phase::Forward);
  for (const schedule::Op& op : program.program.ops) phase[op.id] = op.phase;
  for (const CommandNode& entry : compiled.command_nodes) {
    if (entry.step != 0) continue;
    const Command& command = program.roles[static_cast<std::size_t>(entry.role)]
                                 .commands[static_cast<std::size_t>(entry.command)];
    const auto* run = std::get_if<schedule::RunOp>(&command.action);
    if (run == nullptr || command.transfer || compiled.kind_of(entry) != NodeKind::Compute)
      continue;
    if (!updates && phase.at(run->op) == schedule::Phase::Optimizer) continue;
    const LaneRange lanes = compiled.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const auto node = static_cast<std::size_t>(compiled.on_lane(entry, lane));
      of_lane[static_cast<std::size_t>(lane)] += compiled.graph.work[node].ns();
    }
  }
  return of_lane;
}

}  // namespace dovetail::sim
