// What the declared effects of ops do to memory, whatever the values: sums over micro-steps, fills with zero, norms.
// Both OpRunners share them. Tensors without memory on this rank are left out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/device/memory.h"
#include "schedule/program.h"

#include <map>
#include <set>
#include <vector>

namespace dovetail::exec {

class Effects {
 public:
  // REQUIRES: program and memory outlive this.
  Effects(const schedule::Program& program, DeviceMemory& memory);

  void zero_fill(const schedule::Op& op, DeviceStream stream) const;
  void accumulate(const schedule::Op& op, const schedule::Accumulate& sum,
                  DeviceStream stream) const;
  // Of this rank's parts of a tensor in buckets.
  [[nodiscard]] std::int64_t shard_bytes(TensorId tensor) const;
  // The sum of the squares of the gradients that the op reads, or of this rank's shards of them.
  void global_norm(const schedule::Op& op, const schedule::GlobalNorm& norm,
                   DeviceStream stream) const;
  // The sum of the squares of these, times a factor each; in device memory, until the next one is asked for.
  const double* sum_of_squares(const std::vector<Region>& parts, double factor,
                               DeviceStream stream) const;

 private:
  void accumulate_shards(const schedule::Op& op, const schedule::Accumulate& sum,
                         DeviceStream stream) const;
  [[nodiscard]] std::vector<Region> parts_of(TensorId tensor,
                                             const schedule::GlobalNorm& norm) const;

  const schedule::Program& program_;
  DeviceMemory& memory_;
  std::map<TensorId, std::vector<MemberRegion>> in_buckets_;  // this rank's parts of each tensor
  std::set<TensorId> cut_;                                    // those in buckets cut into shards
  Block squares_;  // kSquareBlocks partial sums and the total
};

}  // namespace dovetail::exec
