// The chain of work and waits that makes a step as long as it is: each link begins at the moment when the one
// before it ends, and nothing else had to be waited for longer. Only where a link of it gets shorter, the step does.
//
//   critical path of step 2: each line begins when the one before has ended
//     at ms  takes ms   share  what
//     0.000    93.150  19.2 %  rank 0 forward, 14 ops
//    93.150    60.200  12.4 %  rank 0 backward, 9 ops, to layer5.backward
//   153.350   330.100  68.0 %  rank 0 transfer, buckets 2 to 6
//   483.450     0.582   0.1 %  rank 0 optimizer, 1 op
//
// Read: the ops of backward behind layer5 do not count, for bucket 2 travels meanwhile. A link that is not on
// the chain has slack, which this does not measure; once a link gets shorter, another chain may be the longest.
//
// Who finds it: sim/critical_path.h, from what each command waited for. A measured trace has none.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "base/words.h"
#include "traces/trace.h"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::traces {

using dovetail::to_string;

// Compute with the launch gap before it, where there is one. Transfer: a collective, from the moment when its last
// rank has come. Launch: host work to hand collectives over. WakeUp: from an event to the stream that waited for it.
// Host: the host had not issued the command of the next link yet.
enum class LinkKind { Compute, Copy, Transfer, Launch, WakeUp, Host };
constexpr auto words_of(LinkKind) {
  return words("compute", "copy", "transfer", "launch", "wake-up", "host");
}

struct PathLink {
  LinkKind kind = LinkKind::Compute;
  CommandId command;  // of Host: what had not been issued
  Rank rank;
  StreamId stream;
  std::int32_t step = 0;  // of the command: steps overlap, so a chain may begin in the step before
  Instant start;
  Instant end;
  friend bool operator==(const PathLink&, const PathLink&) = default;
};

// One chain per step of a trace. Its links, by time, cover the window of the step (metrics.h) without gap or overlap.
struct CriticalPath {
  std::vector<std::vector<PathLink>> steps;
  friend bool operator==(const CriticalPath&, const CriticalPath&) = default;
};

// Links of one kind, phase and stream that follow each other, as one.
struct PathPart {
  LinkKind kind = LinkKind::Compute;
  std::string what;  // "rank 0 backward, 9 ops, to layer5.backward"
  std::size_t links = 1;
  Rank rank;
  StreamId stream;
  Duration start{};  // since the start of the step window
  Duration time{};
  friend bool operator==(const PathPart&, const PathPart&) = default;
};

// REQUIRES: the path is of this trace, 0 <= step < trace.steps.
std::vector<PathPart> path_parts(const Trace& trace, const CriticalPath& path, std::int32_t step);

// The table above, of the median step.
void print_critical_path(std::ostream& out, const Trace& trace, const CriticalPath& path);

}  // namespace dovetail::traces
