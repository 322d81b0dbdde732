// What a rank holds of its device's memory, by kind, and whether a device has room for it.
//
//   Holding held{.stage = 1, .parameters = gib(4), .activations = gib(30)};
//   held.total(); describe(held)                  // "activations 30 GiB, parameters 4 GiB"
//   Room room{.held = held, .low = gib(28), .high = gib(43), .capacity = gib(40)};
//   room.fits()                                   // Fits::May: between what it may be and is there
//
// Who reckons it fills the kinds that it knows: resident.h what a plan keeps all step long, models/networks/memory.h all of a
// job's worst moment.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "base/words.h"

namespace dovetail::schedule {

struct Holding {
  std::int32_t stage = 0;  // of the pipeline
  Bytes parameters = {}, gradients = {};
  Bytes accumulated = {};  // sums of micro-steps beside the gradients
  Bytes copies = {};       // of gradients in buckets
  Bytes master = {}, optimizer = {};
  Bytes activations = {}, logits = {};
  Bytes working = {};   // of the layer whose backward runs
  Bytes gathered = {};  // parameters of other ranks
  Bytes buffers = {};
  Bytes fragmentation = {};  // of the allocator
  Bytes outside = {};        // of the allocator: context and NCCL

  [[nodiscard]] Bytes allocated() const;  // what tensors take
  [[nodiscard]] Bytes reserved() const;   // with what the allocator cannot use
  [[nodiscard]] Bytes total() const;      // what the device must have
  friend bool operator==(const Holding&, const Holding&) = default;
};

// Each kind with its word; in a document "master_copy_bytes".
struct HoldingKind {
  std::string_view word;
  Bytes Holding::*bytes;
};
inline constexpr std::array<HoldingKind, 13> kHoldingKinds = {
    {{"parameters", &Holding::parameters},
     {"gradients", &Holding::gradients},
     {"sums of micro-steps", &Holding::accumulated},
     {"copies in buckets", &Holding::copies},
     {"master copy", &Holding::master},
     {"optimizer", &Holding::optimizer},
     {"activations", &Holding::activations},
     {"logits", &Holding::logits},
     {"working", &Holding::working},
     {"gathered parameters", &Holding::gathered},
     {"buffers", &Holding::buffers},
     {"fragmentation", &Holding::fragmentation},
     {"context and NCCL", &Holding::outside}}};

// "activations 30.2 GiB, parameters 4.1 GiB": what there is of it, the largest first.
std::string describe(const Holding& held);

enum class Fits { Yes, May, No };
constexpr auto words_of(Fits) { return words("yes", "may", "no"); }
using dovetail::to_string;

// What is held beside what a device has.
struct Room {
  Holding held;
  Bytes low = {}, high = {};  // what it may be in truth
  std::optional<Bytes> capacity = std::nullopt;

  // Yes where all that it may be has room, or nothing is known of the device; No where none of it has.
  [[nodiscard]] Fits fits() const;
};

}  // namespace dovetail::schedule
