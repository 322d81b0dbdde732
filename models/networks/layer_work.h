// What a transformer's parts cost on one rank: a chain of work and messages, forward order.
//
//   llama, tp=2, sp       gather over tp | attention | scatter over tp | gather | mlp | scatter
//   experts, ep=4         ... | gate | all-to-all over ep | experts | all-to-all | combine
//   cp=2                  qkv | gather keys and values over cp | attention
//   cp=2, exchange=ring   qkv | keys and values to a neighbor, beside attention to one's own | attention to those that came
//
// Tokens T of a rank: mbs x seq / cp. Matrix products: forward m n k, gradient of the input m k n, of the weight
// n k m. Attention: 2 T seen heads (key + value dim) FLOP forward, 2 T seen heads (3 key + 2 value dim) backward (its scores are computed
// again: Dao, arXiv 2205.14135), causal ones half; it is one kernel, unless flash=no, which writes and reads the
// scores, too. Norms, rotation, activation functions and residual sums move each operand once, twice backward. With
// kernels=eager they are the kernels that PyTorch runs by itself (a norm eight, a rotation three), each with two of its kind
// backward, and products of one input are apart.
// With LoRA (adapters.h) frozen weights have no gradient, and an adapter's sum with what its weight gives is a kernel.
// With recompute=op a layer's kernels are computed again up to its last product, but for fused attention and, as torchtitan's policy
// counts them, every second product of the compute type, from the first on (torchtitan/distributed/activation_checkpoint.py
// of 2024 and 2025; products of narrower types stand in no list of what is saved).
// With kernels=transformers they are those of written_out.h.
// Left out: dropout, the all-reduce of norms' gradients over tp (KB), the router's auxiliary loss, and what
// shared experts gather and scatter over tp.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/networks/job.h"
#include "models/networks/tensors.h"
#include "schedule/program.h"

namespace dovetail::jobs {

// One of the modules whose kernels a Compute has: where they begin in its lists. It ends where the next one begins.
struct Module {
  std::string name;          // "model.layers.0.self_attn.q_proj" (module_name)
  std::int64_t columns = 0;  // of what it hands on
  std::size_t forward = 0, backward_input = 0, backward_weight = 0;
};

// Kernels that run one after another without a message between them.
struct Compute {
  std::string name;                             // "model.layers.0.self_attn"
  std::vector<ParameterShape> parameters = {};  // that it reads, as the whole model has them
  std::vector<schedule::Kernel> forward = {};
  std::vector<schedule::Kernel> backward_input = {};
  std::vector<schedule::Kernel> backward_weight = {};
  // Of the forward kernels what recompute=op computes again (LayerWriter::keep_or_again). Products of one input are apart.
  std::vector<schedule::Kernel> again = {};
  // So many of the forward kernels stand before the last product whose result nothing of the layer reads again; PyTorch's checkpoint
  // stops there. Absent: all are needed.
  std::optional<std::size_t> needed = std::nullopt;
  std::vector<std::int64_t> out = {};  // shape of what it hands on
  std::vector<Module> modules = {};    // forward order
  // What casts this rank's shard and puts it into a gather (FSDP2), each time that its parameters are gathered.
  std::vector<schedule::Kernel> on_gather = {};
  bool is_gathered_again = false;  // in backward
  bool backward_reads = true;      // its parameters: the gradient of an embedding needs no weights
  // Of its products, where it is not the job's: transformers computes some in f32.
  std::optional<schedule::DType> dtype = std::nullopt;
};

// The same kernels, a Compute for each module; what is computed again, or cast and copied to be gathered, is left out.
std::vector<Compute> modules_of(const Compute& compute);

enum class Over { TensorParallel, ContextParallel, ExpertParallel };

// A message that every rank of a group sends, and the one that undoes it in backward.
struct Travel {
  std::string name;
  Over over = Over::TensorParallel;
  std::optional<schedule::Collective> forward = std::nullopt;  // none: nothing travels that way
  std::optional<schedule::Collective> backward = std::nullopt;
  std::vector<std::int64_t> out = {};  // shape of what it hands on
  // What it gathered is not kept: the gradients of weights gather it again (sequence parallelism).
  bool again_for_weights = false;
  std::int64_t copies = 1;  // as in CollectiveWork
};

// Keys and values that go around the context-parallel ranks, a neighbor's at a time, beside attention to those that came before
// (Transformer Engine's AttnFuncWithCPAndKVP2P). Forward cp - 1 times; the last that come are for the Compute behind it. Backward all go
// around again, and behind the first attention their gradients, too: cp times, of which the first and the last carry one of both.
struct Ring {
  std::string name;
  std::vector<std::int64_t> out = {};     // shape of a rank's keys and values
  std::vector<std::int64_t> result = {};  // of what attention gives
  std::vector<std::vector<schedule::Kernel>> forward = {}, backward = {};  // beside each exchange
};

using Element = std::variant<Compute, Travel, Ring>;

// `all`: job_parameters(job). REQUIRES: complete(job).
std::vector<Element> embedding_work(const Job& job, const std::vector<ParameterShape>& all);
std::vector<Element> layer_work(const Job& job, const std::vector<ParameterShape>& all,
                                std::int64_t layer);
// The last norm, the output layer; the loss is `loss_work`.
std::vector<Element> head_work(const Job& job, const std::vector<ParameterShape>& all);
struct LossWork {
  std::vector<schedule::Kernel> forward, backward;
};
LossWork loss_work(const Job& job);

// Of an optimizer step of a tensor of this shape: gradient, master weight and states are read, all but the gradient
// are written, and so is the parameter, unless it exists while it is gathered only. Muon besides, of each matrix r x c with r <= c: five iterations of r r c, r r r
// and r r c products (Jordan et al. 2024).
schedule::Work update_work(const Job& job, const std::vector<std::int64_t>& shape);

}  // namespace dovetail::jobs
