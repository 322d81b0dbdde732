// The Program of a job: forward and backward of one micro-batch and the update, as one rank of each pipeline
// stage runs them, with the collectives of tensor, context and expert parallelism where they stand.
//
//   Program program = program_of(parse_job("llama3_8b:tp=2,cp=2,dp=2"));      // 8 ranks
//     forward   layers.0.self_attn.gather    all-gather over tp      layers.0.self_attn.qkv     kernels
//     forward   layers.0.self_attn.exchange  all-gather over cp      layers.0.self_attn         kernels
//     ...
//   With exchange=ring cp - 1 exchanges .exchange.0 and .exchange.0.forward.attention beside each, then layers.0.self_attn.
//   owes ...weight.grad: average over dp (4 ranks: replicas and context-parallel ranks)
//
// Groups: tp, cp, ep; dp (over which dense gradients are summed) and edp (those of experts); with dp and
// dp_shard dp is the shard group, and hsdp the one of its replicas. Where parameters are gathered and sums are
// cut is no matter of the Program: Decisions (decisions.h).
// With pipeline stages ops have theirs, layers spread evenly, the embedding on the first and the head on the
// last. Tied weights are two tensors then, and the first and the last stage add up their gradients, whole and once
// per step, before the ranks of dp do: so does DeepSpeed (_exec_reduce_tied_grads), while Megatron-Core adds the whole
// gradients behind dp (_allreduce_word_embedding_grads). Bytes and sums are the same, both ways nothing runs beside
// it, and before dp it holds for every Zero. Gradients of experts are averaged over edp; that each sums the tokens of ep
// ranks is a constant factor, which is left out. With LoRA only adapters have
// gradients, and backward ends at the first. Full recomputation repeats a layer's forward before its backward.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/networks/job.h"
#include "schedule/program.h"

namespace dovetail::jobs {

// Blocks: an op for what stands between two messages: a layer's attention, its feed-forward network. Modules: an op for each of their
// modules, so that each gradient is ready behind its own; REQUIRES there that nothing is computed again or divided.
enum class Grain { Blocks, Modules };

// REQUIRES: complete(job). problems(result) is empty.
schedule::Program program_of(const Job& job, Grain grain = Grain::Blocks);

// What a reader of a prediction must know: the job's own notes, and what of it the Program counts otherwise, one line each.
std::vector<std::string> notes_on(const Job& job);

}  // namespace dovetail::jobs
