// What a job decides of its step, as a policy (schedule/policies/policies.h): stages, micro-batches,
// how gradients and parameters travel, where tensor-parallel collectives run.
//
//   llama3_70b:tp=8,pp=4,dp=2,gbs=64,zero=1
//     pipeline:kind=1f1b,stages=4,k=32+sharded:cap=160000000B,p=1,gather=next-forward
//
// zero=0: PyTorch DDP's buckets, or with as=megatron its own, of 40 million parameters. zero=1 and 2:
// reduce-scattered buckets of that size, updates of shards, parameters gathered beside the next
// forward. zero=3: FSDP2, layer by layer. Where no gradient has a second copy: one bucket that nobody
// packs. Sources: the presets of frameworks/.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/networks/job.h"
#include "schedule/policies/policies.h"

namespace dovetail::jobs {

schedule::Policy policy_of(const Job& job);

// The same with gradients and parameters that travel as somebody typed it: "torch-ddp:cap=50MiB". A
// policy that decides stages stands alone. Throws InputError as parse_policy does, and where it has
// another number of micro-batches than the job.
schedule::Policy policy_of(const Job& job, std::string_view given,
                           std::span<const schedule::Preset> presets = {});

// policy_of(job) in the words of the job's own keys, which parse_policy takes: those of defaults that
// no job decides are left out.
std::string policy_text(const Job& job);

}  // namespace dovetail::jobs
