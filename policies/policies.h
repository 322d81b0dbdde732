// Policies: rules that group the gradients of a Program into buckets, ours and other people's.
//
// Each returns a Schedule for the same Program, so that one command can print them side by side. All
// walk the owed gradients in gradient-ready order; buckets are launched in the order in which they
// are ready.
//
//   naive                  one collective per gradient on the compute stream, right after its
//                          producer, then its scale (Paddle's synchronous program: the reference)
//   no-overlap             one bucket, after backward
//   no-overlap-per-tensor  one collective per gradient, after backward
//   per-tensor             one bucket per gradient, launched when ready (wait-free backpropagation)
//   one-bucket             one bucket, launched when its last gradient is ready
//   threshold              a bucket closes once its bytes reach `threshold`, or with
//                          closes=before-exceeding before the gradient that would bring it above
//   torch-ddp              PyTorch DDP after its first step: the same rule, with limits `first`,
//                          then `cap`; copy mode, waits at the end of backward. With torch=2.6 or
//                          later a given cap is the first limit too, as it is there; before, and
//                          without torch=, the first is 1 MiB. Source: c10d/reducer.cpp,
//                          compute_bucket_assignment_by_size; nn/parallel/distributed.py
//   exact                  the grouping with the earliest last completion, found by search/planner.h
//   source-first-fit       Paddle's data-parallel pass, bit for bit (policies/source_first_fit.h)
//   source-improved        what that pass should do (policies/source_improved.h)
//   gradient-merge         k micro-steps before one update (policies/source_improved.h groups)
//   sharded                reduce-scatter, sharded update, all-gather (policies/sharded.h)
//   fsdp                   ZeRO-3: parameters are gathered block by block before forward and backward,
//                          gradients reduce-scattered, updates sharded (policies/fsdp.h)
//   pipeline               stages, micro-batches in a given order, buckets within each stage
//                          (policies/pipeline.h)
//
// Every policy takes the options of micro-steps (k, sync, average, sums), of scaling (scale), and of the
// collectives that the Program has beside its gradients' (collectives=async: place_own). What else
// belongs to a policy stands in its own file, as one value (policies/definition.h); list.h names them all.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "policies/bucket_rule.h"
#include "policies/list.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

enum class PolicyKind {
#define DOVETAIL_POLICY(kind, function) kind,
  DOVETAIL_POLICIES(DOVETAIL_POLICY)
#undef DOVETAIL_POLICY
};

enum class Choice { No, Yes };
// Where the buckets that make no whole batch are launched: after backward, as their source does, or
// together as soon as the last gradient is ready.
enum class Tail { AfterBackward, LastGradient };
// Which gradients make one block of fsdp: those of one layer, or as many as reach the cap.
enum class Blocks { Layer, Size };
// Where the Program's own collectives run: where they stand, on the compute stream, or as soon as they
// can on streams of their own.
enum class OwnCollectives { Inline, Async };
std::string_view to_string(OwnCollectives own);
std::string_view to_string(Blocks blocks);
std::string_view to_string(Choice choice);
std::string_view to_string(Tail tail);

// A policy as typed: `torch-ddp:cap=25MiB,first=1MiB,mode=copy,wait=end-of-backward,scope=event`.
struct PolicySpec {
  PolicyKind kind = PolicyKind::TorchDdp;
  Bytes threshold = mib(25);           // threshold=, cap=
  Bytes first_bucket = mib(1);         // first= (torch-ddp only)
  Closes closes = Closes::OnReaching;  // closes= (threshold only)
  BucketMode mode = BucketMode::View;
  WaitPoint wait = WaitPoint::FirstUse;
  WaitScope scope = WaitScope::Event;
  std::int64_t elements = 0;  // elements=: cap counted in elements (source-first-fit); 0: in bytes
  std::int32_t batch = 0;     // batch=, p=: buckets launched together; 0: each when it is ready
  Tail tail = Tail::AfterBackward;
  std::optional<ScaleAt> scale = std::nullopt;          // absent: as the policy decides
  Merge merge = {};                                     // k=, average=, sync=, sums=
  OwnCollectives collectives = OwnCollectives::Inline;  // collectives=
  Choice fuse = Choice::Yes;
  Choice overlap = Choice::Yes;
  Choice sharding = Choice::No;   // the source's use_sharding: it then neither overlaps nor fuses
  std::int32_t max_streams = 16;  // communication streams, one per process group
  ParameterSync gather = ParameterSync::AfterUpdate;
  std::string replicas = {};  // name of the process group of replicas; empty: from the Program
  PipelineKind order = PipelineKind::OneFOneB;            // kind= (pipeline only, as what follows)
  LaunchAlignment alignment = LaunchAlignment::PerStage;  // align=
  std::int32_t stages = 1;                                // 2 or more
  std::int32_t chunks = 1;                                // of the model per stage

