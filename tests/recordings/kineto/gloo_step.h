// Traces of a DDP step on a CPU whose truth is known: one thread computes, two of Gloo's communicate.
//
//   GlooStep step;
//   step.buckets = {{3, 2}, {1, 0}};          // layers, in order of launch
//   step.comm_us = {4000, 4000};
//   trace_of(step)                            // JSON as PyTorch's profiler writes it
//   period_us(step)
//
// Each layer computes forward_us and backward_us, a gradient is copied in 20 us, an update takes 300. The thread waits for all
// buckets when backward is over, and in a barrier at the end of the step, where there is one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::testing {

struct GlooStep {
  int steps = 3;
  std::size_t layers = 4;
  std::int64_t elements = 1 << 18;
  std::vector<std::vector<std::size_t>> buckets = {{3, 2}, {1, 0}};
  std::vector<double> comm_us = {4000, 4000};
  double forward_us = 2000, backward_us = 3000;
  double barrier_us = 0;      // 0: none
  bool calls_others = false;  // c10d:: operators whose collectives are none of a CPU's
};

class GlooTrace {
 public:
  explicit GlooTrace(const GlooStep& step) : step_(step) {
    for (int n = 0; n < step.steps; ++n) add_step(n);
  }
  [[nodiscard]] std::string text() const {
    return R"({"schemaVersion":1,"deviceProperties":[],"distributedInfo":{"backend":"gloo","rank":0,"world_size":2},)"
           R"("traceEvents":[)" +
           events_ + "]}";
  }
  [[nodiscard]] const std::vector<double>& begins() const { return begins_; }

 private:
  static constexpr int kMain = 1;

  void event(const std::string& cat, const std::string& name, int tid, double ts, double dur,
             const std::string& args = "") {
    events_ += (events_.empty() ? "" : ",\n");
    events_ += R"({"ph":"X","cat":")" + cat + R"(","name":")" + name + R"(","pid":9,"tid":)" +
               std::to_string(tid) + R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" +
               std::to_string(dur) + R"(,"args":{)" + args + "}}";
  }
  static std::string shape(std::int64_t elements) {
    return R"("Input Dims":[[)" + std::to_string(elements) + R"(]],"Input type":["float"])";
  }

  void add_step(int n) {
    const double begin = now_;
    begins_.push_back(begin);
    double at = begin + 10;
    if (step_.calls_others) event("cpu_op", "c10d::broadcast_", kMain, begin + 1, 5);
    for (std::size_t layer = 0; layer < step_.layers; ++layer) {
      event("cpu_op", "aten::linear", kMain, at, step_.forward_us - 5);
      event("cpu_op", "aten::addmm", kMain, at + 3, step_.forward_us - 10);
      at += step_.forward_us;
    }
    std::vector<double> ends;
    double link = 0;  // both threads share it
    std::size_t bucket = 0;
    std::size_t left = step_.buckets.front().size();
    for (std::size_t layer = step_.layers; layer-- > 0;) {
      event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", kMain, at,
            step_.backward_us - 2);
      event("cpu_op", "aten::mm", kMain, at + 3, step_.backward_us - 8);
      at += step_.backward_us;
      event("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", kMain,
            at, 60);
      event("cpu_op", "torch::autograd::AccumulateGrad", kMain, at + 1, 3, shape(step_.elements));
      event("cpu_op", "torch::distributed::reducer::mul_out", kMain, at + 6, 20,
            shape(step_.elements));
      if (--left == 0) {
        const auto count = static_cast<std::int64_t>(step_.buckets[bucket].size());
        event("cpu_op", "c10d::allreduce_", kMain, at + 30, 20,
              R"("Input Dims":[[[)" + std::to_string(count * step_.elements) +
                  R"(]]],"Input type":["TensorList"])");
        const double start = std::max(at + 45, link);
        link = start + step_.comm_us[bucket];
        event("user_annotation", "gloo:all_reduce", 100 + static_cast<int>(bucket % 2), start,
              step_.comm_us[bucket], shape(count * step_.elements));
        ends.push_back(link);
        ++bucket;
        left = bucket < step_.buckets.size() ? step_.buckets[bucket].size() : step_.layers;
      }
      at += 65;
    }
    for (const double end : ends) at = std::max(at, end + 12);
    event("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", kMain, at, 30, shape(1));
    at += 35;
    event("user_annotation", "Optimizer.step#SGD.step", kMain, at, 320);
    event("cpu_op", "aten::add_", kMain, at + 5, 300);
    at += 340;
    if (step_.barrier_us > 0) {
      event("cpu_op", "c10d::barrier", kMain, at, 10);
      event("user_annotation", "gloo:barrier", 100, at + 12, step_.barrier_us);
      at += step_.barrier_us + 20;
      event("cpu_op", "aten::empty", kMain, at, 5);
      at += 10;
    }
    now_ = at;
    event("user_annotation", "ProfilerStep#" + std::to_string(n), kMain, begin, now_ - begin - 5);
  }

  GlooStep step_;
  std::string events_;
  std::vector<double> begins_;
  double now_ = 1000;
};

inline std::string trace_of(const GlooStep& step) { return GlooTrace(step).text(); }

inline double period_us(const GlooStep& step) {
  const GlooTrace trace(step);
  return (trace.begins().back() - trace.begins().front()) / (step.steps - 1);
}

}  // namespace dovetail::testing
