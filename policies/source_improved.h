// What Paddle's pass should do (column "Ours" of the rules P1 to P31), and gradient merge with it.
//
// One bucket is open per process group, dtype and reduction, so alternating groups fuse (PL5); the
// cap counts bytes (PL4); a bucket may begin anywhere (PL9). A backward op that reads a reduced
// gradient does not close its bucket. It only bounds the launch: no gradient may join that is
// produced at that reader or later, and the compute stream waits before the reader.
//
//   ops, by what they finish    a  b  (reads a)  c  d         cap: three gradients
//   buckets                     a b  closed by reader    c d  closed by end
//
// Each process group has a communication stream, up to max_streams; then they share. Factors go into
// the loss gradient, else the optimizer, else one pass over each bucket (P13, PL8).
//
// gradient-merge groups the same way what travels under its sync point: the gradients of each
// micro-step, or their sums.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policies/policies.h"

namespace dovetail::schedule {

PolicyResult source_improved(const Program& program, const PolicySpec& spec);
PolicyResult gradient_merge(const Program& program, const PolicySpec& spec);

}  // namespace dovetail::schedule
