// The cuda backend. The constructor plans everything (memory, communicators, kernels, which call a
// command is); during a step commands are only enqueued, eagerly or as one captured graph, and
// finish() is the only place that waits.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/backend.h"

#include "base/error.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/ranges.h"
#include "exec/cuda/training_kernels.h"
#include "exec/ops/synthetic_ops.h"
#include "exec/ops/training_ops.h"
#include "exec/rank_work.h"
#include "exec/run.h"
#include "schedule/visit.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

// A training job computes with every tensor.
Scope scope_of(const BackendOptions& options) {
  return options.content == Content::TrainingJob ? Scope::All : Scope::Communicated;
}

Bytes free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return Bytes(static_cast<std::int64_t>(free));
}

// A plan that cannot fit is told before anything is allocated. Not counted: copies for the check, the
// buffers of NCCL.
void require_room(const schedule::ScheduledProgram& plan, const BackendOptions& options,
                  const Layout& layout) {
  const Bytes block(layout.bytes());
  const bool is_job = options.content == Content::TrainingJob;
  const Bytes work = is_job ? Bytes(0) : room_for_work(work_of(plan, options.exchange.rank).ops);
  const Bytes needed(block.count() + work.count());
  const Bytes free = free_memory();
  if (needed <= free) return;
  std::ostringstream message;
  message << "rank " << options.exchange.rank << ": the plan needs at least " << to_string(needed)
          << " of GPU " << options.device << ": gradients, buckets and parameters "
          << to_string(block) << ", operands and workspace of its ops " << to_string(work) << "; "
          << to_string(free) << " are free";
  throw DeviceError(message.str());
}

// Everything that can be refused without a device, then the device itself.
const schedule::ScheduledProgram& accepted(const schedule::ScheduledProgram& plan,
                                           const BackendOptions& options) {
  require_executable(plan.program, "cuda");
  if (plan.streams.empty()) throw InputError("the plan has no streams");
  if (options.stand_in == StandIn::SendToSelf && plan.program.world_size != 1) {
    throw InputError("collectives are stood in for on one rank only; the plan has " +
                     std::to_string(plan.program.world_size));
  }
  if (options.trace_detail == TraceDetail::Full && options.issue == Issue::Graph) {
    throw InputError("a full trace needs eager steps: the kernels of a graph belong to its launch");
  }
  static_cast<void>(communicators_of(plan));
  const Layout layout(plan, options.exchange.rank, scope_of(options));
  check(cudaSetDevice(options.device), "cudaSetDevice");
  require_room(plan, options, layout);
  return plan;
}

std::vector<Stream> streams_of(const schedule::ScheduledProgram& plan) {
  std::vector<Stream> streams;
  for (const schedule::Stream& stream : plan.streams) {
    streams.push_back(make_stream(stream.id == schedule::kComputeStream ? StreamPriority::Normal
                                                                        : StreamPriority::Highest));
  }
  return streams;
}

Source source_of(const BackendOptions& options) {
  return options.buffers == Buffers::Registered ? Source::Nccl : Source::Runtime;
}

WatchOptions watch_options(const BackendOptions& options) {
  return {.rank = options.exchange.rank,
          .deadline = options.deadline,
          .grace = options.grace,
          .peer_failure = options.peer_failure,
          .tell_others = options.on_failure,
          .clock = options.deadline_clock};
}

std::string label(const char* words, BucketId bucket) {
  std::ostringstream text;
  text << words << " bucket " << bucket;
  return text.str();
}

}  // namespace

