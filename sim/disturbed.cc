// Draws steps: each with the op times of one recorded step and a random stretch of the records of absences, played
// together.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/disturbed.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "sim/compile.h"
#include "sim/player.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

// A disturbed step may last this many undisturbed ones; after that nobody is away any more.
constexpr std::int64_t kHorizon = 16;

// `length` of a record from `offset` on, which begins anew where it ends.
std::vector<Absence> absences_from(const traces::CoreRecord& record, Duration offset,
                                   Duration length) {
  std::vector<Absence> absences;
  Duration done{};
  while (done < length && record.watched > offset) {
    const Duration part = std::min(length - done, record.watched - offset);
    for (const traces::Taken& taken : traces::window_of(record, offset, offset + part).taken) {
      const std::int64_t begin = (done + taken.start).count();
      const std::int64_t end = begin + taken.length.count();
      if (end == begin) continue;
      if (!absences.empty() && begin <= absences.back().end) {
        absences.back().end = std::max(absences.back().end, end);
      } else {
        absences.push_back({.begin = begin, .end = end});
      }
    }
    done += part;
    offset = {};
  }
  return absences;
}

Duration random_offset(const traces::Disturbances& away, Random& random) {
  Duration watched{};
  for (const traces::CoreRecord& record : away) {
    watched = watched == Duration{} ? record.watched : std::min(watched, record.watched);
  }
  return watched <= Duration{} ? Duration{} : Duration(random.between(0, watched.count() - 1));
}

Absences absences_of(const CompiledProgram& compiled, const traces::Disturbances& away,
                     Duration offset, Duration length, Duration shield) {
  Absences absences = {.by_lane = {}, .shield_ns = shield.count()};
  if (away.empty()) return absences;
  for (const Rank rank : compiled.rank_of_lane) {
    absences.by_lane.push_back(
        absences_from(away[static_cast<std::size_t>(rank.value)], offset, length));
  }
  return absences;
}

// Those that all ranks recorded; 0 where no times of ops were.
std::int64_t steps_in(const std::vector<std::vector<OpTimes>>& ops) {
  if (ops.empty()) return 0;
  std::size_t least = ops.front().size();
  for (const std::vector<OpTimes>& of_rank : ops) least = std::min(least, of_rank.size());
  DOVETAIL_CHECK(least > 0) << "a rank recorded no step";
  return static_cast<std::int64_t>(least);
}

// Gives every recorded op the times of the chosen steps, rank by rank.
void set_ops(models::OpCosts& costs, const schedule::Program& program,
             const std::vector<const OpTimes*>& chosen) {
  if (chosen.empty()) return;
  for (const schedule::Op& op : program.ops) {
    models::OpCost cost{.by_class = {}, .kernel = models::kernel_class(op)};
    for (const OpTimes* times : chosen) {
      const auto time = times->find(op.id);
      if (time == times->end()) break;  // an op that does not run
      cost.by_class.push_back(time->second);
    }
    if (cost.by_class.size() == chosen.size()) costs.set(op, std::move(cost));
  }
}

}  // namespace

Duration play_with_absences(const schedule::ScheduledProgram& program, const models::Costs& costs,
                            const traces::Disturbances& away, Duration offset, Duration shield) {
  const CompiledProgram compiled = compile(program, costs, 1);
  Workspace workspace;
  const std::int64_t undisturbed = play_with_rates(compiled.graph, workspace);
  const Absences absences =
      absences_of(compiled, away, offset, Duration(undisturbed * kHorizon), shield);
  return Duration(play_with_absences(compiled.graph, absences, workspace));
}

std::vector<Duration> draw_steps(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, const Recorded& recorded,
                                 const DrawOptions& options) {
  DOVETAIL_CHECK(options.draws >= 1) << options.draws;
  const auto world = static_cast<std::size_t>(program.program.world_size);
  DOVETAIL_CHECK(recorded.ops.empty() || recorded.ops.size() == world) << recorded.ops.size();
  DOVETAIL_CHECK(recorded.away.empty() || recorded.away.size() == world) << recorded.away.size();
  const std::int64_t recorded_steps = steps_in(recorded.ops);
  models::Costs drawn = costs;
  drawn.distinct_ranks = program.program.world_size;
  std::vector<const OpTimes*> chosen(recorded.ops.size());
  Random random(options.seed);
  Workspace workspace;
  CompiledProgram compiled;
  std::int64_t undisturbed = 0;
  std::vector<Duration> steps;
  for (std::int32_t draw = 0; draw < options.draws; ++draw) {
    if (recorded_steps > 0) {
      const auto step = static_cast<std::size_t>(random.between(0, recorded_steps - 1));
      for (std::size_t rank = 0; rank < chosen.size(); ++rank) {
        chosen[rank] = &recorded.ops[rank][step];
      }
    }
    set_ops(drawn.ops, program.program, chosen);
    if (draw == 0 || !chosen.empty()) compiled = compile(program, drawn, 1, std::move(compiled));
    if (undisturbed == 0) undisturbed = play_with_rates(compiled.graph, workspace);
    Duration offset = random_offset(recorded.away, random);
    if (options.within) {
      const std::int64_t first = options.within->from.count();
      const std::int64_t last = std::max(first, options.within->to.count() - undisturbed);
      offset = Duration(random.between(first, last));
    }
    const Absences absences = absences_of(compiled, recorded.away, offset,
                                          Duration(undisturbed * kHorizon), options.shield);
    steps.emplace_back(play_with_absences(compiled.graph, absences, workspace));
  }
  return steps;
}

Figures figures_of(std::vector<Duration> steps) {
  const traces::Spread spread = traces::spread(steps);
  return {.quiet = spread.quick, .typical = spread.median, .early = spread.p10, .late = spread.p90};
}

}  // namespace dovetail::sim
