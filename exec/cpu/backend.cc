// The cpu backend: plans at construction, then does as little as possible per command.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/backend.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/cpu/kernels.h"
#include "exec/cpu/values.h"
#include "exec/run.h"
#include "schedule/visit.h"

#include <algorithm>
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

// One op's own traffic while gradients account for `touched` of its bytes.
void compute(const schedule::Op& op, Bytes touched, Workspace& workspace) {
  schedule::visit(
      op.work, [&](const schedule::GemmWork& work) { run_gemm(work, workspace); },
      [&](const schedule::MemoryWork& work) { run_memory(work.bytes - touched, workspace); },
      [&](const schedule::TimedWork&) {
        DOVETAIL_CHECK(false) << "timed work is refused at construction";
      },
      [](const schedule::CollectiveWork&) {});
}

}  // namespace

CpuBackend::CpuBackend(const schedule::ScheduledProgram& plan, Ports ports)
    : plan_(plan),
      ports_([&] {
        if (ports.workspace == nullptr) ports.workspace = std::make_shared<Workspace>();
        return std::move(ports);
      }()),
      memory_(plan, ports_.workspace),
      carries_collectives_(plan.streams.size(), false) {
  for (const schedule::ProcessGroup& group : plan.program.groups) {
    if (group.size() != plan.program.world_size) {
      throw InputError("the cpu backend runs one process group of all ranks; group " + group.name +
                       " has only some of them");
    }
  }
  plan_ops();
  plan_commands();
  open_streams();
}

CpuBackend::~CpuBackend() {
  // Threads may wait for each other's events, so all must let go before the first is joined.
  table_->fail(std::make_exception_ptr(DeviceError("the backend is shutting down")));
}

void CpuBackend::plan_ops() {
  std::map<TensorId, std::int32_t> writes;  // seen so far, from the last op backwards
  std::set<TensorId> owed;
  std::set<TensorId> applied;
  for (const schedule::Reduction& reduction : plan_.program.reductions) {
    owed.insert(reduction.gradient);
  }
  const auto is_gradient = [&](TensorId id) {
    return plan_.program.tensor(id).kind == schedule::TensorKind::Gradient;
  };
  const std::vector<schedule::Op>& ops = plan_.program.ops;
  reserve(ops, *ports_.workspace);
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    OpPlan& planned = ops_[op->id];
    planned.op = &*op;
    for (const TensorId id : op->writes) {
      if (!is_gradient(id)) continue;
      planned.writes.push_back({id, writes[id]++});
      planned.gradient_bytes += plan_.program.tensor(id).bytes();
    }
  }
  std::map<TensorId, std::int32_t> to_come = writes;
  for (const schedule::Op& op : ops) {
    OpPlan& planned = ops_.at(op.id);
    for (const TensorId id : op.reads) {
      // A reader before the last write sees the local gradient, not the reduced one.
      if (owed.count(id) == 0 || to_come[id] > 0 || !applied.insert(id).second) continue;
      planned.applies.push_back(id);
      planned.gradient_bytes += plan_.program.tensor(id).bytes() * 2;
    }
    for (const OpPlan::Production& write : planned.writes)
      to_come[write.gradient] = write.writes_left;
  }
  for (const schedule::Reduction& reduction : plan_.program.reductions) {
    is_applied_.push_back(applied.count(reduction.gradient) != 0);
  }
}

void CpuBackend::plan_commands() {
  for (const schedule::Command& command : role_of(plan_, ports_.rank).commands) {
    const auto stream = static_cast<std::size_t>(command.stream.value);
    if (stream >= plan_.streams.size()) throw InputError(text("no such stream", command.id));
    const bool on_compute = command.stream == schedule::kComputeStream;
    schedule::visit(
        command.action,
        [&](const schedule::RunOp&) {
          if (!on_compute) throw InputError(text("ops run on the compute stream", command.id));
        },
        [&](const schedule::Copy&) {
          if (!on_compute) throw InputError(text("copies run on the compute stream", command.id));
        },
        [&](const schedule::RunCollective& action) {
          carries_collectives_[stream] = true;
          std::ostringstream label;
          label << schedule::to_string(action.kind) << " of bucket " << action.bucket;
          labels_[{action.bucket, action.kind}] = label.str();
        },
        [&](const schedule::RecordEvent& action) { events_.emplace(action.event, events_.size()); },
        [&](const schedule::WaitEvent& action) {
          // Commands are issued in this order, so such a wait would never end.
          if (events_.count(action.event) == 0) {
            throw InputError(
                text("waits for an event that no earlier command records", command.id));
          }
        },
        [](const schedule::Scale&) {});
  }
}

