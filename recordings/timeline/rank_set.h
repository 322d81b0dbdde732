// The traces of one job, one or all of its ranks: what each collective cost by itself, and who was late.
//
//   JobTrace job = load_job({"rank0.json.gz", "rank1.json.gz"}, {});
//   job.ranks[0].transfer[c]        time of collective c itself, without waiting for slower ranks
//   job.waits[0]                    the collective that lost most time to a late rank: rank, op
//
// A collective moves data only once its last rank has come. Its time on the wire is therefore
//   several ranks   the shortest duration over the ranks (their ends agree, their starts do not)
//   one rank        the shortest duration over the steps at the same place: an upper bound
// and the rest of its duration is waiting. Of messages the shortest of all of one size counts: a stage of a pipeline waits at the
// same places in every step, and a host that waits late for its message ends it late. Of several ranks the late one is the one that started it last,
// and what it was late with is the operator or annotation on which it spent most time more than the
// median of the others since the collective before.
//
// A send and a receive are one where they are of the same two ranks, in order of each direction; where the traces do not tell
// who sends to whom, as collectives are.
//
// Collectives of different ranks are one where step, kind, group and number in that sequence agree. A group
// is its members: their ranks where the trace has them (in the event or in pg_config), else its name, which
// the groups of a mesh share; of a name that more given ranks have than the group has members, nothing is
// matched. All given ranks of a group must have the collective. Who is late, and what waits, is told within
// a group only.
//
// Clocks of different hosts are not aligned by profilers: offsets are estimated from the ends of matched
// collectives (their median), along ranks that meet. Ranks that never do are not compared.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/byte_source.h"
#include "recordings/recording.h"
#include "recordings/timeline/pipeline.h"
#include "recordings/timeline/rank_timeline.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

struct RankTrace {
  Recording trace;
  RankTimeline line;
  std::int64_t rank = 0;           // of the file, else its place on the command line
  std::vector<Duration> transfer;  // by collective; of its duration
  Duration clock_offset{};         // to be added to this rank's absolute time
  bool is_stage = false;           // of a pipeline: it waits for other stages in its messages

  [[nodiscard]] bool is_message(std::int32_t collective) const {
    return is_stage && line.collectives[static_cast<std::size_t>(collective)].kind ==
                           CollectiveKind::SendReceive;
  }
};

// One collective as all given ranks of its group saw it, two at least.
struct MatchedCollective {
  std::int32_t step = 0;              // in RankTimeline::steps of each rank
  std::vector<std::size_t> ranks;     // of its group, in JobTrace::ranks
  std::vector<std::int32_t> by_rank;  // in RankTimeline::collectives; as `ranks`
  Duration transfer{};                // shortest over ranks
  Duration total{}, waiting{};        // sums over ranks
  Duration start_spread{}, end_spread{};
  std::size_t late_rank = 0;  // in JobTrace::ranks: who started last
  std::string late_with;      // operator or annotation of that rank; empty: nothing stands out
  Duration late_by{};         // its start after the median start of the others

  // REQUIRES: the rank is among `ranks`.
  [[nodiscard]] std::int32_t of(std::size_t rank) const;
};

struct JobTrace {
  std::vector<RankTrace> ranks;            // by rank
  std::vector<MatchedCollective> matched;  // by time; empty for one rank
  std::optional<Pipeline> pipeline;
  Duration collective_time{};         // of all collectives of all ranks but a pipeline's messages
  Duration waiting_time{};            // of it: for slower ranks
  std::vector<std::string> unknowns;  // what could not be found out, one line each
  // As a file says it, else the ranks of the largest group that has a collective. Nothing: nobody says it.
  [[nodiscard]] std::optional<std::int64_t> world_size() const;
  // Where nobody says it, the number of files.
  [[nodiscard]] std::int64_t least_world_size() const;
};

struct JobOptions {
  JoinOptions join = {};
  ByteLimits limits = {};
};

// Throws InputError: two recordings of one rank, of different jobs (world sizes contradict each other or the ranks, or
// nothing says that it is one job) or of different runs of one (one_run.h). From files: load/load_job.h.
JobTrace make_job(std::vector<Recording> traces, const JobOptions& options);

}  // namespace dovetail::imports
