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
//   launch         the runtime call with the same correlation; the flows of the file are not used
//   step           the ProfilerStep annotation in which the launch began, however late the GPU ran it;
//                  without one, the whole trace is one step
//   kind, size     of a collective: args of its kernel, args of record_param_comms, the shape given to
//                  the enclosing nccl: annotation, that of c10d::, else unknown
//
// Times count from the first event of the trace.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "imports/kineto/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

inline constexpr std::int32_t kNone = -1;

struct GpuWork {
  Instant start, end;
  std::int32_t event = kNone;       // in KinetoTrace::events
  std::int32_t stream = 0;          // in RankTimeline::streams
  std::int32_t launch = kNone;      // in RankTimeline::calls; none: launched before the trace began
  std::int32_t step = kNone;        // in RankTimeline::steps
  std::int32_t collective = kNone;  // in RankTimeline::collectives
};

enum class CallKind : std::uint8_t { Launch, Blocking, WaitEvent, Other };

// A runtime call of a thread that launches GPU work.
struct HostCall {
  Instant start, end;
  std::int32_t event = kNone;
  std::int32_t thread = 0;          // as in KinetoTrace::threads
  std::int32_t first_work = kNone;  // launched by it, in RankTimeline::works
  CallKind kind = CallKind::Other;
};

enum class CollectiveKind : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  AllToAll,
  SendReceive,
  Unknown
};
std::string_view to_string(CollectiveKind kind);

struct TracedCollective {
  std::int32_t work = kNone;
  CollectiveKind kind = CollectiveKind::Unknown;
  std::string dtype;                     // "float"; empty: unknown
  std::optional<std::int64_t> elements;  // of the input message
  std::optional<Bytes> bytes;
  std::optional<std::int64_t> group_size;
  std::string group;
  std::int32_t call = kNone;  // event of the operator that issued it (c10d:: or record_param_comms)
  std::int32_t place = 0;     // among the collectives of its step, from 0
};

struct TracedStep {
  std::string name;  // "ProfilerStep#4"
  std::int64_t number = 0;
  Instant start, end;               // of the annotation on the host
  std::vector<std::int32_t> works;  // in launch order
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
  std::int64_t launches = 0;  // of kernels, where no GPU work is in the file
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
  std::vector<TracedStream> streams;
  std::vector<std::int32_t>
      parent;  // of each event: the operator or annotation around it, by thread
  bool has_step_annotations = true;
  Unrecognised unrecognised;
  std::vector<std::string> unknowns;  // what could not be found out, one line each

  [[nodiscard]] Instant instant(std::int64_t trace_ns) const {
    return Instant(Duration(trace_ns - origin_ns));
  }
};

struct JoinOptions {
  std::vector<std::string> collective_patterns;  // parts of kernel names; empty: the usual
};

// Works without launch that began before the first step are left in `works` with no step.
RankTimeline join(const KinetoTrace& trace, const JoinOptions& options);

// The nearest operator or annotation around an event whose name contains `part`; kNone: none.
std::int32_t enclosing(const KinetoTrace& trace, const RankTimeline& line, std::int32_t event,
                       std::string_view part);

}  // namespace dovetail::imports
