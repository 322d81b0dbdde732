// A Schedule: when and where the gradients of a Program travel. A plain value of named decisions.
//
// A bucket is a list of gradients that share one collective. The buckets stand in launch order. For
// each bucket the Schedule says how its gradients lie in memory, which stream carries the
// collective, when it is launched, and where the compute stream waits for it. Policies (policies.h)
// and searches produce Schedules; lower.h turns one into commands; verify.h lists every reason why
// one is illegal. The law: a legal Schedule changes time, never results.
//
//   schedule threshold:threshold=25MiB
//     bucket 0  37.9 MiB  17 gradients  all-reduce over dp on comm0  view  launch when ready  ...
//     bucket 1  25 MiB    12 gradients  all-reduce over dp on comm0  view  launch when ready  ...
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "schedule/program.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::schedule {

// The collectives a Schedule may name. Reduce-scatter and all-gather move shards, all-reduce moves
// the whole bucket.
enum class Collective { AllReduce, ReduceScatter, AllGather };

// View: producers write straight into the bucket. Copy: gradients are packed into it and unpacked
// after the collective.
enum class BucketMode { View, Copy };

// The stream that carries a bucket's collective. Inline: the compute stream itself, as the naive
// synchronous program does.
struct InlineStream {
  friend bool operator==(const InlineStream&, const InlineStream&) = default;
};
struct CommStream {
  std::int32_t index = 0;  // 0..; each has a communicator of its own, so its collectives are FIFO
  friend bool operator==(const CommStream&, const CommStream&) = default;
};
using StreamChoice = std::variant<InlineStream, CommStream>;

// When the host issues the collective. A bucket is never launched before the buckets listed before
// it.
struct LaunchWhenReady {  // right after the op that produces its last gradient
  friend bool operator==(const LaunchWhenReady&, const LaunchWhenReady&) = default;
};
struct LaunchAfterOp {  // after this op, if that is later
  OpId op;
  friend bool operator==(const LaunchAfterOp&, const LaunchAfterOp&) = default;
};
struct LaunchAfterBackward {  // no overlap
  friend bool operator==(const LaunchAfterBackward&, const LaunchAfterBackward&) = default;
};
using LaunchPoint = std::variant<LaunchWhenReady, LaunchAfterOp, LaunchAfterBackward>;

// Where the compute stream waits for the bucket. FirstUse: before the first op that reads one of
// its gradients, which is its optimizer slice unless backward itself reads one. EndOfBackward:
// before the first optimizer op, but not later than the first use.
enum class WaitPoint { EndOfBackward, FirstUse };

// What it waits for. Event: this bucket. WholeStream: everything launched on the bucket's stream so
// far.
enum class WaitScope { Event, WholeStream };

std::string_view to_string(Collective collective);
std::string_view to_string(BucketMode mode);
std::string_view to_string(WaitPoint wait);
std::string_view to_string(WaitScope scope);

struct Bucket {
  BucketId id;
  std::vector<TensorId> gradients;  // in the order in which they lie in the bucket
  GroupId group;
  Collective collective = Collective::AllReduce;
  BucketMode mode = BucketMode::View;
  Bytes pad_to = Bytes(1);  // the bucket's size is rounded up to a multiple of this
  StreamChoice stream = CommStream{};
  LaunchPoint launch = LaunchWhenReady{};
  WaitPoint wait = WaitPoint::FirstUse;
  WaitScope scope = WaitScope::Event;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct Schedule {
  std::string policy;           // who made it, as it is typed: "torch-ddp:cap=25MiB,first=1MiB"
  std::vector<Bucket> buckets;  // launch order

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Sum of the members, before padding.
Bytes payload(const Program& program, const Bucket& bucket);

}  // namespace dovetail::schedule
