// What one collective of the ring sends and receives, piece by piece, and what stands before it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec::cpu::ring {

// What stands before each collective. Plain bytes: all ranks run the same program.
struct Header {
  std::uint32_t number = 0;  // counts the collectives of this ring
  std::uint32_t kind = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Header&, const Header&) = default;
};

enum class Arrival { Add, AddAndDivide, Store };

// What arrives in one phase, and what becomes of it: floats, where it is added.
struct Inbound {
  std::span<std::byte> target;
  Arrival action = Arrival::Add;
  bool is_passed_on = true;
};

// One collective: what leaves and what arrives, piece by piece. The first `at_once` pieces may leave
// from the start; the others are what arrives and is passed on, in the same order.
struct Course {
  Header header;
  std::vector<std::span<const std::byte>> out;
  std::vector<Inbound> in;
  std::size_t at_once = 1;
};

inline constexpr std::array<const char*, 8> kKinds{"collective", "all-reduce", "reduce-scatter",
                                                   "all-gather", "all-to-all", "broadcast",
                                                   "send",       "receive"};
enum Kind : std::uint32_t {
  AllReduce = 1,
  ReduceScatter,
  AllGather,
  AllToAll,
  Broadcast,
  Send,
  Receive
};

// A position in a list of pieces, in bytes.
struct Position {
  std::size_t piece = 0;
  std::size_t offset = 0;

  void advance(std::size_t bytes, std::size_t piece_bytes) {
    offset += bytes;
    if (offset == piece_bytes) *this = {.piece = piece + 1, .offset = 0};
  }
};

}  // namespace dovetail::exec::cpu::ring
