// The state machine of sharded buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/shard/tracker.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

bool is_legal(BucketState state, BucketEvent event) {
  switch (event) {
    case BucketEvent::Deliver:
      return state != BucketState::Syncing;
    case BucketEvent::Complete:
    case BucketEvent::LaunchAtEnd:
      return state == BucketState::PartiallyFilled ||
             (event == BucketEvent::LaunchAtEnd && state == BucketState::FullyFilled);
    case BucketEvent::Launch:
      return state == BucketState::FullyFilled;
    case BucketEvent::Finish:
      return state == BucketState::Syncing;
  }
  return false;
}

}  // namespace

std::string_view to_string(BucketState state) {
  switch (state) {
    case BucketState::Ready:
      return "ready";
    case BucketState::PartiallyFilled:
      return "partially-filled";
    case BucketState::FullyFilled:
      return "fully-filled";
    case BucketState::Syncing:
      return "syncing";
  }
  return "?";
}

std::string_view to_string(BucketEvent event) {
  switch (event) {
    case BucketEvent::Deliver:
      return "deliver";
    case BucketEvent::Complete:
      return "complete";
    case BucketEvent::Launch:
      return "launch";
    case BucketEvent::LaunchAtEnd:
      return "launch at the end";
    case BucketEvent::Finish:
      return "finish";
  }
  return "?";
}

BucketState next_state(BucketState state, BucketEvent event) {
  DOVETAIL_CHECK(is_legal(state, event)) << to_string(event) << " while " << to_string(state);
  switch (event) {
    case BucketEvent::Deliver:
      return BucketState::PartiallyFilled;
    case BucketEvent::Complete:
      return BucketState::FullyFilled;
    case BucketEvent::Launch:
    case BucketEvent::LaunchAtEnd:
      return BucketState::Syncing;
    case BucketEvent::Finish:
      break;
  }
  return BucketState::Ready;
}

BucketTracker::BucketTracker(std::vector<std::vector<std::size_t>> fragments, std::size_t batch,
                             TrackerOrder placement)
    : fragments_(std::move(fragments)), batch_(batch), placed_(fragments_.size(), 0) {
  DOVETAIL_CHECK(batch_ > 0) << "batches of no bucket";
  std::size_t count = 0;
  for (const auto& buckets : fragments_) {
    DOVETAIL_CHECK(!buckets.empty() && std::ranges::is_sorted(buckets)) << "fragments";
    count = std::max(count, buckets.back() + 1);
  }
  buckets_.resize(count);
  if (placement == TrackerOrder::PlacedOnArrival) return;
  for (std::size_t p = 0; p < fragments_.size(); ++p) place(p);
}

void BucketTracker::move(std::size_t bucket, BucketEvent event) {
  buckets_[bucket].state = next_state(buckets_[bucket].state, event);
}

bool BucketTracker::place(std::size_t parameter) {
  if (std::exchange(placed_[parameter], 1) != 0) return false;
  for (const std::size_t bucket : fragments_[parameter]) {
    ++buckets_[bucket].fragments;
    placed_buckets_ = std::max(placed_buckets_, bucket + 1);
  }
  return true;
}

void BucketTracker::deliver(std::size_t parameter, Arrival arrival) {
  DOVETAIL_CHECK(parameter < fragments_.size()) << "parameter " << parameter;
  ++deliveries_;
  const bool new_here = place(parameter);
  if (arrival == Arrival::KeepInParameter) {
    held_.insert(parameter);
    return;
  }
  copy(parameter);
  if (arrival == Arrival::CopyOnly) return;
  count(parameter);
  // The bucket that is being filled is ignored only while a parameter is placed in it.
  launch_full(new_here ? placed_buckets_ - 1 : kNone);
}

void BucketTracker::copy(std::size_t parameter) {
  held_.erase(parameter);
  for (const std::size_t id : fragments_[parameter]) {
    Tracked& bucket = buckets_[id];
    if (bucket.state == BucketState::Syncing) finish_all();
    // A second gradient of a parameter that was counted begins the next micro-step's count; a full
    // bucket can also get a parameter that is only now placed in it.
    if (bucket.delivered.contains(parameter)) bucket.delivered.clear();
    move(id, BucketEvent::Deliver);
  }
}

void BucketTracker::count(std::size_t parameter) {
  for (const std::size_t id : fragments_[parameter]) {
    Tracked& bucket = buckets_[id];
    bucket.delivered.insert(parameter);
    if (bucket.delivered.size() == bucket.fragments) move(id, BucketEvent::Complete);
  }
}

void BucketTracker::launch_full(std::size_t ignored) {
  std::vector<std::size_t> full;
  for (std::size_t id = 0; id < buckets_.size(); ++id) {
    if (id != ignored && buckets_[id].state == BucketState::FullyFilled) full.push_back(id);
  }
  for (std::size_t first = 0; first + batch_ <= full.size(); first += batch_) {
    const auto begin = full.begin() + static_cast<std::ptrdiff_t>(first);
    launch({begin, begin + static_cast<std::ptrdiff_t>(batch_)}, BucketEvent::Launch);
  }
}

void BucketTracker::launch(const std::vector<std::size_t>& batch, BucketEvent event) {
  finish_all();
  for (const std::size_t id : batch) {
    move(id, event);
    buckets_[id].delivered.clear();
  }
  in_flight_ = batch;
  launches_.push_back({deliveries_, batch, event == BucketEvent::LaunchAtEnd});
}

void BucketTracker::finish_all() {
  for (const std::size_t id : std::exchange(in_flight_, {})) move(id, BucketEvent::Finish);
}

void BucketTracker::final_sync() {
  for (const std::size_t parameter : std::set<std::size_t>(held_)) {
    copy(parameter);
    count(parameter);
  }
  finish_all();
  std::vector<std::size_t> rest;
  for (std::size_t id = 0; id < buckets_.size(); ++id) {
    if (buckets_[id].state != BucketState::Ready) rest.push_back(id);
  }
  for (std::size_t first = 0; first < rest.size(); first += batch_) {
    const auto begin = rest.begin() + static_cast<std::ptrdiff_t>(first);
    const auto length = std::min(batch_, rest.size() - first);
    launch({begin, begin + static_cast<std::ptrdiff_t>(length)}, BucketEvent::LaunchAtEnd);
  }
  finish_all();
}

}  // namespace dovetail::schedule
