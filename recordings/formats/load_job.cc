// Reads each file by the reader of its recorder.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/formats/load_job.h"

#include "recordings/kineto/reader.h"

#include <utility>

namespace dovetail::imports {

JobTrace load_job(const std::vector<std::string>& files, const JobOptions& options) {
  std::vector<Recording> recordings;
  for (const std::string& file : files) {
    recordings.push_back(read_kineto(file, options.limits));
    // Each further device of JAX's trace is a rank. What comes from a pipe is there once.
    const std::size_t devices = file == "-" ? 1 : recordings.back().device_lines.size();
    for (std::size_t device = 1; device < devices; ++device) {
      recordings.push_back(read_kineto(file, options.limits, device));
    }
  }
  return make_job(std::move(recordings), options);
}

}  // namespace dovetail::imports
