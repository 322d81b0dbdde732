// torch-ddp: the buckets, copies and waits of PyTorch's DistributedDataParallel after its first step.
//
// The same rule as threshold, with the limits `first`, then `cap`. With torch=2.6 or later a given cap is
// the first limit too, as it is there; before, and without torch=, the first is 1 MiB.
// DDP divides each gradient on its way into the bucket. With mode=view, its gradient_as_bucket_view=True, that is a pass of its own: gradients
// that backward made anew (zero_grad sets them to None) are divided into the bucket, others where they lie.
// Source: c10d/reducer.cpp (mark_variable_ready_dense), compute_bucket_assignment_by_size; nn/parallel/distributed.py.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"
#include "schedule/policies/torch_version.h"

namespace dovetail::schedule {
namespace {

using typed::Typed;

bool first_follows_cap(const Typed& typed) {
  const TorchVersion version = torch_version(typed.value);
  if (!version.problem.empty()) fail(typed, version.problem);
  return version.first_follows_cap;
}

ByLimits& limits(Decisions& decisions) { return std::get<ByLimits>(*decisions.grouping); }

constexpr std::string_view kBelowOne =
    " (DDP's bucket_cap_mb=0 makes a bucket for each tensor: per-tensor or cap=1B,first=1B; below "
    "0 one of all: one-bucket)";

PolicyOption cap_option() {
  PolicyOption option = options::cap();
  option.read = [](Decisions& decisions, const Typed& typed) {
    limits(decisions).cap = typed::size(typed, kBelowOne);
  };
  return option;
}

PolicyOption first_option() {
  return {"first", Decision::Grouping,
          [](Decisions& decisions, const Typed& typed) {
            limits(decisions).first = typed::size(typed, kBelowOne);
          },
          [](const Decisions& decisions) {
            return typed::exact_size(*std::get<ByLimits>(*decisions.grouping).first);
          },
          true};
}

// What it stands for is known once cap and first are (follow_version); it is never printed.
PolicyOption torch_option() {
  return {"torch", Decision::Grouping,
          [](Decisions&, const Typed& typed) { static_cast<void>(first_follows_cap(typed)); },
          [](const Decisions&) { return std::string(); }};
}

// torch= decides about the first bucket unless first= does.
void follow_version(Decisions& decisions, const TypedOptions& typed) {
  const Typed* const torch = typed.find("torch");
  if (torch == nullptr || typed.has("first") || !typed.has("cap")) return;
  if (first_follows_cap(*torch)) limits(decisions).first = limits(decisions).cap;
}

}  // namespace

PolicyDefinition torch_ddp_policy() {
  return {.name = "torch-ddp",
          .purpose = "PyTorch DDP's buckets, copies and waits",
          .sizes = {cap_option(), first_option(), torch_option()},
          .batches = {options::batch(), options::tail()},
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByLimits{.first = mib(1)};
                decisions.placement =
                    BucketPlacement{.mode = BucketMode::Copy, .wait = WaitPoint::EndOfBackward};
                decisions.scaling = ScaleDecision{.rule = ScaleRule::IntoBuckets};
              },
          .complete = follow_version};
}

}  // namespace dovetail::schedule
