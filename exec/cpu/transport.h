// Transport: blocking collectives of one rank over TCP, called from that rank's communication
// thread.
//
// Two real implementations: exec/cpu/ring.h (our poll()-driven ring, the timing reference) and
// exec/cpu/gloo.h (Gloo, for parity with PyTorch and as a cross-check). A Transport belongs to one
// communication stream; its calls are made by one thread, in the same order on every rank.
//
// All calls throw DeviceError when a peer closes, when the process is told that a rank died
// (Abort), or when no byte moved for `deadline`; the message names the rank, the peer where known,
// and `label`, e.g.
//   rank 0: rank 1 closed the connection during all-reduce of bucket 3
//
// A transport connects a group of ranks: all of them, or those that open it with the same list. A
// rank's index in that list is its number within the calls below.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace dovetail::exec::cpu {

class Transport {
 public:
  virtual ~Transport() = default;

  // In place: every rank ends with the sum (or average) over all ranks of each element. Any length,
  // also 0 and lengths that the number of ranks does not divide. Ring: 2(n-1)/n of the bytes leave
  // each rank.
  virtual void all_reduce(std::span<float> data, schedule::ReduceOp op, std::string_view label) = 0;
  // The rank's shard of the result; shard r is elements [r * shard, (r + 1) * shard). REQUIRES:
  // data.size() == shard.size() * ranks.
  virtual void reduce_scatter(std::span<float> data, std::span<float> shard, schedule::ReduceOp op,
                              std::string_view label) = 0;
  // Bytes: of any type of elements.
  virtual void all_gather(std::span<const std::byte> shard, std::span<std::byte> data,
                          std::string_view label) = 0;
  // Part i of `data` goes to rank i; part i of `received` comes from rank i. REQUIRES: the sizes are
  // equal and the ranks divide them; the two do not overlap.
  virtual void all_to_all(std::span<const float> data, std::span<float> received,
                          std::string_view label) = 0;
  // Every rank ends with the data of the rank at index `root`.
  virtual void broadcast(std::span<float> data, std::size_t root, std::string_view label) = 0;
  // To or from the other rank. Both end once the data has left and arrived. REQUIRES: two ranks.
  virtual void send(std::span<const float> data, std::string_view label) = 0;
  virtual void receive(std::span<float> data, std::string_view label) = 0;
};

}  // namespace dovetail::exec::cpu
