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
//   threshold              a bucket closes once its bytes reach `cap`, or with
//                          closes=before-exceeding before the gradient that would bring it above, from-last the same
//                          from the gradient that is ready last
//   torch-ddp              PyTorch DDP after its first step: the same rule, with limits `first`,
//                          then `cap`; copy mode, waits at the end of backward. With torch=2.6 or
//                          later a given cap is the first limit too, as it is there; before, and
//                          without torch=, the first is 1 MiB. Source: c10d/reducer.cpp,
//                          compute_bucket_assignment_by_size; nn/parallel/distributed.py
//   mg-wfbp, asc-wfbp      merged while the link is busy, by the machine's times (schedule/policies/mg_wfbp.cc)
//   exact                  the grouping with the earliest last completion, found by search/planner.h
//   source-first-fit       Paddle's data-parallel pass, bit for bit (schedule/policies/source_first_fit.h)
//   source-improved        what that pass should do (schedule/policies/source_improved.cc)
//   gradient-merge         k micro-steps before one update (groups as that does)
//   sharded                reduce-scatter, sharded update, all-gather (schedule/policies/sharded.h)
//   dear                   sharded updates of whole modules, as DeAR groups and gathers them (schedule/policies/dear.cc)
//   fsdp                   ZeRO-3: parameters are gathered block by block before forward and backward,
//                          gradients reduce-scattered, updates sharded (schedule/policies/fsdp.h)
//   pipeline               stages, micro-batches in a given order, buckets within each stage
//                          (schedule/policies/pipeline.cc)
//
// A policy decides some of the eight things of schedule/policies/decisions.h; `+` joins policies that decide different
// ones, and an option stands for itself:
//
//   pipeline:stages=4+torch-ddp:cap=8MiB   stages and micro-batches of the one, buckets of the other
//   sharded+streams=2                      sharded updates, buckets dealt over two communicators
//
// The buckets of pipeline, gradient-merge, sharded and fsdp are defaults, which give way to another term's.
// Whatever else two terms decide both is refused by name; what cannot go together is refused with its
// reason (schedule/policies/combinations.h).
//
// Every policy takes the options of micro-steps (k, sync, average, sums), of scaling (scale), of
// communicators (streams), and of the collectives that the Program has beside its gradients'
// (collectives=async). What else belongs to a policy stands in its own file, as one value
// (schedule/policies/definition.h); list.h names them all.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/decisions.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// What somebody typed: `torch-ddp:cap=25MiB,first=1MiB,mode=copy`, or several joined by `+`.
struct Policy {
  std::vector<std::string> terms = {};  // names of what was joined: {"pipeline", "fsdp"}
  Decisions decisions = {};
  // Which term decided each of the eight, -1 for none: where its options are printed.
  std::array<std::int8_t, kWordCount<Decision>> decided_by = {-1, -1, -1, -1, -1, -1, -1, -1};

  friend bool operator==(const Policy& a, const Policy& b) {
    return a.terms == b.terms && a.decisions == b.decisions;
  }
};
using PolicySpec = Policy;  // the name that other rooms still use

// What is decided, or the plain thing.
Merge accumulation(const Policy& policy);
BucketPlacement placement(const Policy& policy);
inline bool is_searched(const Policy& policy) {
  return policy.decisions.grouping && std::holds_alternative<Searched>(*policy.decisions.grouping);
}
// Whether its grouping is made of a machine's times, and whether anything is: search/planner.h makes that.
bool groups_by_times(const Policy& policy);
bool needs_costs(const Policy& policy);
// The same with so many thread blocks of a collective at most.
Policy with_ctas(const Policy& policy, std::int32_t ctas);
// Into how many stages and chunks it cuts the model; one of each without a pipeline.
StageSplit split_of(const Policy& policy);
// The same with another placement, whoever decided it.
Policy placed(Policy policy, const BucketPlacement& placement);

// The size of a bucket, where the grouping has one in bytes; of the buckets behind the first.
std::optional<Bytes> bucket_size(const Policy& policy);
// REQUIRES: bucket_size(policy) has a value.
Policy with_bucket_size(Policy policy, Bytes size);

// The number of elements at which Paddle's pass closes a bucket: for a hidden size of 2048, the two
// matrices of a feed-forward layer and the four of attention, 2 x 4h x h + 4 x h x h.
inline constexpr std::int64_t kSourceElements = 50'331'648;

