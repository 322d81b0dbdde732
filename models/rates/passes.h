// The passes over memory that a Schedule adds to a Program, or turns it into, and what each costs.
//
//   accumulate    a micro-step's gradient onto the sum           reads 1 or 2, writes 1
//   zero-fill     zeros
//   update        a whole parameter's update
//   shard-update  the update of this rank's shard of a bucket
//   global-norm   the sum of the squares of gradients
//   scale         a bucket times the factor of an average        reads 1, writes 1, in place
//
// Cost: fixed + ns_per_byte * traffic, where traffic is all bytes read and written (traffic_of;
// twice the buffer of a scale). Source: `dovetail calibrate` runs plans that hold such passes and
// fits a line through all of one kind. Good while a pass is much larger than the caches or always
// equally warm; leaves out that a sum which was just written may still be in a cache.
//
// An update that repeats a product in place of its measured time is a kernel, not a pass. The update
// of a shard of it is both: the products take the kernel's time, and the pass adds the shard.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "schedule/program.h"

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>

namespace dovetail::models {

using dovetail::to_string;

enum class PassKind { Accumulate, ZeroFill, Update, ShardUpdate, GlobalNorm, Scale };
constexpr auto words_of(PassKind) {
  return words("accumulate", "zero-fill", "update", "shard-update", "global-norm", "scale");
}

// What kind of pass the op is, by its effect; nothing for ops that are none, carry their own time,
// communicate, or are updates that repeat a product.
std::optional<PassKind> pass_of(const schedule::Op& op);

// What the pass reads and writes: Op::bytes; of the update of a shard that repeats a product, the
// shard of the gradients that it reads and that of the parameters that it writes.
Bytes traffic_of(const schedule::Op& op);

// The line of one kind.
struct PassModel {
  Duration fixed{};        // default 0
  double ns_per_byte = 0;  // of traffic

  [[nodiscard]] Duration time(Bytes traffic) const;
  friend bool operator==(const PassModel&, const PassModel&) = default;
};

// How long one pass took.
struct PassSample {
  PassKind kind = PassKind::Accumulate;
  Bytes traffic;
  Duration time{};
};

// The line through all samples of each kind (fit.h). A kind that was met in one size only costs by
// the byte. Samples without traffic or time are left out.
std::map<PassKind, PassModel> fit_passes(std::span<const PassSample> samples);

}  // namespace dovetail::models
