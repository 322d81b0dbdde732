// What one rank's trace says, joined: each piece of GPU work with the host call that launched it, the
// step it belongs to, and, for a collective, its kind and size.
//
//   RankTimeline line = join(trace, {});
//   line.steps[0].works            pieces of GPU work of that step, in launch order
//   line.collectives[2].bytes      of the message, where any event tells
//
// Rules (docs/import.md says why):
//   GPU work       kernels, copies and memsets; a collective is a kernel whose name matches the
//                  pattern (unless another one is given: "nccl", "rccl" or "msccl" in any case, or any
//                  kernel that the profiler gave the args of a collective)
//                  Where the trace has no GPU work, nothing in it tells of a device, and it has collectives of
//                  threads (Gloo's), what its threads do stands for it (cpu_works.h)
//                  Copies that a collective's operator (record_param_comms, nccl:, c10d::) launches itself, where no kernel
//                  does it, are a collective of copy engines, all of one operator together; so is a copy between devices
//   launch         the runtime call with the same correlation; the flows of the file are not used
//   step           the iteration in which the launch began, however late the GPU ran it (iterations.h). A
//                  step that lost its kernels is none; nor is a first one for which the GPU was late with
//                  what came before
//   overlap        kernels of one stream run one after the other: one whose end lies beyond the next one's
//                  (ROCm's durations overflow) ends where that begins; but for those of one graph launch
//   kind, size     of a collective: args of its kernel, args of record_param_comms, the shape given to
//                  the enclosing nccl: annotation, that of c10d::, else unknown
//
// Times count from the first event of the trace.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/recording.h"
#include "recordings/timeline/gpu_clock.h"
#include "recordings/timeline/messages.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

inline constexpr std::int32_t kNone = -1;

struct GpuWork {
  Instant start, end;
  std::int32_t event = kNone;       // in Recording::events
  std::int32_t stream = 0;          // in RankTimeline::streams
  std::int32_t launch = kNone;      // in RankTimeline::calls; none: launched before the trace began
  std::int32_t step = kNone;        // in RankTimeline::steps
  std::int32_t collective = kNone;  // in RankTimeline::collectives
  bool is_aside = false;  // of another stream, and nothing of the step waits for it (side_work.h)
};

enum class CallKind : std::uint8_t { Launch, Blocking, WaitEvent, Other };

// A runtime call of a thread that launches GPU work.
struct HostCall {
  Instant start, end;
  std::int32_t event = kNone;
  std::int32_t thread = 0;          // as in Recording::threads
  std::int32_t first_work = kNone;  // launched by it, in RankTimeline::works
  CallKind kind = CallKind::Other;
  bool waits_on_device = false;          // until everything launched before has ended
  std::int32_t waits_on_stream = kNone;  // in RankTimeline::streams, where the trace names it
  std::int32_t waits_on_record = kNone;  // until what was launched there before this call, in
                                         // RankTimeline::calls; none: before the call itself
  bool is_aside = false;                 // of a thread that launches only work that is aside
};

enum class CollectiveKind : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  AllToAll,
  SendReceive,
  Barrier,  // has no size, and all its time is waiting
  Unknown
};
std::string_view to_string(CollectiveKind kind);
// That a name tells, but for barriers: "c10d::allreduce_".
CollectiveKind collective_kind(std::string_view text);

struct TracedCollective {
  std::int32_t work = kNone;
  CollectiveKind kind = CollectiveKind::Unknown;
  std::string dtype;                     // "float"; empty: unknown
  std::optional<std::int64_t> elements;  // of the input message
  std::optional<Bytes> bytes;
  std::optional<std::int64_t> group_size;
  std::string group;                  // its name, which several groups may share
  std::vector<std::int64_t> members;  // its ranks, rising; empty: unknown
  Message message;                    // of a send or receive; its peer a rank of the job
  std::int32_t call = kNone;  // event of the operator that issued it (c10d:: or record_param_comms)
  std::int32_t place = 0;     // among the collectives of its step, from 0
};

