// A communicator of the emulated NCCL, between its files.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/control.h"
#include "tests/emulated/nccl_link.h"
#include "tests/emulated/runtime.h"

#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct ncclComm {
  static constexpr int kConnecting = 1000;
  dovetail::emulated::Link link;
  std::string name;  // of the segment
  std::int32_t device = 0;
  bool is_blocking = true;
  std::shared_ptr<dovetail::emulated::Serial> serial =
      std::make_shared<dovetail::emulated::Serial>();
  std::vector<double> factors;  // of ncclRedOpCreatePreMulSum
  int registrations = 0;
  bool hangs = false;                 // the work that is enqueued next never ends
  bool breaks = false;                // ... breaks the device when it runs
  std::atomic<bool> is_used = false;  // operations were enqueued on it
  bool is_gone = false;
  std::atomic<int> pending = 0;  // asks until a non-blocking call is over
  std::atomic<ncclResult_t> async = ncclSuccess;
  std::atomic<int> under_way = 0;  // kernels
  std::atomic<int> graphs = 0;     // nodes that refer to it
};

namespace dovetail::emulated {

extern thread_local std::string t_nccl_words;  // ncclGetLastError
ncclResult_t refuse(ncclResult_t result, const std::string& why);
void nap();
ncclResult_t begin_call(ncclComm_t comm, const char* function);
// What a fault does at the call itself.
ncclResult_t suffer(ncclComm_t comm, std::optional<FaultKind> fault);
cudaError_t enqueue_on(ncclComm_t comm, cudaStream_t stream, Work work);

}  // namespace dovetail::emulated
