// A trace made event by event, where a test is about one thing that the made steps (made_trace.h, ddp_step.h) do not have.
//
//   MadeEvents events;
//   events.kernel("gemm", 7, 100, 1000, events.launch(1, 50));     // on stream 7, launched by thread 1 at 50 us
//   events.text()
//
// All times in microseconds. Rank 0 of 8 unless set otherwise.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace dovetail::testing {

class MadeEvents {
 public:
  int rank = 0, world = 8;
  std::string backend = "nccl";
  std::string base_ns = "0";  // baseTimeNanoseconds

  void event(const std::string& category, const std::string& name, int thread, double start,
             double duration, const std::string& args = "") {
    text_ += (text_.empty() ? "" : ",\n");
    text_ += R"({"ph":"X","cat":")" + category + R"(","name":")" + name + R"(","pid":)" +
             (category == "kernel" || category == "gpu_memcpy" ? "0" : "9") + R"(,"tid":)" +
             std::to_string(thread) + R"(,"ts":)" + std::to_string(start) + R"(,"dur":)" +
             std::to_string(duration) + R"(,"args":{)" + args + "}}";
  }
  void step(int number, double start, double duration) {
    event("user_annotation", "ProfilerStep#" + std::to_string(number), 1, start, duration);
  }
  void op(const std::string& name, double start, double duration, const std::string& args = "",
          int thread = 1) {
    event("cpu_op", name, thread, start, duration, args);
  }
  // A call that launches; its correlation.
  int launch(int thread, double start, const std::string& call = "cudaLaunchKernel") {
    event("cuda_runtime", call, thread, start, 3, correlated(++correlation_));
    return correlation_;
  }
  void synchronize(int thread, double start, double end) {
    event("cuda_runtime", "cudaStreamSynchronize", thread, start, end - start,
          correlated(++correlation_));
  }
  void kernel(const std::string& name, int stream, double start, double duration, int correlation,
              const std::string& args = "") {
    event("kernel", name, stream, start, duration, on(stream, correlation, args));
  }
  void copy(const std::string& name, int stream, double start, double duration, int correlation) {
    event("gpu_memcpy", name, stream, start, duration, on(stream, correlation, ""));
  }

  [[nodiscard]] std::string text() const {
    return R"({"deviceProperties":[)" +
           std::string(backend == "nccl" ? R"({"id":0,"name":"NVIDIA H100 80GB HBM3"})" : "") +
           R"(],"distributedInfo":{"backend":")" + backend + R"(","rank":)" + std::to_string(rank) +
           R"(,"world_size":)" + std::to_string(world) + R"(},"baseTimeNanoseconds":)" + base_ns +
           R"(,"traceEvents":[)" + text_ + "]}";
  }

 private:
  static std::string correlated(int correlation) {
    return R"("correlation":)" + std::to_string(correlation);
  }
  static std::string on(int stream, int correlation, const std::string& args) {
    return R"("stream":)" + std::to_string(stream) + "," + correlated(correlation) +
           (args.empty() ? "" : "," + args);
  }

  std::string text_;
  int correlation_ = 0;
};

}  // namespace dovetail::testing
