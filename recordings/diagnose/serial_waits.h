// Waits that make computing and communicating take turns though nothing demands it: found in a recorded graph, so that a
// cause can name them and a change can take them away.
//
//   Reduction   compute of backward, or the host before it, waits for the reduction of a bucket, which nothing reads before
//               the update (ZeRO without overlap, one bucket in flight)
//   Gather      compute waits for a gather that is started when the compute before it is done, though its parameters are
//               there since the last update (FSDP or ZeRO-3 without prefetch)
//
// Not among them: a gather behind the update (its parameters are new), the first gather of a step, the last bucket (the update
// waits for it), collectives that are no bucket's and whose result the next kernel may read (SyncBatchNorm, tensor parallel).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/diagnose/recorded_graph.h"
#include "recordings/diagnose/traced.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::diagnose {

struct SerialWait {
  enum class Kind : std::uint8_t { Reduction, Gather };
  Kind kind = Kind::Reduction;
  std::int32_t collective = kNone;  // in RankTimeline::collectives
  step::NodeId waiting = 0;         // the compute, or the return of a call
  // Positions in the lists of edges of the graph. Reduction: of `waiting`, from the collective. Gather: of the gather, from what it
  // starts behind.
  std::vector<std::size_t> edges;
  // Gather: started one layer earlier it would follow this compute. Absent: nothing in the step before it.
  std::optional<step::NodeId> instead;
};

// `buckets` by step.
std::vector<SerialWait> serial_waits(const RankTrace& rank, const RecordedGraph& recorded,
                                     const std::vector<TracedBuckets>& buckets);

// The graph without the waits of one kind: reductions are waited for at the update, each gather starts one layer earlier, behind
// the gather before it. Gathers overtake reductions of their stream, so that both may move at once: at most what is to gain.
void take_away(RecordedGraph& recorded, const std::vector<SerialWait>& waits,
               SerialWait::Kind kind);

}  // namespace dovetail::diagnose
