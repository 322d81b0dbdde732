// Builds the Program of the training job layer by layer: forward, backward, clipping where it is
// asked for, and updates. The names of its ops end in the word of their kernel.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/training/program.h"

#include "base/error.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::exec::training {
namespace {

using schedule::Op;
using schedule::Phase;
using schedule::TensorKind;

constexpr GroupId kDataParallel{0};

class Builder {
 public:
  explicit Builder(const TrainingOptions& options) : options_(options) {
    program_.name = "training";
    program_.world_size = options.world_size;
    program_.stages = options.stages;
    program_.stage_map = options.stage_map;
    schedule::ProcessGroup group{.id = kDataParallel, .name = "dp", .ranks = {}};
    for (std::int32_t rank = 0; rank < options.world_size; ++rank) {
      group.ranks.push_back(Rank{rank});
    }
    if (options.stages > 1) group.instance_size = options.world_size / options.stages;
    program_.groups.push_back(std::move(group));
  }

  schedule::Program build() {
    const std::int64_t n = options_.samples;
    const std::int64_t width = options_.width;
    embedding_ = parameter("embedding", {options_.vocabulary, width}, 0);
    TensorId x = activation("x0", {n, width});
    op(Kernel::EmbeddingForward, Phase::Forward, 0, memory(n * width), {embedding_.value}, {x});
    for (std::int64_t i = 0; i < options_.blocks; ++i) x = block_forward(i, x);
    loss(x);
    for (std::int64_t i = options_.blocks - 1; i >= 0; --i) block_backward(i);
    embedding_backward();
    updates();
    return std::move(program_);
  }

 private:
  struct Parameter {
    TensorId value, gradient;
    std::string name;
    std::int32_t stage = 0;
  };
  struct Block {
    Parameter w1, b1, w2, b2;
    TensorId x, h, u;
    std::int32_t stage = 0;
  };

  TensorId tensor(std::string name, TensorKind kind, std::vector<std::int64_t> shape) {
    const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
    program_.tensors.push_back({.id = id,
                                .name = std::move(name),
                                .kind = kind,
                                .dtype = schedule::DType::F32,
                                .shape = std::move(shape)});
    return id;
  }
  TensorId activation(const std::string& name, std::vector<std::int64_t> shape) {
    return tensor(name, TensorKind::Activation, std::move(shape));
  }
  TensorId gradient(const std::string& name, std::vector<std::int64_t> shape) {
    return tensor(name, TensorKind::Gradient, std::move(shape));
  }
  Parameter parameter(const std::string& name, const std::vector<std::int64_t>& shape,
                      std::int32_t stage) {
    const TensorId value = tensor(name, TensorKind::Parameter, shape);
    return {
        .value = value, .gradient = gradient(name + ".grad", shape), .name = name, .stage = stage};
  }

  static schedule::Work gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
    return schedule::GemmWork{.m = m, .n = n, .k = k, .count = 1};
  }
  // Reads and writes of so many floats each.
  static schedule::Work memory(std::int64_t floats) {
    return schedule::MemoryWork{.bytes = Bytes(8 * floats), .flop = Flop(0)};
  }

  Op& op(std::string name, Phase phase, std::int32_t stage, schedule::Work work,
         std::vector<TensorId> reads, std::vector<TensorId> writes) {
    const OpId id{static_cast<std::int32_t>(program_.ops.size())};
    program_.ops.push_back({.id = id,
                            .name = std::move(name),
                            .phase = phase,
                            .dtype = schedule::DType::F32,
                            .work = std::move(work),
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .effect = schedule::Opaque{},
                            .stage = stage});
    return program_.ops.back();
  }

  Op& op(Kernel kernel, Phase phase, std::int32_t stage, schedule::Work work,
         std::vector<TensorId> reads, std::vector<TensorId> writes) {
    return op(std::string(to_string(kernel)), phase, stage, std::move(work), std::move(reads),
              std::move(writes));
  }
  Op& op(const std::string& block, Kernel kernel, Phase phase, std::int32_t stage,
         schedule::Work work, std::vector<TensorId> reads, std::vector<TensorId> writes) {
    return op(block + "." + std::string(to_string(kernel)), phase, stage, std::move(work),
              std::move(reads), std::move(writes));
  }

  // The gradients written by the latest op are owed from now on.
  void owe(std::initializer_list<TensorId> gradients) {
    for (const TensorId id : gradients) {
      program_.reductions.push_back({.gradient = id, .group = kDataParallel});
    }
  }

  [[nodiscard]] std::int32_t stage_of(std::int64_t block) const {
    return static_cast<std::int32_t>(block * options_.stages * options_.chunks / options_.blocks);
  }

