// The cpu backend. Whatever can be decided before a step (buffers, transports, which call a
// command is) is decided in the constructor, so that running a command is a look-up and an
// enqueue.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/backend.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/cpu/synthetic_ops.h"
#include "exec/run.h"
#include "schedule/collective_traits.h"
#include "schedule/visit.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace dovetail::exec::cpu {
namespace {

std::string text(const char* words, CommandId command) {
  std::ostringstream out;
  out << "command c" << command << ": " << words;
  return out.str();
}

Ports with_defaults(Ports ports) {
  if (ports.workspace == nullptr) ports.workspace = std::make_shared<Workspace>();
  if (!ports.make_ops) {
    ports.make_ops = [workspace = ports.workspace](const schedule::ScheduledProgram& plan,
                                                   Rank rank, TensorMemory& memory) {
      return std::make_unique<SyntheticOps>(plan, rank, memory, workspace);
    };
  }
  return ports;
}

// The groups of every stream, of all roles together: so every rank opens the same transports.
std::vector<std::vector<GroupId>> communicators_of(const schedule::ScheduledProgram& plan) {
  std::vector<std::set<GroupId>> groups(plan.streams.size());
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      const auto stream = static_cast<std::size_t>(command.stream.value);
      if (stream >= groups.size()) throw InputError(text("no such stream", command.id));
      if (command.transfer) groups[stream].insert(plan.transfer(command).group);
    }
  }
  std::vector<std::vector<GroupId>> sorted;
  for (const std::set<GroupId>& of_stream : groups) {
    sorted.emplace_back(of_stream.begin(), of_stream.end());
  }
  return sorted;
}

}  // namespace

CpuBackend::CpuBackend(const schedule::ScheduledProgram& plan, Ports ports)
    : plan_(plan),
      ports_(with_defaults(std::move(ports))),
      memory_(plan, {.rank = ports_.rank, .scope = ports_.tensors, .workspace = ports_.workspace}) {
  for (const schedule::Op& op : plan.program.ops) op_of_[op.id] = &op;
  ops_ = ports_.make_ops(plan, ports_.rank, memory_);
  communicators_ = communicators_of(plan);
  plan_commands();
  open_streams();
}

CpuBackend::~CpuBackend() {
  // Threads may wait for each other's events, so all must let go before the first is joined.
  table_->fail(std::make_exception_ptr(DeviceError("the backend is shutting down")));
}

void CpuBackend::plan_commands() {
  for (const schedule::Command& command : role_of(plan_, ports_.rank).commands) {
    schedule::visit(
        command.action,
        [&](const schedule::RunOp&) {
          if (command.stream == schedule::kComputeStream) return;
          throw InputError(
              text("ops run on the compute stream, unless they communicate", command.id));
        },
        [&](const schedule::Copy&) {
          if (command.stream == schedule::kComputeStream) return;
          throw InputError(text("copies run on the compute stream", command.id));
        },
        [&](const schedule::Communicate& action) { plan_collective(command, action); },
        [&](const schedule::RecordEvent& action) { events_.emplace(action.event, events_.size()); },
        [&](const schedule::WaitEvent& action) {
          // Commands are issued in this order, so such a wait would never end.
          if (events_.count(action.event) == 0) {
            throw InputError(
                text("waits for an event that no earlier command records", command.id));
          }
        },
        [](const schedule::Scale&) {},
        [&](const schedule::Release&) {
          if (command.stream == schedule::kComputeStream) return;
          throw InputError(text("memory is released on the compute stream", command.id));
        });
  }
}

void CpuBackend::plan_collective(const schedule::Command& command,
                                 const schedule::Communicate& action) {
  require_member(command, action.group);
  std::ostringstream label;
  label << schedule::to_string(action.kind) << " of ";
  if (action.op) {
    const schedule::Op& op = *op_of_.at(*action.op);
    if (schedule::traits_of(action.kind).pair && plan_.program.group(action.group).size() != 2) {
      throw InputError(op.name + ": a send-recv needs a group of two ranks");
    }
    messages_[op.id] = values::message_of(plan_.program, op);
    label << "op " << op.name;
  } else {
    label << "bucket " << *action.bucket;
  }
  labels_[command.id] = label.str();
}

