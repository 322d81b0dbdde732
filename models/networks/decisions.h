// What a job decides of its step, as a policy's text (schedule/policies/policies.h): stages, micro-batches, how gradients
// and parameters travel, where tensor-parallel collectives run.
//
//   llama3_70b:tp=8,pp=4,dp=2,gbs=64,zero=1
//     pipeline:kind=1f1b,stages=4,k=32+sharded:cap=160000000B,p=1,gather=next-forward
//
// zero=0: PyTorch DDP's buckets, or with as=megatron its own, of 40 million parameters. zero=1 and 2:
// reduce-scattered buckets of that size, updates of shards, parameters gathered beside the next forward. zero=3: FSDP2,
// layer by layer. Where no gradient has a second copy: one bucket that nobody packs. Sources: the presets of frameworks/.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/networks/job.h"

namespace dovetail::jobs {

// Of one micro-batch after another, or of the pipeline: "pipeline:...,k=8" or "", which stands before a `+`; and what
// any data-parallel policy takes of the job besides: "k=4,collectives=async" or "".
std::string stages_text(const Job& job);
std::string common_options(const Job& job);

// How its gradients and parameters travel, with what is common. parse_policy takes it.
std::string policy_text(const Job& job);

// The same with other buckets, as somebody named them: "torch-ddp:cap=50MiB".
std::string policy_text(const Job& job, const std::string& data_parallel);

}  // namespace dovetail::jobs