  TensorId block_forward(std::int64_t index, TensorId x) {
    const std::string name = "block" + std::to_string(index);
    const std::int64_t n = options_.samples;
    const std::int64_t width = options_.width;
    const std::int64_t hidden = options_.hidden;
    const std::int32_t stage = stage_of(index);
    Block block{.w1 = parameter(name + ".w1", {width, hidden}, stage),
                .b1 = parameter(name + ".b1", {hidden}, stage),
                .w2 = parameter(name + ".w2", {hidden, width}, stage),
                .b2 = parameter(name + ".b2", {width}, stage),
                .x = x,
                .h = activation(name + ".h", {n, hidden}),
                .u = activation(name + ".u", {n, hidden}),
                .stage = stage};
    const TensorId out = activation("x" + std::to_string(index + 1), {n, width});
    op(name, Kernel::Fc1Forward, Phase::Forward, stage, gemm(n, hidden, width),
       {x, block.w1.value, block.b1.value}, {block.h});
    op(name, Kernel::GeluForward, Phase::Forward, stage, memory(n * hidden), {block.h}, {block.u});
    op(name, Kernel::Fc2Forward, Phase::Forward, stage, gemm(n, width, hidden),
       {block.u, block.w2.value, block.b2.value, x}, {out});
    blocks_.push_back(std::move(block));
    return out;
  }

  // Logits, loss, and the gradients of both the output weights and the last activation.
  void loss(TensorId x) {
    const std::int64_t n = options_.samples;
    const std::int64_t words = options_.vocabulary;
    const std::int64_t width = options_.width;
    const std::int32_t stage = stage_of(options_.blocks - 1);
    const bool tied = options_.embedding != Embedding::Untied;
    output_ = tied ? embedding_ : parameter("output", {words, width}, stage);
    const TensorId logits = activation("logits", {n, words});
    const TensorId value = activation("loss", {});
    const TensorId fill = activation("loss.grad", {});
    const TensorId dlogits = activation("logits.grad", {n, words});
    op(Kernel::OutputForward, Phase::Forward, stage, gemm(n, words, width), {x, output_.value},
       {logits});
    op(Kernel::LossForward, Phase::Forward, stage, memory(n * words), {logits}, {value});
    op("loss.fill", Phase::Backward, stage, memory(1), {}, {fill}).effect =
        schedule::FillLossGradient{};
    loss_gradient_ = fill;
    op(Kernel::LossBackward, Phase::Backward, stage, memory(2 * n * words), {logits, fill},
       {dlogits});
    dx_ = activation("x" + std::to_string(options_.blocks) + ".grad", {n, width});
    if (options_.embedding == Embedding::TwoParts) {
      output_.gradient = gradient("embedding.output.grad", {words, width});
    }
    op(Kernel::OutputBackwardInput, Phase::Backward, stage, gemm(n, width, words),
       {dlogits, output_.value}, {dx_});
    op(Kernel::OutputBackwardWeight, Phase::Backward, stage, gemm(words, width, n), {dlogits, x},
       {output_.gradient});
    if (options_.embedding != Embedding::OneTensor) owe({output_.gradient});
  }

  void block_backward(std::int64_t index) {
    const Block& block = blocks_[static_cast<std::size_t>(index)];
    const std::string name = "block" + std::to_string(index);
    const std::int64_t n = options_.samples;
    const std::int64_t width = options_.width;
    const std::int64_t hidden = options_.hidden;
    const TensorId du = activation(name + ".u.grad", {n, hidden});
    const TensorId dh = activation(name + ".h.grad", {n, hidden});
    const TensorId dx = activation("x" + std::to_string(index) + ".grad", {n, width});
    op(name, Kernel::Fc2BackwardWeight, Phase::Backward, block.stage, gemm(hidden, width, n),
       {block.u, dx_}, {block.w2.gradient, block.b2.gradient});
    owe({block.w2.gradient, block.b2.gradient});
    op(name, Kernel::Fc2BackwardInput, Phase::Backward, block.stage, gemm(n, hidden, width),
       {dx_, block.w2.value}, {du});
    op(name, Kernel::GeluBackward, Phase::Backward, block.stage, memory(2 * n * hidden),
       {block.h, du}, {dh});
    std::vector<TensorId> reads = {block.x, dh};
    const bool penalised = options_.second_order == SecondOrder::Penalised && index == 0;
    if (penalised) {
      const TensorId penalty = activation("penalty", {});
      op(Kernel::Penalty, Phase::Backward, block.stage, memory(width),
         {blocks_.back().b2.gradient, loss_gradient_}, {penalty});
      reads.insert(reads.end(), {penalty, block.w1.value});
    }
    op(name, Kernel::Fc1BackwardWeight, Phase::Backward, block.stage, gemm(width, hidden, n),
       std::move(reads), {block.w1.gradient, block.b1.gradient});
    owe({block.w1.gradient, block.b1.gradient});
    op(name, Kernel::Fc1BackwardInput, Phase::Backward, block.stage, gemm(n, width, hidden),
       {dh, block.w1.value, dx_}, {dx});
    dx_ = dx;
  }

