// A lower bound on the step of consecutive buckets on one stream, by a clock that counts the compute that could have
// been done.
//
// Positions are nanoseconds of a rank's compute, launch gaps included. The clock runs as fast as compute would if it
// never stood still: at full speed, and beside a transfer at the part that the transfer leaves it there. A bucket begins
// no earlier than when the clock has passed the position of its last producer, r, and the one before it has ended. Of
// T ns it ends behind advance(s, T) for a start s; the rest of T is lost:
//
//   end = advance(max(end before, r), T)      loss = T - (end - start)
//   step >= max(all compute, end + tail of each bucket) + all losses
//
// where the tail is the compute that must follow the bucket's arrival. For a limit M on the first term the least sum of
// losses is a dynamic program over prefixes of the gradients; the step is at least the least of M + losses(M). An
// interval lo .. hi of M costs lo + losses(hi) at least; the cheapest interval is halved until it is narrow, so that the
// bound holds whenever that ends.
//
// A prefix has a front of labels (end, loss). Fronts that are too long are thinned: labels of neighbouring ends become
// one with the least loss of them.
//
// Two kinds, by when buckets begin:
//   Any        whenever they like. What a transfer leaves is that of the class that it leaves most, so that a later start
//              costs no less, and of two labels the one that is smaller in both is enough.
//   WhenReady  at once, and nothing else holds up compute before it first waits for a bucket. Then the clock is
//              exact until then, a label is an interval of ends, and what a transfer leaves is that of the ops beside it.
//
// The derivation for Any: compute done never passes the clock; so whoever must have done r has the clock behind r, and
// what is done behind an arrival takes the clock as far. For WhenReady a label holds the true end of every grouping that it
// stands for, and no more than its loss.
//
// Tests: tests/search/clock_bound_test.cc holds it under every grouping of random small instances.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "models/rates/op_model.h"

namespace dovetail::search {

// Of all pairs begin < end <= n.
constexpr std::size_t pair_index(std::size_t begin, std::size_t end) {
  return end * (end - 1) / 2 + begin;
}

// Times and positions in ns.
struct ClockProblem {
  struct Op {
    double time = 0;  // alone
    models::KernelClass kernel = models::KernelClass::Other;
  };
  struct Gradient {
    double ready = 0;  // the position of its last producer's end; rising
    double tail = 0;   // compute from its first reader on
  };
  // How a bucket travels: alone, behind a pause, and at once behind the one before it.
  struct Travel {
    double isolated = 0;
    double queued = 0;
    std::array<double, 3> left = {1, 1, 1};  // of compute beside it, by KernelClass
    double behind = 0;  // time of the step behind all compute and all transfers, for this bucket
  };

  std::vector<Op> compute;
  double waits_from = 0;  // the position from which compute may wait for buckets
  std::vector<Gradient> gradients;
  std::vector<Travel> travels;  // of gradients begin .. end - 1 together at pair_index(begin, end)
  double processor = 0;         // time that each transfer takes from the compute stream besides
  double enqueue = 0;           // that compute stream's time to hand over a bucket
  // The most that a transfer wants of memory (sim/rates.h): up to 1/2 no op holds it back.
  double traffic = 0;
};

enum class Starts { Any, WhenReady };

struct ClockOptions {
  Starts starts = Starts::Any;
  double known =
      std::numeric_limits<double>::infinity();  // a step that is reached: no bound is above it
};

struct ClockBound {
  double step = 0;  // no grouping is faster
  std::vector<std::size_t> ends =
      {};  // of the buckets that the bound thinks of; none: nothing is below `known`
  bool is_spent =
      false;  // it was given up for the time it took: a lower `known` may give a higher one
};

// Several problems: transfers of other kinds in the same step and on the same stream, each behind all of the problem
// before; their gradients may be in another order, and their buckets are thought to be independent. Only with Starts::Any.
// REQUIRES: at least one problem, at least one gradient in each.
ClockBound clock_bound(std::span<const ClockProblem> problems, const ClockOptions& options);

}  // namespace dovetail::search