// An iteration, as the host began and ended it (iterations.h).
struct TracedStep {
  std::string name;  // "ProfilerStep#4"
  std::int64_t number = 0;
  Instant start, end;               // on the host
  std::vector<std::int32_t> works;  // in launch order
  bool is_before_gap = false;       // the step behind it was left out, or is not in the file
  bool updates = false;             // the optimizer steps in it, as far as the trace says
};

// Backward of one micro-step, on the host.
struct BackwardPass {
  Instant begin, end;
  bool reduces = false;  // some gradients
};

// Medians over the steps of the optimizer; 1 each where nothing accumulates, or nobody can tell.
struct Accumulation {
  std::int64_t passes = 1;    // of backward
  std::int64_t reducing = 1;  // of these: that reduce, all the same
};

// Kernels that were not counted as collectives and look like some (likely_collectives.h).
struct LikelyCollectives {
  std::string what;     // "expert-parallel dispatch"
  std::string pattern;  // that counts them: --collective-pattern internode::dispatch
  std::int64_t kernels = 0;
};

// What the trace may hold beyond what was recognised: nothing is concluded from its absence.
struct Unrecognised {
  std::vector<LikelyCollectives> likely;
  UnreadWork unread;
  Recorder recorder = Recorder::Kineto;
  std::int64_t launches = 0;  // of kernels, where no GPU work is in the file
  // There, too: collectives of a device's library by its name, as the host called them: "hccl", from "hccl:all_reduce".
  std::map<std::string, std::int64_t> device_libraries;
  // Of threads (Gloo's), where hardly any operator is in the file that they could overlap with.
  std::int64_t cpu_collectives = 0;

  // Whether a device worked for the rank, though the file has none of its work that can be read. Then the threads of the
  // host launch and wait, and what they do must not count as the rank's compute.
  [[nodiscard]] bool tells_of_device() const {
    return !unread.foreign.empty() || unread.without_time > 0 || unread.flows > 0 || launches > 0 ||
           !device_libraries.empty();
  }
};

struct TracedStream {
  std::int32_t id = 0;  // as the file numbers it
  bool communicates = false;
};

struct RankTimeline {
  std::optional<std::int64_t> rank, world_size;
  std::int64_t origin_ns = 0;                 // of the trace's own clock
  std::vector<GpuWork> works;                 // by start
  std::vector<HostCall> calls;                // by start
  std::vector<TracedCollective> collectives;  // by start
  std::vector<TracedStep> steps;
  std::vector<BackwardPass> passes;  // by time
  Accumulation accumulation;
  std::vector<TracedStream> streams;
  std::int32_t compute_stream = kNone;  // that computes most, where any does
  GpuClock clock;
  std::vector<std::int32_t>
      parent;                   // of each event: the operator or annotation around it, by thread
  bool is_whole_trace = false;  // one step, and nothing says that it is one
  bool on_cpu = false;          // no GPU: threads are the streams (cpu_works.h)
  Unrecognised unrecognised;
  std::vector<std::string> notes;     // how the trace was read, and what was left out
  std::vector<std::string> unknowns;  // what could not be found out, one line each

  [[nodiscard]] Instant instant(std::int64_t trace_ns) const {
    return Instant(Duration(trace_ns - origin_ns));
  }
};

struct JoinOptions {
  std::string step = {};  // name of the annotations around steps; empty: as iterations.h finds them
  std::vector<std::string> collective_patterns = {};  // parts of kernel names; empty: the usual
};

// Takes steps out of a timeline; what they launched belongs to none. `out` by step.
void leave_out_steps(RankTimeline& line, const std::vector<char>& out);

// Works without launch that began before the first step are left in `works` with no step. Times of GPU work are those
// of the host's clock (gpu_clock.h).
RankTimeline join(const Recording& trace, const JoinOptions& options);

// The nearest operator or annotation of that kind around an event; kNone: none.
std::int32_t enclosing(const Recording& trace, const RankTimeline& line, std::int32_t event,
                       Is kind);

}  // namespace dovetail::imports
