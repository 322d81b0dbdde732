// Reads each file by the reader of its recorder.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/load/load_job.h"

#include "recordings/guess.h"
#include "recordings/kineto/reader.h"
#include "recordings/nsys/reader.h"

#include <utility>

namespace dovetail::imports {
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
  return make_job(std::move(recordings), options);
}

}  // namespace dovetail::imports
