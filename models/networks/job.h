// A job: a model, how it is laid out over ranks, a batch, and in which precision. What people start, and
// what a Program (program.h), its decisions (decisions.h), its memory (memory.h) and its figures
// (figures.h) are made of.
//
//   llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1,gbs=64,recompute=selective
//
// Text: text.h. In frameworks' own words: frameworks/ (torchtitan, Megatron, DeepSpeed).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/words.h"
#include "models/networks/model.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::jobs {

using dovetail::to_string;

// How many ranks do what. The world is dp x dp_shard x cp x tp x pp ranks, tp innermost:
//   rank = (((p x dp + r) x dp_shard + s) x cp + c) x tp + t
// as Megatron (tp-cp-dp-pp) and torchtitan (pp, dp_replicate, dp_shard, cp, tp) order them, so that
// tensor parallelism gets the fastest links. Experts are divided over ep x etp ranks in a row of the same
// stage; what is left of them, dp x dp_shard x cp x tp / (ep x etp) ranks, holds copies of an expert.
struct Layout {
  std::int64_t dp = 1;        // replicas (DDP; the outer degree of HSDP)
  std::int64_t dp_shard = 1;  // ranks over which each replica is sharded (FSDP2)
  std::int64_t tp = 1;        // tensor parallel
  bool sp = true;        // sequence parallel: with tp, activations between blocks are divided, too
  std::int64_t cp = 1;   // context parallel
  std::int64_t ep = 1;   // expert parallel
  std::int64_t etp = 1;  // tensor parallel within an expert
  std::int64_t pp = 1;   // pipeline stages
  std::int64_t vp = 1;   // chunks of the model per stage
  schedule::PipelineKind order = schedule::PipelineKind::OneFOneB;
  std::vector<std::int64_t> layers =
      {};  // of each of pp x vp virtual stages; empty: as even as they can be

  [[nodiscard]] std::int64_t stage_ranks() const { return dp * dp_shard * cp * tp; }
  [[nodiscard]] std::int64_t world() const { return stage_ranks() * pp; }
  [[nodiscard]] std::int64_t replicas() const { return dp * dp_shard; }  // of the batch
  friend bool operator==(const Layout&, const Layout&) = default;
};

// What is divided over the data-parallel ranks, in the words of ZeRO (arXiv 1910.02054).
enum class Zero { Nothing, Optimizer, Gradients, Parameters };
constexpr auto words_of(Zero) { return words("0", "1", "2", "3"); }

// How context-parallel ranks get each other's keys and values: all at once before attention, or piece by
// piece beside it.
enum class ContextExchange { AllGather, Ring };
constexpr auto words_of(ContextExchange) { return words("all-gather", "ring"); }

struct Batch {
  std::int64_t sequence = 4096;  // tokens of a sample
  std::int64_t micro = 1;        // samples per replica and micro-batch
  std::int64_t global = 0;       // samples per optimizer step, over all replicas
  friend bool operator==(const Batch&, const Batch&) = default;
};

// Whether PyTorch's torch.autocast says in which type an op runs. Then weights, gradients, norms, residual sums and the loss are f32,
// without a copy of the weights, and products cast what they multiply: each weight once a forward, each input once a product.
enum class Autocast { No, Bf16, F16 };
constexpr auto words_of(Autocast) { return words("no", "bf16", "f16"); }

// Element types, each on its own. Bytes of one: schedule::element_size.
// What has one scale of an operand of fp8 or fp4, as Transformer Engine has it: what it was in earlier steps, the tensor, a block of
// a row or a tile of it. How many kernels make an operand narrow follows.
enum class Scaling { Delayed, Tensor, Block, Mx };
constexpr auto words_of(Scaling) { return words("delayed", "tensor", "block", "mx"); }

// Fp8, Fp4: cast for the product.
constexpr bool is_narrow(schedule::Operands operands) {
  return operands == schedule::Operands::Fp8 || operands == schedule::Operands::Fp4;
}

struct Precision {
  schedule::DType compute = schedule::DType::BF16;  // of activations and gathered parameters
  Autocast autocast = Autocast::No;                 // else `compute` is F32
  schedule::DType gradient = schedule::DType::F32;  // as it is kept and summed
  schedule::DType reduce = schedule::DType::F32;    // as it travels
  std::int64_t master_bytes = 4;                    // a copy of the parameters; 0: none
  std::int64_t state_bytes = 8;                     // of the optimizer's moments
  // Of layers' products with weights; attention's inner products and the output layer have `compute`. Tf32: of all products.
  schedule::Operands products = schedule::Operands::Own;
  Scaling scaling = Scaling::Delayed;  // of narrow products, with RunBy::Megatron
  // Of what products give.
  [[nodiscard]] schedule::DType product() const {
    if (autocast == Autocast::No) return compute;
    return autocast == Autocast::F16 ? schedule::DType::F16 : schedule::DType::BF16;
  }
  friend bool operator==(const Precision&, const Precision&) = default;
};

