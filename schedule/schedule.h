// A Schedule: when and where the gradients of a Program travel, its parameters where they are sharded,
// and the collectives that it asks for itself. A plain value of named decisions.
//
// A bucket is a list of gradients that share one collective. The buckets stand in launch order. For
// each bucket the Schedule says how its gradients lie in memory, which stream carries the
// collective, when it is launched, and where the compute stream waits for it. Policies (policies.h)
// and searches produce Schedules; lower.h turns one into commands; verify.h lists every reason why
// one is illegal. The law: a legal Schedule changes time, never results.
//
//   schedule threshold:cap=25MiB
//     bucket 0  37.9 MiB  17 gradients  all-reduce over dp on comm0  view  launch when ready  ...
//     bucket 1  25 MiB    12 gradients  all-reduce over dp on comm0  view  launch when ready  ...
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "base/words.h"
#include "schedule/program.h"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::schedule {

using dovetail::to_string;

// A range of a gradient's elements. A large gradient may be split over several buckets, at most one
// range per bucket; split gradients need copy mode.
struct Slice {
  TensorId tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;  // 0: all from `first` on

  Slice() = default;
  Slice(TensorId whole) : tensor(whole) {}  // NOLINT(google-explicit-constructor): a whole tensor
  Slice(TensorId of, std::int64_t from, std::int64_t elements)
      : tensor(of), first(from), count(elements) {}
  // Of this tensor, at most all.
  [[nodiscard]] std::int64_t elements(const Tensor& of) const {
    return count > 0 ? count : of.numel() - first;
  }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// View: producers write straight into the bucket. Copy: gradients are packed into it and unpacked
// after the collective.
enum class BucketMode { View, Copy };
constexpr auto words_of(BucketMode) { return words("view", "copy"); }

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
struct LaunchBeforeOp {  // of gathers: in front of this op, behind all that it waits for
  OpId op;
  friend bool operator==(const LaunchBeforeOp&, const LaunchBeforeOp&) = default;
};
struct LaunchAfterBackward {  // no overlap
  friend bool operator==(const LaunchAfterBackward&, const LaunchAfterBackward&) = default;
};
struct LaunchInBatch {  // together with all buckets of this batch, when the last of them is ready
  std::int32_t batch = 0;
  friend bool operator==(const LaunchInBatch&, const LaunchInBatch&) = default;
};
using LaunchPoint = std::variant<LaunchWhenReady, LaunchAfterOp, LaunchAfterBackward, LaunchInBatch,
                                 LaunchBeforeOp>;

// Where the compute stream waits for the bucket. FirstUse: before the first op that reads one of
// its gradients, which is its optimizer slice unless backward itself reads one. EndOfBackward:
// before the first optimizer op, but not later than the first use. BeforeNextBatch: before the launch
// of the next bucket that is not of the same batch, so at most one batch is outstanding; the last
// batch is waited for at the end of backward. AtLaunch: in front of the next op, so the collective hides
// behind none (what a host that blocks does, as Gloo's).
enum class WaitPoint { EndOfBackward, FirstUse, BeforeNextBatch, AtLaunch };
constexpr auto words_of(WaitPoint) {
  return words("end-of-backward", "first-use", "before-next-batch", "at-launch");
}

// What it waits for. Event: this bucket. WholeStream: everything launched on the bucket's stream so
// far.
enum class WaitScope { Event, WholeStream };
constexpr auto words_of(WaitScope) { return words("event", "whole-stream"); }

// Where the factors of an average are applied: 1 / degree, and with averaged micro-steps 1 / k. They
// are exact fractions; verify multiplies them along every gradient's path.
//   Collective        the collective averages (NCCL's avg); 1 / k in the last accumulate
//   BeforeCollective  the bucket is scaled on the compute stream, then summed: loses range in fp16
//   AfterCollective   the bucket is summed, then scaled on its stream (the naive program)
//   LossGradient      folded into the fill of the loss gradient: needs one degree for all gradients
//   Optimizer         folded into the updates' rescale factor: needs optimizers that have one
enum class ScaleAt { Collective, BeforeCollective, AfterCollective, LossGradient, Optimizer };
constexpr auto words_of(ScaleAt) {
  return words("collective", "before-collective", "after-collective", "loss-gradient", "optimizer");
}

// Gradient accumulation: forward and backward run `micro_steps` times before one update.
//   EveryMicroStep      the gradients of each micro-step are reduced, then summed: k times the bytes
//   AfterLastMicroStep  the sums are reduced after the last backward: nothing overlaps
//   LastMicroStep       each sum is reduced as soon as the last micro-step has added to it
enum class SyncPoint { EveryMicroStep, AfterLastMicroStep, LastMicroStep };
constexpr auto words_of(SyncPoint) { return words("every", "after", "last"); }
struct Merge {
  std::int32_t micro_steps = 1;
  ReduceOp op = ReduceOp::Average;  // of the micro-steps
  SyncPoint sync = SyncPoint::LastMicroStep;
  DType dtype = DType::F32;  // of the sums
  friend bool operator==(const Merge&, const Merge&) = default;
};

// When the parameters of a bucket that was reduce-scattered are gathered.
//   AfterUpdate  right after the shard's update
//   NextForward  at the start of the next step, each bucket before the first forward op that reads it
//   EachUse      before forward and again before backward, as Schedule::gathers says; in between a rank
//                keeps its shard only (ZeRO-3, PyTorch FSDP)
enum class ParameterSync { AfterUpdate, NextForward, EachUse };
constexpr auto words_of(ParameterSync) { return words("after-update", "next-forward", "each-use"); }

// In which order a stage runs the forward and backward of its micro-batches (the micro-steps).
//   Sequential   forward and backward of one micro-batch after another
//   OneFOneB     warm-up forwards, then one forward and one backward in turn, then the rest
//   Interleaved  the same with several chunks of the model per rank
//   ZeroBubble   the same with backward in two: what the stage before waits for first, gradients of weights where
//                the stage would idle (arXiv 2401.10241, ZB-H1; with chunks torch's InterleavedZeroBubble)
//   Zbv          backward in two, and two chunks per rank, the second on the way back (StageMap::V; section 6 there)
enum class PipelineKind { Sequential, OneFOneB, Interleaved, ZeroBubble, Zbv };
constexpr auto words_of(PipelineKind) {
  return words("sequential", "1f1b", "interleaved", "zero-bubble", "zbv");
}
constexpr bool splits_backward(PipelineKind kind) {
  return kind == PipelineKind::ZeroBubble || kind == PipelineKind::Zbv;
}
constexpr StageMap stage_map_of(PipelineKind kind) {
  return kind == PipelineKind::Zbv ? StageMap::V : StageMap::Loop;
}
enum class LaunchAlignment { PerStage, AcrossStages };
constexpr auto words_of(LaunchAlignment) { return words("per-stage", "across-stages"); }
struct Pipeline {
  PipelineKind kind = PipelineKind::Sequential;
  LaunchAlignment alignment = LaunchAlignment::PerStage;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

// Where something that travels is placed in the step: on which stream, when its collective is
// launched, and where and for what the compute stream waits.
struct Placement {
  StreamChoice stream = CommStream{};
  LaunchPoint launch = LaunchWhenReady{};
  WaitPoint wait = WaitPoint::FirstUse;
  WaitScope scope = WaitScope::Event;
  std::int32_t max_ctas =
      0;  // most thread blocks of a GPU that the collective may use; 0: its choice

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Gradients that share one collective, and its placement.
struct Bucket : Placement {
  BucketId id;
  std::vector<Slice> gradients;  // in the order in which they lie in the bucket
  GroupId group;
  // AllReduce, or ReduceScatter: each rank of the group updates one shard of the bucket's parameters
  // and an all-gather completes them.
  Collective collective = Collective::AllReduce;
  // With ReduceScatter: an all-reduce of the whole bucket in its place, of which each rank goes on with its shard (ZeRO-1 and 2 of
  // DeepSpeed): twice the bytes.
  bool sums_whole = false;
  // With ReduceScatter: the shards are then all-reduced over this group of replicas.
  std::optional<GroupId> replicas = std::nullopt;
  BucketMode mode = BucketMode::View;
  Bytes pad_to = Bytes(1);     // the bucket's size is rounded up to a multiple of this
  Bytes align_to = Bytes(1);   // each gradient starts at a multiple of this
  std::string closed_by = {};  // why no further gradient joined it: "cap", "end", ...; for reports

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// Which readers of a bucket's parameters one gather serves, within one micro-step. The rank holds the
// parameters from the gather's launch until the last of them has run.
enum class GatherFor { Forward, Backward, ForwardAndBackward };
constexpr auto words_of(GatherFor) { return words("forward", "backward", "forward-and-backward"); }

// Parameters that nothing updates (frozen layers), sharded as those of a reduce-scattered bucket are: a rank
// of the group keeps its part, and what is gathered of the rest goes behind the last reader. They have no
// gradients, so nothing of them is reduced.
struct FrozenBlock {
  BucketId id;                       // beside those of the buckets
  std::vector<TensorId> parameters;  // in the order in which they lie in the block
  GroupId group;
  BucketMode mode = BucketMode::View;

