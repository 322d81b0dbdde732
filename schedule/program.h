// A Program: what one training step computes, and which gradients owe a reduction. Nothing about
// time or place.
//
// It has no streams, no buckets and no waits; those are decisions of a Schedule (schedule.h). Ops
// stand in program order, which is one valid serial execution: an op reads only what earlier ops
// wrote, or what exists before the step (parameters, optimizer state, the data batch). Every rank
// of the job runs the same Program on its own data.
//
//   program mlp  world 2
//     forward    fc1.forward          gemm 64x256x784  reads fc1.weight       writes fc1.out
//     backward   fc1.backward.weight  gemm 784x256x64  reads fc1.out          writes fc1.weight.grad
//     optimizer  fc1.weight.update    memory 2.3 MiB   reads fc1.weight.grad  writes fc1.weight
//   owes fc1.weight.grad: average over dp
//
// Loaders: models/workloads/workload.h. Text: print.h. JSON: program_json.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/rational.h"
#include "base/shared_list.h"
#include "base/units.h"
#include "base/words.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::schedule {

using dovetail::to_string;

enum class DType { F32, F16, BF16, F64 };
constexpr auto words_of(DType) { return words("f32", "f16", "bf16", "f64"); }
// MergedGradient: the sum of a gradient over micro-steps; it persists from step to step.
enum class TensorKind { Parameter, Gradient, MergedGradient, Activation, OptimizerState };
constexpr auto words_of(TensorKind) {
  return words("parameter", "gradient", "merged-gradient", "activation", "optimizer-state");
}
enum class Phase { Forward, Backward, Optimizer };
constexpr auto words_of(Phase) { return words("forward", "backward", "optimizer"); }
enum class ReduceOp { Sum, Average };  // Average divides the sum by the group's size
constexpr auto words_of(ReduceOp) { return words("sum", "average"); }
// SendRecv: from the group's rank at index `root` to its other rank; Broadcast: from `root` to all.
enum class Collective { AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, SendRecv };
constexpr auto words_of(Collective) {
  return words("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast",
               "send-recv");
}
// What a Program's own communication is for. The gradients' reductions are not among them: those
// are debts (Reduction), and a Schedule decides how they are paid.
enum class Purpose {
  TensorParallel,
  Pipeline,
  GlobalNorm,
  ParameterSync,
  Reshard,
  ContextParallel,
  ExpertParallel,
  TiedWeights  // once per step: of the gradients of a weight that several stages hold
};
constexpr auto words_of(Purpose) {
  return words("tensor-parallel", "pipeline", "global-norm", "parameter-sync", "reshard",
               "context-parallel", "expert-parallel", "tied-weights");
}

Bytes element_size(DType dtype);

// Which role of a pipeline runs a virtual stage. Loop: 0 .. P - 1, again 0 .. P - 1, ... V: 0 .. P - 1, then back P - 1 .. 0, so
// that the two stages at the turn, and the first and the last, share a role.
enum class StageMap { Loop, V };
constexpr auto words_of(StageMap) { return words("loop", "v"); }
// REQUIRES: stages >= 1, stage >= 0.
std::int32_t role_of_stage(StageMap map, std::int32_t stages, std::int32_t stage);

struct Tensor {
  TensorId id;
  std::string name;
  TensorKind kind = TensorKind::Activation;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  // Of a merged gradient: the gradient whose micro-steps it sums.
  std::optional<TensorId> merges = std::nullopt;

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] Bytes bytes() const;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// What a product multiplies: elements of its op's type, or narrower ones that they were cast to. What it gives has
// the op's type. Tf32: of f32, which lies in memory as it is and loses bits on its way into tensor cores.
enum class Operands { Own, Tf32, Fp8, Fp4 };
constexpr auto words_of(Operands) { return words("own", "tf32", "fp8", "fp4"); }
inline constexpr std::array kNarrow = {Operands::Tf32, Operands::Fp8, Operands::Fp4};

enum class ConvolutionPass { Forward, Input, Weight };
constexpr auto words_of(ConvolutionPass) { return words("forward", "input", "weight"); }

