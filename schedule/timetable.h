// Where in the step of one role everything stands that travels.
//
// The placing passes of lower make it of a Schedule (lower/draft.h), a search of what it tries; the walk over it
// (lower/walk.h) gives commands or the nodes of a graph. A place is a position in the rewritten Program's list of ops.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/units.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

inline constexpr std::size_t kEnd = std::numeric_limits<std::int32_t>::max();  // after the last op

// Something that travels: a bucket (once per step, or once per micro-step), the parameters of a bucket that are
// gathered, or the message of an op that leaves the compute stream (a send or receive of a pipeline, or what
// the Schedule places).
struct Travel {
  enum class Kind : std::uint8_t {
    Bucket,
    Gather,
    Message
  };  // of one place, launched and waited for in this order
  Kind kind = Kind::Bucket;
  std::size_t what =
      0;  // which bucket, which parameters (of buckets or blocks), or position of the op
  StreamId stream = {};  // 0, the compute stream: inline
  WaitScope scope = WaitScope::Event;
  std::int32_t max_ctas = 0;
  std::int32_t micro_step = 0;  // of a bucket
  // Issued behind this op; absent: parameters before the first op, a message where its op stands.
  std::optional<std::size_t> launch_after = std::nullopt;
  bool behind_waits = false;  // launched behind what the op after that one waits for
  // The compute stream waits before this op; kEnd: after the last one ...
  std::size_t wait_before = kEnd;
  // ... or, if given, before the launch of this one of the role's travels.
  std::optional<std::size_t> wait_at_launch = std::nullopt;
  std::size_t release_after = kEnd;  // of gathered parameters; kEnd: never
  bool between_stages = false;  // a message of a pipeline, whose stream is of its pair of roles,
  bool receives = false;        // and which arrives
  bool after_compute = true;    // it starts behind what the compute stream holds so far
};

// What is copied into a bucket behind an op.
struct Pack {
  std::size_t behind = 0;
  std::size_t travel = 0;
  std::size_t gradient = 0;  // of the bucket, counted from its first
  Bytes bytes{};             // where several are one pack: of all of them
};

// What is done around the collective of a bucket.
struct BucketSteps {
  bool scales_before = false, scales_after = false;
  bool has_replicas = false;  // a second collective follows
  bool unpacks = false;       // once it has been waited for
  bool continued = false;     // by a later bucket, which is then the one to wait for
  std::optional<std::size_t> after = std::nullopt;  // the bucket that it continues
};

// Travels: buckets, gathers, messages, each in launch order.
struct RoleTimetable {
  std::span<const std::size_t> ops;  // positions of the role's ops, rising
  std::span<const Travel> travels;
  std::span<const Pack> packs;
  std::span<const BucketSteps> buckets;
};

}  // namespace dovetail::schedule
