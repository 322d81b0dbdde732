// What one pass made of a plan, in words.
//
//   to_string(PassLine{LoweringPass::Scale, "folded into 1 loss fill"}) == "scale: folded into 1 loss fill"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/words.h"

namespace dovetail::schedule {

// The passes of lower, in their order; Group is the policy's, which came before.
enum class LoweringPass {
  Pipeline,
  Merge,
  Scale,
  Shard,
  Group,
  LayOut,
  Launch,
  Wait,
  Gather,
  Messages,
  Emit
};
constexpr auto words_of(LoweringPass) {
  return words("pipeline", "merge", "scale", "shard", "group", "lay out", "launch", "wait",
               "gather", "messages", "emit");
}

struct PassLine {
  LoweringPass pass = LoweringPass::Emit;
  std::string words;
  friend bool operator==(const PassLine&, const PassLine&) = default;
};

inline std::string to_string(const PassLine& line) {
  return std::string(dovetail::to_string(line.pass)) + ": " + line.words;
}

}  // namespace dovetail::schedule
