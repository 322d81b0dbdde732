// The search over what a job may decide: layout, pipeline schedule, sharding, recomputation, micro-batch, overlap.
//
//   JobSearch found = search_jobs(jobs::layouts(job, 64, 8), cluster);
//   found.rows[*found.best].path      // tp=8,pp=2,dp=4,zero=1: 8944 ms, async_tp=yes: 8120 ms, ...
//
// A climb: all given jobs are predicted, then single changes of the fastest that fits and of those that would be faster if
// they fitted (where none fits, of the smallest), and so on until nothing is faster. Every row is a simulated step.
//
// A row is what somebody can start: of a job that names no framework (Job::as) the job that the first framework which can be told all
// of it runs, by that framework's rules. A row that none can be told whole is never the best; what the nearest one makes of it is
// another row.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/job_prediction.h"
#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/networks/variants.h"

namespace dovetail::predict {

// The change of a job that is taken as it is.
inline constexpr std::string_view kAsAsked = "as asked";

// What one more change led to.
struct Decided {
  std::string change;
  Duration step{};
};

struct JobRow {
  std::string change;         // all that differs from the first job; no two rows have the same
  jobs::Job said;             // in the ways of nobody, unless the job names a framework
  JobPrediction found;        // of the job that is run
  std::string target;         // who can be told all of it: "megatron"; "" where nobody can
  std::vector<Decided> path;  // from a given job to this one
  bool alike = false;  // fits, and public measurements would not tell its step from the best one's
};

struct JobSearch {
  std::vector<JobRow> rows = {};  // the fastest first; where none fits the smallest
  // Of rows that fit and that a framework can be told: the fastest; of those that cannot be told apart from it the one with the
  // fewest changes (where no job was asked for, of those within 2 % of it), then the fastest, and of those within 2 % of that the
  // one that takes least memory. Where the job as asked is none of those only what can be told from it, too. What may fit
  // counts where it takes no more than the job as asked, or where nothing fits for certain.
  std::optional<std::size_t> best = std::nullopt;
  std::optional<std::size_t> fastest = std::nullopt;  // of the same rows
  std::vector<std::string> left_out = {};  // of the given jobs those that cannot be priced, and why
  bool interrupted = false;  // by its watch or a signal: the rows are those until then
};

// Who watches: hears how many jobs the next round has, and behind each one's prediction says whether to go on. Called from
// several threads, one at a time.
struct JobWatch {
  std::function<void(std::size_t jobs)> begins = [](std::size_t) {};
  std::function<bool(const std::string& change)> goes_on = [](const std::string&) { return true; };
};

// Throws InputError where the job as asked cannot be priced. REQUIRES: there are jobs.
JobSearch search_jobs(std::vector<jobs::Variant> given, const models::Cluster& cluster,
                      const JobWatch& watch = {});

// By what share two steps of such a job have to differ, predicted, before the faster one is faster in some three of four public
// pairs: on one node of eight GPUs 0.1 (83 of nanotron's 84 pairs that differ by more), on several 0.2 (74 % of those
// from 20 to 50 %). validate public --with-steps counts them.
double told_apart(const jobs::Job& job);

}  // namespace dovetail::predict