  friend bool operator==(const FrozenBlock&, const FrozenBlock&) = default;
};

// One all-gather of the parameters that belong to a reduce-scattered bucket, or of a frozen block, once in
// each micro-step (ParameterSync::EachUse). LaunchWhenReady: when the micro-step begins, or, if later, once
// they have been released. The compute stream waits before the first reader.
struct ParameterGather : Placement {
  BucketId bucket;  // of the gradients; or the frozen block
  GatherFor readers = GatherFor::Forward;

  friend bool operator==(const ParameterGather&, const ParameterGather&) = default;
};

// A collective that the Program itself asks for (tensor, expert or sequence parallel), on a
// communication stream. LaunchWhenReady: once what it reads is there, which may be before the ops that
// stand between. It is waited for before the first op that uses what it brings or overwrites what it sends. Those
// that no placement names run where they stand, on the compute stream.
struct OpPlacement : Placement {
  OpId op;  // its work is a CollectiveWork; with micro-steps, in each of them

  friend bool operator==(const OpPlacement&, const OpPlacement&) = default;
};

// The most that one rank may have gathered at the same time; 0: no limit.
struct GatherLimit {
  Bytes bytes = Bytes(0);
  std::int32_t buckets = 0;
  friend bool operator==(const GatherLimit&, const GatherLimit&) = default;
};

struct Schedule {
  std::string policy;           // who made it, as it is typed: "torch-ddp:cap=25MiB,first=1MiB"
  std::vector<Bucket> buckets;  // launch order
  ScaleAt scale = ScaleAt::Collective;
  Merge merge = {};
  ParameterSync parameters = ParameterSync::AfterUpdate;
  Pipeline pipeline = {};
  std::vector<ParameterGather> gathers = {};  // launch order; only with ParameterSync::EachUse
  GatherLimit gather_limit = {};              // verify holds every execution against it
  std::vector<FrozenBlock> frozen = {};       // only with ParameterSync::EachUse
  std::vector<OpPlacement> collectives = {};  // of the Program itself; each op once

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The collective that reduces the bucket.
inline Collective reduces_by(const Bucket& bucket) {
  return bucket.sums_whole ? Collective::AllReduce : bucket.collective;
}

// Sum of the members, before padding.
Bytes payload(const Program& program, const Bucket& bucket);

}  // namespace dovetail::schedule
