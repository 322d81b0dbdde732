// The cpu backend. Whatever can be decided before a step (buffers, transports, which call a
// command is) is decided in the constructor, so that running a command is a look-up and an
// enqueue.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/backend.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/ops/synthetic_ops.h"
#include "exec/rank_work.h"
#include "exec/run.h"
#include "schedule/collective_traits.h"
#include "schedule/gradient.h"
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
    ports.make_ops = [](const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory) {
      return std::make_unique<SyntheticOps>(plan, rank, memory);
    };
  }
  return ports;
}

// What is reduced: f32. What is gathered, or stays on the rank: bf16, too.
void require_supported(const schedule::Tensor& tensor, bool is_reduced) {
  if (tensor.dtype == schedule::DType::F32) return;
  if (!is_reduced && tensor.dtype == schedule::DType::BF16) return;
  const std::string dtype(schedule::to_string(tensor.dtype));
  if (is_reduced) {
    throw InputError("the cpu backend reduces f32; " + tensor.name + " is " + dtype);
  }
  throw InputError("the cpu backend executes f32 and bf16; " + tensor.name + " is " + dtype);
}

// Everything that can be refused before memory is taken.
Layout layout_of(const schedule::ScheduledProgram& plan, const Ports& ports) {
  require_executable(plan.program, "cpu");
  for (const schedule::BucketLayout& bucket : plan.buckets) {
    for (const auto& member : bucket.members) {
      const schedule::Tensor& tensor = plan.program.tensor(member.tensor);
      require_supported(tensor, schedule::is_gradient(tensor.kind));
    }
  }
  Layout layout(plan, ports.rank, ports.tensors);
  for (const schedule::Tensor& tensor : plan.program.tensors) {
    if (layout.has(tensor.id)) require_supported(tensor, false);
  }
  return layout;
}

// Buckets travel in place, between their buffer and a shard of it. What an op's reduce-scatter sums up is
// destroyed on the way, so it does that in scratch memory.
CollectiveCall call_of(const Message& message, const DeviceMemory& memory) {
  const Array send = memory.at(message.send);
  const Array recv = memory.at(message.recv);
  const schedule::CollectiveTraits& traits = schedule::traits_of(message.kind);
  CollectiveCall call = {.kind = message.kind, .op = message.op, .data = recv, .label = {}};
  call.root = static_cast<std::size_t>(message.root);
  call.index = static_cast<std::size_t>(message.index);
  if (!traits.in_place) {
    call.data = send;
    call.shard = recv;
  } else if (traits.holds == schedule::Extent::Part) {
    call.data = message.scratch.count > 0 ? memory.at(message.scratch) : send;
    call.shard = recv;
    if (send.data != call.data.data) call.source = send;
  } else if (traits.sends == schedule::Extent::Part) {
    call.shard = send;
  } else if (send.data != recv.data) {
    call.source = send;
  }
  return call;
}

}  // namespace

CpuBackend::CpuBackend(const schedule::ScheduledProgram& plan, Ports ports)
    : plan_(plan),
      ports_(with_defaults(std::move(ports))),
      device_(ports_.workspace),
      memory_(device_, layout_of(plan, ports_),
              ports_.tensors == Scope::All ? Room::Own : Room::Tensors) {
  for (const schedule::Op& op : plan.program.ops) op_of_[op.id] = &op;
  ops_ = ports_.make_ops(plan, ports_.rank, memory_);
  communicators_ = communicators_of(plan);
  plan_commands();
  release_all();
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
        [&](const schedule::Copy& action) {
          if (command.stream != schedule::kComputeStream) {
            throw InputError(text("copies run on the compute stream", command.id));
          }
          packings_[command.id] = packing_of(memory_, action);
        },
        [&](const schedule::Communicate& action) {
          plan_collective(command,
                          message_of(plan_, memory_.layout(), ports_.rank, action, Peers::Real));
        },
        [&](const schedule::RecordEvent& action) { events_.emplace(action.event, events_.size()); },
        [&](const schedule::WaitEvent& action) {
          // Commands are issued in this order, so such a wait would never end.
          if (events_.count(action.event) == 0) {
            throw InputError(
                text("waits for an event that no earlier command records", command.id));
          }
        },
        [](const schedule::Scale&) {},
        [&](const schedule::Release& action) {
          if (command.stream != schedule::kComputeStream) {
            throw InputError(text("memory is released on the compute stream", command.id));
          }
          if (freeings_.count(action.bucket) > 0) return;
          freeings_[action.bucket] = freeing_of(memory_, action.bucket);
        });
  }
}

void CpuBackend::plan_collective(const schedule::Command& command, const Message& message) {
  CollectiveCall& call = calls_[command.id] = call_of(message, memory_);
  call.label = labels_[command.id] = message.label;
  call.transport = transport_of(command);
}

// Before the first step, as behind any other.
void CpuBackend::release_all() {
  for (const auto& entry : freeings_) device_.spoil(entry.second.freed, nullptr);
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
  for (const CommunicatorKey& key : communicators_) {
    if (key.stream != stream) continue;
    const std::span<const Rank> instance = plan_.program.group(key.group).instance_of(ports_.rank);
    const std::span<const Rank> alone(&ports_.rank, 1);
    transports.push_back(ports_.open_transport(stream, instance.empty() ? alone : instance));
  }
  return transports;
}

CommThread* CpuBackend::comm_thread(const schedule::Command& command) {
  return threads_[static_cast<std::size_t>(command.stream.value)].get();
}

std::size_t CpuBackend::transport_of(const schedule::Command& command) const {
  const auto first = std::ranges::find(communicators_, command.stream, &CommunicatorKey::stream);
  return communicator_of(plan_, communicators_, command) -
         static_cast<std::size_t>(first - communicators_.begin());
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
  ops_->begin_step(step, nullptr);
  table_->begin_step();
}

void CpuBackend::run_op(const schedule::Command& command, const schedule::RunOp& action) {
  const schedule::Op& op = *op_of_.at(action.op);
  const std::int64_t start = now_ns();
  ops_->run(op, nullptr);
  note(command, start, now_ns());
}

void CpuBackend::execute(const schedule::Command& command) {
  const CollectiveCall& collective = calls_.at(command.id);
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = collective});
  } else {
    call(*inline_transports_[collective.transport], collective);
  }
  note(command, start, now_ns());
}

void CpuBackend::communicate(const schedule::Command& command, const schedule::Communicate&) {
  execute(command);
}

void CpuBackend::copy(const schedule::Command& command, const schedule::Copy&) {
  const std::int64_t start = now_ns();
  device_.move_ranges(packings_.at(command.id).moves, nullptr);
  note(command, start, now_ns());
}

void CpuBackend::scale(const schedule::Command& command, const schedule::Scale& action) {
  const Layout& layout = memory_.layout();
  const Region region = action.part == schedule::Part::Shard ? layout.shard(action.bucket)
                                                             : layout.bucket(action.bucket);
  const ScaleCall scaling = {.data = floats(memory_.at(region)),
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
  device_.spoil(freeings_.at(action.bucket).freed, nullptr);
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

CheckResult CpuBackend::check_values() { return ops_->check_values(nullptr); }

}  // namespace dovetail::exec::cpu
