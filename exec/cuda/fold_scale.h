// Which Scales of a plan a collective can carry out itself, in the same pass over the bucket.
//
//   c13  s0  scale       bucket 0  1/4                  c16  s1  all-reduce  bucket 0  sum over dp
//   c14  s0  record      e3                             c17  s1  scale       bucket 0  1/4
//   c15  s1  wait        e3
//   c16  s1  all-reduce  bucket 0  sum over dp
//   PreMultiply: c16 multiplies what it reads by 1/4    Average: c16 averages over its 4 ranks
//
// Only where no value changes: the factor is a power of two (a product with it does not round) and
// small enough that halves stay normal numbers; nothing but records and waits stands between the
// two commands; and all ranks of the collective's group play the same role, so all of them fold it.
// A sum that overflows before it is scaled does not overflow when it is averaged.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/rational.h"
#include "schedule/scheduled_program.h"

#include <vector>

namespace dovetail::exec::cuda {

enum class FoldKind { PreMultiply, Average };

struct Fold {
  FoldKind kind = FoldKind::PreMultiply;
  CommandId scale;       // has nothing left to do
  CommandId collective;  // does it
  Rational factor;
  friend bool operator==(const Fold&, const Fold&) = default;
};

// Of the role that this rank plays, in host issue order. A command is in at most one of them.
std::vector<Fold> folds_of(const schedule::ScheduledProgram& plan, Rank rank);

}  // namespace dovetail::exec::cuda