// What a GEMM that a convolution implies leaves out: its windows overlap, so it moves less.
struct Convolution {
  ConvolutionPass pass = ConvolutionPass::Forward;  // or the gradient of the input or of the weight
  std::int64_t moved =
      1;  // elements of image, weight and result that are read or written, each once
  std::int64_t channels = 1;  // the fewer of those that come in and go out
  bool strided = false;       // by more than one pixel
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

// `count` products of an m x k with a k x n matrix, in one kernel or in separate ones. A convolution is the GEMM it
// implies (forward m = output pixels, n = output channels, k = input channels x window).
struct GemmWork {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 1;
  Operands operands = Operands::Own;
  bool separate = false;
  // Kernels that make an operand narrow, of each product where they are separate: the host launches them, and their time
  // is in that of a narrow product (models/rates).
  std::int64_t casts = 0;
  // Bytes of an element of the sum that it adds to, which it reads and writes in place of a result of the op's type. 0: it has a result.
  std::int64_t adds = 0;
  std::optional<Convolution> convolution = {};
  friend bool operator==(const GemmWork&, const GemmWork&) = default;
};

// Its least traffic: both matrices read once, the result, of type `dtype`, written once; of a convolution what it moves.
Bytes traffic(const GemmWork& gemm, DType dtype);

// cuDNN's, FlashAttention-3's and FlashAttention-2's; on GPUs where nobody measured them apart they take the same.
enum class AttentionKernel { Cudnn, Fa3, Fa2 };
constexpr auto words_of(AttentionKernel) { return words("cudnn", "fa3", "fa2"); }

// Of a fused attention kernel, which keeps no scores.
struct Attention {
  std::int64_t tokens =
      1;  // that a query attends to, in the mean: half the sequence where it is causal
  std::int64_t head_dim = 1;  // of queries and values, their mean
  bool backward = false;
  bool causal = true;  // a query attends to what is before it; else all attend to the same
  AttentionKernel kernel = AttentionKernel::Cudnn;
  friend bool operator==(const Attention&, const Attention&) = default;
};

// How memory-bound work goes over its bytes, which decides what share of the memory's rate it reaches (models/rates/memory_rates.h).
//   any         not known
//   plain       every byte in order: copies, sums, activation functions, casts to narrower types
//   widened     a cast to a wider type
//   mixed       operands of two types
//   rows        one number for each row, with all of it; columns: one for each column
//   sum-rows    each row summed up; sum-columns: each column
//   strided     parts of rows, or heads that change places with tokens
//   rms-norm    fused norms over rows of `columns`, both ways; layer-norm likewise
//   softmax     the logarithm of a softmax of f32 over rows of `columns`, and its gradient
//   filled      written, not read
//   gathered    rows taken from a table; scattered: added into one
//   updated     an optimizer's fused step; foreach: one by operators over lists of tensors
//   split       what a gather brought, copied into tensors; chunked: tensors put together for a reduce-scatter, rank by rank, a cast from a
//               narrower type included
enum class Access {
  Any,
  Plain,
  Widened,
  Mixed,
  Rows,
  Columns,
  SumRows,
  SumColumns,
  Strided,
  RmsNorm,
  RmsNormBackward,
  LayerNorm,
  LayerNormBackward,
  Softmax,
  SoftmaxBackward,
  Filled,
  Gathered,
  Scattered,
  Updated,
  Foreach,
  Split,
  Chunked,
  BatchNorm,
  BatchNormBackward,
  MaxPool,
  MaxPoolBackward
};
constexpr auto words_of(Access) {
  return words("any", "plain", "widened", "mixed", "rows", "columns", "sum-rows", "sum-columns",
               "strided", "rms-norm", "rms-norm-backward", "layer-norm", "layer-norm-backward",
               "softmax", "softmax-backward", "filled", "gathered", "scattered", "updated",
               "foreach", "split", "chunked", "batch-norm", "batch-norm-backward", "max-pool",
               "max-pool-backward");
}

// Memory-bound work that moves `bytes` in all, reads plus writes, with `flop` operations on the
// way.
struct MemoryWork {
  Bytes bytes;
  Flop flop;
  std::optional<Attention> attention = {};
  Access access = Access::Any;
  std::int64_t columns = 0;  // of a row, where it matters; 0: it does not
  friend bool operator==(const MemoryWork&, const MemoryWork&) = default;
};

// Work known only by how long it took when somebody measured it. One entry: the same on every rank;
// otherwise one per rank.
struct TimedWork {
  std::vector<Duration> by_rank;
  friend bool operator==(const TimedWork&, const TimedWork&) = default;
};

// Communication that belongs to what is computed: a tensor-parallel all-reduce, a pipeline's send, a
// global norm, a change of layout. `bytes` is the whole message: the gathered size of an all-gather,
// the input of a reduce-scatter. A SendRecv stands in the Program twice, once per side: the sender's
// op reads the tensor, the receiver's op writes it.
struct CollectiveWork {
  Collective kind = Collective::AllReduce;
  GroupId group;
  Bytes bytes;
  ReduceOp op = ReduceOp::Sum;
  Purpose purpose = Purpose::TensorParallel;
  std::int32_t root = 0;  // index in the rank's instance of the group
  // Of an all-to-all of rows that each go to so many experts, `bytes` with a row for each: to a rank, and over the network to
  // a node, goes one of them (DeepEP). 1: every row by itself.
  std::int64_t copies = 1;
  // Its program starts it where it stands and waits for it before the first use of what it brings (XLA's -start and -done).
  bool asynchronous = false;
  friend bool operator==(const CollectiveWork&, const CollectiveWork&) = default;
};

// Several kernels as one op, one after another: a block of layers within which nothing communicates. Few
// large ops keep Programs of deep models and many micro-batches small. Each kernel has the op's dtype. Copies of the op share them.
using Kernel = std::variant<GemmWork, MemoryWork>;
struct KernelsWork {
  SharedList<Kernel> kernels;
  friend bool operator==(const KernelsWork&, const KernelsWork&) = default;
};

using Work = std::variant<GemmWork, MemoryWork, TimedWork, CollectiveWork, KernelsWork>;
// How many kernels a host launches for it.
std::int64_t launches(const Work& work);

// Whether somebody measured its time: a wait, timed work that takes none, is nobody's.
bool is_timed(const Work& work);

// Bytes that its sum moves beside those of a product that has a result of this type.
Bytes adding(const GemmWork& gemm, DType dtype);

// The kernels of work that computes, in order; none of timed work and of a message.
std::vector<Kernel> kernels_of(const Work& work);

// What an op does to the values of gradients, as far as a scheduler must know: it decides whether
// scaling can be folded into the op, and lets verify follow every factor and every micro-step.
struct Opaque {  // nothing that a scheduler may use
  friend bool operator==(const Opaque&, const Opaque&) = default;
};
// Writes the gradient of the loss with which backward begins. Everything that backward derives from
// it is proportional to `value`.
struct FillLossGradient {
  Rational value;
  friend bool operator==(const FillLossGradient&, const FillLossGradient&) = default;
};
// writes[0] := (writes[0] + the other tensor that it reads) x factor; `overwrite`: without the old
// writes[0], which is then not read. Linear, so it may take gradients that are not reduced yet.
// `shard`: only of the parts that this rank holds after reduce-scatter, as both tensors lie in their buckets;
// made by lower, never in files.
struct Accumulate {
  bool overwrite = false;
  Rational factor;
  bool shard = false;
  friend bool operator==(const Accumulate&, const Accumulate&) = default;
};
struct ZeroFill {  // all that it writes
  friend bool operator==(const ZeroFill&, const ZeroFill&) = default;
};
// An optimizer update. `elementwise`: any range of the parameter can be updated alone, so it may be
// sharded (SGD, Adam; not LAMB). `rescale`: the factor with which the optimizer multiplies gradients
// (the rescale_grad of momentum optimizers); absent: it has no such attribute (Adam).
struct Update {
  bool elementwise = true;
  std::optional<Rational> rescale = std::nullopt;
  friend bool operator==(const Update&, const Update&) = default;
};
// The update of this rank's shard of one bucket. The gradients that the op reads are meant as they
// lie in bucket `gradients`, the parameters that it writes as they lie in bucket `parameters`, whose
// all-gather then completes them. `traffic`: what one rank reads of the gradients and writes of the
// parameters, rounded up to elements, without padding (for costs). Made by lower; lies only in rewritten
// Programs, never in files.
struct ShardUpdate {
  BucketId gradients;
  BucketId parameters;
  Bytes traffic;
  std::optional<Rational> rescale = std::nullopt;
  friend bool operator==(const ShardUpdate&, const ShardUpdate&) = default;
};
// writes[0] := sum of the squares of the gradients that it reads, each times `rescale`. `shard`: only
// of the parts that this rank holds after reduce-scatter (an all-reduce completes the sum).
struct GlobalNorm {
  bool shard = false;
  Rational rescale;
  friend bool operator==(const GlobalNorm&, const GlobalNorm&) = default;
};
using Effect =
    std::variant<Opaque, FillLossGradient, Accumulate, ZeroFill, Update, ShardUpdate, GlobalNorm>;

struct Op {
  OpId id;
  std::string name;
  Phase phase = Phase::Forward;
  DType dtype = DType::F32;  // of the work's operands
  Work work;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  Effect effect = Opaque{};
  // The virtual stage that runs it: 0 .. Program::stages x chunks - 1, on role Program::role_of.
  std::int32_t stage = 0;
  std::int32_t micro_step = 0;  // which repetition of forward and backward within one step
  // What the host took to issue it, after the op before, where somebody saw that: it does so
  // wherever the step is taken.
  std::optional<Duration> issue = std::nullopt;

