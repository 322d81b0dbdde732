// A communication stream: one thread that executes its queue of collectives, scalings, records and
// waits in order; and the events that order streams among each other.
//
// The compute thread enqueues (a lock, a push, and a wake-up only when the thread sleeps) and never
// spins: two streams of one rank share one core. Enqueued waits do not wake the thread, since
// nothing can be seen of a wait until something follows it; so the usual wait, collective, record
// costs one wake-up.
//
// An error on a communication thread is kept by the EventTable: every wait of every stream then
// throws it, and queued work is skipped. So nobody waits for an event that will never come.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/array.h"
#include "exec/backend.h"
#include "exec/cpu/transport.h"
#include "schedule/program.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

namespace dovetail::exec::cpu {

// Events of one rank, one flag per step: an event counts as recorded only in the step it was
// recorded in. Events are numbered 0..n-1 here.
class EventTable {
 public:
  explicit EventTable(std::size_t events) : recorded_in_(events, 0) {}

  // Forgets all events. REQUIRES: no stream is running.
  void begin_step();
  void record(std::size_t event);
  // Blocks until the event is recorded; true when it was not there at first. Throws the failure.
  bool wait(std::size_t event);

  // The first failure wins; all waiters wake up and throw it.
  void fail(std::exception_ptr failure);
  void throw_failure();
  [[nodiscard]] bool failed();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> recorded_in_;
  std::int64_t step_ = 0;  // counts from 1 once a step began
  std::int32_t waiting_ = 0;
  std::exception_ptr failure_;
};

// A collective with its memory:
//   all-reduce, broadcast   data, in place
//   reduce-scatter          data is summed up, shard receives this rank's part
//   all-gather              shard goes out, data receives all
//   all-to-all              data goes out, shard receives as much
//   send-recv               data, of the sender (index == root) or the receiver
// `source` is copied to where the call reads from first, if there is one. Elements are f32; an all-gather
// takes any.
struct CollectiveCall {
  schedule::Collective kind = schedule::Collective::AllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::Average;
  Array data;
  Array shard = {};
  std::string_view label;  // REQUIRES: outlives the call
  Array source = {};
  std::size_t root = 0;
  std::size_t index = 0;      // of this rank in its group
  std::size_t transport = 0;  // of those of the stream
};
void call(Transport& transport, const CollectiveCall& collective);

// Multiplies the data by a factor.
struct ScaleCall {
  std::span<float> data;
  float factor = 1;
};
void call(const ScaleCall& scale);

struct RecordCall {
  std::size_t event = 0;
};
struct WaitCall {
  std::size_t event = 0;
};
struct Job {
  CommandId command;
  std::variant<CollectiveCall, ScaleCall, RecordCall, WaitCall> call;
};

class CommThread {
 public:
  struct Options {
    StreamId stream;
    // Runs on the new thread first: pin it, set its priority. May be empty.
    std::function<void()> prepare;
    // Then this: connecting from the thread itself lets a transport's own threads inherit both.
    // One per process group that the stream serves.
    std::function<std::vector<std::unique_ptr<Transport>>()> open_transports;
  };

  // Returns once the transports are open, or throws what opening threw.
  CommThread(Options options, EventTable& events);
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;
  // Skips queued jobs. A collective under way ends, or fails by its transport's deadline.
  ~CommThread();

  void enqueue(const Job& job);
  // Blocks until the queue is empty and returns the timings since the last drain. Does not throw
  // for failed jobs; ask the EventTable.
  std::vector<Timing> drain();
  // Processor time this thread has used so far.
  [[nodiscard]] std::int64_t cpu_ns();

 private:
  void loop();
  bool open();
  void execute(const Job& job);

  Options options_;
  EventTable& events_;
  std::vector<std::unique_ptr<Transport>> transports_;
  bool is_open_ = false;
  std::vector<Timing> timings_;  // of this thread while jobs are queued, of drain() otherwise

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<Job> queue_;
  std::size_t next_ = 0;  // of queue_; everything before it is done or under way
  bool sleeping_ = false;
  bool busy_ = true;  // opening the transport counts as work
  bool stop_ = false;
  std::thread thread_;  // last: it starts when all else exists
};

}  // namespace dovetail::exec::cpu