// What forward computes again in backward instead of keeping it. Selective: attention's inner products
// and what lies between them (Korthikanti, arXiv 2205.05198); with a fused attention kernel that is what it
// does by itself. Full: whole layers, of which only the input is kept.
// What backward computes again: nothing, attention (a fused kernel does by itself), all but what torchtitan's per-op policy
// keeps (attention, every second product, reduce-scatters), whole layers.
enum class Recompute { None, Selective, Op, Full };
constexpr auto words_of(Recompute) { return words("none", "selective", "op", "full"); }

// Of Megatron-Core's --recompute-modules those that give something up beside a fused attention kernel: with Selective nothing that
// they make is kept, and they run again. LayerNorm: both of a layer; MoeAct: between the experts' products; MlaUpProj: queries, keys
// and values from their low ranks; Mlp: of layers without experts; Moe: router, experts and what travels to them and back.
enum class RecomputedModule : std::uint8_t {
  LayerNorm,
  MoeAct,
  MlaUpProj,
  Mlp,
  Moe,
  SharedExperts
};
constexpr auto words_of(RecomputedModule) {
  return words("layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts");
}

// What runs between the matrix products of a layer.
//   fused         one kernel for each norm, rotation and activation, and one product for queries, keys and values (Megatron-Core with
//                 Transformer Engine, torch.compile)
//   eager         PyTorch's modules: norms in one kernel, rotations as complex numbers, activations operator by operator
//   transformers  as Hugging Face's models are written: norms and rotations in operators, in f32 where they are so
//   layers        transformers with torch.compile around each layer: the embedding, the last norm and the loss run by themselves
enum class Kernels { Fused, Eager, Transformers, Layers };
constexpr auto words_of(Kernels) { return words("fused", "eager", "transformers", "layers"); }

// How an optimizer goes over its tensors: in one kernel for many of them, operator by operator (torch.optim's foreach), or operator by
// operator over each alone (foreach=False; a parameter group of its own for each).
enum class Updates { Fused, Foreach, Each };
constexpr auto words_of(Updates) { return words("fused", "foreach", "each"); }

// Which linear layers have adapters of LoRA (adapters.h).
enum class LoraTargets { Attention, AllLinear };
constexpr auto words_of(LoraTargets) { return words("attention", "all-linear"); }

// How tokens travel to experts and back. AllToAll: a copy for each expert (NCCL). DeepEp, HybridEp: one for each rank, over the network
// one for each node.
enum class Dispatch { AllToAll, DeepEp, HybridEp };
constexpr auto words_of(Dispatch) { return words("all-to-all", "deepep", "hybridep"); }

// What of the logits there is at once. Whole: they, their logarithm's and their gradient's copies in f32. Fused: they, turned into their
// gradient in place (Transformer Engine's cross entropy). Chunked: a chunk of rows, never wider than what goes into the output layer
// (Liger's fused linear cross entropy: rows / ceil(vocabulary / width)).
enum class Loss { Whole, Fused, Chunked };
constexpr auto words_of(Loss) { return words("whole", "fused", "chunked"); }

// Whose ways a job follows where its other keys leave them open: what memory is kept beside (memory.h), buckets that
// nobody sized (decisions.h), how products of experts run. Any: nobody's; what is sharded is so as FSDP2 does it.
enum class RunBy { Any, Torch, Fsdp, Megatron, Deepspeed };
constexpr auto words_of(RunBy) { return words("any", "torch", "fsdp", "megatron", "deepspeed"); }

// Whether the wrapper of data parallelism (DDP; FSDP2 with Zero::Parameters) is there: where a rank has company, or always, as with
// `torchrun --nproc-per-node 1`. What it copies is copied then, and nothing travels.
enum class Wrap { Auto, Always };
constexpr auto words_of(Wrap) { return words("auto", "always"); }

enum class Optimizer { Sgd, Adam, Muon };
constexpr auto words_of(Optimizer) { return words("sgd", "adam", "muon"); }

// An option that decides time or memory and that no Job can hold.
struct Assumed {
  std::string option;   // "--mtp-num-layers", in its framework's words
  std::string value;    // "1"; "" where it has none
  std::string counted;  // what is priced in its place: "multi-token prediction is not modelled"
  friend bool operator==(const Assumed&, const Assumed&) = default;
};
// "--mtp-num-layers 1: multi-token prediction is not modelled".
std::string to_string(const Assumed& assumed);

