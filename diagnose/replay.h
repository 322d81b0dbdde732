// A recorded step played again: the host issues its calls one after the other, each GPU stream runs what
// it was given in order, and events make one stream wait for another. With nothing changed it must give
// the recorded step; only then may it be asked what a change would do.
//
//   ReplayModel model = replay_model(trace, line);
//   Replay own = play(model);                           // error against the trace: replay_error()
//   for (ReplayNode& node : model.nodes) if (node.communicates) node.duration = {};
//   play(model)                                         // the step, had the network taken no time
//
// What starts a piece of GPU work, the latest of
//   launch      end of its runtime call + latency (median over work that found its stream empty)
//   stream      end of the work before it on its stream + gap (median over work that was queued)
//   dependency  end of work on other streams that it waits for + gap (median over such stalls)
// and what starts a host call: the end of the call before + the recorded pause. A blocking call
// (synchronise, a copy from pageable memory) that ended with a piece of GPU work ends with it again.
//
// Dependencies are not in most traces. They are taken from, in this order: what a collective always
// waits for (the work issued before it on the stream of its caller); a stall of a stream that ended
// when work of another stream ended; DDP's waits after backward; other recorded wait calls. Delays that
// no rule explains are kept as recorded and added up in `unexplained`.
//
// Durations are those of the trace: a collective's includes waiting for its peers, a kernel's what it
// lost to a collective beside it. Leaves out: priorities, and that launches block on a full queue.
//
// All threads that launch work are one host: in PyTorch the main thread waits while autograd's runs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "diagnose/traced.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::diagnose {

struct ReplayNode {
  enum class Kind : std::uint8_t { Host, Gpu };
  Kind kind = Kind::Host;
  bool communicates = false;
  Duration gap{};       // Host: pause since the call before
  Duration duration{};  // Host: of the call when it has nothing to wait for
  Duration lag{};  // Host: from the end of what it waited for to its own; Gpu: unexplained delay
  Duration latency{};           // Gpu: from the end of its call
  Duration stream_gap{};        // Gpu: from the end of the work before it on its stream
  std::int32_t stream = 0;      // Gpu
  std::int32_t launch = kNone;  // Gpu: its host node; none: starts no earlier than `fixed_start`
  Instant fixed_start;
  std::vector<std::int32_t> waits;  // Gpu nodes that must have ended
  std::int32_t work = kNone;        // Gpu: in RankTimeline::works
  std::int32_t call = kNone;        // Host: in RankTimeline::calls
  std::int32_t step = kNone;        // Gpu: as GpuWork::step
};

// Where a step of the host ends: the marker nodes.
struct ReplayStep {
  std::int32_t begin = 0, end = 0;  // host nodes of no duration
};

struct ReplayModel {
  std::vector<ReplayNode> nodes;  // in order of issue: all that a node waits for stands before it
  std::vector<ReplayStep> steps;  // as RankTimeline::steps
  Instant host_start;
  std::int32_t streams = 0;
  Duration dependency_gap{};
  std::vector<std::int32_t> node_of_work;  // kNone: outside the steps
  std::vector<std::int32_t> node_of_call;
  Duration unexplained{};  // sum of the lags of GPU nodes
  std::size_t inferred_waits = 0;
};

// Why a node started when it did.
enum class StartedBy : std::uint8_t { Host, Launch, Stream, Dependency, Fixed };

struct Replay {
  std::vector<Instant> start, end;  // by node
  std::vector<StartedBy> by;
  std::vector<std::int32_t> cause;  // the node that ended last before it; kNone: none
};

// Figures of every step of a replay, defined as for the trace.
struct ReplayedStep {
  StepFigures figures;
  Duration step{};  // from the end of the step before, host and GPU, to its own
};

ReplayModel replay_model(const KinetoTrace& trace, const RankTimeline& line);
Replay play(const ReplayModel& model);
std::vector<ReplayedStep> replayed_steps(const ReplayModel& model, const Replay& replay);
// The same of the trace itself.
std::vector<ReplayedStep> recorded_steps(const ReplayModel& model, const RankTimeline& line);

// How far the replay of a trace is off it. Shares: 0.01 is 1 %.
struct ReplayError {
  Duration recorded_step{}, replayed_step{};  // sums over steps
  Duration recorded_span{}, replayed_span{};
  Duration recorded_exposed{}, replayed_exposed{};
  double step = 0, span = 0, exposed = 0;
  Duration median_start{};  // of the starts of GPU work, absolute
  // Good enough for a what-if: the step within 2 %, exposed within 10 % or 1 % of the step.
  [[nodiscard]] bool is_trustworthy() const;
};
ReplayError replay_error(const ReplayModel& model, const RankTimeline& line);

}  // namespace dovetail::diagnose
