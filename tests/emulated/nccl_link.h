// Where the ranks of one emulated communicator meet: a segment of shared memory, and the steps of a
// collective over it.
//
// Ranks are threads or processes of this machine. Each has a slot for a chunk of its data, and a
// counter of arrivals makes barriers that are asked, never waited in: a step returns Waiting while
// another rank is missing. InterleavedProbes each pair there is a mailbox for sends.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/machine.h"

#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dovetail::emulated {

inline constexpr std::size_t kMostRanks = 16;
inline constexpr std::size_t kChunk = std::size_t{64} << 10;
inline constexpr std::size_t kParcel = std::size_t{16} << 10;

enum class CallKind : std::int32_t { AllReduce, ReduceScatter, AllGather, Broadcast };
// What all ranks of a communicator must agree on.
struct Call {
  CallKind kind = CallKind::AllReduce;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Call&, const Call&) = default;
};
std::string to_string(const Call& call);

struct Mailbox {
  std::atomic<std::uint32_t> is_full;
  std::uint32_t bytes;
  std::array<char, kParcel> data;
};
// Plain memory that begins as zeros.
struct Segment {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint64_t> arrived;
  std::array<std::atomic<std::uint64_t>, kMostRanks> gpus;  // which physical GPU a rank sits on
  std::array<Call, kMostRanks> calls;
  std::array<std::array<char, kChunk>, kMostRanks> slots;
  std::array<std::array<Mailbox, kMostRanks>, kMostRanks> boxes;  // from, to
};

// One rank's end of it.
struct Link {
  Segment* segment = nullptr;
  std::size_t ranks = 1;
  std::size_t rank = 0;
  std::uint64_t barriers = 0;  // this rank has begun
  std::atomic<bool> is_aborted = false;

  // Arrives; the number to ask is_complete() for.
  std::uint64_t arrive();
  [[nodiscard]] bool is_complete(std::uint64_t barrier) const;
};

// Maps the segment of that name, made by whoever comes first; nullptr if the system refuses.
Segment* open_segment(const std::string& name);
void remove_segment(const std::string& name);

std::size_t size_of(ncclDataType_t type);
double number_from(const char* data, ncclDataType_t type);

struct Collective {
  Call call;
  const char* send = nullptr;
  char* receive = nullptr;
  double factor = 1;  // on what this rank sends
};
// The run of one collective of this rank. Ranks that disagree are complained about, and hang.
Run communicate(Link& link, const Collective& what);

enum class Direction { Send, Receive };
struct Parcel {
  Direction direction = Direction::Send;
  std::size_t peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};
// All of a group at once; those of one direction between one pair keep their order.
Run run_parcels(Link& link, std::vector<Parcel> parcels);

}  // namespace dovetail::emulated