// Another name for a policy with options of its own: frameworks/ has those of frameworks.
struct Preset {
  std::string_view name;
  std::string_view stands_for;
};

// One of the policies that are joined, as a value: its name, and its decisions with what is set.
//
//   PolicyTerm fsdp = usual_term("fsdp");
//   fsdp.decisions.gathers->forward = 2;
//   to_string(join({fsdp})) == "fsdp:blocks=layer,forward=2,backward=1"
struct PolicyTerm {
  std::string name;
  Decisions decisions;
};
// As the policy is without options. REQUIRES: policy_names() has it.
PolicyTerm usual_term(std::string_view name);
// What parse_policy makes of the same in words. Throws InputError as that does.
Policy join(const std::vector<PolicyTerm>& terms);

// Policies or presets, joined; `before` stands in front of them. Throws InputError: unknown policy
// (with the nearest known name), unknown or repeated option, an option the policy lacks, options that
// contradict each other, two terms that decide the same, a combination that cannot be
// (schedule/policies/combinations.h).
Policy parse_policy(std::string_view text, std::span<const Preset> presets = {},
                    std::span<const PolicyTerm> before = {});

// The policies of a list as typed, each as parse_policy takes it. A comma before KEY=VALUE goes on with the
// options of the policy before it: "ddp,sharded:p=2,k=4,exact" is ddp, sharded:p=2,k=4 and exact.
std::vector<std::string> split_policies(std::string_view list);

std::string name(const Policy& policy);  // without options: "pipeline+fsdp"
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

// As typed, with every option that the policy has: parse_policy(to_string(policy)) == policy.
std::string to_string(const Policy& policy);

// How the policy that made the Schedule groups gradients, in words; empty: nothing is said, or nobody's policy.
std::string_view groups_by(const Schedule& schedule);

// What a policy decided.
struct PolicyResult {
  Schedule schedule;                        // without buckets after a failure
  std::vector<std::string> report = {};     // one line per decision
  std::vector<std::string> refusals = {};   // steps that the policy left out, and the rule in words
  std::optional<std::string> failure = {};  // why it cannot be applied to this Program at all
  Bytes most_gathered{};  // before uses: parameters in memory at a time, without a pipeline
};

// Of a pipeline the Program is the split one: assign_stages(program, split_of(policy)).
// REQUIRES: problems(program) is empty, !needs_costs(policy).
PolicyResult apply_policy(const Program& program, const Policy& policy);

// The same without the lines about its buckets (report.h), where what the Program owes and who reads that in backward
// (grouping.h) is known. REQUIRES: as apply_policy.
class BackwardReaders;
PolicyResult decide(const Program& program, const Policy& policy,
                    const std::vector<OwedGradient>& owed, const BackwardReaders& readers);

// The Schedule alone. Throws InputError after a failure. REQUIRES: as apply_policy.
Schedule make_schedule(const Program& program, const Policy& policy);

// What travels, kind by kind: gradients that may share a bucket (of one process group, dtype, reduction and stage; of
// sharded updates also of parameters of one dtype) stand together, in ready order.
struct GradientKinds {
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::vector<OwedGradient> gradients;
  std::vector<std::size_t> ends;  // of each kind, exclusive
  // Ranges of `gradients` that are also consecutive in ready order, in that order: between two of them the kind
  // changes.
  std::vector<Run> runs;
};
// REQUIRES: of sharded updates, apply_policy would not refuse the Program.
GradientKinds kinds_of(const Program& program, const Policy& policy = {});
GradientKinds kinds_of(const Program& program, const std::vector<OwedGradient>& travelling);
// Where a block of the policy's may end, as exclusive ends of kinds_of(): before uses of parameters are gathered behind whole
// layers, or whole modules, which are a framework's units; otherwise behind any gradient.
enum class BlockUnit { Layer, Module };
std::vector<std::size_t> borders_of(const Program& program, const GradientKinds& kinds,
                                    const Policy& policy, BlockUnit unit = BlockUnit::Layer);

// The Schedule with these buckets in place of the policy's, launched as they become ready: ends are exclusive and rise
// to the number of gradients, which stand as kinds_of() has them. Throws InputError where a bucket would hold two kinds.
Schedule partition(const Program& program, std::span<const std::size_t> ends, const Policy& policy);
// The same, or the reason why it cannot be as a failure: a limit that a block alone exceeds, say.
PolicyResult try_partition(const Program& program, std::span<const std::size_t> ends,
                           const Policy& policy);

}  // namespace dovetail::schedule
