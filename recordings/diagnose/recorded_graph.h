// Recorded steps of one rank as a StepGraph: the host issues its calls one after the other, each GPU stream runs what it
// was given in order, and events make one stream wait for another. Played unchanged it must give the recorded steps
// (replay.h); only then may it be asked what a change would do.
//
//   RecordedGraph recorded = record_graph(trace, line);
//   sim::play(recorded.graph, workspace);
//   step::Patch patch(recorded.graph);
//   patch.scale_kind(step::NodeKind::Transfer, 0);          // the steps, had the network taken no time
//
// What starts a piece of GPU work, the latest of
//   Launch      end of its runtime call + latency (median over work that found its stream empty)
//   Order       end of the work before it on its stream + gap (median over work that was queued)
//   Event       end of work on other streams that it waits for + gap (median over such stalls)
// and what starts a host call: the end of the call before + the recorded pause. A blocking call
// (synchronise, a copy from pageable memory) that waited for a piece of GPU work has a return node, which comes
// after that work (Synchronise), by as much as it did in the trace.
//
// Dependencies are not in most traces. They are taken from, in this order: what a collective always
// waits for (the work issued before it on the stream of its caller); a stall of a stream that ended
// when work of another stream ended; DDP's waits after backward; other recorded wait calls. Delays that
// no rule explains are kept as recorded, as part of the lags; `unexplained` is how long there is one at all, as
// several streams may be late at once.
//
// Durations are those of the trace: a collective's includes waiting for its peers, a kernel's what it
// lost to a collective beside it. Leaves out: priorities, and that launches block on a full queue.
//
// All threads that launch work are one host: in PyTorch the main thread waits while autograd's runs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/traced.h"
#include "sim/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::diagnose {

// What a node stands for.
struct Origin {
  // Call: of the host, up to where it waits; Return: its end, where it waited. Both: in RankTimeline::calls. Work: in
  // RankTimeline::works. StepBegin, StepEnd: markers that take no time, in RankTimeline::steps.
  enum class Kind : std::uint8_t { Call, Return, Work, StepBegin, StepEnd };
  Kind kind = Kind::Work;
  std::int32_t index = 0;
};

struct RecordedGraph {
  step::StepGraph graph;  // one lane; all work is a fixed time; collectives are transfers by kind
  std::vector<Origin> origin;                             // of each node
  std::vector<std::optional<step::NodeId>> node_of_work;  // nothing: outside the steps
  std::vector<std::optional<step::NodeId>> node_of_call;  // its return where it has one
  struct Step {
    step::NodeId begin = 0, end = 0;  // the markers
  };
  std::vector<Step> steps;                       // as RankTimeline::steps
  std::vector<std::vector<step::NodeId>> works;  // by step: the GPU work that it launched
  Instant zero;                                  // of the graph's time, in the trace's
  Duration unexplained{};  // in which some work is late and no rule explains it

  [[nodiscard]] const Origin& origin_of(step::NodeId node) const {
    return origin[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] bool communicates(step::NodeId node) const {
    return graph.kind[static_cast<std::size_t>(node)] == step::NodeKind::Transfer;
  }
  [[nodiscard]] bool is_gpu_work(step::NodeId node) const {
    return origin_of(node).kind == Origin::Kind::Work;
  }
};

RecordedGraph record_graph(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::diagnose
