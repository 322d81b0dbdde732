// Traces of a DDP step whose truth is known: every layer has one parameter, a forward kernel and a backward kernel, gradients
// are copied into buckets, and each bucket is all-reduced once its last gradient is there.
//
//   DdpStep step;
//   step.buckets = {{5, 4}, {3, 2}, {1, 0}};          // layers, in order of launch
//   step.comm_us = {3000, 3000, 3000};
//   trace_of(step)                                    // JSON as PyTorch's profiler writes it
//   period_us(step)                                   // from one update's end to the next one's
//
// Streams: 7 computes, 20 communicates. Times in us. The host launches far ahead of the GPU and waits at the end of each step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace dovetail::testing {

struct DdpStep {
  int steps = 3;
  std::int64_t world = 8;
  std::vector<std::int64_t> elements = std::vector<std::int64_t>(6, 1 << 20);  // by layer
  std::vector<std::vector<std::size_t>> buckets = {{5, 4}, {3, 2}, {1, 0}};
  std::vector<double> comm_us = {3000, 3000, 3000};  // by bucket
  double forward_us = 1000, backward_us = 2000, optimizer_us = 500;
  double host_us = 20;       // between two launches of one part of the step
  bool waits_each = false;   // compute waits for a bucket before it goes on (ZeRO)
  double host_after_us = 0;  // what the host does behind its last launch, before it waits
  double gather_us = 0;      // an all-gather behind the update, which the host waits for; 0: none
  double gather_before_us =
      0;  // an all-gather before each layer's forward and backward (FSDP); 0: none
  bool prefetches = false;  // the next layer's is issued before this layer computes
};

// Writes the events of the steps.
class DdpTrace {
 public:
  explicit DdpTrace(DdpStep step) : step_(std::move(step)) {
    for (int n = 0; n < step_.steps; ++n) add_step(n);
  }

  [[nodiscard]] std::string text() const {
    return R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB"}],)"
           R"("distributedInfo":{"backend":"nccl","rank":0,"world_size":)" +
           std::to_string(step_.world) + R"(},"traceEvents":[)" + events_ + "]}";
  }
  // Ends of the updates.
  [[nodiscard]] const std::vector<double>& updates() const { return updates_; }

 private:
  static constexpr int kMain = 1, kBackward = 2, kCompute = 7, kComm = 20;

