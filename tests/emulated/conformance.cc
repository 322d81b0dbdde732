// The probes: each is a function that returns "" or what was found instead.
//
// Sources: CUDA Runtime API reference 13.0, CUDA C++ Programming Guide, NCCL 2.28 user guide, cuBLAS
// 13.0 documentation; the emulation names the section where it enforces a rule.
//
// Measured on 2026-11-28 on an H100 80GB HBM3 (driver 580.159.04, CUDA 13.0, NCCL 2.28.9): all 36 hold as they
// stand here. One, on the last error after "not ready", was the other way round until then; it asks a stream, and
// the emulation takes events to answer alike.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/conformance.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <sstream>
#include <thread>

namespace dovetail::conformance {
namespace {

// What one probe works with; everything is freed at its end.
class Bench {
 public:
  Bench() {
    static_cast<void>(cudaSetDevice(0));
    static_cast<void>(cudaGetLastError());
    for (cudaStream_t* stream : {&one, &other}) {
      expect(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0), cudaSuccess, "stream");
    }
    for (cudaEvent_t* event : {&start, &end}) {
      expect(cudaEventCreateWithFlags(event, cudaEventDefault), cudaSuccess, "event");
    }
    expect(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming), cudaSuccess, "event");
    expect(cudaMalloc(reinterpret_cast<void**>(&memory), kBytes), cudaSuccess, "cudaMalloc");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    static_cast<void>(cudaGetLastError());
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    if (comm != nullptr) static_cast<void>(ncclCommAbort(comm));
    static_cast<void>(cudaDeviceSynchronize());
    for (cudaEvent_t event : {start, end, plain}) static_cast<void>(cudaEventDestroy(event));
    for (cudaStream_t stream : {one, other}) static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaGetLastError());
  }

  template <class Code>
  void expect(Code found, Code wanted, const char* call) {
    if (found == wanted) return;
    objection << (objection.str().empty() ? "" : "; ") << call << ": code "
              << static_cast<int>(found) << " instead of " << static_cast<int>(wanted);
  }
  void expect_refused(cudaError_t found, const char* call) {
    if (found == cudaSuccess) objection << call << " was not refused";
  }
  void require(bool holds, const char* what) {
    if (!holds) objection << (objection.str().empty() ? "" : "; ") << what;
  }
  // Keeps the stream busy for a while.
  void occupy(cudaStream_t stream) {
    const auto nap = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    expect(cudaLaunchHostFunc(stream, nap, nullptr), cudaSuccess, "cudaLaunchHostFunc");
  }
  void begin_capture() {
    expect(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal), cudaSuccess,
           "cudaStreamBeginCapture");
  }
  void end_capture(cudaError_t wanted = cudaSuccess) {
    expect(cudaStreamEndCapture(one, &graph), wanted, "cudaStreamEndCapture");
    static_cast<void>(cudaGetLastError());
  }
  void instantiate() {
    expect(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority),
           cudaSuccess, "cudaGraphInstantiate");
  }
  void synchronize() { expect(cudaDeviceSynchronize(), cudaSuccess, "cudaDeviceSynchronize"); }
  void upload(float value) {
    expect(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice), cudaSuccess,
           "cudaMemcpy");
    synchronize();
  }
  [[nodiscard]] float first() {
    float value = 0;
    expect(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess,
           "cudaMemcpy");
    return value;
  }
  // One rank; blocking.
  void connect(ncclConfig_t config = NCCL_CONFIG_INITIALIZER, ncclResult_t wanted = ncclSuccess) {
    ncclUniqueId id;
    expect(ncclGetUniqueId(&id), ncclSuccess, "ncclGetUniqueId");
    expect(ncclCommInitRankConfig(&comm, 1, id, 0, &config), wanted, "ncclCommInitRankConfig");
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 16;
  cudaStream_t one = nullptr, other = nullptr;
  cudaEvent_t start = nullptr, end = nullptr, plain = nullptr;
  float* memory = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ncclComm_t comm = nullptr;
  std::ostringstream objection;
};

struct Probe {
  const char* rule;
  void (*ask)(Bench&);
};

// ---- errors, memory

