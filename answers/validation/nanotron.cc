// Hugging Face's grid of nanotron on 8 to 512 H100 (the Ultra-Scale Playbook).
//
// What is not in its columns is in scripts/scaling_benchmarks.py and src/nanotron of huggingface/nanotron at
// 67c5ebb (2024-12): shapes of the models, a vocabulary of 131,072, as many key and value heads as heads, tied
// embeddings below 4 B; sequences of 4,096; bf16 with f32 sums, master copy and moments; sequence
// parallelism in every tensor-parallel job; 1F1B; no recomputation; kernels as PyTorch runs them
// by itself, but for fused norms and rotations. Gradients of a micro-batch stay in bf16 until its
// backward ends and are then added to a flat f32 buffer (optim/gradient_accumulator.py). Without ZeRO and with
// replicas they are in DDP's buckets, too; with ZeRO 1 they are not, and updated parameters are gathered
// into a flat copy (trainer.py, _init_model; optim/zero.py). GPU memory is rank 0's, the first stage's, as
// PyTorch's allocator reserved it (helpers.py logs both in GiB; what the figure shows is above what tensors take).
//
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"

namespace dovetail::yardsticks {
namespace {

// "GPU 0 has a total capacity of 79.10 GiB", as PyTorch says of a full H100 of 80 GB.
constexpr Bytes kH100Memory = Bytes(84'934'656'000);

// Layers whose products are over before the next is issued: 1.34 B, one sample over eight ranks, a step of one node without replicas.
// 74.1 ms a micro-batch were measured, 37.0 are predicted with the host of PyTorch.
constexpr double kHostStretch = 2.0;
bool gives_host(const Row& row) {
  return row.job && row.job->model.layers == 16 && row.job->layout.tp == kNodeGpus &&
         row.job->layout.world() == kNodeGpus && row.job->batch.micro == 1;
}

struct Shape {
  std::string billions;
  std::int64_t layers, width, heads, inner;
  bool tied;
};

jobs::Model model_of(const Shape& shape) {
  return {.name = "nanotron_" + shape.billions + "b",
          .layers = shape.layers,
          .width = shape.width,
          .vocabulary = 131'072,
          .inner = shape.inner,
          .tied = shape.tied,
          .attention = {.heads = shape.heads,
                        .key_value_heads = shape.heads,
                        .head_dim = shape.width / shape.heads}};
}

jobs::Model model_of(const TableRow& row) {
  static const std::array<Shape, 4> kShapes = {{{"1.34", 16, 2048, 32, 8192, true},
                                                {"3.57", 28, 3072, 32, 8192, true},
                                                {"8.86", 32, 4096, 32, 14'336, false},
                                                {"80.0", 80, 8192, 64, 28'672, false}}};
  for (const Shape& shape : kShapes) {
    if (shape.billions == row.text("params_b")) return model_of(shape);
  }
  throw InputError(row.where() + ": params_b: expected 1.34, 3.57, 8.86 or 80.0, found \"" +
                   row.text("params_b") + "\"");
}

// models/base.py, build_model: blocks in order, the next stage once the costs so far pass its share. A layer
// costs its products, the head its own; embedding, last norm, conversion and loss nothing. Layers of each stage. Behind the
// head only the loss can be left for a stage (it is counted with the head, on the last one); a stage that gets no block at all
// cannot run: none, then.
std::vector<std::int64_t> layers_of(const jobs::Model& model, std::int64_t pp) {
  const auto h = static_cast<double>(model.width);
  const double layer = 4 * h * h + 3 * h * static_cast<double>(model.inner);
  const double head = h * static_cast<double>(model.vocabulary);
  const double all = layer * static_cast<double>(model.layers) + head;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(pp));
  std::size_t stage = 0;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    ++layers.at(stage);
    const double so_far = layer * static_cast<double>(i + 1);
    if (so_far > all * static_cast<double>(stage + 1) / static_cast<double>(pp)) ++stage;
  }
  if (stage + 2 < layers.size()) return {};
  // A stage with the head alone gets the layer before it.
  if (stage > 0 && stage + 2 == layers.size() && layers[stage] == 0) {
    --layers[stage - 1];
    ++layers[stage];
  }
  return layers;
}

Row ultrascale_row(const TableRow& table) {
  Row row{.name = table.where(), .device = "H100, EFA", .capacity = kH100Memory};
  jobs::Job job{.model = model_of(table)};
  job.layout.dp = table.count("dp");
  job.layout.tp = table.count("tp");
  job.layout.pp = table.count("pp");
  job.batch = {.sequence = 4096,
               .micro = table.count("mbs"),
               .global = table.count("mbs") * table.count("grad_accum") * table.count("dp")};
  job.kernels = jobs::Kernels::Eager;
  const bool is_sharded = table.count("zero") == 1;
  job.updates = jobs::Updates::Each;  // a parameter group for each
  // One blocking reduction behind the last backward, then a blocking gather (trainer.py, optim/zero.py).
  job.overlap_gradients = job.overlap_parameters = !is_sharded;
  job.zero = is_sharded ? jobs::Zero::Optimizer : jobs::Zero::Nothing;
  row.group = table.text("params_b") + " B on " + std::to_string(job.layout.world());
  row.ran = table.text("status") == "ok";
  if (const auto measured = table.number_if("mem_gb")) {
    row.memory = Bytes(std::llround(*measured * 0x1p30));
  }
  // step_ms was computed for a batch of `gbs`; a few rows ran another one.
  if (const auto step = table.number_if("step_ms");
      step && job.batch.global == table.count("gbs")) {
    row.step = from_us(*step * 1e3);
  }
  row.rules = {.resident_gradients = true,
               .whole_gradients = true,
               .bucket_copies = !is_sharded,
               .gathered_update = is_sharded};
  if (job.layout.pp == 1 && job.layout.tp == 1) {
    row.scaling = table.text("params_b") + " B, dp alone, zero " + table.text("zero") + " on H100";
  }
  // Collectives waited for a check of all ranks over TCP, and messages between stages for sleeps (README.md): no step to be predicted.
  constexpr std::int64_t kCheckedGpus = 64 * kNodeGpus;
  const bool is_checked = job.layout.pp > 1 || job.layout.world() >= kCheckedGpus;
  if (job.layout.world() > kNodeGpus && is_checked) row.step.reset();
  job.attention = schedule::AttentionKernel::Fa2;
  if (job.layout.pp > 1) job.layout.layers = layers_of(job.model, job.layout.pp);
  row.can_start = job.layout.pp == 1 || !job.layout.layers.empty();
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick nanotron(const std::string& folder) {
  Yardstick yardstick{.name = "nanotron", .kind = MemoryKind::Reserved, .of = MemoryOf::FirstStage};
  for (const TableRow& table : read_table(folder + "/nanotron_h100.csv")) {
    yardstick.rows.push_back(ultrascale_row(table));
  }
  return yardstick;
}

Yardstick nanotron_own(const std::string& folder) {
  Yardstick own{.name = "nanotron-own"};
  bool has_host = false;
  for (Row& row : nanotron(folder).rows) {
    const bool gives = gives_host(row);
    has_host |= gives;
    if (gives) continue;
    row.name += " by its own host";
    row.host_stretch = kHostStretch;
    row.own_cause = "by its own host";
    row.memory = std::nullopt;
    row.capacity = std::nullopt;
    own.rows.push_back(std::move(row));
  }
  if (!has_host) own.rows.clear();
  return own;
}

}  // namespace dovetail::yardsticks