void CpuBackend::open_streams() {
  table_ = std::make_unique<EventTable>(events_.size());
  threads_.resize(plan_.streams.size());
  for (std::size_t i = 0; i < plan_.streams.size(); ++i) {
    const StreamId stream{static_cast<std::int32_t>(i)};
    if (stream == schedule::kComputeStream) {
      if (carries_collectives_[i]) inline_transport_ = ports_.open_transport(stream);
      continue;
    }
    std::function<std::unique_ptr<Transport>()> open = [this, stream] {
      return ports_.open_transport(stream);
    };
    threads_[i] =
        std::make_unique<CommThread>(CommThread::Options{.stream = stream,
                                                         .prepare = ports_.prepare_comm_thread,
                                                         .open_transport = std::move(open)},
                                     *table_);
  }
}

CommThread* CpuBackend::comm_thread(const schedule::Command& command) {
  return threads_[static_cast<std::size_t>(command.stream.value)].get();
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
  table_->begin_step();
}

void CpuBackend::run_op(const schedule::Command& command, const schedule::RunOp& action) {
  const std::int64_t start = now_ns();
  const OpPlan& planned = ops_.at(action.op);
  compute(*planned.op, planned.gradient_bytes, *ports_.workspace);
  for (const OpPlan::Production& write : planned.writes) {
    fill({.gradient = write.gradient,
          .step = step_,
          .rank = ports_.rank,
          .writes_left = write.writes_left},
         memory_.gradient(write.gradient));
  }
  for (const TensorId id : planned.applies) {
    const std::span<const float> from = memory_.gradient(id);
    std::copy(from.begin(), from.end(), memory_.applied(id).begin());
  }
  note(command, start, now_ns());
}

CollectiveCall CpuBackend::collective_call(const schedule::RunCollective& action) const {
  CollectiveCall collective = {.kind = action.kind,
                               .op = action.reduce,
                               .data = memory_.bucket(action.bucket),
                               .shard = {},
                               .label = labels_.at({action.bucket, action.kind})};
  if (action.kind != schedule::Collective::AllReduce) {
    collective.shard = memory_.shard(action.bucket);
  }
  return collective;
}

void CpuBackend::run_collective(const schedule::Command& command,
                                const schedule::RunCollective& action) {
  const std::int64_t start = now_ns();
  if (CommThread* thread = comm_thread(command)) {
    thread->enqueue({.command = command.id, .call = collective_call(action)});
  } else {
    call(*inline_transport_, collective_call(action));
  }
  note(command, start, now_ns());
}

void CpuBackend::copy(const schedule::Command& command, const schedule::Copy& action) {
  const std::int64_t start = now_ns();
  for (const TensorId id : action.gradients) {
    std::span<float> from = memory_.gradient(id);
    std::span<float> to = memory_.window(id);
    if (action.direction == schedule::CopyDirection::Unpack) std::swap(from, to);
    if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
  }
  note(command, start, now_ns());
}

void CpuBackend::scale(const schedule::Command& command, const schedule::Scale& action) {
  const std::int64_t start = now_ns();
  const auto factor = static_cast<float>(action.factor.value());
  for (float& value : memory_.bucket(action.bucket)) value *= factor;
  note(command, start, now_ns());
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

CheckResult CpuBackend::check() {
  CheckResult result;
  for (std::size_t i = 0; i < plan_.program.reductions.size(); ++i) {
    const schedule::Reduction& reduction = plan_.program.reductions[i];
    compare(reduction, memory_.gradient(reduction.gradient), "", result);
    if (is_applied_[i]) {
      compare(reduction, memory_.applied(reduction.gradient), " as the optimizer read it", result);
    }
  }
  return result;
}

void CpuBackend::compare(const schedule::Reduction& reduction, std::span<const float> found,
                         std::string_view where, CheckResult& result) const {
  const schedule::ProcessGroup& group = plan_.program.group(reduction.group);
  const Reduced expected(reduction.gradient, step_, group.ranks, reduction.op);
  const Difference difference = expected.compare(found);
  result.checked += static_cast<std::int64_t>(found.size());
  result.wrong += difference.wrong;
  if (difference.wrong == 0 || !result.first_wrong.empty()) return;
  std::ostringstream message;
  message << "rank " << ports_.rank << " step " << step_ << ' '
          << plan_.program.tensor(reduction.gradient).name << '[' << difference.first << ']'
          << where << ": expected " << expected.at(difference.first) << ", found "
          << found[difference.first];
  result.first_wrong = message.str();
}

std::int64_t CpuBackend::comm_cpu_ns() const {
  std::int64_t total = 0;
  for (const std::unique_ptr<CommThread>& thread : threads_) {
    if (thread != nullptr) total += thread->cpu_ns();
  }
  return total;
}

}  // namespace dovetail::exec::cpu