void device_out_of_range(Bench& b) {
  b.expect(cudaSetDevice(1 << 20), cudaErrorInvalidDevice, "cudaSetDevice");
}
void last_error_is_reset(Bench& b) {
  static_cast<void>(cudaSetDevice(1 << 20));
  b.expect(cudaGetLastError(), cudaErrorInvalidDevice, "cudaGetLastError");
  b.expect(cudaGetLastError(), cudaSuccess, "cudaGetLastError again");
}
void not_ready_is_no_last_error(Bench& b) {
  b.occupy(b.one);
  b.expect(cudaStreamQuery(b.one), cudaErrorNotReady, "cudaStreamQuery");
  b.expect(cudaGetLastError(), cudaSuccess, "cudaGetLastError");
}
void out_of_memory(Bench& b) {
  void* none = nullptr;
  b.expect(cudaMalloc(&none, std::size_t{1} << 50), cudaErrorMemoryAllocation, "cudaMalloc");
  static_cast<void>(cudaGetLastError());
  b.expect(cudaMalloc(&none, 256), cudaSuccess, "cudaMalloc of little");
  b.expect(cudaFree(none), cudaSuccess, "cudaFree");
}
void free_of_nothing(Bench& b) { b.expect(cudaFree(nullptr), cudaSuccess, "cudaFree"); }
void alignment(Bench& b) {
  b.require(reinterpret_cast<std::uintptr_t>(b.memory) % 256 == 0, "not aligned to 256 bytes");
}
void copies_arrive(Bench& b) {
  b.upload(3);
  b.require(b.first() == 3, "another value came back");
}

// ---- streams, events

void event_never_recorded(Bench& b) {
  b.expect(cudaEventQuery(b.start), cudaSuccess, "cudaEventQuery");
  b.expect(cudaStreamWaitEvent(b.one, b.start, 0), cudaSuccess, "cudaStreamWaitEvent");
}
void event_follows_its_stream(Bench& b) {
  b.occupy(b.one);
  b.expect(cudaEventRecord(b.end, b.one), cudaSuccess, "cudaEventRecord");
  b.expect(cudaEventQuery(b.end), cudaErrorNotReady, "cudaEventQuery");
  b.synchronize();
  b.expect(cudaEventQuery(b.end), cudaSuccess, "cudaEventQuery afterwards");
}
void elapsed_needs_timing(Bench& b) {
  float ms = 0;
  b.expect(cudaEventRecord(b.start, b.one), cudaSuccess, "cudaEventRecord");
  b.expect(cudaEventRecord(b.plain, b.one), cudaSuccess, "cudaEventRecord");
  b.synchronize();
  b.expect(cudaEventElapsedTime(&ms, b.start, b.plain), cudaErrorInvalidResourceHandle,
           "cudaEventElapsedTime");
}
void elapsed_needs_records(Bench& b) {
  float ms = 0;
  b.expect(cudaEventElapsedTime(&ms, b.start, b.end), cudaErrorInvalidResourceHandle,
           "cudaEventElapsedTime");
}
void elapsed_needs_the_end(Bench& b) {
  float ms = 0;
  b.expect(cudaEventRecord(b.start, b.one), cudaSuccess, "cudaEventRecord");
  b.occupy(b.one);
  b.expect(cudaEventRecord(b.end, b.one), cudaSuccess, "cudaEventRecord");
  b.expect(cudaEventElapsedTime(&ms, b.start, b.end), cudaErrorNotReady, "cudaEventElapsedTime");
}
void a_wait_orders(Bench& b) {
  b.upload(1);
  b.occupy(b.one);
  b.expect(cudaMemsetAsync(b.memory, 0, 4, b.one), cudaSuccess, "cudaMemsetAsync");
  b.expect(cudaEventRecord(b.plain, b.one), cudaSuccess, "cudaEventRecord");
  b.expect(cudaStreamWaitEvent(b.other, b.plain, 0), cudaSuccess, "cudaStreamWaitEvent");
  float value = 1;
  b.expect(cudaMemcpyAsync(&value, b.memory, 4, cudaMemcpyDeviceToHost, b.other), cudaSuccess,
           "cudaMemcpyAsync");
  b.synchronize();
  b.require(value == 0, "the other stream did not wait");
}
void a_destroyed_stream_goes_on(Bench& b) {
  b.upload(1);
  cudaStream_t brief = nullptr;
  b.expect(cudaStreamCreateWithPriority(&brief, cudaStreamNonBlocking, 0), cudaSuccess, "stream");
  b.occupy(brief);
  b.expect(cudaMemsetAsync(b.memory, 0, 4, brief), cudaSuccess, "cudaMemsetAsync");
  b.expect(cudaStreamDestroy(brief), cudaSuccess, "cudaStreamDestroy");
  b.synchronize();
  b.require(b.first() == 0, "its work was lost");
}
void external_record_needs_a_capture(Bench& b) {
  b.expect_refused(cudaEventRecordWithFlags(b.start, b.one, cudaEventRecordExternal),
                   "cudaEventRecordWithFlags");
}

