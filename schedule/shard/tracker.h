// Which buckets of a sharded optimizer are full, and in which batches they are launched (rules A6 to
// A13 and A18): the state machine that runs beside backward.
//
// Each bucket counts for itself which of its parameters have delivered a gradient:
//
//   Ready -> PartiallyFilled -> FullyFilled -> Syncing -> Ready
//
// After each delivery the full buckets, in order of their ids, are launched in batches of `batch`;
// what is left of a batch waits for more. Each batch first waits for all that is in flight, so at
// most one batch is outstanding. The final sync launches the rest. In the first iteration parameters
// are placed by their first delivery; the bucket that is just being filled is never complete then.
//
// 5 buckets of 2 parameters, batch 2, parameters placed before: buckets 0 and 1 are launched after
// delivery 4, 2 and 3 after delivery 8, bucket 4 by the final sync.
//
// Unlike its source, a full bucket that was not launched and gets the next micro-step's gradients
// starts to count again (there it looked full too early). Any other transition is a failed check.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

namespace dovetail::schedule {

enum class BucketState { Ready, PartiallyFilled, FullyFilled, Syncing };
enum class BucketEvent { Deliver, Complete, Launch, LaunchAtEnd, Finish };
std::string_view to_string(BucketState state);
std::string_view to_string(BucketEvent event);

// The only legal transitions. REQUIRES: the event may happen in this state.
BucketState next_state(BucketState state, BucketEvent event);

// What a delivered gradient does: it is copied to its buckets, counts, and full ones are launched; it
// is copied and does not count; or it stays in the parameter, where later ones are added to it. The
// latter two are for micro-steps without sync.
enum class Arrival { CopyAndLaunch, CopyOnly, KeepInParameter };
// PlacedBefore: the order of an earlier iteration is frozen. PlacedOnArrival: the first iteration.
enum class TrackerOrder { PlacedBefore, PlacedOnArrival };

struct BatchLaunch {
  std::size_t deliveries = 0;        // so many gradients had been delivered
  std::vector<std::size_t> buckets;  // in launch order
  bool final_sync = false;
  friend bool operator==(const BatchLaunch&, const BatchLaunch&) = default;
};

class BucketTracker {
 public:
  // fragments[p]: the buckets that hold a part of parameter p, rising.
  // REQUIRES: batch > 0; buckets number 0 .. n-1 without gaps.
  BucketTracker(std::vector<std::vector<std::size_t>> fragments, std::size_t batch,
                TrackerOrder placement);

  // REQUIRES: the parameter exists.
  void deliver(std::size_t parameter, Arrival arrival = Arrival::CopyAndLaunch);
  // Copies what the parameters still hold, then launches every bucket that got a gradient. Buckets
  // without any gradient are not launched: their shard is zero. Afterwards all are ready.
  void final_sync();

  [[nodiscard]] BucketState state(std::size_t bucket) const { return buckets_[bucket].state; }
  [[nodiscard]] std::size_t in_flight() const { return in_flight_.size(); }
  // Everything launched so far.
  [[nodiscard]] const std::vector<BatchLaunch>& launches() const { return launches_; }

 private:
  struct Tracked {
    BucketState state = BucketState::Ready;
    std::size_t fragments = 0;        // placed so far
    std::set<std::size_t> delivered;  // parameters
  };

  void move(std::size_t bucket, BucketEvent event);
  // True if this call placed it.
  bool place(std::size_t parameter);
  void copy(std::size_t parameter);
  void count(std::size_t parameter);
  void launch_full(std::size_t ignored);
  void launch(const std::vector<std::size_t>& batch, BucketEvent event);
  void finish_all();

  std::vector<std::vector<std::size_t>> fragments_;
  std::size_t batch_;
  std::vector<Tracked> buckets_;
  std::vector<char> placed_;    // by parameter
  std::set<std::size_t> held_;  // parameters that keep a gradient to themselves
  std::size_t placed_buckets_ = 0;
  std::vector<std::size_t> in_flight_;
  std::size_t deliveries_ = 0;
  std::vector<BatchLaunch> launches_;
};

}  // namespace dovetail::schedule
