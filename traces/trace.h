// A Trace: what happened, command by command and rank by rank. Both machines return one; comparison
// joins two of them.
//
// A Trace stands alone: it carries the names and sizes of its commands, so it can be read without
// the plan. Spans of one rank and one stream never overlap. Times count from the moment the step
// began on the earliest rank. With several steps, `step` counts from 0 and times go on rising.
//
// What a span means, on both machines alike:
//   Compute     the op computed
//   Copy        bytes moved into or out of a bucket
//   Collective  from the moment this rank's stream began it (earlier ones done, event seen) to its
//               end; the part before the last rank arrived is waiting, not transfer, and
//               `transfer_start` marks that moment where it is known
//   Wait        the stream stood at a WaitEvent whose event was not there yet (a stall)
//   Enqueue     host work on the compute stream to launch a collective
//   Kernel      a kernel or copy that the device ran for a command, on a stream of its own;
//               measured traces may have them, and no metric counts them
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "base/words.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::traces {

using dovetail::to_string;

enum class Origin { Simulated, Measured };
constexpr auto words_of(Origin) { return words("simulated", "measured"); }
enum class SpanKind { Compute, Copy, Collective, Wait, Enqueue, Kernel };
constexpr auto words_of(SpanKind) {
  return words("compute", "copy", "collective", "wait", "enqueue", "kernel");
}
enum class SpanPhase { Forward, Backward, Optimizer, Communication };
constexpr auto words_of(SpanPhase) {
  return words("forward", "backward", "optimizer", "communication");
}

// Where the numbers come from. Every report prints it.
struct Provenance {
  Origin origin = Origin::Simulated;
  std::string machine;  // cluster name, or host and CPU
  std::string policy;   // of the schedule
  std::string workload;
  std::string backend;                       // "sim", "cpu/ring", "cpu/gloo", "fake"
  std::map<std::string, std::string> notes;  // "date", "link", "valid", "seed", ...
  friend bool operator==(const Provenance&, const Provenance&) = default;
};

// Note of a trace of GPUs: the SM clock of rank 0's, in MHz, read once when its steps had ended.
inline constexpr const char* kSmClockNote = "SM clock after the run MHz";

// Note of a trace of one recorded step: what the profiler called it.
inline constexpr const char* kStepNameNote = "step";

struct StreamInfo {
  StreamId id;
  std::string name;
  friend bool operator==(const StreamInfo&, const StreamInfo&) = default;
};

// A gradient or parameter, or a range of it, that travels in a bucket.
struct CarriedTensor {
  std::string name;
  Bytes bytes;
  std::optional<CommandId> producer = std::nullopt;  // at whose end it is ready, where known
  friend bool operator==(const CarriedTensor&, const CarriedTensor&) = default;
};

// What a command is, for readers of the trace.
struct CommandInfo {
  CommandId id;
  SpanKind kind = SpanKind::Compute;
  SpanPhase phase = SpanPhase::Communication;
  std::string name;  // "fc1.backward.weight", "all-reduce bucket 3"
  std::optional<BucketId>
      bucket;   // for collectives, copies, waits and enqueues that concern one bucket
  Bytes bytes;  // moved by a collective or copy; 0 otherwise
  // What each rank's link carries of a collective: bus bandwidth, as nccl-tests defines it, times
  // time. 0: not known.
  Bytes bus_bytes = Bytes(0);
  // The command of another stream that a wait waits for, or that launches a collective.
  std::optional<CommandId> after = std::nullopt;
  std::vector<CarriedTensor> tensors = {};  // of a bucket's collective, in the bucket's order
  // More for a viewer, "cause": "straggler"; in no trace file of dovetail's own.
  std::map<std::string, std::string> remarks = {};
  friend bool operator==(const CommandInfo&, const CommandInfo&) = default;
};

struct Span {
  CommandId command;
  Rank rank;
  StreamId stream;
  std::int32_t step = 0;
  Instant start;
  Instant end;
  std::optional<Instant> transfer_start;  // collectives only
  friend bool operator==(const Span&, const Span&) = default;
};

struct Trace {
  Provenance provenance;
  std::int64_t world_size = 1;  // of the job; a folded simulation traces fewer ranks
  std::int32_t steps = 1;
  std::vector<Rank> ranks;  // those that have spans
  std::vector<StreamInfo> streams;
  std::vector<CommandInfo> commands;  // sorted by id
  std::vector<Span> spans;            // sorted by rank, stream, start

  // REQUIRES: the command exists.
  [[nodiscard]] const CommandInfo& command(CommandId id) const;
  friend bool operator==(const Trace&, const Trace&) = default;
};

}  // namespace dovetail::traces