  static std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.3f", value);
    return text;
  }

  void event(const std::string& cat, const std::string& name, int tid, double ts, double dur,
             const std::string& args) {
    events_ += (events_.empty() ? "" : ",\n");
    events_ += R"({"ph":"X","cat":")" + cat + R"(","name":")" + name + R"(","pid":)" +
               (cat == "kernel" || cat == "gpu_memcpy" ? "0" : "9") + R"(,"tid":)" +
               std::to_string(tid) + R"(,"ts":)" + number(ts) + R"(,"dur":)" + number(dur) +
               R"(,"args":{)" + args + "}}";
  }
  void op(const std::string& name, int tid, double ts, double dur, const std::string& args = "") {
    event("cpu_op", name, tid, ts, dur, args);
  }
  void call(const std::string& name, int tid, double ts, double dur) {
    event("cuda_runtime", name, tid, ts, dur, R"("correlation":)" + std::to_string(++correlation_));
  }
  // A kernel behind its stream and what it depends on; its end.
  double launch(int tid, double ts, const std::string& name, int stream, double dur,
                double after = 0, const std::string& args = "", const std::string& cat = "kernel") {
    call(cat == "kernel" ? "cudaLaunchKernel" : "cudaMemcpyAsync", tid, ts, 6);
    const double start = std::max({ts + 8, free_[stream] + 1, after});
    free_[stream] = start + dur;
    event(cat, name, stream, start, dur,
          R"("device":0,"stream":)" + std::to_string(stream) + R"(,"correlation":)" +
              std::to_string(correlation_) + args);
    return free_[stream];
  }

  [[nodiscard]] std::string message(const std::string& name, std::int64_t elements) const {
    return R"("Collective name":")" + name + R"(","In msg nelems":)" + std::to_string(elements) +
           R"(,"Out msg nelems":)" + std::to_string(elements) + R"(,"Group size":)" +
           std::to_string(step_.world) + R"(,"dtype":"Float","Process Group Name":"0")";
  }
  // From the call to the collective's end on the GPU.
  double collective(const std::string& name, const std::string& kernel, int tid, double ts,
                    std::int64_t elements, double dur) {
    const std::string about = message(name, elements);
    op(name == "allreduce" ? "c10d::allreduce_" : "c10d::_allgather_base_", tid, ts, 70);
    op("record_param_comms", tid, ts + 5, 55, about);
    return launch(tid, ts + 22, "ncclDevKernel_" + kernel, kComm, dur, free_[kCompute],
                  "," + about);
  }

  double send(std::size_t bucket, double ts) {
    std::int64_t elements = 0;
    for (const std::size_t layer : step_.buckets[bucket]) elements += step_.elements[layer];
    ends_.push_back(collective("allreduce", "AllReduce_Sum_f32_RING_LL", kBackward, ts, elements,
                               step_.comm_us[bucket]));
    return ts + 75;
  }

  // An all-gather that the layer's compute waits for; where it prefetches, the one for the layer after it is issued first.
  double gathered(int tid, double ts, bool is_first) {
    if (step_.gather_before_us <= 0) return ts;
    const double own =
        is_first || !step_.prefetches ? gather(tid, ts, free_[kCompute]) : prefetched_;
    if (step_.prefetches) prefetched_ = gather(tid, ts + 10, 0);
    call("cudaStreamWaitEvent", tid, ts + 20, 2);
    free_[kCompute] = std::max(free_[kCompute], own);
    return ts + 25;
  }
  double gather(int tid, double ts, double after) {
    const std::string about = message("_allgather_base", 1 << 20);
    op("FSDP::all_gather", tid, ts, 9);
    op("record_param_comms", tid, ts + 1, 7, about);
    return launch(tid, ts + 2, "ncclDevKernel_AllGather_RING_LL", kComm, step_.gather_before_us,
                  after, "," + about);
  }

  void add_step(int n) {
    const double begin = now_;
    double main = begin + 5;
    bool first = true;
    for (std::size_t layer = 0; layer < step_.elements.size(); ++layer) {
      main = gathered(kMain, main, first);
      first = false;
      op("aten::addmm", kMain, main, step_.host_us - 2);
      launch(kMain, main + 5, "ampere_sgemm_nt", kCompute, step_.forward_us);
      main += step_.host_us;
    }
    const double ts = add_backward(main + 30);
    main = std::max(ts, main) + 20;
    event("user_annotation", "Optimizer.step#SGD.step", kMain, main, 60, "");
    op("aten::_foreach_add_", kMain, main + 5, 40);
    const double last = ends_.empty() ? 0 : *std::ranges::max_element(ends_);
    double done =
        launch(kMain, main + 8, "multi_tensor_apply_kernel", kCompute, step_.optimizer_us, last);
    updates_.push_back(done);
    main += 65;
    if (step_.gather_us > 0) {
      done =
          collective("_allgather_base", "AllGather_RING_LL", kMain, main, 3 << 20, step_.gather_us);
      main += 75;
    }
    main += step_.host_after_us;
    call("cudaStreamSynchronize", kMain, main, std::max(10.0, done - main + 5));
    now_ = std::max(main + 10, done + 5) + 5;
    event("user_annotation", "ProfilerStep#" + std::to_string(n), kMain, begin, now_ - begin, "");
    now_ += 10;
  }

  double add_backward(double ts) {
    std::map<std::size_t, std::size_t> bucket_of;
    std::vector<std::size_t> left;
    for (std::size_t b = 0; b < step_.buckets.size(); ++b) {
      left.push_back(step_.buckets[b].size());
      for (const std::size_t layer : step_.buckets[b]) bucket_of[layer] = b;
    }
    ends_.clear();
    for (std::size_t layer = step_.elements.size(); layer-- > 0;) {
      ts = gathered(kBackward, ts, false);
      op("autograd::engine::evaluate_function: AddmmBackward0", kBackward, ts, step_.host_us);
      launch(kBackward, ts + 4, "ampere_sgemm_nn", kCompute, step_.backward_us);
      ts += step_.host_us + 2;
      if (bucket_of.contains(layer))
        ts = accumulate(layer, left[bucket_of[layer]], bucket_of[layer], ts);
      ts += 3;
    }
    for (std::size_t b = 0; b < step_.buckets.size(); ++b, ts += 26) {
      call("cudaStreamWaitEvent", kBackward, ts + 2, 2);
      op("torch.distributed.ddp.reducer::copy_bucket_to_grad", kBackward, ts + 10, 12);
      launch(kBackward, ts + 13, "Memcpy DtoD (Device -> Device)", kCompute, 10,
             *std::ranges::max_element(ends_), R"(,"bytes":4)", "gpu_memcpy");
    }
    return ts;
  }

  double accumulate(std::size_t layer, std::size_t& left, std::size_t bucket, double ts) {
    const std::string shape = R"("Input Dims":[[)" + std::to_string(step_.elements[layer]) +
                              R"(]],"Input type":["float"])";
    const double from = ts;
    op("torch::autograd::AccumulateGrad", kBackward, ts + 1, 6, shape);
    op("torch::distributed::reducer::mul_out", kBackward, ts + 8, 14, shape);
    launch(kBackward, ts + 10, "vectorized_elementwise_kernel", kCompute, 10);
    ts += 25;
    if (--left == 0) {
      ts = send(bucket, ts);
      if (step_.waits_each) {
        call("cudaStreamWaitEvent", kBackward, ts, 2);
        free_[kCompute] = std::max(free_[kCompute], ends_.back());
        ts += 4;
      }
    }
    op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", kBackward, from,
       ts - from);
    return ts;
  }

  DdpStep step_;
  std::string events_;
  std::map<int, double> free_;  // by stream: when its last work ends
  std::vector<double> ends_;    // of the step's buckets
  std::vector<double> updates_;
  double now_ = 1000, prefetched_ = 0;
  std::int64_t correlation_ = 100;
};

inline std::string trace_of(const DdpStep& step) { return DdpTrace(step).text(); }

inline double period_us(const DdpStep& step) {
  const DdpTrace trace(step);
  return (trace.updates().back() - trace.updates().front()) / (step.steps - 1);
}

}  // namespace dovetail::testing
