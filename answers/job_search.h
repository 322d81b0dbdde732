// The search over what a job may decide: layout, pipeline schedule, sharding, recomputation, micro-batch, overlap.
//
//   JobSearch found = search_jobs(jobs::JobGrid::over(job, 64, 8), cluster);
//   found.rows[*found.best].change     // "tp=8,pp=2,dp=4,zero=1,async_tp=yes"
//   found.least                        // no job of the grid that fits is faster: a proof
//
// First what cannot be: of every job of the grid its memory and the least that its step takes (job_sketch.h) are known in
// microseconds. Jobs that do not fit, and those whose least step is above the fastest that was simulated, are never simulated; of the
// others those are that the sketch says are fastest, and rows are these alone. What is proven of the rest is the least of them.
//
// A row is what somebody can start: of a job that names no framework (Job::as) the job that the first framework which can be told all
// of it runs, by that framework's rules. A row that none can be told whole is never the best.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/job_prediction.h"
#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/networks/job_grid.h"

namespace dovetail::predict {

// The change of a job that is taken as it is.
inline constexpr std::string_view kAsAsked = "as asked";

// What one more change led to.
struct Decided {
  std::string change;
  Duration step{};
};

struct JobRow {
  std::string change;   // all that differs from the job of the grid; no two rows have the same
  jobs::Job said;       // in the ways of nobody, unless the job names a framework
  JobPrediction found;  // of the job that is run
  std::string target;   // who can be told all of it: "megatron"; "" where nobody can
  int changes = 0;      // parts in which it differs from the job of the grid (GridPoint, GridWay)
  bool alike = false;   // fits, and public measurements would not tell its step from the best one's
};

// What became of the jobs of a grid. Their sum is `all`.
struct JobCounts {
  std::int64_t all = 0;
  std::int64_t simulated = 0;
  std::int64_t without_room = 0;  // they do not fit
  std::int64_t slower = 0;        // proven: their least step is above the fastest one's
  std::int64_t left = 0;          // fit and may be faster, but a sketch says that they are not
};

struct JobSearch {
  std::vector<JobRow> rows = {};  // the fastest first; where none fits the smallest
  // Of rows that fit and that a framework can be told: the fastest; of those that cannot be told apart from it the one with the
  // fewest changes (where no job was asked for, of those within 2 % of it), then the fastest, and of those within 2 % of that the
  // one that takes least memory. Where the job as asked is none of those only what can be told from it, too. What may fit
  // counts where it takes no more than the job as asked, or where nothing fits for certain.
  std::optional<std::size_t> best = std::nullopt;
  std::optional<std::size_t> fastest = std::nullopt;  // of the same rows
  std::vector<Decided> path =
      {};  // from the job as asked to the best, where that has several changes
  // No job of the grid that fits is faster, whether a framework can be told it or not; where none is named (Job::as) as Megatron runs it,
  // with Zero 3 as FSDP2 does. Absent where none fits, and where the search was interrupted.
  std::optional<Duration> least = std::nullopt;
  JobCounts counts = {};
  std::vector<std::string> left_out = {};  // why some cannot be priced, one line for each reason
  bool interrupted = false;  // by its watch or a signal: the rows are those until then
};

// What a search does: looks at points of the grid, then simulates jobs, in as many rounds as need be.
enum class JobPhase { Sketch, Simulate };

// Who watches: hears how many items the next round has at most, and behind each one says whether to go on; jobs are simulated
// between the points of a round, too. Called from several threads, one at a time.
struct JobWatch {
  std::function<void(JobPhase, std::size_t items)> begins = [](JobPhase, std::size_t) {};
  std::function<bool(JobPhase, const std::string& item)> goes_on =
      [](JobPhase, const std::string&) { return true; };
};

// Throws InputError where the job as asked cannot be priced.
JobSearch search_jobs(const jobs::JobGrid& grid, const models::Cluster& cluster,
                      const JobWatch& watch = {}, Play how = Play::Repeats);

// By what share two steps of such a job have to differ, predicted, before the faster one is faster in some three of four public
// pairs: on one node of eight GPUs 0.1 (83 of nanotron's 84 pairs that differ by more), on several 0.2 (74 % of those
// from 20 to 50 %). validate public --with-steps counts them.
double told_apart(const jobs::Job& job);

}  // namespace dovetail::predict
