// torch-ddp: the buckets, copies and waits of PyTorch's DistributedDataParallel after its first step.
//
// The same rule as threshold, with the limits `first`, then `cap`. With torch=2.6 or later a given cap is
// the first limit too, as it is there; before, and without torch=, the first is 1 MiB.
// Source: c10d/reducer.cpp, compute_bucket_assignment_by_size; nn/parallel/distributed.py.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/by_limits.h"
#include "policies/definition.h"
#include "policies/torch_version.h"

namespace dovetail::schedule {
namespace {

using typed::Typed;

bool first_follows_cap(const Typed& typed) {
  const TorchVersion version = torch_version(typed.value);
  if (!version.problem.empty()) fail(typed, version.problem);
  return version.first_follows_cap;
}

PolicyOption first_option() {
  return {"first",
          [](PolicySpec& spec, const Typed& typed) { spec.first_bucket = typed::size(typed); },
          [](const PolicySpec& spec) { return typed::exact_size(spec.first_bucket); }, true};
}

// What it stands for is known once cap and first are (follow_version); it is never printed.
PolicyOption torch_option() {
  return {"torch",
          [](PolicySpec&, const Typed& typed) { static_cast<void>(first_follows_cap(typed)); },
          [](const PolicySpec&) { return std::string(); }};
}

// torch= decides about the first bucket unless first= does.
void follow_version(PolicySpec& spec, const TypedOptions& typed) {
  const Typed* const torch = typed.find("torch");
  if (torch == nullptr || typed.has("first") || !typed.has("cap")) return;
  if (first_follows_cap(*torch)) spec.first_bucket = spec.threshold;
}

}  // namespace

PolicyDefinition torch_ddp_policy() {
  return {.name = "torch-ddp",
          .purpose = "PyTorch DDP's buckets, copies and waits",
          .sizes = {options::cap(), first_option(), torch_option()},
          .batches = {options::batch(), options::tail()},
          .set_defaults =
              [](PolicySpec& spec) {
                spec.mode = BucketMode::Copy;
                spec.wait = WaitPoint::EndOfBackward;
              },
          .complete = follow_version,
          .apply =
              [](const Program& program, const PolicySpec& spec) {
                return scaled(
                    program,
                    by_limits(program, spec,
                              {.limits = {spec.first_bucket.count(), spec.threshold.count()}}));
              }};
}

}  // namespace dovetail::schedule
