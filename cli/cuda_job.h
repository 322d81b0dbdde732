// A job on the cuda backend: the module is opened and asked before any rank starts, so that
// whatever is missing ends in one sentence and exit code 3; then each rank makes its backends.
//
//   const CudaJob job = open_cuda(options);           once, throws DeviceError
//   ... per rank: options_for(job, session), job.module->make_backend(plan, ...)
//
// Ranks take GPUs by their number on the host (--device auto), or all the one that is named.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/cuda/module.h"
#include "exec/launch/session.h"

namespace dovetail::cli {

struct BackendChoice {
  std::string backend = "cpu";            // or "cuda"
  std::string cuda_module;                // path; empty: beside the executable
  std::string device = "auto";            // or a number
  std::string stand_in;                   // empty, or "send-to-self"
  std::string f32_math = "full";          // or "tf32"
  std::string issue = "eager";            // or "graph"
  std::string scales = "kernel";          // or "collective"
  std::string trace_detail = "commands";  // or "full"
  std::string buffers = "plain";          // or "nccl"
  std::int32_t cluster_size = 0;          // of NCCL's thread blocks; 0: NCCL decides
  std::string deadline = "60s";           // of any wait for a GPU or a peer
};

struct CudaJob {
  const exec::cuda::Module* module = nullptr;
  exec::cuda::Facts facts;
  exec::cuda::BackendOptions options;  // without what a session gives
  std::optional<std::int32_t> device;  // absent: by the rank's number on its host
};

// Nothing for the cpu backend. Throws InputError for a word that no option has, DeviceError when
// the module, a library or the driver is missing.
std::optional<CudaJob> open_cuda(const BackendChoice& choice);

// Of this rank. REQUIRES: the session outlives the backends. Throws DeviceError when there is no
// GPU left for this rank.
exec::cuda::BackendOptions options_for(const CudaJob& job, exec::launch::Session& session);

// What stands in the report as this job's link.
std::string link_of(const CudaJob& job);
// Why times measured on this GPU are not those of the job: it is emulated, collectives are stood in
// for, or NCCL's threads have no core of their own.
std::vector<std::string> objections_to(const CudaJob& job, std::int32_t device);

// For the provenance of measurements: versions, the GPU, and its clocks now.
std::map<std::string, std::string> notes_of(const CudaJob& job, std::int32_t device);

}  // namespace dovetail::cli