// ---- capture, graphs

void no_capture_on_the_default_stream(Bench& b) {
  b.expect_refused(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture");
}
void no_capture_within_a_capture(Bench& b) {
  b.begin_capture();
  b.expect(cudaStreamBeginCapture(b.one, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState,
           "cudaStreamBeginCapture");
  static_cast<void>(cudaStreamEndCapture(b.one, &b.graph));
}
void a_query_breaks_a_capture(Bench& b) {
  b.begin_capture();
  b.expect(cudaStreamQuery(b.one), cudaErrorStreamCaptureUnsupported, "cudaStreamQuery");
  b.end_capture(cudaErrorStreamCaptureInvalidated);
}
void an_allocation_breaks_a_capture(Bench& b) {
  b.begin_capture();
  void* none = nullptr;
  b.expect(cudaMalloc(&none, 256), cudaErrorStreamCaptureUnsupported, "cudaMalloc");
  b.end_capture(cudaErrorStreamCaptureInvalidated);
}
void a_capture_takes_no_outside_event(Bench& b) {
  b.expect(cudaEventRecord(b.plain, b.other), cudaSuccess, "cudaEventRecord");
  b.begin_capture();
  b.expect(cudaStreamWaitEvent(b.one, b.plain, 0), cudaErrorStreamCaptureIsolation,
           "cudaStreamWaitEvent");
  static_cast<void>(cudaStreamEndCapture(b.one, &b.graph));
}
void a_fork_must_join(Bench& b) {
  b.begin_capture();
  b.expect(cudaEventRecord(b.plain, b.one), cudaSuccess, "cudaEventRecord");
  b.expect(cudaStreamWaitEvent(b.other, b.plain, 0), cudaSuccess, "cudaStreamWaitEvent");
  b.expect(cudaMemsetAsync(b.memory, 0, 4, b.other), cudaSuccess, "cudaMemsetAsync");
  b.end_capture(cudaErrorStreamCaptureUnjoined);
}
void capturing_runs_nothing(Bench& b) {
  b.upload(1);
  b.begin_capture();
  b.expect(cudaMemsetAsync(b.memory, 0, 4, b.one), cudaSuccess, "cudaMemsetAsync");
  b.end_capture();
  b.require(b.first() == 1, "captured work ran");
  b.instantiate();
  b.expect(cudaGraphLaunch(b.executable, b.one), cudaSuccess, "cudaGraphLaunch");
  b.synchronize();
  b.require(b.first() == 0, "the launch did not run it");
}
void a_graph_may_go_before_its_executable(Bench& b) {
  b.upload(1);
  b.begin_capture();
  b.expect(cudaMemsetAsync(b.memory, 0, 4, b.one), cudaSuccess, "cudaMemsetAsync");
  b.end_capture();
  b.instantiate();
  b.expect(cudaGraphDestroy(b.graph), cudaSuccess, "cudaGraphDestroy");
  b.graph = nullptr;
  b.expect(cudaGraphLaunch(b.executable, b.one), cudaSuccess, "cudaGraphLaunch");
  b.synchronize();
  b.require(b.first() == 0, "it did not run");
}
void a_running_graph_survives_its_destruction(Bench& b) {
  b.upload(1);
  b.begin_capture();
  b.occupy(b.one);
  b.expect(cudaMemsetAsync(b.memory, 0, 4, b.one), cudaSuccess, "cudaMemsetAsync");
  b.end_capture();
  b.instantiate();
  b.expect(cudaGraphLaunch(b.executable, b.one), cudaSuccess, "cudaGraphLaunch");
  b.expect(cudaGraphExecDestroy(b.executable), cudaSuccess, "cudaGraphExecDestroy");
  b.executable = nullptr;
  b.synchronize();
  b.require(b.first() == 0, "its work was lost");
}
void external_records_are_refreshed(Bench& b) {
  b.begin_capture();
  b.expect(cudaEventRecordWithFlags(b.start, b.one, cudaEventRecordExternal), cudaSuccess,
           "cudaEventRecordWithFlags");
  b.occupy(b.one);
  b.expect(cudaEventRecordWithFlags(b.end, b.one, cudaEventRecordExternal), cudaSuccess,
           "cudaEventRecordWithFlags");
  b.end_capture();
  b.instantiate();
  for (int launch = 0; launch < 2; ++launch) {
    b.expect(cudaGraphLaunch(b.executable, b.one), cudaSuccess, "cudaGraphLaunch");
    b.synchronize();
    float ms = 0;
    b.expect(cudaEventElapsedTime(&ms, b.start, b.end), cudaSuccess, "cudaEventElapsedTime");
    b.require(ms >= 0, "time ran backwards");
  }
}
void a_captured_event_has_no_state(Bench& b) {
  b.begin_capture();
  b.expect(cudaEventRecord(b.plain, b.one), cudaSuccess, "cudaEventRecord");
  b.end_capture();
  b.expect_refused(cudaEventQuery(b.plain), "cudaEventQuery");
}

// ---- NCCL, cuBLAS

void a_lone_communicator(Bench& b) {
  b.connect();
  ncclResult_t state = ncclInternalError;
  b.expect(ncclCommGetAsyncError(b.comm, &state), ncclSuccess, "ncclCommGetAsyncError");
  b.expect(state, ncclSuccess, "its state");
  b.expect(ncclCommDestroy(b.comm), ncclSuccess, "ncclCommDestroy");
  b.comm = nullptr;
}
void more_blocks_at_least_than_at_most(Bench& b) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  b.connect(config, ncclInvalidArgument);
  b.comm = nullptr;
}
void a_config_without_its_initialiser(Bench& b) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 0;
  b.connect(config, ncclInvalidArgument);
  b.comm = nullptr;
}
void a_group_must_begin(Bench& b) { b.expect(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd"); }
void a_send_to_itself(Bench& b) {
  b.connect();
  b.upload(5);
  float* to = b.memory + 1024;
  b.expect(ncclGroupStart(), ncclSuccess, "ncclGroupStart");
  b.expect(ncclSend(b.memory, 1, ncclFloat32, 0, b.comm, b.one), ncclSuccess, "ncclSend");
  b.expect(ncclRecv(to, 1, ncclFloat32, 0, b.comm, b.one), ncclSuccess, "ncclRecv");
  b.expect(ncclGroupEnd(), ncclSuccess, "ncclGroupEnd");
  b.synchronize();
  float value = 0;
  b.expect(cudaMemcpy(&value, to, 4, cudaMemcpyDeviceToHost), cudaSuccess, "cudaMemcpy");
  b.require(value == 5, "another value arrived");
}
void a_multiplying_sum(Bench& b) {
  b.connect();
  b.upload(6);
  float half = 0.5F;
  ncclRedOp_t op = ncclSum;
  b.expect(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, b.comm),
           ncclSuccess, "ncclRedOpCreatePreMulSum");
  b.expect(ncclAllReduce(b.memory, b.memory, 1, ncclFloat32, op, b.comm, b.one), ncclSuccess,
           "ncclAllReduce");
  b.synchronize();
  b.require(b.first() == 3, "it was not multiplied");
  b.expect(ncclRedOpDestroy(op, b.comm), ncclSuccess, "ncclRedOpDestroy");
}
void a_captured_collective(Bench& b) {
  b.connect();
  b.upload(7);
  b.expect(ncclAllReduce(b.memory, b.memory, 1, ncclFloat32, ncclSum, b.comm, b.one), ncclSuccess,
           "ncclAllReduce");
  b.synchronize();
  b.begin_capture();
  b.expect(ncclAllReduce(b.memory, b.memory, 1, ncclFloat32, ncclSum, b.comm, b.one), ncclSuccess,
           "ncclAllReduce in capture");
  b.end_capture();
  b.instantiate();
  b.expect(cudaGraphLaunch(b.executable, b.one), cudaSuccess, "cudaGraphLaunch");
  b.synchronize();
  b.require(b.first() == 7, "another value came back");
}
void memory_of_nccl_is_used_by_kernels(Bench& bench) {
  void* data = nullptr;
  bench.expect(ncclMemAlloc(&data, Bench::kBytes), ncclSuccess, "ncclMemAlloc");
  if (data == nullptr) return;
  bench.expect(cudaMemsetAsync(data, 0, Bench::kBytes, bench.one), cudaSuccess, "cudaMemsetAsync");
  bench.expect(cudaStreamSynchronize(bench.one), cudaSuccess, "cudaStreamSynchronize");
  bench.expect(ncclMemFree(data), ncclSuccess, "ncclMemFree");
}
void a_buffer_is_registered(Bench& b) {
  b.connect();
  void* handle = nullptr;
  b.expect(ncclCommRegister(b.comm, b.memory, Bench::kBytes, &handle), ncclSuccess,
           "ncclCommRegister");
  b.expect(ncclCommDeregister(b.comm, handle), ncclSuccess, "ncclCommDeregister");
}
void a_short_leading_dimension(Bench& b) {
  cublasHandle_t handle = nullptr;
  b.expect(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS, "cublasCreate");
  const float one = 1;
  b.expect(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 16, 16, 16, &one, b.memory, CUDA_R_32F, 8,
                        b.memory + 1024, CUDA_R_32F, 16, &one, b.memory + 2048, CUDA_R_32F, 16,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
           CUBLAS_STATUS_INVALID_VALUE, "cublasGemmEx");
  b.expect(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS, "cublasDestroy");
}

constexpr Probe kProbes[] = {
    {"a device that is not there is refused", device_out_of_range},
    {"asking for the last error resets it", last_error_is_reset},
    {"\"not ready\" is not kept as the last error", not_ready_is_no_last_error},
    {"memory that cannot be had is refused, and the device goes on", out_of_memory},
    {"freeing nothing is allowed", free_of_nothing},
    {"allocations are aligned to 256 bytes", alignment},
    {"what is copied to the device comes back", copies_arrive},
    {"an event that was never recorded counts as done", event_never_recorded},
    {"an event is done when what came before it is", event_follows_its_stream},
    {"elapsed time needs events with timing", elapsed_needs_timing},
    {"elapsed time needs recorded events", elapsed_needs_records},
    {"elapsed time needs finished events", elapsed_needs_the_end},
    {"a stream waits for another stream's event", a_wait_orders},
    {"the work of a destroyed stream is done", a_destroyed_stream_goes_on},
    {"an external record needs a capture", external_record_needs_a_capture},
    {"the default stream cannot be captured", no_capture_on_the_default_stream},
    {"a stream is captured once at a time", no_capture_within_a_capture},
    {"asking a captured stream breaks the capture", a_query_breaks_a_capture},
    {"allocating breaks the capture of its thread", an_allocation_breaks_a_capture},
    {"a captured stream cannot wait for an event from outside", a_capture_takes_no_outside_event},
    {"a stream that joined a capture must be waited for", a_fork_must_join},
    {"captured work runs when the graph is launched", capturing_runs_nothing},
    {"an executable graph outlives its graph", a_graph_may_go_before_its_executable},
    {"a graph that runs outlives its handle", a_running_graph_survives_its_destruction},
    {"each launch refreshes the graph's external events", external_records_are_refreshed},
    {"an event recorded in a capture cannot be asked", a_captured_event_has_no_state},
    {"one rank makes a communicator and ends it", a_lone_communicator},
    {"minCTAs above maxCTAs is refused", more_blocks_at_least_than_at_most},
    {"a configuration without its initialiser is refused", a_config_without_its_initialiser},
    {"a group ends only after it began", a_group_must_begin},
    {"a rank sends to itself within a group", a_send_to_itself},
    {"a sum multiplies first", a_multiplying_sum},
    {"a collective is captured after it has run once", a_captured_collective},
    {"memory of ncclMemAlloc serves kernels", memory_of_nccl_is_used_by_kernels},
    {"a buffer is registered and let go", a_buffer_is_registered},
    {"a leading dimension below the rows is refused", a_short_leading_dimension},
};

}  // namespace

std::vector<Answer> run_probes() {
  std::vector<Answer> answers;
  for (const Probe& probe : kProbes) {
    Bench bench;
    if (bench.objection.str().empty()) probe.ask(bench);
    const std::string found = bench.objection.str();
    answers.push_back({.probe = probe.rule,
                       .verdict = found.empty() ? Verdict::Pass : Verdict::Differs,
                       .detail = found});
  }
  return answers;
}

}  // namespace dovetail::conformance