  Blocks blocks = Blocks::Layer;       // blocks=, or cap= (fsdp only, as what follows)
  std::int32_t prefetch_forward = 1;   // forward=: how many blocks ahead parameters are gathered
  std::int32_t prefetch_backward = 1;  // backward=
  GatherLimit gathered = {};           // memory=, limit=: the most that is gathered at a time
  Choice reshard = Choice::Yes;        // between forward and backward
  std::int32_t streams = 1;            // 2: gathers have a stream of their own

  friend bool operator==(const PolicySpec&, const PolicySpec&) = default;
};

// The number of elements at which Paddle's pass closes a bucket: for a hidden size of 2048, the two
// matrices of a feed-forward layer and the four of attention, 2 x 4h x h + 4 x h x h.
inline constexpr std::int64_t kSourceElements = 50'331'648;

// The defaults of a kind: torch-ddp and sharded copy, torch-ddp waits at the end of backward and
// source-first-fit for whole streams; otherwise view, and an event at first use.
PolicySpec default_policy(PolicyKind kind);

// Another name for a policy with options of its own: frameworks/ has those of frameworks.
struct Preset {
  std::string_view name;
  std::string_view stands_for;
};

// A policy or one of the presets. Throws InputError: unknown policy (with the nearest known name), unknown or
// repeated option, an option the policy lacks, options that contradict each other.
PolicySpec parse_policy(std::string_view text, std::span<const Preset> presets = {});

// The policies of a list as typed, each as parse_policy takes it. A comma before KEY=VALUE goes on with the
// options of the policy before it: "ddp,sharded:p=2,k=4,exact" is ddp, sharded:p=2,k=4 and exact.
std::vector<std::string> split_policies(std::string_view list);

std::string_view name(PolicyKind kind);
std::vector<std::string> policy_names();

// A policy as help texts list it.
struct PolicyHelp {
  std::string name;
  std::string purpose;               // a few words
  std::string defaults;              // "sharded:cap=100MiB,p=2"; of a preset: what it stands for
  std::vector<std::string> options;  // keys that it takes
};
// All policies, then the presets, which take the options of the policy that they stand for.
std::vector<PolicyHelp> policy_help(std::span<const Preset> presets = {});

// As typed, with every option that the policy has: parse_policy(to_string(spec)) == spec.
std::string to_string(const PolicySpec& spec);

// What a policy decided.
struct PolicyResult {
  Schedule schedule;                   // without buckets after a failure
  std::vector<std::string> report;     // one line per decision
  std::vector<std::string> refusals;   // steps that the policy left out, and the rule in words
  std::optional<std::string> failure;  // why it cannot be applied to this Program at all
};

// REQUIRES: problems(program) is empty, spec.kind != Exact.
PolicyResult apply_policy(const Program& program, const PolicySpec& spec);

// The Schedule alone. Throws InputError after a failure. REQUIRES: as apply_policy.
Schedule make_schedule(const Program& program, const PolicySpec& spec);

// Why no grouping of consecutive gradients can be chosen freely: some may not share a bucket.
// Nothing: any can.
std::optional<std::string> partition_refusal(const Program& program);

// The Schedule with these consecutive buckets: ends are exclusive and rise to the number of owed
// gradients. Throws InputError where a bucket would mix process groups, dtypes or reductions.
Schedule partition(const Program& program, std::span<const std::size_t> ends,
                   const PolicySpec& spec);

}  // namespace dovetail::schedule