void CpuBackend::require_member(const schedule::Command& command, GroupId group) const {
  if (!plan_.program.group(group).instance_of(ports_.rank).empty()) return;
  std::ostringstream message;
  message << "command c" << command.id << ": rank " << ports_.rank << " is not in group "
          << plan_.program.group(group).name;
  throw InputError(message.str());
}

// Stream after stream, each waiting until its transports are open: all ranks open the same ones in the same order, so
// each finds its peers at the same one.
void CpuBackend::open_streams() {
  table_ = std::make_unique<EventTable>(events_.size());
  threads_.resize(plan_.streams.size());
  for (std::size_t i = 0; i < plan_.streams.size(); ++i) {
    const StreamId stream{static_cast<std::int32_t>(i)};
    if (stream == schedule::kComputeStream) {
      inline_transports_ = open_transports(stream);
      continue;
    }
    std::function<Transports()> open = [this, stream] { return open_transports(stream); };
    threads_[i] =
        std::make_unique<CommThread>(CommThread::Options{.stream = stream,
                                                         .prepare = ports_.prepare_comm_thread,
                                                         .open_transports = std::move(open)},
                                     *table_);
  }
}

CpuBackend::Transports CpuBackend::open_transports(StreamId stream) {
  Transports transports;
  for (const GroupId group : communicators_[static_cast<std::size_t>(stream.value)]) {
    const std::span<const Rank> instance = plan_.program.group(group).instance_of(ports_.rank);
    const std::span<const Rank> alone(&ports_.rank, 1);
    transports.push_back(ports_.open_transport(stream, instance.empty() ? alone : instance));
  }
  return transports;
}

CommThread* CpuBackend::comm_thread(const schedule::Command& command) {
  return threads_[static_cast<std::size_t>(command.stream.value)].get();
}

std::size_t CpuBackend::transport_of(StreamId stream, GroupId group) const {
  const std::vector<GroupId>& groups = communicators_[static_cast<std::size_t>(stream.value)];
  const auto found = std::find(groups.begin(), groups.end(), group);
  DOVETAIL_CHECK(found != groups.end()) << "nothing was opened for group " << group << " on stream "
                                        << stream << ": link_transfers did not see the command";
  return static_cast<std::size_t>(found - groups.begin());
}

void CpuBackend::note(const schedule::Command& command, std::int64_t start_ns,
                      std::int64_t end_ns) {
  timings_.push_back({.command = command.id,
                      .stream = schedule::kComputeStream,
                      .step = step_,
                      .start_ns = start_ns,
                      .end_ns = end_ns});
}

void CpuBackend::begin_step(std::int32_t step) {
  step_ = step;
  timings_.clear();
  timings_.reserve(role_of(plan_, ports_.rank).commands.size());
  memory_.clear_padding();
  ops_->begin_step(step);
  table_->begin_step();
}

void CpuBackend::run_op(const schedule::Command& command, const schedule::RunOp& action) {
  const schedule::Op& op = *op_of_.at(action.op);
  const std::int64_t start = now_ns();
  ops_->run(op);
  note(command, start, now_ns());
}

CollectiveCall CpuBackend::bucket_call(const schedule::Command& command,
                                       const schedule::Communicate& action) const {
  const bool is_part =
      action.part == schedule::Part::Shard && action.kind == schedule::Collective::AllReduce;
  const std::span<float> shard = memory_.shard(*action.bucket);
  return {.kind = action.kind,
          .op = action.reduce,
          .data = is_part ? shard : memory_.bucket(*action.bucket),
          .shard = shard,
          .label = labels_.at(command.id),
          .transport = transport_of(command.stream, action.group)};
}