CudaBackend::CudaBackend(const schedule::ScheduledProgram& plan, const BackendOptions& options)
    : plan_(accepted(plan, options)),
      options_(options),
      rank_(options.exchange.rank),
      free_before_(free_memory()),
      watch_(watch_options(options)),
      device_(source_of(options), options.f32_math),
      memory_(device_, Layout(plan, options.exchange.rank, scope_of(options)), Room::Tensors),
      streams_(streams_of(plan)),
      timer_(streams_[0].get(), watch_),
      start_(options.exchange) {
  // Ops first: they load code, which may wait for a device that must not hold a collective then.
  load_kernels();
  make_ops();
  communicators_ =
      std::make_unique<Communicators>(plan, memory_, watch_,
                                      Communicators::Options{.device = options.device,
                                                             .exchange = options.exchange,
                                                             .stand_in = options.stand_in,
                                                             .cluster_size = options.cluster_size,
                                                             .kept = options.kept});
  // A graph that hangs in a collective must let go of the communicators before they are aborted.
  watch_.set_library([all = communicators_.get()] { return all->error(); },
                     [this, all = communicators_.get()] {
                       if (graph_ != nullptr) graph_->release();
                       all->abort();
                     });
  plan_folds();
  if (options.trace_detail == TraceDetail::Full) {
    recorder_ = std::make_unique<ActivityRecorder>();
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    ends_.push_back(make_event(EventKind::Dependency));
  }
  for (const schedule::Op& op : plan.program.ops) op_of_[op.id] = &op;
  plan_commands();
  if (is_timed_whole() && !first_op_) throw InputError("a step without ops has no time");
  release_all();
  free_after_ = free_memory();
}

// Before the communicators go: NCCL would wait for the graph (graph.h).
CudaBackend::~CudaBackend() { graph_.reset(); }

void CudaBackend::load_kernels() const {
  check(preload_kernels(), "loading kernels");
  if (options_.content == Content::TrainingJob) {
    check(preload_training_kernels(), "loading the training job's kernels");
  }
}

void CudaBackend::make_ops() {
  if (options_.content == Content::TrainingJob) {
    ops_ = std::make_unique<TrainingOps>(plan_, rank_, memory_, options_.hyperparameters);
    return;
  }
  // Without communication every reduced value would be wrong, and counted one by one.
  const bool is_alone = options_.stand_in == StandIn::SendToSelf || communicators_of(plan_).empty();
  ops_ =
      std::make_unique<SyntheticOps>(plan_, rank_, memory_, is_alone ? Checks::None : Checks::All);
}

// A stand-in reduces nothing, so it has nothing that could multiply.
void CudaBackend::plan_folds() {
  if (options_.scales == Scales::Kernels || options_.stand_in != StandIn::None) return;
  for (const Fold& fold : folds_of(plan_, rank_)) {
    folds_[fold.scale] = fold;
    folds_[fold.collective] = fold;
  }
}

void CudaBackend::plan_commands() {
  const Peers peers = options_.stand_in == StandIn::None ? Peers::Real : Peers::StandIn;
  for (const schedule::Command& command : role_of(plan_, rank_).commands) {
    schedule::visit(
        command.action,
        [&](const schedule::RunOp& action) {
          const schedule::Op& op = *op_of_.at(action.op);
          labels_[command.id] = op.name;
          note_first(command);
        },
        [&](const schedule::Communicate& action) {
          if (action.op) note_first(command);
          plan_collective(command, message_of(plan_, memory_.layout(), rank_, action, peers));
        },
        [&](const schedule::Copy& action) {
          const bool packs = action.direction == schedule::CopyDirection::Pack;
          labels_[command.id] = label(packs ? "pack of" : "unpack of", action.bucket);
          packings_[command.id] = packing_of(memory_, action);
        },
        [&](const schedule::RecordEvent& action) {
          if (events_.count(action.event) > 0) return;
          events_.emplace(action.event, make_event(EventKind::Dependency));
        },
        [&](const schedule::WaitEvent& action) {
          std::ostringstream text;
          text << "wait for event e" << action.event;
          labels_[command.id] = text.str();
          if (events_.count(action.event) > 0) return;
          throw InputError("command c" + std::to_string(command.id.value) +
                           " waits for an event that no earlier command records");
        },
        [&](const schedule::Scale& action) {
          labels_[command.id] = label("scale of", action.bucket);
        },
        [&](const schedule::Release& action) {
          if (freeings_.count(action.bucket) > 0) return;
          freeings_[action.bucket] = freeing_of(memory_, action.bucket);
        });
  }
}

void CudaBackend::note_first(const schedule::Command& command) {
  if (command.stream == schedule::kComputeStream && !first_op_) first_op_ = command.id;
}

