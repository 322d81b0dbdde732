// Reads each file by the reader of its recorder.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/load/load_job.h"

#include "recordings/guess.h"
#include "recordings/kineto/reader.h"
#include "recordings/nsys/reader.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dovetail::imports {
namespace {

// Ranks as NCCL numbered them in a group are those of the job only where no two are the same.
void forget_ranks_of_groups(std::vector<Recording>& recordings) {
  std::set<std::int64_t> seen;
  const bool are_of_groups = std::ranges::any_of(recordings, [&seen](const Recording& one) {
    return one.recorder == Recorder::Nsys && one.rank && !seen.insert(*one.rank).second;
  });
  for (Recording& one : recordings) {
    if (!are_of_groups || one.recorder != Recorder::Nsys) continue;
    one.rank.reset();
    one.world_size.reset();
  }
}

}  // namespace

std::vector<Recording> read_recordings(const std::string& file, const ByteLimits& limits) {
  if (guess_format_of_file(file) == Format::Nsys) return read_nsys(file, {});
  std::vector<Recording> recordings;
  recordings.push_back(read_kineto(file, limits));
  // Each further device of JAX's trace is a rank. What comes from a pipe is there once.
  const std::size_t devices = file == "-" ? 1 : recordings.back().device_lines.size();
  for (std::size_t device = 1; device < devices; ++device) {
    recordings.push_back(read_kineto(file, limits, device));
  }
  return recordings;
}

JobTrace load_job(const std::vector<std::string>& files, const JobOptions& options) {
  std::vector<Recording> recordings;
  for (const std::string& file : files) {
    for (Recording& one : read_recordings(file, options.limits)) {
      recordings.push_back(std::move(one));
    }
  }
  forget_ranks_of_groups(recordings);
  return make_job(std::move(recordings), options);
}

}  // namespace dovetail::imports
