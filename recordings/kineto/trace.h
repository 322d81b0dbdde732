// One rank's profiler trace (PyTorch's Kineto, "Chrome trace" JSON), read and nothing more: its events
// as they stand in the file, with names and threads numbered.
//
//   KinetoTrace trace = read_kineto("rank0.json.gz", {});
//   trace.events[3].start, trace.names[trace.events[3].name]
//
// Fields and oddities: docs/import.md; source of the format: pytorch/kineto,
// libkineto/src/output_json.cpp. Read are versions from 1.13 (a bare array of events, or an object with
// categories `async_cpu_to_gpu`) on, with CUDA and ROCm names. Times are exact: whole nanoseconds, from
// the decimal digits of the file.
//
// Kept are complete events (ph X) of operators, runtime calls, GPU work, synchronisation and user
// annotations; Python functions, flows, markers and metadata are counted. An event without a finite
// time, and one that stands twice, is left out and counted. Numbers may stand in quotes, as Ascend's
// profiler and tools that rewrite traces put them. A file that is cut off gives the events up
// to there, and `problems` says so.
//
// JAX's profiler (xprof, *.trace.json.gz) is read, too, one device at a time: kernels and copies are what the lines "Stream #N" of a
// process "/device:GPU:N" hold, launches the calls of CUDA on the host, joined by correlation_id; steps are the line "Steps", without
// it the executions of the module that takes most time. It has no operators, and no sizes of collectives.
//
// Cost: about 2.5 ns a byte, unpacking included; 96 bytes of memory an event that is kept.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "recordings/byte_source.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

using dovetail::to_string;

// Of one tensor, more than any GPU holds; a file's larger counts count as not known. Sums of bytes over
// 2^20 such tensors still fit.
constexpr std::int64_t kMostElements = std::int64_t{1} << 38;

enum class EventKind : std::uint8_t {
  Operator,     // cpu_op
  Annotation,   // user_annotation
  RuntimeCall,  // cuda_runtime, cuda_driver, hip...
  Kernel,       // on the GPU, as the two below
  Memcpy,
  Memset,
  Synchronisation,  // cuda_sync: what a stream or the host waited for
};

// Args that only a kernel has.
struct KernelShape {
  std::array<std::int32_t, 3> grid{}, block{};
  std::int32_t registers_per_thread = 0;
  std::int64_t shared_memory_bytes = 0;
};

// What a collective said of itself, on its kernel or on its call.
struct CollectiveArgs {
  std::string kind;  // "allreduce", "all_to_allv", "wait"
  std::string dtype;
  std::string group;                // Process Group Name
  std::string description;          // Process Group Description, e.g. "default_pg"
  std::vector<std::int64_t> ranks;  // Process Group Ranks; empty: not told, or not all of them
  std::optional<std::int64_t> in_elements, out_elements;
  std::optional<std::int64_t> group_size;
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> source, destination;  // of a message, ranks of the job
  std::optional<std::int64_t>
      peer;  // of c10d::send and c10d::recv_, in the group: a concrete input
};

// Input Dims and Input type of an operator, as far as they are lists of numbers and words.
struct InputShapes {
  std::vector<std::vector<std::int64_t>> dims;  // of tensors; a list of tensors: its first
  std::vector<std::string> types;
};

struct Synchronisation {
  std::int64_t waits_on_stream = -1;
  std::int64_t waits_on_record = -1;  // correlation of the cudaEventRecord
};

struct TraceEvent {
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::int64_t correlation = -1;  // joins a runtime call with GPU work; -1: none
  std::int64_t external_id = -1;  // joins GPU work with an operator; -1: none
  std::int64_t bytes = -1;        // of copies
  std::int32_t name = 0;          // in KinetoTrace::names
  std::int32_t thread = 0;        // in KinetoTrace::threads
  std::int32_t stream = -1;       // of GPU work, as the file numbers it
  std::int32_t kernel = -1, collective = -1, shapes = -1, sync = -1;  // in the tables below
  EventKind kind = EventKind::Operator;

  [[nodiscard]] std::int64_t end_ns() const { return start_ns + duration_ns; }
};

struct TraceThread {
  std::string process, thread;  // as written
  friend bool operator==(const TraceThread&, const TraceThread&) = default;
};

struct DeviceProperties {
  std::string name;
  std::int64_t sms = 0;
  std::int64_t threads_per_sm = 0, registers_per_sm = 0, shared_memory_per_sm = 0;
};

// Who wrote the file.
enum class Recorder : std::uint8_t { Kineto, Jax, NcclPlugin };
constexpr auto words_of(Recorder) {
  return words("PyTorch's profiler", "JAX's profiler", "NCCL's profiler plugin");
}

// GPU work and the like that is in the file and cannot be used, so that nobody is told it was not recorded.
struct UnreadWork {
  std::int64_t without_time = 0;  // GPU work, left out
  std::map<std::string, std::int64_t>
      foreign;             // of devices of other formats: "category mtia_ccp_events"
  std::int64_t flows = 0;  // from the host to a device's work (ac2g)
};

struct KinetoTrace {
  std::string file;
  std::optional<std::int64_t> rank, world_size;
  std::string backend;       // "nccl", "gloo"
  std::string nccl_version;  // "2.17.1"
  std::map<std::int64_t, DeviceProperties> devices;
  std::map<std::string, std::vector<std::int64_t>> groups;  // ranks by name, of pg_config
  std::int64_t base_ns = 0;  // of baseTimeNanoseconds; absolute = base + start
  Recorder recorder = Recorder::Kineto;
  std::vector<std::string> device_lines;  // of JAX's: "/device:GPU:0 (NVIDIA H100 80GB HBM3)"
  bool steps_are_on_device = false;  // steps are windows of the device's time, not of the host's
  bool is_array = false;             // the old writer's: no Kineto in that build
  bool has_shapes = false;           // the file says that it was recorded with record_shapes

  std::vector<std::string> names;
  std::vector<TraceThread> threads;
  std::vector<TraceEvent> events;  // sorted by start, the longer first
  std::vector<KernelShape> kernels;
  std::vector<CollectiveArgs> collectives;
  std::vector<InputShapes> shapes;
  std::vector<Synchronisation> syncs;

  std::int64_t bytes = 0;  // of JSON
  std::int64_t events_in_file = 0;
  UnreadWork unread;
  std::vector<std::string> problems;  // what was left out and why, one line each

  [[nodiscard]] const std::string& name_of(const TraceEvent& event) const {
    return names[static_cast<std::size_t>(event.name)];
  }
};

// Throws InputError: unreadable, not JSON, no list of events in it, or the list of PyTorch's profiler before
// Kineto, which has no kernels.
// `device`: which of the device_lines, of a trace that has several.
KinetoTrace read_kineto(const std::string& path, const ByteLimits& limits, std::size_t device = 0);
KinetoTrace read_kineto(ByteSource source);

}  // namespace dovetail::imports