void CudaBackend::plan_collective(const schedule::Command& command, Message message) {
  const auto fold = folds_.find(command.id);
  if (fold != folds_.end()) {
    if (fold->second.kind == FoldKind::Average) {
      message.op = schedule::ReduceOp::Average;
    } else {
      message.factor = fold->second.factor;
    }
  }
  Sending sending;
  sending.communicator = communicators_->index_of(command);
  communicators_->reserve(message, sending.communicator);
  labels_[command.id] = message.label;
  sending.message = std::move(message);
  sendings_[command.id] = std::move(sending);
}

// Before the first step, as behind any other.
void CudaBackend::release_all() {
  for (const auto& entry : freeings_) {
    device_.spoil(entry.second.freed, streams_[0].get());
  }
  device_.wait(streams_[0].get());
}

cudaStream_t CudaBackend::stream_of(const schedule::Command& command) const {
  return streams_.at(static_cast<std::size_t>(command.stream.value)).get();
}

void CudaBackend::begin_step(std::int32_t step) {
  step_ = step;
  check(cudaSetDevice(options_.device), "cudaSetDevice");
  cudaStream_t compute = streams_[0].get();
  ops_->begin_step(step, compute);
  const std::int64_t number = ++steps_begun_;
  mode_ = options_.issue == Issue::Eager || number < kGraphWarmup ? Mode::Eager
          : number == kGraphWarmup                                ? Mode::Capture
                                                                  : Mode::Replay;
  if (is_timed_whole()) {
    timer_.restart(Recording::Eager);
  } else if (!is_replayed()) {
    timer_.restart(mode_ == Mode::Capture ? Recording::Captured : Recording::Eager);
  }
  timer_.anchor(compute, watch_);
  start_.await();
  if (mode_ == Mode::Capture) graph_ = std::make_unique<StepGraph>(streams_);
  if (mode_ == Mode::Eager && is_timed_whole()) begin_whole();
}

template <class Enqueue>
void CudaBackend::timed(const schedule::Command& command, const Enqueue& enqueue) {
  if (is_replayed()) return;
  const NamedRange range(labels_.at(command.id));
  const CommandMark mark(recorder_.get(), command.id);
  cudaStream_t stream = stream_of(command);
  if (is_timed_whole()) return enqueue(stream);
  const std::size_t span = timer_.begin(command.id, command.stream, stream);
  enqueue(stream);
  timer_.end(span, stream);
}

void CudaBackend::run_op(const schedule::Command& command, const schedule::RunOp& action) {
  const schedule::Op& op = *op_of_.at(action.op);
  timed(command, [&](cudaStream_t stream) { ops_->run(op, stream); });
}

void CudaBackend::communicate(const schedule::Command& command, const schedule::Communicate&) {
  const Sending& sending = sendings_.at(command.id);
  timed(command, [&](cudaStream_t stream) {
    communicators_->enqueue(sending.message, sending.communicator, stream);
  });
}

void CudaBackend::copy(const schedule::Command& command, const schedule::Copy&) {
  const Packing& packing = packings_.at(command.id);
  timed(command, [&](cudaStream_t stream) { device_.move_ranges(packing.moves, stream); });
}

void CudaBackend::scale(const schedule::Command& command, const schedule::Scale& action) {
  if (folds_.count(command.id) > 0) return timed(command, [](cudaStream_t) {});
  const Region region = action.part == schedule::Part::Shard
                            ? memory_.layout().shard(action.bucket)
                            : memory_.layout().bucket(action.bucket);
  const Array data = memory_.at(region);
  timed(command, [&](cudaStream_t stream) {
    device_.copy_scaled(data, data, action.factor.value(), stream);
  });
}

void CudaBackend::release(const schedule::Command& command, const schedule::Release& action) {
  if (is_replayed()) return;
  device_.spoil(freeings_.at(action.bucket).freed, stream_of(command));
}

void CudaBackend::record(const schedule::Command& command, const schedule::RecordEvent& action) {
  if (is_replayed()) return;
  check(cudaEventRecord(events_.at(action.event).get(), stream_of(command)), "cudaEventRecord");
}

