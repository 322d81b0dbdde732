// Policies: rules that group the gradients of a Program into buckets, ours and other people's.
//
// Each returns a Schedule for the same Program, so that one command can print them side by side.
// All walk the owed gradients in gradient-ready order and keep one open bucket per (process group,
// dtype, reduction); buckets are launched in the order in which they close.
//
//   naive                  one collective per gradient on the compute stream, right after its
//                          producer (Paddle's synchronous program: the reference for numbers)
//   no-overlap             one bucket, after backward
//   no-overlap-per-tensor  one collective per gradient, after backward
//   per-tensor             one bucket per gradient, launched when ready (wait-free backpropagation)
//   one-bucket             one bucket, launched when its last gradient is ready
//   threshold              a bucket closes once its bytes reach `threshold`
//   torch-ddp              PyTorch DDP after its first step: the same rule, with limits `first`,
//                          then `cap`; copy mode, waits at the end of backward. Source:
//                          c10d/reducer.cpp, compute_bucket_assignment_by_size
//   partition              any given grouping into consecutive buckets: the exact search's result
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

enum class PolicyKind {
  Naive,
  NoOverlap,
  NoOverlapPerTensor,
  PerTensor,
  OneBucket,
  Threshold,
  TorchDdp,
  Exact,  // needs costs: cli/planner.h solves it and calls partition()
};

// A policy as typed: `torch-ddp:cap=25MiB,first=1MiB,mode=copy,wait=end-of-backward,scope=event`.
struct PolicySpec {
  PolicyKind kind = PolicyKind::TorchDdp;
  Bytes threshold = mib(25);    // threshold=, cap=
  Bytes first_bucket = mib(1);  // first= (torch-ddp only)
  BucketMode mode = BucketMode::View;
  WaitPoint wait = WaitPoint::FirstUse;
  WaitScope scope = WaitScope::Event;

  friend bool operator==(const PolicySpec&, const PolicySpec&) = default;
};

// The defaults of a kind: torch-ddp copies and waits at the end of backward, the others view and
// wait at first use.
PolicySpec default_policy(PolicyKind kind);

// Throws InputError: unknown policy (with the nearest known name), unknown or repeated option, an
// option the policy lacks.
PolicySpec parse_policy(std::string_view text);

std::string_view name(PolicyKind kind);
std::vector<std::string> policy_names();

// As typed, with every option that the policy has: parse_policy(to_string(spec)) == spec.
std::string to_string(const PolicySpec& spec);

// The Schedule of any policy but Exact. REQUIRES: problems(program) is empty, spec.kind != Exact.
Schedule make_schedule(const Program& program, const PolicySpec& spec);

// The Schedule with these consecutive buckets: ends are exclusive and rise to the number of owed
// gradients. Throws InputError where a bucket would mix process groups, dtypes or reductions.
Schedule partition(const Program& program, std::span<const std::size_t> ends,
                   const PolicySpec& spec);

}  // namespace dovetail::schedule
