// The search over what a job may decide: layout, pipeline schedule, sharding, recomputation, micro-batch, overlap.
//
//   JobSearch found = search_jobs(jobs::layouts(job, 64, 8), cluster);
//   found.rows[*found.best].path      // tp=8,pp=2,dp=4,zero=1: 8944 ms, async_tp=yes: 8120 ms, ...
//
// A climb: all given jobs are predicted, then single changes of the fastest that fits and of those that would be faster if
// they fitted (where none fits, of the smallest), and so on until nothing is faster. Every row is a simulated step.
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
  std::string change;  // all that differs from the first job
  JobPrediction found;
  std::vector<Decided> path;  // from a given job to this one
};

struct JobSearch {
  std::vector<JobRow> rows = {};  // the fastest first; where none fits the smallest
  // Of those that fit the fastest, or with fewer decisions one that is slower by up to a thousandth.
  std::optional<std::size_t> best = std::nullopt;
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

}  // namespace dovetail::predict
