// Profiler traces of a DistributedDataParallel step whose times are known, as Kineto writes them.
//
//   MadeTrace made;            // 6 layers of 4 MiB: forward 1 ms, backward 2 ms each; three all-reduces of 3 ms, each of two
//   made.clock_us = -300;      // gradients; optimizer 0.5 ms. The host synchronises behind it.
//   text(made)
//
// By hand: forward 6 x 1001 us, backward 6 x 2012 us (each with the copy of its gradient, 10 us), of which the first two
// all-reduces hide behind the next layers; the last one is exposed for 3000 us, the others for 3 us each where compute starts
// a microsecond late. Three copies back of 10 us, the update, and 43 us until the next forward: 21.648 ms a step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dovetail::testing {

struct MadeTrace {
  int steps = 3;
  std::string step_name = "ProfilerStep#";  // with a number behind it; empty: no annotation
  std::string step_category = "user_annotation";
  bool has_optimizer = true;  // its annotation
  int passes = 1;             // of backward for one step of the optimizer
  bool no_sync = false;       // all but the last pass reduce nothing
  bool is_bare_list = false;
  bool has_operators = true;
  double clock_us = 0;        // the GPU's clock, ahead of the host's
  double drift = 0;           // and by how much that grows
  double late_us = 0;         // the host wakes up so much after what it waited for
  bool names_stream = false;  // that the host waits for: CUPTI's records of synchronisation
  double side_us =
      0;  // before the host returns a copy ends on a stream of its own; 0: there is none
  double older_us = 0;  // the GPU is busy with work of before the trace for so long
  std::vector<double> all_reduce_us = {3000, 3000, 3000};
  std::string all_reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)";
  std::string group_name = "0";
  std::vector<int> group = {0, 1, 2, 3, 4, 5, 6, 7};
  int rank = 0, world = 8;
  bool tells_ranks = true;  // of the group, in every event
  double start_us = 1000;
  // May change any event of GPU work: by its number in order of launch, its name, start and duration.
  std::function<void(int, const std::string&, double&, double&)> change = {};
};

class TraceWriter {
 public:
  explicit TraceWriter(const MadeTrace& made) : made_(made), now_(made.start_us) {}

  std::string text() {
    if (made_.older_us > 0) older_work();
    for (int step = 0; step < made_.steps * made_.passes; ++step) {
      add_pass(step);
    }
    std::string events;
    for (const std::string& event : events_) events += (events.empty() ? "" : ",\n") + event;
    if (made_.is_bare_list) return "[" + events + "]";
    return R"({"deviceProperties":[{"id":0,"name":"A100"}],"distributedInfo":{"backend":"nccl","rank":)" +
           std::to_string(made_.rank) + R"(,"world_size":)" + std::to_string(made_.world) +
           R"(},"traceEvents":[)" + events + "]}";
  }

 private:
  static constexpr int kMain = 4000;
  static constexpr int kBackward = 4100;
  static constexpr int kCompute = 7;
  static constexpr int kCommunication = 20;

  void add(const std::string& category, const std::string& name, int thread, double start,
           double duration, const std::string& args = "") {
    events_.push_back(R"({"ph":"X","cat":")" + category + R"(","name":")" + name + R"(","pid":)" +
                      (category == "kernel" ? "0" : "4000") + R"(,"tid":)" +
                      std::to_string(thread) + R"(,"ts":)" + std::to_string(start) + R"(,"dur":)" +
                      std::to_string(duration) + R"(,"args":{)" + args + "}}");
  }
  void op(const std::string& name, int thread, double start, double duration,
          const std::string& args = "") {
    if (made_.has_operators) add("cpu_op", name, thread, start, duration, args);
  }
  int call(const std::string& name, int thread, double start, double duration) {
    ++correlation_;
    add("cuda_runtime", name, thread, start, duration,
        R"("correlation":)" + std::to_string(correlation_));
    return correlation_;
  }
  void gpu(const std::string& name, int stream, double start, double duration, int correlation,
           const std::string& args) {
    start += made_.clock_us + made_.drift * start;
    if (made_.change) made_.change(works_, name, start, duration);
    ++works_;
    std::string all = R"("stream":)" + std::to_string(stream);
    if (correlation > 0) all += R"(,"correlation":)" + std::to_string(correlation);
    add("kernel", name, stream, start, duration, args.empty() ? all : all + "," + args);
  }
  double launch(int thread, double at, const std::string& name, int stream, double duration,
                double after = 0, const std::string& args = "") {
    const int correlation = call("cudaLaunchKernel", thread, at, 6);
    double start = std::max(at + 8, after);
    if (free_.contains(stream)) start = std::max(start, free_[stream] + 1);
    free_[stream] = start + duration;
    gpu(name, stream, start, duration, correlation, args);
    return start + duration;
  }