struct Job {
  Model model;
  Layout layout = {};
  Batch batch = {};
  Precision precision = {};
  Recompute recompute = Recompute::None;
  std::int64_t recompute_layers = 0;   // the first of each virtual stage, with Full; 0: all
  std::uint8_t recompute_modules = 0;  // with Selective: a bit for each RecomputedModule
  Optimizer optimizer = Optimizer::Adam;
  Updates updates = Updates::Fused;
  std::int64_t lora =
      0;  // rank of LoRA's adapters, which train in the model's place; 0: the model trains
  LoraTargets lora_on = LoraTargets::AllLinear;
  Zero zero = Zero::Nothing;
  bool reshard = true;        // Zero::Parameters: frees parameters between forward and backward
  std::int64_t prefetch = 1;  // blocks gathered ahead, with Zero::Parameters
  std::optional<std::int64_t> bucket_bytes = std::nullopt;  // of gradients; absent: the framework's
  bool overlap_gradients = true, overlap_parameters = true;
  bool sync_each =
      true;  // Zero 2, 3 without a pipeline: reduces after each micro-batch, else whole sums after the last
  bool async_tp = false;  // tensor-parallel collectives beside products that do not need them
  ContextExchange exchange = ContextExchange::AllGather;
  Dispatch dispatch = Dispatch::AllToAll;
  double expert_imbalance = 1;  // tokens of the busiest rank against the mean
  bool flash = true;            // attention in one kernel that keeps no scores
  schedule::AttentionKernel attention = schedule::AttentionKernel::Cudnn;  // whose that one is
  Kernels kernels = Kernels::Fused;
  Loss loss = Loss::Whole;
  bool graph = false;  // the whole step is one CUDA graph: its host issues nothing
  Wrap wrap = Wrap::Auto;
  RunBy as = RunBy::Any;  // of a job in a framework's words that framework
  std::vector<Assumed> assumed = {};
  std::vector<std::string> notes =
      {};  // what else a reader of the job's file must know, one line each

  // How often forward and backward run before an update.
  [[nodiscard]] std::int64_t micro_batches() const {
    return batch.global / (batch.micro * layout.replicas());
  }
  [[nodiscard]] std::int64_t tokens() const { return batch.global * batch.sequence; }  // of a step
  friend bool operator==(const Job&, const Job&) = default;
};

// The virtual stage of a layer, 0 .. pp x vp - 1.
std::int64_t stage_of_layer(const Job& job, std::int64_t layer);
// How many layers each virtual stage has.
std::vector<std::int64_t> layers_of_stages(const Job& job);
// Whether backward computes all of the layer again. Those are the first recompute_layers of a virtual stage, as with
// Megatron-Core's --recompute-method block, which counts in each chunk of the model.
bool is_recomputed(const Job& job, std::int64_t layer);

// Whether this module of each layer runs again in backward.
bool recomputes(const Job& job, RecomputedModule module);
bool recomputes_modules(const Job& job);  // any

// Whether any gradient has a copy on another rank, with which it is reduced; without one nothing is bucketed or divided, unless wrap=always.
bool has_copies(const Job& job);
// Over how many ranks Zero divides: of replicas that are sharded themselves (HSDP) only the shards.
double shards_of(const Job& job, bool of_experts);
// Whether parameters are held in the type of their master copy only, and cast on their way into a gather, as FSDP2 does it.
bool casts_gathered(const Job& job);

// Whether products of weights' gradients add to the sums over micro-batches (Megatron's gradient_accumulation_fusion, which is on by itself);
// what is reduced after each micro-batch has no such sums.
bool adds_to_sums(const Job& job);

// Whether keys and values go around piece by piece, beside attention to those that are there. It takes a fused kernel, whose sums of rows
// join the pieces, and no window (Transformer Engine's and PyTorch's rings); otherwise they are gathered.
bool has_ring(const Job& job);

// Whether attention is in operators whatever `flash` says: transformers has no other for sinks unless somebody chose one.
bool writes_scores(const Job& job);

// Fills what was not said (batch.global: one micro-batch per replica and stage) and checks the rest. Throws
// InputError, which begins with `where` and names the option: degrees that do not divide heads, layers,
// experts, the world or the batch.
void complete(Job& job, const std::string& where);

// The same job with every option that changes nothing as it is by itself: sp without tp, prefetch without
// Zero::Parameters, ... Jobs that do the same work are equal then. REQUIRES: complete(job).
Job in_effect(Job job);

}  // namespace dovetail::jobs
