// NCCL communicators that outlive the backend that made them, for backends over the same ranks that
// follow one another (a calibration makes dozens). Creating one takes seconds on eight GPUs.
//
// All ranks ask for the same keys in the same order, since all make the same backends one after another:
// so either every rank of a group finds its communicator here or none does.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/cuda/module.h"
#include "exec/cuda/side_threads.h"

#include <nccl.h>

#include <compare>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <vector>

namespace dovetail::exec::cuda {

// What two communicators must agree on to be exchangeable.
struct KeptKey {
  std::vector<Rank> ranks;  // of all instances of the group
  std::int64_t instance_size = 0;
  std::int32_t max_ctas = 0;
  StandIn stand_in = StandIn::None;
  std::int32_t cluster_size = 0;
  friend auto operator<=>(const KeptKey&, const KeptKey&) = default;
};

class KeptCommunicators {
 public:
  explicit KeptCommunicators(Duration patience)
      : patience_(patience), exceptions_at_start_(std::uncaught_exceptions()) {}
  KeptCommunicators(const KeptCommunicators&) = delete;
  KeptCommunicators& operator=(const KeptCommunicators&) = delete;
  // Destroys all side by side; what hangs is left behind after the patience. Aborts them instead while an
  // exception is on its way: a peer may be gone.
  ~KeptCommunicators();

  // Null where the group is without this rank; absent where nobody has given one back yet.
  std::optional<ncclComm_t> take(const KeptKey& key);
  // REQUIRES: nothing is under way, registered or made of it.
  void give(const KeptKey& key, ncclComm_t communicator);

 private:
  Duration patience_;
  int exceptions_at_start_ = 0;
  std::map<KeptKey, std::vector<ncclComm_t>> free_;
};

}  // namespace dovetail::exec::cuda
