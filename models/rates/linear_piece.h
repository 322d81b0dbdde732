// One straight piece of a cost curve: what tables are made of, and what the exact search reads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

namespace dovetail::models {

// T(x) = base_ns + ns_per_byte * x for from <= x < from of the next piece. A curve is a list of
// pieces; the first begins at 0 bytes, the last has no end. base_ns is an intercept and may be
// negative; the sum never is. REQUIRES: from rises strictly.
struct LinearPiece {
  Bytes from;
  double base_ns = 0;
  double ns_per_byte = 0;
  friend bool operator==(const LinearPiece&, const LinearPiece&) = default;
};

}  // namespace dovetail::models
