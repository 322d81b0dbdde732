// Keeps NCCL communicators between backends, by ranks and options, since creating them takes
// seconds.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kept_communicators.h"

#include <functional>
#include <utility>

namespace dovetail::exec::cuda {

KeptCommunicators::~KeptCommunicators() {
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  std::vector<std::function<void()>> calls;
  for (const auto& [key, communicators] : free_) {
    for (const ncclComm_t communicator : communicators) {
      if (communicator == nullptr) continue;
      calls.emplace_back([communicator, is_unwinding] {
        static_cast<void>(is_unwinding ? ncclCommAbort(communicator)
                                       : ncclCommDestroy(communicator));
      });
    }
  }
  SideThreads threads;
  threads.start(std::move(calls));
  static_cast<void>(threads.wait(patience_));
}

std::optional<ncclComm_t> KeptCommunicators::take(const KeptKey& key) {
  std::vector<ncclComm_t>& free = free_[key];
  if (free.empty()) return std::nullopt;
  const ncclComm_t communicator = free.back();
  free.pop_back();
  return communicator;
}

void KeptCommunicators::give(const KeptKey& key, ncclComm_t communicator) {
  free_[key].push_back(communicator);
}

}  // namespace dovetail::exec::cuda