  void older_work() {
    gpu("old_kernel", kCompute, now_ - 500, made_.older_us + 500, 0, "");
    free_[kCompute] = now_ + made_.older_us;
  }

  std::string collective_args() const {
    std::string ranks;
    for (const int rank : made_.group) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    std::string args = R"("Collective name":"allreduce","In msg nelems":2097152,)"
                       R"("Out msg nelems":2097152,"dtype":"Float","Group size":)" +
                       std::to_string(made_.group.size()) + R"(,"Process Group Name":")" +
                       made_.group_name + R"(")";
    if (made_.tells_ranks) args += R"(,"Process Group Ranks":"[)" + ranks + R"(]")";
    return args;
  }

  double send(int bucket, double at) {
    op("c10d::allreduce_", kBackward, at, 70);
    op("record_param_comms", kBackward, at + 5, 55, collective_args());
    last_reduced_ = launch(kBackward, at + 22, made_.all_reduce, kCommunication,
                           made_.all_reduce_us[static_cast<std::size_t>(bucket)], free_[kCompute],
                           collective_args());
    return at + 75;
  }

  // Backward of the layers, last first; a bucket of two gradients each.
  double backward(double at, bool reduces) {
    for (int layer = 5; layer >= 0; --layer) {
      op("autograd::engine::evaluate_function: AddmmBackward0", kBackward, at, 20);
      launch(kBackward, at + 4, "backward_gemm", kCompute, 2000);
      at += 22;
      const bool closes = layer % 2 == 0 && reduces;
      op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", kBackward, at,
         closes ? 100 : 25);
      op("torch::autograd::AccumulateGrad", kBackward, at + 1, 6,
         R"("Input Dims":[[1048576]],"Input type":["float"])");
      op("torch::distributed::reducer::mul_out", kBackward, at + 8, 14,
         R"("Input Dims":[[1048576]],"Input type":["float"])");
      launch(kBackward, at + 10, "copy_in", kCompute, 10);
      at = closes ? send((5 - layer) / 2, at + 25) : at + 25;
      at += 3;
    }
    for (int bucket = 0; bucket < 3 && reduces; ++bucket) {
      call("cudaStreamWaitEvent", kBackward, at + 2, 2);
      at += 10;
      op("torch.distributed.ddp.reducer::copy_bucket_to_grad", kBackward, at, 12);
      launch(kBackward, at + 3, "copy_out", kCompute, 10, last_reduced_);
      at += 16;
    }
    return at;
  }

  void add_pass(int step) {
    const bool updates = (step + 1) % made_.passes == 0;
    const double begin = now_;
    double at = now_ + 5;
    for (int layer = 0; layer < 6; ++layer) {
      op("aten::addmm", kMain, at, 18);
      launch(kMain, at + 5, "forward_gemm", kCompute, 1000);
      at += 20;
    }
    at = backward(at + 30, updates || !made_.no_sync) + 20;
    if (updates) {
      if (made_.has_optimizer) {
        add("user_annotation", "Optimizer.step#SGD.step", kMain, at, 60);
      }
      const double end = launch(kMain, at + 8, "update", kCompute, 500, last_reduced_);
      at += 65;
      if (made_.side_us > 0) {
        launch(kMain, at - 20, "side", 30, end + 5 + made_.late_us - made_.side_us - (at - 12));
      }
      const double wait = std::max(10.0, end - at + 5) + made_.late_us;
      const int sync = call("cudaStreamSynchronize", kMain, at, wait);
      if (made_.names_stream) {
        add("cuda_sync", "Stream Sync", 7, at, wait,
            R"("stream":7,"correlation":)" + std::to_string(sync));
      }
      at = std::max(at + 10, end + 5) + made_.late_us + 5;
    }
    if (!made_.step_name.empty()) {
      add(made_.step_category, made_.step_name + std::to_string(step + 3), kMain, begin,
          at - begin);
    }
    now_ = at + 10;
  }

  const MadeTrace& made_;
  double now_;
  int correlation_ = 100;
  int works_ = 0;
  double last_reduced_ = 0;
  std::map<int, double> free_;  // by stream
  std::vector<std::string> events_;
};

inline std::string text(const MadeTrace& made) { return TraceWriter(made).text(); }

}  // namespace dovetail::testing