void CudaBackend::wait(const schedule::Command& command, const schedule::WaitEvent& action) {
  if (is_replayed()) return;
  const auto enqueue = [&](cudaStream_t stream) {
    check(cudaStreamWaitEvent(stream, events_.at(action.event).get(), 0), "cudaStreamWaitEvent");
  };
  // An idle communication stream always waits; only stalls of computing tell something.
  if (command.stream == schedule::kComputeStream) {
    timed(command, enqueue);
  } else {
    enqueue(stream_of(command));
  }
}

std::vector<Timing> CudaBackend::finish() {
  if (mode_ == Mode::Capture) graph_->finish();
  if (mode_ != Mode::Eager) {
    if (is_timed_whole()) begin_whole();
    graph_->launch();
  }
  if (is_timed_whole()) end_whole();
  wait_until_idle();
  return timer_.read(step_);
}

std::vector<DeviceWork> CudaBackend::device_work() {
  if (recorder_ == nullptr) return {};
  AttributedWork work = recorder_->take();
  lost_work_ += work.lost;
  return std::move(work.works);
}

void CudaBackend::begin_whole() {
  whole_step_ = timer_.begin(*first_op_, schedule::kComputeStream, streams_[0].get());
}

// Behind the work of all streams.
void CudaBackend::end_whole() {
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check(cudaEventRecord(ends_[i].get(), streams_[i].get()), "cudaEventRecord");
    check(cudaStreamWaitEvent(streams_[0].get(), ends_[i].get(), 0), "cudaStreamWaitEvent");
  }
  timer_.end(whole_step_, streams_[0].get());
}

void CudaBackend::wait_until_idle() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    check(cudaEventRecord(ends_[i].get(), streams_[i].get()), "cudaEventRecord");
  }
  const auto all_done = [&] {
    return std::all_of(ends_.begin(), ends_.end(),
                       [](const Event& event) { return is_done(event.get()); });
  };
  watch_.wait(
      all_done, [this] { return label_of_unfinished(); }, Pace::Sleep);
}

std::string CudaBackend::label_of_unfinished() const {
  try {
    const std::optional<CommandId> command = timer_.unfinished();
    return command ? labels_.at(*command) : "the step";
  } catch (const DeviceError&) {
    return "the step";  // a broken device answers nothing
  }
}

CheckResult CudaBackend::check_values() { return ops_->check_values(streams_[0].get()); }

training::Trained CudaBackend::trained() const {
  const auto* job = dynamic_cast<const TrainingOps*>(ops_.get());
  return job == nullptr ? training::Trained() : job->trained();
}

std::map<std::string, std::string> CudaBackend::notes() const {
  std::map<std::string, std::string> notes;
  notes["issue"] = options_.issue == Issue::Graph ? "one graph per step" : "eager";
  notes["empty pair of events"] =
      std::to_string(timer_.empty_pair_ns()) + " ns, subtracted from every span";
  notes["clock map"] = "error up to " + std::to_string(timer_.clock_error_ns()) + " ns";
  notes["buffers"] = options_.buffers == Buffers::Registered
                         ? "of ncclMemAlloc, which NCCL may use in place within a node"
                         : "of cudaMalloc; within a node NCCL copies through its own";
  notes["memory"] = to_string(Bytes(free_before_.count() - free_after_.count())) +
                    " taken by this plan with NCCL's buffers, " + to_string(free_after_) +
                    " of the GPU left";
  if (is_timed_whole()) notes["events"] = "two per step, none per command";
  if (!folds_.empty()) {
    notes["scales"] = std::to_string(folds_.size() / 2) + " carried out by their collectives";
  }
  if (recorder_ != nullptr) {
    notes["kernels"] = "traced by CUPTI, whose cost is in all times; " +
                       std::to_string(lost_work_) + " records lost";
  }
  if (options_.stand_in == StandIn::SendToSelf) {
    notes["stand-in"] = "collectives are sends to the same rank; nothing is reduced or checked";
  }
  return notes;
}

}  // namespace dovetail::exec::cuda
