// The traces that tests read, and small ones made of text.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recordings/kineto/reader.h"
#include "recordings/load/load_job.h"
#include "recordings/timeline/rank_set.h"

namespace dovetail::testing {

inline std::string trace_file(const std::string& name) {
  return std::string(DOVETAIL_SOURCE_DIR) + "/tests/recordings/kineto/traces/" + name;
}

inline imports::JobTrace resnet50() {
  return imports::load_job({trace_file("ddp-resnet50-a100x2-rank0.json.gz")}, {});
}

inline imports::JobTrace dlrm_v100x8() {
  std::vector<std::string> files;
  for (int rank = 0; rank < 8; ++rank) {
    files.push_back(trace_file("dlrm-v100x8/rank" + std::to_string(rank) + ".json.gz"));
  }
  return imports::load_job(files, {});
}

// What scripts/campaigns/gloo_traces.py recorded of a way.
inline imports::JobTrace gloo_job(const std::string& way, std::size_t ranks) {
  std::vector<std::string> files;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    files.push_back(trace_file("gloo/" + way + "-rank" + std::to_string(rank) + ".json.gz"));
  }
  return imports::load_job(files, {});
}

// Of one H100 (traces/README.md): "eager", "compiled", "ddp-one" of one rank, "ddp", "fsdp2" of two.
inline imports::JobTrace h100_job(const std::string& name) {
  if (name != "ddp" && name != "fsdp2") {
    return imports::load_job({trace_file("h100/" + name + ".json.gz")}, {});
  }
  return imports::load_job({trace_file("h100/" + name + "-rank0.json.gz"),
                            trace_file("h100/" + name + "-rank1.json.gz")},
                           {});
}

inline imports::Recording read_text(const std::string& text) {
  return imports::read_kineto(imports::ByteSource::memory("trace.json", text, {}));
}

inline imports::JobTrace job_of(const std::string& text) {
  std::vector<imports::Recording> traces;
  traces.push_back(read_text(text));
  return imports::make_job(std::move(traces), {});
}

}  // namespace dovetail::testing
