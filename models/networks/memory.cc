// Counts the memory of a job, stage by stage, at the moments that can be the worst. Sums are doubles of
// bytes: a part of a tensor need not be whole, and nothing here is exact to a byte.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "models/networks/adapters.h"
#include "models/networks/program.h"
#include "models/networks/tensors.h"
#include "models/networks/text.h"
#include "schedule/lower/pipeline/order.h"

namespace dovetail::jobs {
namespace {

// GMLake (arXiv 2401.08156, abstract): of what PyTorch's allocator reserves, the mean over eight models.
constexpr double kFragmented = 0.15;
constexpr Bytes kCudaContext = mib(300);
// cuBLAS keeps 32 MiB for each thread that multiplies on a Hopper GPU: forward's and backward's.
constexpr Bytes kProductSpaces = mib(64);
// DEFAULT_BUFFSIZE; 120 elements x 640 threads x 8 steps x 8 bytes (LL128); 8 lines x 512 threads x 8
// steps x 16 bytes (LL).
constexpr Bytes kNcclConnection = Bytes((std::int64_t{4} << 20) + 4'915'200 + 524'288);
constexpr std::int64_t kNcclChannels = 16;

double as_double(std::int64_t number) { return static_cast<double>(number); }
double size_of(schedule::DType dtype) { return as_double(schedule::element_size(dtype).count()); }

// Sums of a dozen of them are counted in 64 bits, and no machine has a thousandth of it.
Bytes rounded(double bytes) {
  constexpr double kMostHeld = 0x1p58;
  if (!(bytes < kMostHeld)) throw InputError("a rank of this job would need over 2^58 bytes");
  return Bytes(std::llround(bytes));
}

// What of the model a pipeline stage holds.
struct StageBlocks {
  std::vector<std::int64_t> layers = {};
  bool embedding = false, head = false;
};

// What is in flight does not grow with the micro-batches once they fill the pipeline.
schedule::PipelineShape pipeline_of(const Job& job) {
  const Layout& l = job.layout;
  const std::int64_t filled = 2 * l.pp * l.vp;
  return {.kind = l.order,
          .stages = static_cast<std::int32_t>(l.pp),
          .chunks = static_cast<std::int32_t>(l.vp),
          .micro_steps = static_cast<std::int32_t>(std::min(job.micro_batches(), filled))};
}

std::vector<StageBlocks> stages_of(const Job& job) {
  std::vector<StageBlocks> stages(static_cast<std::size_t>(job.layout.pp));
  const schedule::PipelineShape shape = pipeline_of(job);
  const std::vector<std::int64_t> layers = layers_of_stages(job);
  std::int64_t layer = 0;
  for (std::int32_t virtual_stage = 0; virtual_stage < shape.virtual_stages(); ++virtual_stage) {
    StageBlocks& stage = stages[static_cast<std::size_t>(shape.role_of(virtual_stage))];
    const std::int64_t end = layer + layers[static_cast<std::size_t>(virtual_stage)];
    while (layer < end) stage.layers.push_back(layer++);
    if (virtual_stage == 0) stage.embedding = true;
    if (virtual_stage + 1 == shape.virtual_stages()) stage.head = true;
  }
  return stages;
}

class Counter {
 public:
  Counter(const Job& job, const MemoryRules& rules, const BlockWeights& weights)
      : job_(job),
        rules_(rules),
        stages_(stages_of(job)),
        layers_(weights.layers),
        embedding_(weights.embedding),
        head_(weights.head) {
    const Layout& l = job.layout;
    for (const std::int64_t layers : layers_of_stages(job)) {
      for (std::int64_t i = 0; i < layers; ++i)
        is_again_.push_back(job.recompute == Recompute::Full &&
                            (job.recompute_layers == 0 || i < job.recompute_layers));
    }
    tokens_ = as_double(job.batch.micro * job.batch.sequence) / as_double(l.cp);
    between_ = l.sp ? tokens_ / as_double(l.tp) : tokens_;
    if (job.model.experts) {
      routed_ = tokens_ * as_double(job.model.experts->per_token * l.etp) / as_double(l.tp) *
                job.expert_imbalance;
    }
  }

  std::vector<StageMemory> run() const {
    std::vector<StageMemory> found;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      found.push_back(count(stage));
      found.back().stage = static_cast<std::int32_t>(stage);
    }
    return found;
  }

 private:
  // What stays all the step, per kind; and what is there at each moment.
  StageMemory count(std::size_t stage) const {
    const StageBlocks& blocks = stages_[stage];
    const Weights weights = held_by(blocks);
    const Held& held = weights.trained;
    const Precision& p = job_.precision;
    // FSDP2 keeps f32 and gathers bf16.
    const bool casts_gathered =
        job_.zero == Zero::Parameters && p.master_bytes > 0 && !rules_.cast_shards;
    StageMemory memory;
    memory.parameters = part(weights.frozen, compute(), Zero::Parameters);
    if (!casts_gathered) memory.parameters += part(held, compute(), Zero::Parameters);
    memory.master = part(held, as_double(p.master_bytes), Zero::Optimizer);
    memory.optimizer = part(held, as_double(p.state_bytes), Zero::Optimizer);
    memory.outside = kCudaContext + communicators() * (2 * kNcclChannels) * kNcclConnection;

    const double in_flight = micro_batches_in_flight(stage);
    const double kept = kept_by(blocks);
    const Bytes sums = sums_of(held);
    memory.kept = rounded(kept);
    memory.sums = rules_.resident_gradients ? Bytes() : sums;
    const bool is_counting = rules_.resident_gradients || job_.micro_batches() > 1;
    const Bytes copy =
        rounded(rules_.gathered_update && divides_update() ? held.all() * compute() : 0);
    const Bytes gathered = gathered_by(blocks);
    const Bytes buffers = buffers_of(blocks, held);
    const Bytes working = working_of(blocks, true);
    const Bytes logits = blocks.head ? logits_of() : Bytes();

    StageMemory full = memory;
    full.moment = Moment::Activations;
    full.gradients = is_counting ? sums : Bytes();
    full.activations = rounded(in_flight * kept);
    full.logits = logits;
    // The loss has let go of its logits when the last layer's backward runs.
    full.working = logits > working ? Bytes() : working;
    if (logits <= working) full.logits = Bytes();
    full.gathered = gathered;
    full.buffers = buffers + copy;

    StageMemory made = memory;
    made.moment = Moment::Gradients;
    made.gradients = sums + rounded(rules_.whole_gradients ? held.all() * compute() : 0);
    made.activations = rounded(std::max(0.0, in_flight - 1) * kept);
    made.working = working_of(blocks, false);
    made.gathered = gathered;
    made.buffers = buffers;

    StageMemory update = memory;
    update.moment = Moment::Update;
    update.gradients = sums;
    update.buffers = copy;

    StageMemory worst = full;
    for (const StageMemory& other : {made, update}) {
      if (other.allocated() > worst.allocated()) worst = other;
    }
    worst.fragmentation =
        rounded(as_double(worst.allocated().count()) * kFragmented / (1 - kFragmented));
    return worst;
  }

  double compute() const { return size_of(job_.precision.compute); }
  // Of what products give; what flows between them has compute().
  double product() const { return size_of(job_.precision.product()); }
  bool casts() const { return job_.precision.autocast != Autocast::No; }
  // Of what goes into products with weights: Transformer Engine keeps it as it is multiplied, along its columns, with a scale a block
  // of 16 in fp4 (pytorch/module/linear.py, 2.9).
  [[nodiscard]] bool stores_narrow() const {
    return rules_.narrow_inputs && is_narrow(job_.precision.products);
  }
  double stored() const {
    if (!stores_narrow()) return product();
    return job_.precision.products == schedule::Operands::Fp4 ? 0.5 + 1.0 / 16 : 1;
  }
  bool divides_update() const {
    return (job_.zero == Zero::Optimizer || job_.zero == Zero::Gradients) &&
           shards_of(job_, false) > 1;
  }

  // Bytes of what `from` and higher stages of Zero divide.
  Bytes part(const Held& held, double bytes, Zero from) const {
    if (job_.zero < from) return rounded(held.all() * bytes);
    return rounded(bytes *
                   (held.dense / shards_of(job_, false) + held.experts / shards_of(job_, true)));
  }

  Bytes sums_of(const Held& held) const {
    const bool is_last = stages_.size() > 1 ? rules_.whole_sums : !job_.sync_each;
    const bool is_whole = is_last && job_.zero >= Zero::Gradients && job_.micro_batches() > 1;
    return is_whole ? rounded(held.all() * size_of(job_.precision.reduce))
                    : part(held, size_of(job_.precision.gradient), Zero::Gradients);
  }

  Weights held_by(const StageBlocks& blocks) const {
    Weights held;
    for (const std::int64_t layer : blocks.layers) held += layers_[static_cast<std::size_t>(layer)];
    if (blocks.embedding) held += embedding_;
    if (blocks.head) held += head_;
    // Tied weights lie on both ends of a pipeline.
    if (blocks.head && !blocks.embedding && job_.model.tied) held += embedding_;
    return held;
  }

  double micro_batches_in_flight(std::size_t stage) const {
    const int role = static_cast<int>(stage);
    return as_double(schedule::most_in_flight(pipeline_of(job_), role)) / as_double(job_.layout.vp);
  }

  // Bytes per token that a fully connected network of inner size f keeps. The input of the last product is only for the gradient of
  // its weights.
  double kept_of_inner(double f) const {
    const double before = !job_.model.gated ? 1 : rules_.fused_gate ? 2 : 3;
    return product() * before * f + last_of_inner(f);
  }
  double last_of_inner(double f) const { return reads_inputs(Part::Mlp) ? stored() * f : 0; }
  // Whether backward reads what goes into the linear layers of this part: not if they are frozen, without adapters.
  bool reads_inputs(Part part) const { return job_.lora == 0 || has_adapters(job_, part); }
  // Elements that its backward makes.
  double made_of_inner(double f) const { return (job_.model.gated ? 4 : 2) * f; }

  double attention_elements(bool all) const {
    const Attention& a = job_.model.attention;
    const double tp = as_double(job_.layout.tp);
    const double heads = as_double(a.heads) / tp;
    if (a.latent) {
      const Latent& l = *a.latent;
      const double key = as_double(l.nope_dim + l.rope_dim);
      const double low = as_double(2 * l.query_rank + 2 * l.key_value_rank + l.rope_dim);
      if (!keeps(RecomputedModule::MlaUpProj, all)) return low + heads * as_double(l.value_dim);
      return low + heads * (2 * key + as_double(l.nope_dim + 2 * l.value_dim));
    }
    const double keys = std::max(1.0, as_double(a.key_value_heads) / tp);
    const double projected = as_double(a.head_dim) * (heads + 2 * keys);
    return (a.normed_heads ? projected + as_double(a.head_dim) * (heads + keys) : projected) +
           as_double(a.head_dim) * heads;
  }

  // Of modules that run again nothing is kept. (With Moe and Mlp what goes into them is what the norm gives.)
  [[nodiscard]] bool keeps(RecomputedModule module, bool all) const {
    return all || !recomputes(job_, module);
  }

  // Bytes that one micro-batch leaves for the backward of a layer that is not computed again as a whole; `all`: as if no module of it
  // were.
  double kept_by_layer(std::int64_t layer, bool all = true) const {
    const Model& m = job_.model;
    const double h = as_double(m.width);
    const double tp = as_double(job_.layout.tp);
    const double heads = as_double(m.attention.heads) / tp;
    double kept = 2 * compute() * h * between_;
    if (keeps(RecomputedModule::LayerNorm, all)) kept += kept_of_normed(layer) * h * between_;
    kept += product() * attention_elements(all) * tokens_;
    if (stores_narrow()) kept += stored() * heads * given_by_head() * tokens_;
    kept += 4 * heads * tokens_;  // log-sum-exp of each row of scores
    if (job_.kernels == Kernels::Transformers) kept += kept_by_written_out(layer);
    if (casts()) kept += product() * layers_[static_cast<std::size_t>(layer)].all();
    if (!job_.flash && job_.recompute == Recompute::None) {
      const double score = product() + (casts() ? 4 : 0);
      kept += score * heads * tokens_ * as_double(job_.batch.sequence);
    }
    if (!has_experts(m, layer)) {
      if (!keeps(RecomputedModule::Mlp, all)) return kept;
      return kept + kept_of_inner(as_double(m.inner)) / tp * tokens_;
    }
    if (!keeps(RecomputedModule::Moe, all)) return kept;
    const Experts& e = *m.experts;
    const double activated =
        keeps(RecomputedModule::MoeAct, all) ? 0 : last_of_inner(as_double(e.inner));
    const double inner =
        (kept_of_inner(as_double(e.inner)) - activated) / as_double(job_.layout.etp);
    const double given = rules_.weighs_within ? 0 : compute() * h;
    kept += (given + stored() * h + inner) * routed_;
    if (keeps(RecomputedModule::SharedExperts, all))
      kept += kept_of_inner(as_double(e.shared_inner)) / tp * tokens_;
    return kept + 4 * as_double(e.count) * between_;  // the router's scores
  }

  // Bytes of each element of what both norms of a layer give; a router's input stays wide.
  double kept_of_normed(std::int64_t layer) const {
    const double wide =
        has_experts(job_.model, layer) && reads_inputs(Part::Mlp) ? product() - stored() : 0;
    return stored() * copies_of_normed() + wide;
  }
  // Elements of what attention gives, a head.
  double given_by_head() const {
    const Attention& a = job_.model.attention;
    return as_double(a.latent ? a.latent->value_dim : a.head_dim);
  }

  // How often what both norms of a layer give is kept for products: under autocast each product that nothing fuses has a copy of its own.
  double copies_of_normed() const {
    const Model& m = job_.model;
    const bool is_eager = job_.kernels == Kernels::Eager || job_.kernels == Kernels::Transformers;
    const bool is_copied = casts() && is_eager;
    const double of_mlp = is_copied && m.gated ? 2 : 1;
    return (is_copied && !m.joined_qkv ? 3 : 1) + (reads_inputs(Part::Mlp) ? of_mlp : 0);
  }

  [[nodiscard]] bool is_written_out() const {
    return job_.kernels == Kernels::Transformers || job_.kernels == Kernels::Layers;
  }

  // What operators keep where no kernel does their work at once: an RMS norm its input in f32 and what it is times the root, gelu_new
  // three results more.
  double kept_by_written_out(std::int64_t layer) const {
    const Model& m = job_.model;
    double kept = 0;
    if (m.norm == Norm::Rms) {
      kept += (compute() < 4 ? 4 + compute() + 2 : 2 * 4) * as_double(m.width) * between_;
      if (m.attention.normed_heads) {
        const double heads =
            as_double(m.attention.heads + m.attention.key_value_heads) / as_double(job_.layout.tp);
        kept += (4 * as_double(m.attention.head_dim) + 4) * heads * tokens_;
      }
    }
    if (m.gelu_new && !has_experts(m, layer))
      kept += 3 * compute() * as_double(m.inner) / as_double(job_.layout.tp) * tokens_;
    return kept;
  }

  // What of a layer stays until its backward.
  double left_by_layer(std::int64_t layer) const {
    const double boundary = compute() * as_double(job_.model.width) * between_;
    if (is_again_[static_cast<std::size_t>(layer)] != 0) return boundary;
    if (job_.recompute == Recompute::Op) {  // its input, what attention gives, every second product
      const Attention& a = job_.model.attention;
      const double heads = as_double(a.head_dim * (2 * a.heads + a.key_value_heads));
      const double tp = as_double(job_.layout.tp);
      const double attention = boundary + product() * heads / tp * tokens_;
      if (!has_experts(job_.model, layer))
        return attention + boundary + product() * as_double(job_.model.inner) / tp * tokens_;
      // Grouped products are computed again; what travels to experts and back is not.
      const Experts& e = *job_.model.experts;
      const double travelled =
          job_.layout.ep > 1 ? 2 * compute() * as_double(job_.model.width) * routed_ : 0;
      const double shared =
          e.shared_inner > 0 ? boundary + product() * as_double(e.shared_inner) / tp * tokens_ : 0;
      return attention + travelled + shared;
    }
    return kept_by_layer(layer, false);
  }

  double kept_by(const StageBlocks& blocks) const {
    const double boundary = compute() * as_double(job_.model.width) * between_;
    double kept = 0;
    for (const std::int64_t layer : blocks.layers) kept += left_by_layer(layer);
    if (blocks.head) kept += kept_by_last_norm();
    // What was sent, until its gradient comes: by all but the role of the last virtual stage.
    if (!blocks.head) kept += boundary;
    return kept;
  }

  // Its input, what it gives, and written out what it is times the root; the cast weights of the output layer.
  double kept_by_last_norm() const {
    const Model& m = job_.model;
    const double all = as_double(m.width) * between_;
    const bool has_operators = is_written_out() && m.norm == Norm::Rms;
    const double written_out = has_operators ? (compute() < 4 ? 2 * compute() : 4) : 0;
    const double cast = casts() ? product() * head_weights() : 0;
    return (compute() + product() + written_out) * all + cast;
  }
  double head_weights() const {
    if (!job_.model.tied) return head_.all();
    return as_double(job_.model.vocabulary * job_.model.width) / as_double(job_.layout.tp);
  }

  // `rebuilds`: with what a layer computes again, most of which is gone before its last gradient is made, as what others keep is
  // (a measured peak of nothing computed again is held to that in tests).
  Bytes working_of(const StageBlocks& blocks, bool rebuilds) const {
    const Model& m = job_.model;
    double most = 0;
    for (const std::int64_t layer : blocks.layers) {
      double between = 2 * as_double(m.width) * tokens_, inner = 0;
      if (has_experts(m, layer)) {
        between += 2 * as_double(m.width) * routed_;
        inner = made_of_inner(as_double(m.experts->inner)) / as_double(job_.layout.etp) * routed_;
      } else {
        inner = made_of_inner(as_double(m.inner)) / as_double(job_.layout.tp) * tokens_;
      }
      const double again = rebuilds ? kept_by_layer(layer) - left_by_layer(layer) : 0;
      most = std::max(most, compute() * between + product() * inner + again);
    }
    return rounded(most);
  }

  Bytes logits_of() const {
    const std::int64_t words =
        job_.model.patches ? job_.model.patches->classes : job_.model.vocabulary;
    // Written out: the logarithm of the softmax, the gradient of one word a row, and that of the logits, all in f32.
    const double written_out = is_written_out() ? 12 : product() + 8;
    const double per_word = job_.loss == Loss::Fused ? product() : written_out;
    const double chunks =
        job_.loss == Loss::Chunked ? std::ceil(as_double(words) / as_double(job_.model.width)) : 1;
    return rounded(per_word * tokens_ / chunks * as_double(words) / as_double(job_.layout.tp));
  }

  double largest_block(const StageBlocks& blocks) const {
    double most = 0;
    for (const std::int64_t layer : blocks.layers) {
      most = std::max(most, layers_[static_cast<std::size_t>(layer)].all());
    }
    return most;
  }
  double most_trained(const StageBlocks& blocks) const {
    double most = 0;
    for (const std::int64_t layer : blocks.layers) {
      most = std::max(most, layers_[static_cast<std::size_t>(layer)].trained.all());
    }
    return most;
  }

  Bytes gathered_by(const StageBlocks& blocks) const {
    if (job_.zero != Zero::Parameters) return Bytes();
    if (!job_.reshard) return rounded(compute() * held_by(blocks).all());
    double ends = blocks.embedding ? embedding_.all() : 0;
    if (blocks.head) ends = std::max(ends, job_.model.tied ? embedding_.all() : head_.all());
    const double layers = as_double(1 + job_.prefetch) * largest_block(blocks);
    return rounded(compute() * std::max(layers, ends));
  }

  Bytes buffers_of(const StageBlocks& blocks, const Held& held) const {
    const Layout& l = job_.layout;
    const double h = as_double(job_.model.width);
    double bytes = as_double(kProductSpaces.count());
    if (l.tp > 1 && l.sp) bytes += compute() * 2 * h * tokens_;
    if (l.cp > 1) {
      const Attention& a = job_.model.attention;
      const double keys = a.latent ? as_double(a.heads) : as_double(a.key_value_heads);
      const double of_others = job_.exchange == ContextExchange::AllGather ? as_double(l.cp) : 2;
      bytes += compute() * 2 * std::max(1.0, keys / as_double(l.tp)) * as_double(a.head_dim) *
               tokens_ * of_others;
    }
    if (l.ep > 1) bytes += compute() * 2 * h * routed_;
    if (l.pp > 1) bytes += compute() * 2 * h * between_;
    const double reduce = size_of(job_.precision.reduce);
    if (job_.zero == Zero::Parameters) {
      // A layer's gradients as they are made, and twice as they travel: the next joins before the last is gone.
      bytes += most_trained(blocks) * (compute() + 2 * reduce);
    } else if (job_.zero == Zero::Gradients && job_.bucket_bytes) {
      bytes += 2 * as_double(*job_.bucket_bytes);
    }
    if (rules_.bucket_copies && has_copies(job_)) {
      bytes += held.all() * (rules_.whole_gradients ? compute() : size_of(job_.precision.gradient));
    }
    return rounded(bytes);
  }

  std::int64_t communicators() const {
    const Layout& l = job_.layout;
    std::int64_t count = l.world() > 1 ? 1 : 0;
    for (const std::int64_t degree : {l.tp, l.cp, l.ep, l.pp, l.replicas() * l.cp}) {
      if (degree > 1 && degree < l.world()) ++count;
    }
    return count;
  }

  const Job& job_;
  const MemoryRules& rules_;
  std::vector<StageBlocks> stages_;
  const std::vector<Weights>& layers_;
  const Weights &embedding_, &head_;
  std::vector<char> is_again_;  // of each layer: backward computes all of it again
  double tokens_ = 0;           // of a micro-batch on a rank, within heads and networks
  double between_ = 0;          // between them
  double routed_ = 0;           // that come to a rank's experts
};

std::string option(const std::string& key, std::int64_t value) {
  return key + "=" + std::to_string(value);
}

// In the order of what they cost: nothing, a little communication, smaller products, computing again, more
// communication, less of the batch at a time.
std::vector<std::string> changes(const Job& job) {
  std::vector<std::string> list;
  const Layout& l = job.layout;
  if (l.tp > 1 && !l.sp) list.push_back("sp=yes");
  if (!job.flash && job.recompute == Recompute::None) list.push_back("recompute=selective");
  const auto zero = [&](Zero stage) {
    if (job.zero < stage && l.replicas() * l.cp > 1)
      list.push_back("zero=" + std::string(to_string(stage)));
  };
  zero(Zero::Optimizer);
  zero(Zero::Gradients);
  for (std::int64_t micro = job.batch.micro / 2; micro >= 1; micro /= 2)
    list.push_back(option("mbs", micro));
  if (job.recompute != Recompute::Full) list.push_back("recompute=full");
  zero(Zero::Parameters);
  const bool is_sharded = l.dp_shard > 1;
  const std::int64_t replicas = is_sharded ? l.dp_shard : l.dp;
  const std::string of_replicas = is_sharded ? "dp_shard" : "dp";
  const auto more = [&](const std::string& key, std::int64_t degree) {
    for (std::int64_t factor = 2; factor <= replicas; factor *= 2) {
      if (replicas % factor != 0) break;
      list.push_back(option(key, degree * factor) + "," + option(of_replicas, replicas / factor));
    }
  };
  more("tp", l.tp);
  more("pp", l.pp);
  return list;
}

bool fits(const Job& job, Bytes capacity) {
  const std::vector<StageMemory> stages = memory_of(job);
  return stages[fullest(stages)].total() <= capacity;
}

}  // namespace

MemoryRules memory_rules(const Job& job) {
  const bool is_megatron = job.as == RunBy::Megatron;
  const bool is_deepspeed = job.as == RunBy::Deepspeed;
  return {.resident_gradients = is_megatron,
          .bucket_copies =
              job.as == RunBy::Torch || (job.wrap == Wrap::Always && job.zero == Zero::Nothing),
          .fused_gate = is_megatron || job.kernels == Kernels::Layers,
          .weighs_within = is_megatron,
          .narrow_inputs = is_megatron,
          .whole_sums = job.zero == Zero::Parameters && !is_megatron && !is_deepspeed,
          .cast_shards = is_deepspeed};
}

BlockWeights block_weights(const Job& job) {
  const Layout& l = job.layout;
  BlockWeights blocks{.layers = std::vector<Weights>(static_cast<std::size_t>(job.model.layers)),
                      .embedding = {},
                      .head = {}};
  for (const ParameterShape& shape : job_parameters(job)) {
    double numel = 1;
    for (const std::int64_t extent : local_shape(shape, l.tp, l.ep, l.etp))
      numel *= as_double(extent);
    Weights& weights = shape.layer >= 0 ? blocks.layers[static_cast<std::size_t>(shape.layer)]
                       : shape.part == Part::Embedding ? blocks.embedding
                                                       : blocks.head;
    Held& held = shape.trained ? weights.trained : weights.frozen;
    (shape.expert ? held.experts : held.dense) += numel;
  }
  return blocks;
}

std::vector<StageMemory> memory_of(const Job& job, const MemoryRules& rules,
                                   const BlockWeights& weights) {
  const Job done = in_effect(job);
  return Counter(done, rules, weights).run();
}
std::vector<StageMemory> memory_of(const Job& job, const MemoryRules& rules) {
  return memory_of(job, rules, block_weights(job));
}
std::vector<StageMemory> memory_of(const Job& job) {
  return memory_of(job, memory_rules(in_effect(job)));
}

std::size_t fullest(const std::vector<StageMemory>& stages) {
  DOVETAIL_CHECK(!stages.empty()) << "a job without stages";
  const auto most = std::ranges::max_element(stages, {}, &StageMemory::total);
  return static_cast<std::size_t>(most - stages.begin());
}

std::optional<std::string> smallest_change(const Job& job, Bytes capacity) {
  if (fits(job, capacity)) return std::nullopt;
  for (std::string& change : changes(job)) {
    const std::optional<Job> other = with_options(job, change);
    if (other && fits(*other, capacity)) return std::move(change);
  }
  return std::nullopt;
}

std::optional<std::string> fewest_recomputed(const Job& job, Bytes capacity) {
  const std::int64_t chunks = job.layout.pp * job.layout.vp;
  const std::int64_t most = (job.model.layers + chunks - 1) / chunks;
  const auto is_enough = [&](std::int64_t layers) {
    Job other = job;
    other.recompute = Recompute::Full;
    other.recompute_layers = layers;
    return fits(other, capacity);
  };
  if (!is_enough(most)) return std::nullopt;
  std::int64_t enough = most;
  for (std::int64_t low = 0; enough - low > 1;) {
    const std::int64_t middle = (low + enough) / 2;
    (is_enough(middle) ? enough : low) = middle;
  }
  return "recompute=full,recompute_layers=" + std::to_string(enough);
}

}  // namespace dovetail::jobs
