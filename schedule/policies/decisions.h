// What can be decided about a training step: eight small values, none of which says anything about the
// others. A policy (policies.h) fills some of them; what is absent is not decided, and then the plain
// thing is done: no stages, no sharding, one micro-step, buckets launched when they are ready.
//
//   pipeline:stages=4+fsdp:forward=2     stages      four, 1F1B
//                                        accumulation  four micro-batches
//                                        grouping    by layer
//                                        sharding    over the group of the gradients
//                                        gathers     two blocks ahead in forward
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/units.h"
#include "base/words.h"
#include "schedule/policies/bucket_rule.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

using dovetail::to_string;

// Names of the eight, as refusals use them.
enum class Decision {
  Stages,
  Grouping,
  Sharding,
  Gathers,
  Accumulation,
  Scaling,
  OwnCollectives,
  Placement
};
constexpr auto words_of(Decision) {
  return words("stages", "grouping", "sharding", "gathers", "accumulation", "scaling",
               "own collectives", "placement");
}

enum class Choice { Yes, No };
constexpr auto words_of(Choice) { return words("yes", "no"); }

// A pipeline: the model is cut into stages x chunks parts (schedule/lower/pipeline/assign.h).
struct Stages {
  PipelineKind order = PipelineKind::OneFOneB;
  LaunchAlignment alignment = LaunchAlignment::PerStage;
  std::int32_t stages = 2;
  std::int32_t chunks = 1;  // of the model per stage
  friend bool operator==(const Stages&, const Stages&) = default;
};

// Which gradients share a bucket. All of it happens within one process group, dtype, reduction and stage.
struct EachAlone {
  friend bool operator==(const EachAlone&, const EachAlone&) = default;
};
struct OneBucket {
  friend bool operator==(const OneBucket&, const OneBucket&) = default;
};
struct ByLimits {  // a limit for the first bucket, where there is one, and one for all others
  std::optional<Bytes> first = std::nullopt;
  Bytes cap = mib(25);
  Closes closes = Closes::OnReaching;
  friend bool operator==(const ByLimits&, const ByLimits&) = default;
};
struct ByCap {  // closes before exceeding the cap, and before a reader within backward
  Bytes cap = mib(25);
  friend bool operator==(const ByCap&, const ByCap&) = default;
};
struct FirstFit {  // Paddle's pass (schedule/policies/source_first_fit.h)
  Bytes cap = mib(25);
  std::int64_t elements = 0;  // the cap counted in elements; 0: in bytes
  Choice fuse = Choice::Yes;
  Choice sharding = Choice::No;  // the source's use_sharding: it then neither overlaps nor fuses
  friend bool operator==(const FirstFit&, const FirstFit&) = default;
};
struct EqualSizes {  // tensors are cut where a bucket ends (schedule/policies/fragments.h)
  Bytes cap = mib(100);
  friend bool operator==(const EqualSizes&, const EqualSizes&) = default;
};
struct ByLayer {  // the parameters of one layer, by their names
  friend bool operator==(const ByLayer&, const ByLayer&) = default;
};
struct ByModules {  // whole modules, from the first of forward on: closes before it reaches the cap
  Bytes cap = mib(25);
  friend bool operator==(const ByModules&, const ByModules&) = default;
};
// Which gradients MG-WFBP merges: those that are ready before the bucket before them would start; or those, too, for
// which it may wait, as a start-up is longer.
enum class Merges { Queued, WorthWaitingFor };
struct ByMerging {  // needs costs (search/merge_rule.h)
  Merges merges = Merges::WorthWaitingFor;
  friend bool operator==(const ByMerging&, const ByMerging&) = default;
};
struct Searched {  // the earliest last completion: needs costs (search/planner.h)
  friend bool operator==(const Searched&, const Searched&) = default;
};
using Grouping = std::variant<EachAlone, OneBucket, ByLimits, ByCap, FirstFit, EqualSizes, ByLayer,
                              ByModules, ByMerging, Searched>;