  // 2·m·n·k per GEMM; unknown (0) for timed work.
  [[nodiscard]] Flop flop() const;
  // Least traffic to memory: every operand once. 0 for timed work.
  [[nodiscard]] Bytes bytes() const;

  friend bool operator==(const Op&, const Op&) = default;
};

// Whether products of the op add this gradient to its sum themselves.
bool adds_to_sum(const Op& writer, const Tensor& gradient);

// Whether it runs in every micro-step: ops of forward and backward do, but for the sums of the gradients of
// tied weights, which stand behind the last micro-step.
bool is_repeated(const Op& op);

struct ProcessGroup {
  GroupId id;
  std::string name;         // "dp"
  std::vector<Rank> ranks;  // sorted within each instance
  // Several disjoint groups of equal size that play the same part for different ranks are instances
  // of one: ranks 0 2 1 3 with instance_size 2 are the pairs {0, 2} and {1, 3}. 0: one instance.
  std::int64_t instance_size = 0;

  // Ranks of one instance: the degree of data parallelism.
  [[nodiscard]] std::int64_t size() const {
    return instance_size > 0 ? instance_size : static_cast<std::int64_t>(ranks.size());
  }
  // The instance that the rank belongs to; empty when it is in none.
  [[nodiscard]] std::span<const Rank> instance_of(Rank rank) const;
  friend bool operator==(const ProcessGroup&, const ProcessGroup&) = default;
};

// A debt of the Program: what the optimizer reads of this gradient must have been combined over this
// group exactly once per step, and multiplied by `scale` (and by 1 / degree if it is an average). A
// gradient may owe several, over different groups: then the factors multiply. With micro-steps the
// debt stays on the gradient; the optimizer reads its merged sum.
struct Reduction {
  TensorId gradient;
  GroupId group;
  ReduceOp op = ReduceOp::Average;
  Rational scale = Rational();
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

struct Program {
  std::string name;
  std::int64_t world_size = 1;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  // program order
  std::vector<ProcessGroup> groups;
  std::vector<Reduction> reductions;  // in gradient-ready order, i.e. of the last writes
  // Pipeline: the world is `stages` x D ranks, those of role p being p D .. (p + 1) D - 1.
  std::int32_t stages = 1;
  StageMap stage_map = StageMap::Loop;
  // How often forward and backward run before the optimizer does, and write each owed gradient.
  std::int32_t micro_steps = 1;
  // What the host took to launch the collective of one bucket, where somebody saw that.
  std::optional<Duration> bucket_call = std::nullopt;

