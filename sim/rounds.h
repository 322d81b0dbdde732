// Which part of a step repeats itself: how long each further round of micro-batches takes.
//
//   const std::optional<Rounds> rounds = find_rounds(program, compiled, timeline, 1);
//   if (rounds && rounds->are_equal) step + 7 * rounds->second()         // of a step of seven more micro-batches
//
// Once a pipeline is full every role runs the same ops for one micro-batch after another (with chunks: for a round of as many as there
// are stages) until the last ones. What happens from some moment on depends on what is in flight then, on what follows on
// each stream, and on when hosts issue it. So where the step has two such rounds of which the second is the first, later by what
// it takes - each node on each stream, one in flight at the beginning too, with the same work for the next micro-batches, and issued
// no later than that -, a step with a round more is this one with the round once more, to the nanosecond.
//
//   stage 0   F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 ...     rounds F5 B2 and F6 B3: the last before the last F
//
// They are not equal where something still drifts: a stage that is quicker than the one that it waits for catches up with it from
// round to round until it stands still (zero-bubble, for tens of micro-batches), though the step may grow by the same all the while. Where
// a host holds up the step, and gains on it with each round, they are not either. Of such rounds `own`, `quickest` and `slowest` tell between
// what a further one adds.
// Left out: links that are at rest in the round have been so for longer behind more of them. The test: tests/answers/job_prediction_test.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/scheduled_program.h"
#include "sim/compile.h"

namespace dovetail::sim {

// In ns as in the Timeline.
struct Window {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t length() const { return end - begin; }
};

// Two rounds, one behind the other.
struct Rounds {
  std::int64_t begin = 0, between = 0, end = 0;
  bool are_equal = false;  // as above
  bool are_alike =
      false;  // nothing of the whole step goes on in them, as gathers that serve all micro-batches do
  bool host_gains = false;  // on what it holds up in the step, with every further round
  // Of each role the second; where they are not equal the last that it has begun by then, which is shorter while it drifts.
  std::vector<Window> own = {};
  // The shortest and the longest of the last rounds of all virtual stages and of their hosts; nothing where one of them has not come so far.
  std::optional<std::int64_t> quickest = std::nullopt, slowest = std::nullopt;
  std::vector<std::int64_t> compute = {};  // that ops of each lane take in its own by themselves

  [[nodiscard]] std::int64_t first() const { return between - begin; }
  [[nodiscard]] std::int64_t second() const { return end - between; }
};

// Of the last step, of so many micro-batches a round: the last that all roles can be in. Nothing where there are not so many.
// REQUIRES: compiled from this program.
std::optional<Rounds> find_rounds(const schedule::ScheduledProgram& program,
                                  const CompiledProgram& compiled, const Timeline& timeline,
                                  std::int32_t micro_steps);

}  // namespace dovetail::sim