// Each rank of the group updates one part of each bucket.
struct Sharding {
  ParameterSync gather = ParameterSync::AfterUpdate;  // without Gathers
  Collective reduce = Collective::ReduceScatter;      // or an all-reduce (Bucket::sums_whole)
  std::string replicas = {};  // name of the process group of replicas; empty: from the Program
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Where the factors of averages are applied: as somebody asked, else by a rule (schedule/policies/scaling.h).
//   Collectives     the collectives average
//   AfterAverages   behind each collective of an average, as the naive program does
//   Source          what Paddle's pass decides
//   Improved        the loss gradient if possible, else the optimizer, else once per bucket
//   IntoBuckets     as PyTorch DDP: on the way into the bucket, which the copy does; of buckets that gradients lie in a pass of its own
enum class ScaleRule { Collectives, AfterAverages, Source, Improved, IntoBuckets };
struct ScaleDecision {
  ScaleRule rule = ScaleRule::Collectives;
  std::optional<ScaleAt> asked = std::nullopt;
  friend bool operator==(const ScaleDecision&, const ScaleDecision&) = default;
};

// How far ahead of their use parameters are gathered where nobody said so: one block, or what the search of the blocks finds
// best. A policy that is parsed or joined has a number or kSearchedPrefetch.
inline constexpr std::int32_t kUsualPrefetch = -2;
inline constexpr std::int32_t kSearchedPrefetch = -1;

// Parameters are gathered before each use (ParameterSync::EachUse).
struct Gathers {
  std::int32_t forward = kUsualPrefetch;  // how many blocks ahead of their use
  std::int32_t backward = kUsualPrefetch;
  GatherLimit limit = {};        // the most that is gathered at a time
  Choice reshard = Choice::Yes;  // between forward and backward
  // Whether the host waits for one block, and copies it, before it asks for the next (Gloo); else streams do.
  Choice host_waits = Choice::No;
  friend bool operator==(const Gathers&, const Gathers&) = default;
};

// Where the Program's own collectives run: as it runs them (where they stand, on the compute stream, or started there); those over
// context-parallel ranks, or all, as soon as they can on streams of their own.
enum class OwnCollectives { Inline, Ring, Async };
constexpr auto words_of(OwnCollectives) { return words("inline", "ring", "async"); }

// Where the buckets that make no whole batch are launched: after backward, as their source does, or
// together as soon as the last gradient is ready.
enum class Tail { AfterBackward, LastGradient };
constexpr auto words_of(Tail) { return words("after-backward", "last-gradient"); }

// When a bucket is launched. Inline: on the compute stream, right after its last gradient.
enum class LaunchRule { WhenReady, AfterBackward, Inline };

// In place of a number of thread blocks: the best of some, by a machine's times (search/planner.h).
inline constexpr std::int32_t kSearchedCtas = -1;

// How every bucket lies in memory, is launched and is waited for.
struct BucketPlacement {
  BucketMode mode = BucketMode::View;
  WaitPoint wait = WaitPoint::FirstUse;
  WaitScope scope = WaitScope::Event;
  LaunchRule launch = LaunchRule::WhenReady;
  std::int32_t batch = 0;  // buckets launched together; 0: each when it is ready
  Tail tail = Tail::AfterBackward;
  std::int32_t groups = 16;  // process groups that have communication streams of their own, at most
  std::int32_t streams =
      1;  // communication streams, each with a communicator, over which buckets are dealt
  std::int32_t max_ctas = 0;  // most thread blocks of a collective (Placement), or kSearchedCtas
  friend bool operator==(const BucketPlacement&, const BucketPlacement&) = default;
};

struct Decisions {
  std::optional<Stages> stages = std::nullopt;
  std::optional<Grouping> grouping = std::nullopt;
  std::optional<Sharding> sharding = std::nullopt;
  std::optional<Gathers> gathers = std::nullopt;
  std::optional<Merge> accumulation = std::nullopt;
  std::optional<ScaleDecision> scaling = std::nullopt;
  std::optional<OwnCollectives> collectives = std::nullopt;
  std::optional<BucketPlacement> placement = std::nullopt;

  friend bool operator==(const Decisions&, const Decisions&) = default;
};

}  // namespace dovetail::schedule