  // By id. REQUIRES: the id exists.
  [[nodiscard]] const Tensor& tensor(TensorId id) const;
  [[nodiscard]] const Op& op(OpId id) const;
  [[nodiscard]] const ProcessGroup& group(GroupId id) const;
  // The role that runs the op; 0 without a pipeline.
  [[nodiscard]] std::int32_t role_of(const Op& op) const {
    return stages > 1 ? role_of_stage(stage_map, stages, op.stage) : 0;
  }

  friend bool operator==(const Program&, const Program&) = default;
};

// What makes a Program meaningless: ids and names that are double or unknown, a tensor read before an
// op wrote it (or a cycle, named), a gradient owed but not written in each micro-step, a sum of no
// micro-steps, other operands than a sum or norm has, groups without ranks or with ranks outside the
// world, overlapping instances, negative sizes, stages outside the pipeline. Empty: it is sound.
std::vector<std::string> problems(const Program& program);

// A gradient as policies see it: when its producer ends in program order, and how large it is.
struct OwedGradient {
  TensorId tensor;
  GroupId group;
  ReduceOp op = ReduceOp::Average;
  DType dtype = DType::F32;
  Bytes bytes;
  std::int64_t numel = 0;
  OpId producer;                   // its last writer before the optimizer
  std::size_t producer_index = 0;  // position of that op in program.ops
  // Where its update is to be sharded: the dtype in which its parameter is gathered, and the group that
  // holds replicas of the shard, if there is one.
  std::optional<DType> parameter = std::nullopt;
  std::optional<GroupId> replicas = std::nullopt;
};

// The owed reductions in gradient-ready order (by producer position, then as listed in
// program.reductions).
std::vector<OwedGradient> owed_gradients(const Program& program);

}  // namespace dovetail::schedule
