// What one rank of each pipeline stage of a job holds in its device's memory at the worst moment of a step.
//
//   memory_of(job)[0]      stage 0: 61.3 GiB, parameters 4.1, gradients 8.2, optimizer 3.1, activations 30.2, ...
//   smallest_change(job, gib(80))     "recompute=full"
//
// N parameters of a rank after tp, ep and pp; D ranks over which Zero divides them:
//   parameters, gradients, master, optimizer   N x bytes of each (Job::precision), / D where Zero divides it;
//                 of weights that LoRA freezes only the parameter, in the compute type
//   activations   per layer and token what backward reads: arXiv 2205.05198, section 4, for bf16, fused norms and
//                 flash attention. Of width h, heads a of dimension d (k of keys), inner size f, in elements:
//                   inputs and outputs of both norms 4 h;  queries, keys, values, output 2 a d + 2 k d;
//                   a gated network 4 f (3 f if its product is one kernel), a plain one 2 f;
//                   of experts the same for each token that comes, and 2 h, its way in and out.
//                 tp divides what lies within heads and networks, sp the rest, cp tokens. Without flash also the
//                 scores. Full recomputation keeps h. Times micro-batches in flight, of 1/vp of the stage each
//                 (schedule/lower/pipeline/order.h: 1F1B pp - stage, zero-bubble and zbv pp x vp), until the gradients of weights are
//                 done: what only those of the input need is not freed before.
//                 Frozen networks without adapters (lora_on=attention) keep no input of a product: h and f less.
//                 (torchtitan's selective recomputation keeps of a dense layer 2 h, a d + k d, a d and f.)
//   logits        last stage, per token and word: compute type, f32, and their softmax in f32
//   working       the layer whose backward runs: gradients of its inner size; what it computes again
//   gathered      Zero 3: the layer in use and `prefetch` more; without reshard all
//                 Written out (kernels=transformers) an RMS norm keeps 4 B and twice the compute type more an element, gelu_new three results;
//                 the loss keeps 12 B a word
//   buffers       cuBLAS's work spaces; sequences gathered for tp, keys and values for cp, tokens for ep, what pp sends; buckets
//   fragmentation of the allocator: 15 % of what it reserves, the mean that GMLake (arXiv 2401.08156) found of
//                 PyTorch's in training language models
//   outside       CUDA context 300 MiB (pytorch/pytorch#107667); of each NCCL communicator 16 channels, each
//                 with buffers of three protocols both ways (4 MiB, 4.7 MiB, 0.5 MiB: src/include/device.h)
// Left out: weights of norms held in f32, what adapters keep at the width of their rank, temporaries of optimizers that
// work on lists of tensors, what the host holds, datasets, saving of checkpoints.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "base/words.h"
#include "models/networks/job.h"
#include "schedule/holding.h"

namespace dovetail::jobs {

// What frameworks keep, beyond what a Job says.
struct MemoryRules {
  bool resident_gradients = false;  // their memory exists before the first backward
  // Backward leaves all gradients in the compute type, beside their sum.
  bool whole_gradients = false;
  bool bucket_copies = false;  // buckets are copies of what backward leaves (DDP)
  // Zero 1, 2: updated parameters arrive in a copy, still there as forward begins.
  bool gathered_update = false;
  bool fused_gate = false;  // silu(gate) x up is one kernel that keeps its inputs
  // What experts give is weighed between their products (Megatron-Core's moe/experts.py), so that nothing reads it in backward.
  bool weighs_within = false;
  bool narrow_inputs = false;  // what goes into narrow products is kept as it is multiplied
  // Zero 2, 3 in a pipeline: sums are whole, in the type in which they travel, until the last micro-batch
  // (FSDP2 under torch.distributed.pipelining, which sets no gradient sync until then).
  bool whole_sums = false;
  bool cast_shards = false;  // Zero 3 keeps its shard in the compute type, too (DeepSpeed)
};
// Of the framework that runs it (Job::as).
MemoryRules memory_rules(const Job& job);

// The worst moment: the first backward with most micro-batches in flight; a later one that has made all
// gradients; the update.
enum class Moment { Activations, Gradients, Update };
constexpr auto words_of(Moment) { return words("activations", "gradients", "update"); }

struct StageMemory : schedule::Holding {
  Moment moment = Moment::Activations;
  Bytes kept = {};  // activations of one micro-batch, part of `activations`
  Bytes sums = {};  // gradients that come with the first backward and go with the update
  friend bool operator==(const StageMemory&, const StageMemory&) = default;
};

// Elements of parameters that one rank holds, dense ones and those of experts: they are divided over different ranks.
struct Held {
  double dense = 0, experts = 0;
  [[nodiscard]] double all() const { return dense + experts; }
  Held& operator+=(const Held& other) {
    dense += other.dense;
    experts += other.experts;
    return *this;
  }
};
// Of them those that train, and those that are frozen.
struct Weights {
  Held trained, frozen;
  [[nodiscard]] double all() const { return trained.all() + frozen.all(); }
  Weights& operator+=(const Weights& other) {
    trained += other.trained;
    frozen += other.frozen;
    return *this;
  }
};
// Of each block of the model after tp, ep and etp, before pp and Zero. Jobs that differ in nothing but other degrees, batch,
// schedule and recomputation have the same.
struct BlockWeights {
  std::vector<Weights> layers;
  Weights embedding, head;
};
BlockWeights block_weights(const Job& job);

// REQUIRES: complete(job).
std::vector<StageMemory> memory_of(const Job& job, const MemoryRules& rules);
std::vector<StageMemory> memory_of(const Job& job);
// The same with weights that are known. REQUIRES: weights == block_weights(job).
std::vector<StageMemory> memory_of(const Job& job, const MemoryRules& rules,
                                   const BlockWeights& weights);

// The stage that needs most. REQUIRES: stages is not empty.
std::size_t fullest(const std::vector<StageMemory>& stages);

// The first single change of the job that fits, in text.h's words: from those that cost least time to those
// that cost most, the world and the batch as they are. Nothing where none does or the job fits.
std::optional<std::string> smallest_change(const Job& job, Bytes capacity);

// "recompute=full,recompute_layers=12": the fewest layers to recompute with which every stage fits; nothing where none do.
std::optional<std::string> fewest_recomputed(const Job& job, Bytes capacity);

}  // namespace dovetail::jobs
