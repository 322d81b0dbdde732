// A communication stream as a thread with a queue, and the events by which streams wait for each
// other. An error on the thread is kept and thrown on the compute thread at its next wait, so that
// a dead peer ends the step and does not hang it.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/comm_thread.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/cpu/elements.h"
#include "schedule/visit.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace dovetail::exec::cpu {

void EventTable::begin_step() {
  const std::lock_guard lock(mutex_);
  ++step_;
}

// An event counts as recorded in the step that is under way only, so nothing is reset between steps.
void EventTable::record(std::size_t event) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    recorded_in_[event] = step_;
    wake = waiting_ > 0;
  }
  if (wake) changed_.notify_all();
}

bool EventTable::wait(std::size_t event) {
  std::unique_lock lock(mutex_);
  bool stood = false;
  while (recorded_in_[event] != step_ && !failure_) {
    stood = true;
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
  if (failure_) std::rethrow_exception(failure_);
  return stood;
}

// The first failure stays: those that follow from it say less.
void EventTable::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void EventTable::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool EventTable::failed() {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(failure_);
}

namespace {

std::span<std::byte> bytes_of(const Array& array) {
  return {static_cast<std::byte*>(array.data), static_cast<std::size_t>(array.bytes())};
}

}  // namespace

// Collectives work in place: what is sent from elsewhere is first copied to where the transport reads it.
void call(Transport& transport, const CollectiveCall& collective) {
  const bool gathers = collective.kind == schedule::Collective::AllGather;
  const Array& reads = gathers ? collective.shard : collective.data;
  if (collective.source.count > 0 && collective.source.data != reads.data) {
    std::ranges::copy(bytes_of(collective.source), bytes_of(reads).begin());
  }
  switch (collective.kind) {
    case schedule::Collective::AllReduce:
      transport.all_reduce(floats(collective.data), collective.op, collective.label);
      return;
    case schedule::Collective::ReduceScatter:
      transport.reduce_scatter(floats(collective.data), floats(collective.shard), collective.op,
                               collective.label);
      return;
    case schedule::Collective::AllGather:
      transport.all_gather(bytes_of(collective.shard), bytes_of(collective.data), collective.label);
      return;
    case schedule::Collective::AllToAll:
      transport.all_to_all(floats(collective.data), floats(collective.shard), collective.label);
      return;
    case schedule::Collective::Broadcast:
      transport.broadcast(floats(collective.data), collective.root, collective.label);
      return;
    case schedule::Collective::SendRecv:
      if (collective.index == collective.root) {
        transport.send(floats(collective.data), collective.label);
      } else {
        transport.receive(floats(collective.data), collective.label);
      }
      return;
  }
}

void call(const ScaleCall& scale) {
  for (float& value : scale.data) value *= scale.factor;
}

CommThread::CommThread(Options options, EventTable& events)
    : options_(std::move(options)), events_(events), thread_([this] { loop(); }) {
  // Transports are open when the constructor returns, or it throws: no step begins with half of them.
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !busy_; });
  lock.unlock();
  if (!is_open_) {
    thread_.join();
    events_.throw_failure();
  }
}

CommThread::~CommThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  // A job that waits for an event which nobody will record any more must let go.
  events_.fail(std::make_exception_ptr(DeviceError("the backend is shutting down")));
  work_.notify_one();
  thread_.join();
}

void CommThread::enqueue(const Job& job) {
  const bool is_wait = std::holds_alternative<WaitCall>(job.call);
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
    wake = sleeping_ && !is_wait;
  }
  if (wake) work_.notify_one();
}

std::vector<Timing> CommThread::drain() {
  std::unique_lock lock(mutex_);
  work_.notify_one();  // the queue may end in a wait that woke nobody
  idle_.wait(lock, [this] { return !busy_ && next_ == queue_.size(); });
  queue_.clear();
  next_ = 0;
  std::vector<Timing> timings = std::exchange(timings_, {});
  timings_.reserve(timings.size());  // the next step is like this one: no allocation in its midst
  return timings;
}

std::int64_t CommThread::cpu_ns() {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

bool CommThread::open() {
  try {
    if (options_.prepare) options_.prepare();
    transports_ = options_.open_transports();
    is_open_ = true;
  } catch (...) {
    events_.fail(std::current_exception());
  }
  return is_open_;
}

// The lock is held except while a job runs. `busy_` is set under it before the job is let go, so whoever sees an
// empty queue and busy_ unset knows that every job has ended and its timing is there.
void CommThread::loop() {
  const bool opened = open();
  std::unique_lock lock(mutex_);
  busy_ = false;
  idle_.notify_all();
  if (!opened) return;
  for (;;) {
    while (next_ == queue_.size() && !stop_) {
      sleeping_ = true;
      work_.wait(lock);
      sleeping_ = false;
    }
    if (stop_) return;
    const Job job = queue_[next_++];
    busy_ = true;
    lock.unlock();
    execute(job);
    lock.lock();
    busy_ = false;
    if (next_ == queue_.size()) idle_.notify_all();
  }
}

void CommThread::execute(const Job& job) {
  if (events_.failed())
    return;  // a step that has failed is skipped to its end, so that drain() returns
  Timing timing = {.command = job.command, .stream = options_.stream, .start_ns = now_ns()};
  try {
    schedule::visit(
        job.call,
        [&](const CollectiveCall& collective) {
          call(*transports_[collective.transport], collective);
          timing.end_ns = now_ns();
        },
        [&](const ScaleCall& scale) {
          call(scale);
          timing.end_ns = now_ns();
        },
        [&](const RecordCall& record) {
          timing.end_ns = timing.start_ns;
          events_.record(record.event);
        },
        [&](const WaitCall& wait) {
          timing.end_ns = events_.wait(wait.event) ? now_ns() : timing.start_ns;
        });
    timings_.push_back(timing);
  } catch (...) {
    events_.fail(std::current_exception());
  }
}

}  // namespace dovetail::exec::cpu