CollectiveCall CpuBackend::op_call(const schedule::Command& command,
                                   const schedule::Communicate& action) const {
  const values::OpMessage& message = messages_.at(*action.op);
  const std::span<const Rank> ranks = plan_.program.group(action.group).instance_of(ports_.rank);
  const std::span<float> scratch = memory_.scratch(*action.op);
  const auto found = std::find(ranks.begin(), ranks.end(), ports_.rank);
  const auto index = static_cast<std::size_t>(found - ranks.begin());
  const std::size_t part = message.elements / ranks.size();
  const auto root = static_cast<std::size_t>(action.root);

  CollectiveCall collective = {
      .kind = action.kind, .op = action.reduce, .data = {}, .label = labels_.at(command.id)};
  collective.root = root;
  collective.index = index;
  collective.transport = transport_of(command.stream, action.group);
  const std::span<float> source =
      message.source ? memory_.tensor(*message.source) : std::span<float>();
  const std::span<float> target =
      message.target ? memory_.tensor(*message.target) : std::span<float>();
  const schedule::CollectiveTraits& traits = schedule::traits_of(action.kind);
  if (!traits.in_place) {
    collective.data = message.source ? source : scratch.first(message.elements);
    collective.shard = message.target ? target : scratch.last(message.elements);
    return collective;
  }
  if (traits.holds == schedule::Extent::Part) {
    collective.data = scratch;
    collective.shard = message.target ? target : scratch.subspan(index * part, part);
    collective.source = source;
    return collective;
  }
  const bool sends = !traits.rooted() || index == root;
  collective.data = message.target ? target : scratch;
  if (traits.sends == schedule::Extent::Part) {
    collective.shard = message.source ? source : collective.data.subspan(index * part, part);
  } else if (traits.pair) {
    if (sends && message.source) collective.data = source;
  } else if (sends) {
    collective.source = source;
  }
  return collective;
}

void CpuBackend::execute(const schedule::Command& command, const CollectiveCall& collective) {
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = collective});
  } else {
    call(*inline_transports_[collective.transport], collective);
  }
  note(command, start, now_ns());
}

void CpuBackend::communicate(const schedule::Command& command,
                             const schedule::Communicate& action) {
  execute(command, action.op ? op_call(command, action) : bucket_call(command, action));
}

void CpuBackend::copy(const schedule::Command& command, const schedule::Copy& action) {
  const std::int64_t start = now_ns();
  for (const TensorId id : action.gradients) {
    const TensorRange range = memory_.packed(action.bucket, id);
    std::span<float> from = memory_.tensor(id).subspan(range.first, range.data.size());
    std::span<float> to = range.data;
    if (action.direction == schedule::CopyDirection::Unpack) std::swap(from, to);
    if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
  }
  note(command, start, now_ns());
}

void CpuBackend::scale(const schedule::Command& command, const schedule::Scale& action) {
  const ScaleCall scaling = {.data = action.part == schedule::Part::Shard
                                         ? memory_.shard(action.bucket)
                                         : memory_.bucket(action.bucket),
                             .factor = static_cast<float>(action.factor.value())};
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = scaling});
  } else {
    call(scaling);
  }
  note(command, start, now_ns());
}

void CpuBackend::release(const schedule::Command&, const schedule::Release& action) {
  memory_.release(action.bucket);
}

void CpuBackend::record(const schedule::Command& command, const schedule::RecordEvent& action) {
  const std::size_t event = events_.at(action.event);
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = RecordCall{event}});
  } else {
    table_->record(event);
  }
  note(command, start, now_ns());
}

void CpuBackend::wait(const schedule::Command& command, const schedule::WaitEvent& action) {
  const std::size_t event = events_.at(action.event);
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = WaitCall{event}});
    note(command, start, now_ns());
    return;
  }
  const bool stood = table_->wait(event);
  note(command, start, stood ? now_ns() : start);
}

std::vector<Timing> CpuBackend::finish() {
  for (const std::unique_ptr<CommThread>& thread : threads_) {
    if (thread == nullptr) continue;
    for (Timing timing : thread->drain()) {
      timing.step = step_;
      timings_.push_back(timing);
    }
  }
  table_->throw_failure();
  return std::exchange(timings_, {});
}

CheckResult CpuBackend::check_values() { return ops_->check_values(); }

}  // namespace dovetail::exec::cpu
