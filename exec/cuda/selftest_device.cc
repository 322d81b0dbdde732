// One GPU after the other: facts, clock, copies, products, events.
//
// Every wait has a deadline. Figures are held against the physical peak only (selftest_peaks.h):
// the self-test says whether timings can be believed, `calibrate` says what they are.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/clock.h"
#include "exec/cuda/selftest.h"
#include "exec/cuda/selftest_kernels.h"
#include "exec/cuda/selftest_peaks.h"

#include <cublas_v2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace dovetail::exec::cuda {
namespace {

using selftest::Outcome;
using selftest::Row;
using selftest::row_of;

constexpr int kRepetitions = 5;
constexpr std::int64_t kEdge = 8192;  // of the matrices: 1.1 TFLOP per product

std::string number(double value, int digits) {
  std::ostringstream words;
  words << std::fixed << std::setprecision(digits) << value;
  return words.str();
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

Outcome facts_outcome(int device) {
  const cudaDeviceProp properties = properties_of(device);
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  std::ostringstream words;
  words << properties.name << ", sm " << properties.major << properties.minor << ", "
        << properties.multiProcessorCount << " multiprocessors, " << (total >> 20) << " MiB, "
        << (free >> 20) << " MiB free, ECC " << (properties.ECCEnabled != 0 ? "on" : "off");
  return selftest::pass(words.str());
}

Outcome clock_outcome(int device) {
  constexpr std::int64_t kCycles = 20'000'000;  // about 10 ms
  int most_khz = 0;
  check(cudaDeviceGetAttribute(&most_khz, cudaDevAttrClockRate, device), "cudaDeviceGetAttribute");
  const Stream stream = make_stream(StreamPriority::Normal);
  const DeviceBuffer memory(Bytes(static_cast<std::int64_t>(sizeof(ClockSample))));
  auto* const sample = static_cast<ClockSample*>(memory.data());
  ClockSample seen;
  for (int i = 0; i < 2; ++i) {  // the first one wakes the clock up
    check(launch_clock_sample(kCycles, sample, stream.get()), "sample_clock");
    check(cudaMemcpyAsync(&seen, sample, sizeof seen, cudaMemcpyDeviceToHost, stream.get()),
          "cudaMemcpyAsync");
    await_stream(stream.get(), kWaitAtMost, "the clock sample");
  }
  if (seen.ns <= 0) return selftest::fail("the device's ns timer did not move");
  if (most_khz <= 0) {
    return selftest::skipped(
        "the driver does not tell the clock's limit, as under some virtual GPUs");
  }
  const double ghz = static_cast<double>(seen.cycles) / static_cast<double>(seen.ns);
  const double most = most_khz / 1e6;
  const std::string words = number(ghz, 3) + " GHz measured, at most " + number(most, 3);
  return ghz > 0.1 && ghz < 1.05 * most ? selftest::pass(words) : selftest::fail(words);
}

// GB/s of moving these bytes once; a copy within the device reads and writes, so it counts twice.
struct Copied {
  cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
  const char* name = "";
  double times = 1;
};
double copy_rate(const Copied& what, void* to, const void* from, std::size_t bytes) {
  const Stream stream = make_stream(StreamPriority::Normal);
  const double ms = best_milliseconds(stream.get(), [&] {
    check(cudaMemcpyAsync(to, from, bytes, what.kind, stream.get()), "cudaMemcpyAsync");
  });
  return what.times * static_cast<double>(bytes) / (ms * 1e6);
}

Outcome copies_outcome(const std::optional<PhysicalPeaks>& peaks) {
  // 256 MiB, which no cache holds; less on a device that is nearly full.
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const std::size_t bytes = std::min(std::size_t{256} << 20, free / 8);
  constexpr double kMostOverTheLink = 1000;  // no host link carries a TB/s
  const DeviceBuffer a(Bytes(static_cast<std::int64_t>(bytes)));
  const DeviceBuffer b(Bytes(static_cast<std::int64_t>(bytes)));
  const PinnedBuffer host(Bytes(static_cast<std::int64_t>(bytes)));
  const double within = copy_rate({.times = 2}, a.data(), b.data(), bytes);
  const double up = copy_rate({.kind = cudaMemcpyHostToDevice}, a.data(), host.data(), bytes);
  const double down = copy_rate({.kind = cudaMemcpyDeviceToHost}, host.data(), a.data(), bytes);
  const std::string words = "within the device " + number(within, 0) + " GB/s read and written" +
                            (peaks ? " of " + number(peaks->memory_gbytes_per_s, 0) : "") +
                            ", from the host " + number(up, 1) + ", to it " + number(down, 1);
  const bool possible = within > 0 && up > 0 && down > 0 && up < kMostOverTheLink &&
                        down < kMostOverTheLink && (!peaks || within < peaks->memory_gbytes_per_s);
  return possible ? selftest::pass(words) : selftest::fail(words + ": impossible");
}

using Blas = Handle<cublasHandle_t, cublasDestroy>;

struct SpeedTest {
  const char* name;
  RandomKind kind;
  cudaDataType_t type;
  cublasComputeType_t compute;
  double PhysicalPeaks::*peak;
};
constexpr std::array<SpeedTest, 4> kProducts = {{
    {"f32", RandomKind::F32, CUDA_R_32F, CUBLAS_COMPUTE_32F, &PhysicalPeaks::f32_tflops},
    {"tf32", RandomKind::F32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
     &PhysicalPeaks::tf32_tflops},
    {"f16", RandomKind::F16, CUDA_R_16F, CUBLAS_COMPUTE_32F, &PhysicalPeaks::half_tflops},
    {"bf16", RandomKind::BF16, CUDA_R_16BF, CUBLAS_COMPUTE_32F, &PhysicalPeaks::half_tflops},
}};

// On random data: zeros switch fewer transistors, and the clock stays higher than it ever would.
Outcome product_outcome(const SpeedTest& product, const std::optional<PhysicalPeaks>& peaks) {
  const std::int64_t width = product.kind == RandomKind::F32 ? 4 : 2;
  const Bytes size(kEdge * kEdge * width);
  const DeviceBuffer a(size);
  const DeviceBuffer b(size);
  const DeviceBuffer c(size);
  const Stream stream = make_stream(StreamPriority::Normal);
  const auto count = static_cast<std::size_t>(kEdge * kEdge);
  check(launch_random(product.kind, a.data(), count, 1, stream.get()), "fill_random");
  check(launch_random(product.kind, b.data(), count, 2, stream.get()), "fill_random");
  cublasHandle_t raw = nullptr;
  check(cublasCreate(&raw), "cublasCreate");
  const Blas blas(raw);
  check(cublasSetStream(blas.get(), stream.get()), "cublasSetStream");
  const float one = 1;
  const float zero = 0;
  const int n = static_cast<int>(kEdge);
  const double ms = best_milliseconds(stream.get(), [&] {
    check(cublasGemmEx(blas.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data(), product.type,
                       n, b.data(), product.type, n, &zero, c.data(), product.type, n,
                       product.compute, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  });
  const double tflops = 2.0 * kEdge * kEdge * kEdge / (ms * 1e9);
  std::string words = number(tflops, 1) + " TFLOP/s";
  if (tflops <= 0) return selftest::fail(words);
  if (!peaks) return selftest::pass(words + "; the peak of this device is not known");
  const double peak = *peaks.*product.peak;
  words += " of " + number(peak, 0);
  return tflops < peak ? selftest::pass(words) : selftest::fail(words + ": impossible");
}

// What a pair of events around nothing says, and what a launch costs the host.
Outcome events_outcome() {
  const Stream stream = make_stream(StreamPriority::Normal);
  const double pair_us = 1e3 * best_milliseconds(stream.get(), [] {});
  constexpr int kLaunches = 200;
  const DeviceBuffer memory(Bytes(static_cast<std::int64_t>(sizeof(ClockSample))));
  auto* const sample = static_cast<ClockSample*>(memory.data());
  const std::int64_t start = now_ns();
  for (int i = 0; i < kLaunches; ++i) {
    check(launch_clock_sample(0, sample, stream.get()), "sample_clock");
  }
  const double launch_us = static_cast<double>(now_ns() - start) / 1e3 / kLaunches;
  await_stream(stream.get(), kWaitAtMost, "empty kernels");
  const std::string words =
      "an empty pair " + number(pair_us, 2) + " us, a launch " + number(launch_us, 2) + " us";
  return pair_us >= 0 && pair_us < 1000 && launch_us < 1000 ? selftest::pass(words)
                                                            : selftest::fail(words);
}

void add_rows_of(int device, std::vector<Row>& rows) {
  const std::string prefix = "gpu " + std::to_string(device) + " ";
  rows.push_back(row_of({"cuda", prefix + "device"}, [&] {
    check(cudaSetDevice(device), "cudaSetDevice");
    return facts_outcome(device);
  }));
  if (rows.back().verdict != selftest::Verdict::Pass) return;  // nothing else can work on it
  const std::optional<PhysicalPeaks> peaks = physical_peaks(properties_of(device).name);
  rows.push_back(row_of({"cuda", prefix + "clock"}, [&] { return clock_outcome(device); }));
  rows.push_back(row_of({"cuda", prefix + "copies"}, [&] { return copies_outcome(peaks); }));
  for (const SpeedTest& product : kProducts) {
    rows.push_back(row_of({"cuda", prefix + "product " + product.name},
                          [&] { return product_outcome(product, peaks); }));
  }
  const std::vector<Row> executed = executed_product_rows(device);
  rows.insert(rows.end(), executed.begin(), executed.end());
  rows.push_back(row_of({"cuda", prefix + "events"}, events_outcome));
}

}  // namespace

void await_stream(cudaStream_t stream, Duration deadline, const char* what,
                  const std::function<void()>& trouble) {
  const std::int64_t end = now_ns() + deadline.count();
  for (;;) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, what);
    static_cast<void>(cudaGetLastError());  // "not ready" is no error of the next launch
    if (trouble) trouble();
    if (now_ns() > end) {
      throw DeviceError(std::string(what) + ": not done after " +
                        std::to_string(deadline.count() / 1'000'000) + " ms");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

double best_milliseconds(cudaStream_t stream, const std::function<void()>& enqueue) {
  const Event start = make_event(EventKind::Timing);
  const Event stop = make_event(EventKind::Timing);
  float best = std::numeric_limits<float>::max();
  for (int i = 0; i <= kRepetitions; ++i) {
    check(cudaEventRecord(start.get(), stream), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(stop.get(), stream), "cudaEventRecord");
    await_stream(stream, kWaitAtMost, "a timed run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.get(), stop.get()), "cudaEventElapsedTime");
    if (i > 0) best = std::min(best, ms);  // the first run warms up
  }
  return best;
}

std::vector<Row> device_rows() {
  std::vector<Row> rows;
  int devices = 0;
  rows.push_back(row_of({"cuda", "devices"}, [&] {
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    return devices > 0 ? selftest::pass(std::to_string(devices))
                       : selftest::fail("the driver reports none");
  }));
  for (int device = 0; device < devices; ++device) add_rows_of(device, rows);
  const std::vector<Row> links = link_rows(devices);
  rows.insert(rows.end(), links.begin(), links.end());
  return rows;
}

namespace {

std::vector<Row> brief_rows(std::int32_t device) {
  std::vector<Row> rows;
  rows.push_back(row_of({"cuda", "facts"}, [&] {
    check(cudaSetDevice(device), "cudaSetDevice");
    return facts_outcome(device);
  }));
  if (rows.back().verdict != selftest::Verdict::Pass) return rows;  // nothing else can work on it
  rows.push_back(row_of({"cuda", "clock"}, [&] { return clock_outcome(device); }));
  rows.push_back(row_of({"cuda", "copies"}, [&] {
    return copies_outcome(physical_peaks(properties_of(device).name));
  }));
  return rows;
}

std::vector<Row> link_rows_here() {
  int devices = 0;
  const Row found = row_of({"cuda", "links"}, [&] {
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    return selftest::pass("");
  });
  return found.verdict == selftest::Verdict::Pass ? link_rows(devices) : std::vector{found};
}

}  // namespace

const Tools& tools() {
  static const Tools kTools = {.device_rows = &device_rows,
                               .brief_rows = &brief_rows,
                               .link_rows = &link_rows_here,
                               .nccl_rows = &nccl_rows};
  return kTools;
}

}  // namespace dovetail::exec::cuda