  void embedding_backward() {
    const std::int64_t floats = options_.samples * options_.width;
    if (options_.embedding == Embedding::OneTensor) {
      op(Kernel::EmbeddingBackward, Phase::Backward, 0, memory(2 * floats),
         {dx_, embedding_.gradient}, {embedding_.gradient});
      owe({embedding_.gradient});
      return;
    }
    if (options_.embedding == Embedding::Untied) {
      op(Kernel::EmbeddingBackward, Phase::Backward, 0, memory(floats), {dx_},
         {embedding_.gradient});
      owe({embedding_.gradient});
      return;
    }
    const std::int64_t words = options_.vocabulary * options_.width;
    const TensorId input = gradient("embedding.input.grad", {options_.vocabulary, options_.width});
    op(Kernel::EmbeddingBackward, Phase::Backward, 0, memory(floats), {dx_}, {input});
    owe({input});
    op("embedding.copy", Phase::Backward, 0, memory(words), {output_.gradient},
       {embedding_.gradient})
        .effect = schedule::Accumulate{.overwrite = true, .factor = {}};
    op("embedding.add", Phase::Backward, 0, memory(2 * words), {embedding_.gradient, input},
       {embedding_.gradient})
        .effect = schedule::Accumulate{};
  }

  void updates() {
    std::vector<Parameter> all;
    if (options_.embedding == Embedding::Untied) all.push_back(output_);
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      all.insert(all.end(), {block->w2, block->b2, block->w1, block->b1});
    }
    all.push_back(embedding_);
    std::vector<TensorId> norm;
    if (options_.max_norm > 0) {
      norm.push_back(activation("norm2", {}));
      std::vector<TensorId> gradients;
      for (const Parameter& each : all) gradients.push_back(each.gradient);
      const std::int64_t floats = options_.vocabulary * options_.width;
      op("global_norm", Phase::Optimizer, 0, memory(floats), std::move(gradients), norm).effect =
          schedule::GlobalNorm{};
    }
    for (const Parameter& each : all) update(each, norm);
  }

  void update(const Parameter& target, const std::vector<TensorId>& norm) {
    const std::vector<std::int64_t> shape = program_.tensor(target.value).shape;
    const auto state = [&](const char* which) {
      return tensor(target.name + which, TensorKind::OptimizerState, shape);
    };
    std::vector<TensorId> states = {state(".momentum")};
    const bool adam = options_.optimizer == Optimizer::Adam;
    if (adam) states.push_back(state(".variance"));
    std::vector<TensorId> reads = {target.gradient, target.value};
    reads.insert(reads.end(), states.begin(), states.end());
    reads.insert(reads.end(), norm.begin(), norm.end());
    std::vector<TensorId> writes = {target.value};
    writes.insert(writes.end(), states.begin(), states.end());
    const std::int64_t floats = program_.tensor(target.value).numel();
    schedule::Update effect;
    if (!adam) effect.rescale = Rational();
    op(target.name + ".update", Phase::Optimizer, target.stage, memory((adam ? 4 : 3) * floats),
       std::move(reads), std::move(writes))
        .effect = effect;
  }

  const TrainingOptions& options_;
  schedule::Program program_;
  Parameter embedding_, output_;
  std::vector<Block> blocks_;
  TensorId loss_gradient_;
  TensorId dx_;  // gradient of the activation that backward has reached
};

void require(bool holds, const char* what) {
  if (!holds) throw InputError(std::string("training job: ") + what);
}

}  // namespace

Kernel kernel_of(const Op& op) {
  std::string_view name = op.name;
  name = name.substr(0, name.find('@'));
  if (name.starts_with("block")) name.remove_prefix(name.find('.') + 1);
  if (const std::optional<Kernel> kernel = word_to<Kernel>(name)) return *kernel;
  throw InputError(op.name + " is no op of the training job");
}

schedule::Program training_program(const TrainingOptions& options) {
  require(options.samples > 0 && options.vocabulary > 1 && options.width > 0 && options.hidden > 0,
          "samples, vocabulary, width and hidden must be positive");
  require(options.stages >= 1 && options.world_size % options.stages == 0,
          "the stages must divide the ranks");
  require(options.chunks >= 1 && (options.chunks == 1 || options.stages > 1),
          "chunks are parts of a pipeline's stages");
  require(options.blocks >= options.stages * options.chunks,
          "every chunk of a stage needs a block");
  const bool pipelined = options.stages > 1;
  require(!pipelined || options.embedding == Embedding::Untied,
          "a weight shared by two stages is not supported: choose the untied embedding");
  require(!pipelined || (options.second_order == SecondOrder::None && options.max_norm == 0),
          "second-order use and a global norm across pipeline stages are not supported");
  schedule::Program program = Builder(options).build();
  const std::vector<std::string> wrong = schedule::problems(program);
  DOVETAIL_CHECK(wrong.empty()) << wrong.front();
  return program;
}

}  // namespace dovetail::exec::training
