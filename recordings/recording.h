// One rank's recording: what a profiler wrote of a few steps, as events by kind, with names and threads numbered. Every recorder's reader
// gives one (kineto/, jax/, nsys/); the timeline (timeline/) joins it, and the diagnosis explains that, whoever recorded.
//
//   Recording recording = read_kineto("rank0.json.gz", {});
//   recording.events[3].start_ns, recording.name_of(recording.events[3])
//
// Times are whole nanoseconds. Memory: 96 bytes an event.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "recordings/kinds.h"

#include <algorithm>
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
  std::optional<std::int64_t> bytes;  // of the message, where the recorder gives these
  bool is_of_library = false;         // NCCL's own range says it, and not PyTorch
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

struct RecordedEvent {
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::int64_t correlation = -1;  // joins a runtime call with GPU work; -1: none
  std::int64_t external_id = -1;  // joins GPU work with an operator; -1: none
  std::int64_t bytes = -1;        // of copies
  std::int32_t name = 0;          // in Recording::names
  std::int32_t thread = 0;        // in Recording::threads
  std::int32_t stream = -1;       // of GPU work, as the file numbers it
  std::int32_t kernel = -1, collective = -1, shapes = -1, sync = -1;  // in the tables below
  EventKind kind = EventKind::Operator;

  [[nodiscard]] std::int64_t end_ns() const { return start_ns + duration_ns; }
};

struct RecordedThread {
  std::string process, thread;  // as written
  friend bool operator==(const RecordedThread&, const RecordedThread&) = default;
};

struct DeviceProperties {
  std::string name;
  std::int64_t sms = 0;
  std::int64_t threads_per_sm = 0, registers_per_sm = 0, shared_memory_per_sm = 0;
};

// Who wrote the file.
enum class Recorder : std::uint8_t { Kineto, Jax, NcclPlugin, Nsys };
constexpr auto words_of(Recorder) {
  return words("PyTorch's profiler", "JAX's profiler", "NCCL's profiler plugin", "Nsight Systems");
}

// GPU work and the like that is in the file and cannot be used, so that nobody is told it was not recorded.
struct UnreadWork {
  std::int64_t without_time = 0;  // GPU work, left out
  std::map<std::string, std::int64_t>
      foreign;             // of devices of other formats: "category mtia_ccp_events"
  std::int64_t flows = 0;  // from the host to a device's work (ac2g)
};

struct Recording {
  std::string file;
  std::optional<std::int64_t> rank, world_size;
  std::optional<std::int64_t>
      process;               // where a report holds those of several, which are of one job
  std::string report;        // the file, then
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
  std::vector<std::uint64_t> kinds;  // of each name (kinds.h), made by settle
  std::vector<RecordedThread> threads;
  std::vector<RecordedEvent> events;  // sorted by start, the longer first
  std::vector<KernelShape> kernels;
  std::vector<CollectiveArgs> collectives;
  std::vector<InputShapes> shapes;
  std::vector<Synchronisation> syncs;

  std::int64_t bytes = 0;  // of JSON
  std::int64_t events_in_file = 0;
  UnreadWork unread;
  std::vector<std::string> problems;  // what was left out and why, one line each

  [[nodiscard]] const std::string& name_of(const RecordedEvent& event) const {
    return names[static_cast<std::size_t>(event.name)];
  }
  // What its name says.
  [[nodiscard]] bool is(const RecordedEvent& event, Is kind) const {
    return (kinds[static_cast<std::size_t>(event.name)] & bit(kind)) != 0;
  }
  [[nodiscard]] bool is(std::int32_t event, Is kind) const {
    return is(events[static_cast<std::size_t>(event)], kind);
  }
  // Whether any name says it.
  [[nodiscard]] bool has(Is kind) const {
    return std::ranges::any_of(kinds,
                               [kind](std::uint64_t said) { return (said & bit(kind)) != 0; });
  }
};

// Sorts the events, leaves out those that stand twice (how many), and tells the kinds of the names. A reader calls it when all are there.
std::int64_t settle(Recording& recording);
// Throws InputError: its events span more than eleven days. One recording is short; and sums of times must not overflow.
// REQUIRES: sorted.
void require_one_recording(const Recording& recording);

}  // namespace dovetail::imports
