// Reads Megatron-LM's arguments into a job: the model's shape, its layout over ranks, batch, element types, overlap.
//
// Read in Megatron-Core 0.20 (commit d98e8a6): megatron/training/arguments.py, training/vocab_utils.py,
// core/transformer/transformer_config.py, core/distributed/distributed_data_parallel.py.
//
//   data parallel                  the world over tp x pp x cp; the world is WORLD_SIZE, or what torchrun starts
//   vocabulary                     padded to a multiple of --make-vocab-size-divisible-by x tp
//   --ffn-hidden-size              absent: 4 x hidden; with --swiglu two thirds of that in whole 64s
//   gradients                      with --bf16 kept and reduced in f32, with --grad-reduce-in-bf16 in bf16
//   --use-distributed-optimizer    ZeRO 1; --use-megatron-fsdp shards as its strategy says
//   stages                         as --pipeline-model-parallel-layout lists them
//   experts                        tensor parallel as the rest is, unless --expert-tensor-parallel-size says less
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/megatron_words.h"
#include "frameworks/jobs/readers.h"
#include "models/networks/program.h"
#include "models/networks/tensors.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;

std::int64_t needed(Options& options, std::string_view name) {
  if (!options.has(name))
    throw InputError(options.file() + ": " + std::string(name) + " is missing");
  return options.whole(name, 0, 1, 1 << 24);
}

// "([0]*3+[1]*58)" or "Et*3|(t|)*2,ttL" with its products written out: a letter, or what stands in brackets, so often.
class Unrolled {
 public:
  // `joint`: what has to stand between lists; '\0': nothing, and commas mean nothing.
  Unrolled(std::string_view text, std::string_view letters, char joint)
      : text_(text), letters_(letters), joint_(joint), all_(sequence('\0', 0)) {
    if (at_ != text_.size()) is_wrong_ = true;
  }
  // Empty where it is none.
  [[nodiscard]] std::string letters() const { return is_wrong_ ? "" : all_; }

 private:
  static constexpr std::size_t kMost = 1 << 16;
  static constexpr int kDeepest = 8;

  bool takes(char c) {
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    if (is_there) ++at_;
    return is_there;
  }

  std::string sequence(char end, int depth) {
    std::string all;
    const bool is_list = joint_ == '\0' || end == ']';
    bool is_first = true;
    while (at_ < text_.size() && text_[at_] != end && !is_wrong_) {
      if (is_list && takes(',')) continue;
      if (!is_list && !is_first && !takes(joint_)) break;
      is_first = false;
      all += product(is_list, depth);
      if (all.size() > kMost) is_wrong_ = true;
    }
    return all;
  }

  std::string product(bool is_list, int depth) {
    std::string once;
    const bool is_open = takes('(');
    if (depth < kDeepest && (is_open || (!is_list && takes('[')))) {
      const char end = is_open ? ')' : ']';
      once = sequence(end, depth + 1);
      if (!takes(end)) is_wrong_ = true;
    } else if (is_list && at_ < text_.size() &&
               letters_.find(text_[at_]) != std::string_view::npos) {
      once = text_[at_++];
    } else {
      is_wrong_ = true;
    }
    while (takes('*')) {
      std::size_t times = 0;
      const char* const last = text_.data() + text_.size();
      const auto [after, error] = std::from_chars(text_.data() + at_, last, times);
      at_ = static_cast<std::size_t>(after - text_.data());
      if (error != std::errc() || times > kMost || times * once.size() > kMost) is_wrong_ = true;
      if (is_wrong_) break;
      std::string many;
      for (std::size_t t = 0; t < times; ++t) many += once;
      once = many;
    }
    return once;
  }

  std::string_view text_, letters_;
  char joint_;
  std::size_t at_ = 0;
  bool is_wrong_ = false;
  std::string all_;
};

// How many layers each stage of "Et*3|(t|)*2,ttL" has. Empty where it is no such text.
std::vector<std::int64_t> layers_of_stages(const std::string& text) {
  const std::string stages = Unrolled(text, "EtL|", '\0').letters();
  if (stages.empty()) return {};
  std::vector<std::int64_t> layers(1, 0);
  for (const char c : stages) {
    if (c == '|') layers.push_back(0);
    if (c == 't') ++layers.back();
  }
  return layers;
}

// The layer from which on all have experts.
std::int64_t first_with_experts(Options& options, std::int64_t layers) {
  constexpr std::string_view kName = "--moe-layer-freq";
  const std::string text = options.text(kName, "1");
  if (text == "1") return 0;
  const std::string pattern = Unrolled(text, "01", '+').letters();
  const std::size_t first = pattern.find('1');
  if (std::ssize(pattern) != layers || first == std::string::npos ||
      pattern.find('0', first) != std::string::npos) {
    options.fail(kName, "dense layers first, then layers with experts, " + std::to_string(layers) +
                            " together, as ([0]*3+[1]*58)");
  }
  return static_cast<std::int64_t>(first);
}

// "1,0,1,0": a window in each layer that a 1 stands for.
bool is_every_other(std::string_view list) {
  if (list.find(',') == std::string_view::npos) return false;
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (list[at] != "1,0,"[at % 4]) return false;
  }
  return true;
}

jobs::Attention megatron_attention(Options& options, std::int64_t width) {
  jobs::Attention a;
  const bool has_bias = !options.has("--disable-bias-linear");
  const bool normed = options.has("--qk-layernorm");
  a.heads = needed(options, "--num-attention-heads");
  a.key_value_heads =
      options.has("--group-query-attention") ? options.whole("--num-query-groups", 1) : a.heads;
  a.head_dim = options.whole("--kv-channels", width / a.heads);
  a.in_bias = options.has("--add-qkv-bias") || has_bias;
  a.out_bias = has_bias;
  a.normed_heads = normed;
  a.sinks = options.text("--softmax-type", "vanilla") == "learnable";
  std::string window = options.text("--window-size", "");
  std::erase(window, '(');
  const std::string often = options.text("--window-attn-skip-freq", "1");
  if (!window.empty() && (often == "2" || is_every_other(often))) {
    const auto end = std::from_chars(window.data(), window.data() + window.size(), a.window);
    if (end.ec != std::errc() || a.window < 1) options.fail("--window-size", "LEFT,0");
    ++a.window;  // itself, and so many before it
  } else if (!window.empty()) {
    options.fail("--window-size", "--window-attn-skip-freq 2, every other layer, with a window");
  }
  if (!options.has("--multi-latent-attention")) return a;
  a.latent = jobs::Latent{.query_rank = options.whole("--q-lora-rank", 0),
                          .key_value_rank = options.whole("--kv-lora-rank", 32),
                          .rope_dim = options.whole("--qk-pos-emb-head-dim", 64),
                          .nope_dim = options.whole("--qk-head-dim", 128),
                          .value_dim = options.whole("--v-head-dim", 128)};
  a.head_dim = a.latent->rope_dim + a.latent->nope_dim;
  a.key_value_heads = a.heads;
  a.normed_heads = false;  // of the low ranks
  return a;
}

// Absent where no argument says it.
std::optional<jobs::RotaryScale> megatron_rotation(Options& options) {
  using jobs::RotaryKind;
  const std::string positions = options.text("--position-embedding-type", "");
  const std::string latent = options.text("--rope-type", "yarn");
  const bool is_yarn =
      options.has("--multi-latent-attention") ? latent == "yarn" : positions == "yarn";
  const bool is_llama3 = options.has("--use-rope-scaling");
  const std::int64_t linear = options.whole("--rotary-seq-len-interpolation-factor", 1);
  const double of_yarn = options.number("--rotary-scaling-factor", 1);
  const double of_llama3 = options.number("--rope-scaling-factor", 8);
  if (!is_llama3 && !is_yarn && linear == 1 && !options.has("--rotary-base")) return std::nullopt;
  jobs::RotaryScale scale{.base = options.number("--rotary-base", 10'000)};
  if (is_llama3) {
    scale.kind = RotaryKind::Llama3;
    scale.factor = of_llama3;
  } else if (is_yarn) {
    scale.kind = RotaryKind::Yarn;
    scale.factor = of_yarn;
  } else if (linear > 1) {
    scale.kind = RotaryKind::Linear;
    scale.factor = static_cast<double>(linear);
  }
  return scale;
}

std::int64_t megatron_vocabulary(Options& options) {
  const std::int64_t padded = options.whole("--padded-vocab-size", 0, 0);
  const std::int64_t tp = options.degree("--tensor-model-parallel-size", 1);
  const std::int64_t multiple = options.whole("--make-vocab-size-divisible-by", 128) * tp;
  if (padded > 0) return padded;
  if (!options.has("--vocab-size")) {
    throw InputError(
        options.file() +
        ": --vocab-size is missing: the tokenizer decides it, and is not read; say it behind, " +
        options.file() + " --vocab-size 128256");
  }
  const std::int64_t size = options.whole("--vocab-size", 0);
  return (size + multiple - 1) / multiple * multiple;
}

// After the known model of that shape, whose vocabulary Megatron has padded.
jobs::Model named(jobs::Model model) {
  model.name = "gpt";
  for (const std::string& name : jobs::known_model_names()) {
    jobs::Model unpadded = model;
    unpadded.vocabulary = jobs::known_model(name).vocabulary;
    if (recognised(unpadded).name != name) continue;
    model.name = name + "-vocab" + std::to_string(model.vocabulary);
  }
  return model;
}

jobs::Model megatron_model(Options& options) {
  jobs::Model m;
  m.layers = needed(options, "--num-layers");
  m.width = needed(options, "--hidden-size");
  m.vocabulary = megatron_vocabulary(options);
  const bool is_swiglu = options.has("--swiglu");
  m.gated = options.has("--quick-geglu") || is_swiglu;
  const std::int64_t two_thirds = 4 * m.width * 2 / 3 / 64 * 64;
  m.inner = options.whole("--ffn-hidden-size", is_swiglu ? two_thirds : 4 * m.width);
  m.mlp_bias = !options.has("--disable-bias-linear");
  m.tied = !options.has("--untie-embeddings-and-output-weights");
  m.norm = kMegatronNorm.read(options, jobs::Norm::Layer);
  const bool is_rotary = options.has("--use-rotary-position-embeddings");
  const std::string positions = options.text("--position-embedding-type", "learned_absolute");
  if (!is_rotary && positions == "learned_absolute") {
    m.positions = needed(options, "--max-position-embeddings");
  }
  m.attention = megatron_attention(options, m.width);
  m.written.scale = megatron_rotation(options);
  m.sequence = options.whole("--seq-length", 4096);
  m.source = "Megatron's arguments";
  if (!options.has("--num-experts")) return named(std::move(m));
  m.experts =
      jobs::Experts{.count = options.whole("--num-experts", 1),
                    .per_token = options.whole("--moe-router-topk", 2),
                    .inner = options.whole("--moe-ffn-hidden-size", m.inner),
                    .shared_inner = options.whole("--moe-shared-expert-intermediate-size", 0),
                    .biases = m.mlp_bias,
                    .first_layer = first_with_experts(options, m.layers)};
  if (m.experts->first_layer == 0) {  // no layer has a network of its own
    m.inner = 0;
    m.mlp_bias = false;
  }
  return named(std::move(m));
}

std::int64_t variable_or(const Script& script, const std::string& name, std::int64_t otherwise) {
  const auto found = script.variables.find(name);
  if (found == script.variables.end()) return otherwise;
  std::int64_t number = 0;
  const std::string& text = found->second;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return is_number && number > 0 ? number : otherwise;
}

// How many ranks a script starts; 0 where it does not say.
std::int64_t megatron_world(const Script& script, Options& options) {
  const std::int64_t per_node = variable_or(script, "GPUS_PER_NODE", 0);
  const std::int64_t nodes = variable_or(script, "NNODES", variable_or(script, "NUM_NODES", 0));
  const std::int64_t counted = variable_or(script, "WORLD_SIZE", 0);
  if (counted > 0) return counted;
  for (const auto& [processes, machines] :
       {std::pair{"--nproc_per_node", "--nnodes"}, std::pair{"--nproc-per-node", "--nnodes"}}) {
    const std::string ranks = options.text(processes, "");
    const bool is_number = !ranks.empty() && std::ranges::all_of(ranks, [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (is_number) return options.degree(processes, 1) * options.degree(machines, 1);
  }
  return per_node < (1 << 20) && nodes < (1 << 20) ? per_node * nodes : 0;
}

class MegatronReader {
 public:
  MegatronReader(const Script& script, Options& options, const Behind& said)
      : options_(options), said_(said), job_{.model = said.model_or(megatron_model, options)} {
    if (said_.world == 0 && !said_.says("dp")) said_.world = megatron_world(script, options);
  }

  Job read() {
    job_.as = jobs::RunBy::Megatron;
    options_.refuse(KeyTable::megatron());
    layout();
    batch();
    precision();
    recompute();
    for (const std::string_view name : {"--hidden-dropout", "--attention-dropout"}) {
      if (!options_.is_there(name))
        job_.notes.push_back(std::string(name) +
                             ": absent, which means 0.1: dropout is not modelled");
    }
    take_rest(job_, options_, KeyTable::megatron(), said_);
    return std::move(job_);
  }

 private:
  void layout() {
    jobs::Layout& l = job_.layout;
    for (const Degree& one : kMegatronDegrees) l.*one.field = options_.degree(one.name, 1);
    l.sp = options_.has("--sequence-parallel") || l.tp == 1;
    const std::int64_t etp = options_.degree("--expert-tensor-parallel-size", l.tp);
    if (job_.model.experts) l.etp = etp;
    dispatch();
    l.vp = chunks();
    sharding();
    lay_out(job_, said_, job_.zero == jobs::Zero::Parameters ? Free::Sharded : Free::DataParallel,
            "how many ranks there are is said by no WORLD_SIZE: say it behind the arguments, "
            ":world=64");
    job_.async_tp = options_.has("--tp-comm-overlap") && l.tp > 1;
    const auto exchange = kMegatronExchange.read(options_, jobs::ContextExchange::Ring);
    if (l.cp > 1) job_.exchange = exchange;
    const std::string kind = options_.text(kMegatronExchange.name, "");
    if (l.cp > 1 && kind.starts_with("a2a")) {
      assume(job_, kMegatronExchange.name, kind, "counted as " + std::string(to_string(exchange)));
    }
  }

  void dispatch() {
    const std::string kind = options_.text(kMegatronDispatcher, "allgather");
    const auto flex = kMegatronFlex.read(options_, jobs::Dispatch::DeepEp);
    if (!job_.model.experts) return;
    if (kind == "flex") job_.dispatch = flex;
    if (kind != "flex" && kind != "alltoall" && job_.layout.ep > 1)
      assume(job_, kMegatronDispatcher, kind, "tokens are counted as dispatched by all-to-all");
  }

  // How many virtual stages a rank has. How many layers each has is as get_num_layers_to_build has it
  // (core/transformer/transformer_block.py).
  std::int64_t chunks() {
    constexpr std::string_view kLayers = "--num-layers-per-virtual-pipeline-stage";
    const std::int64_t pp = job_.layout.pp;
    const std::int64_t per_chunk = options_.degree(kLayers, 0);
    const std::int64_t said = options_.degree(kMegatronChunks, 1);
    const std::string stages = options_.text(kMegatronLayout, "");
    const std::int64_t first = options_.degree("--decoder-first-pipeline-num-layers", 0, 0);
    const std::int64_t last = options_.degree("--decoder-last-pipeline-num-layers", 0, 0);
    const std::int64_t embedding =
        options_.has("--account-for-embedding-in-pipeline-split") ? 1 : 0;
    const std::int64_t loss = options_.has("--account-for-loss-in-pipeline-split") ? 1 : 0;
    if (pp == 1) return 1;
    if (!stages.empty()) return chunks_of(stages);
    const std::int64_t layers = job_.model.layers + embedding + loss;
    if (per_chunk > 0 && layers % (pp * per_chunk) != 0) {
      options_.fail(kLayers, "what divides the layers of a stage, " + std::to_string(layers) +
                                 " / " + std::to_string(pp));
    }
    job_.layout.vp = per_chunk > 0 ? layers / (pp * per_chunk) : said;
    std::int64_t middle = layers;
    std::int64_t ranks = pp;
    for (const std::int64_t own : {first, last}) {
      middle -= own;
      ranks -= own > 0 ? 1 : 0;
    }
    const bool is_uneven = first + last > 0;
    if ((is_uneven && embedding + loss > 0) || middle < 0 ||
        (ranks > 0 ? middle % ranks != 0 : middle != 0)) {
      refuse_layers(layers);
    }
    if (ranks > 0) middle /= ranks;
    return divide(first > 0 ? first : middle, middle, last > 0 ? last : middle, embedding, loss);
  }

  // Layers of the first rank, of those between, and of the last, embedding and loss among them.
  std::int64_t divide(std::int64_t first, std::int64_t middle, std::int64_t last,
                      std::int64_t embedding, std::int64_t loss) {
    jobs::Layout& l = job_.layout;
    const std::int64_t counted = job_.model.layers + embedding + loss;
    if (l.pp * l.vp > counted) refuse_layers(counted);
    std::vector<std::int64_t> layers;
    for (std::int64_t stage = 0; stage < l.pp * l.vp; ++stage) {
      const std::int64_t rank = stage % l.pp;
      const std::int64_t all = rank == 0 ? first : rank == l.pp - 1 ? last : middle;
      if (all % l.vp != 0) refuse_layers(counted);
      layers.push_back(all / l.vp);
    }
    layers.front() -= embedding;
    layers.back() -= loss;
    if (layers.front() < 0 || layers.back() < 0) refuse_layers(counted);
    if (layers != jobs::layers_of_stages(job_)) l.layers = layers;
    return l.vp;
  }

  [[noreturn]] void refuse_layers(std::int64_t layers) {
    options_.fail("--num-layers", "what " + std::to_string(job_.layout.pp) + " stages of " +
                                      std::to_string(job_.layout.vp) +
                                      " chunks can have, as Megatron-LM divides it (" +
                                      std::to_string(layers) +
                                      " with embedding and loss, where they are accounted for)");
  }

  std::int64_t chunks_of(const std::string& text) {
    jobs::Layout& l = job_.layout;
    const std::vector<std::int64_t> layers = layers_of_stages(text);
    const auto stages = static_cast<std::int64_t>(layers.size());
    if (stages == 0 || stages % l.pp != 0 ||
        std::accumulate(layers.begin(), layers.end(), std::int64_t{0}) != job_.model.layers) {
      options_.fail(kMegatronLayout, "stages for " + std::to_string(l.pp) + " ranks with " +
                                         std::to_string(job_.model.layers) +
                                         " layers together, as Et*3|t*4|t*3L");
    }
    l.vp = stages / l.pp;
    if (layers != jobs::layers_of_stages(job_)) l.layers = layers;
    return l.vp;
  }

  void sharding() {
    using jobs::Zero;
    const Zero strategy = kMegatronStrategy.read(options_, Zero::Parameters);
    const bool is_fsdp2 = options_.has("--use-torch-fsdp2");
    const bool is_fsdp = options_.has("--use-megatron-fsdp");
    const bool is_divided = options_.has("--use-distributed-optimizer");
    job_.zero = is_fsdp2     ? Zero::Parameters
                : is_fsdp    ? strategy
                : is_divided ? Zero::Optimizer
                             : Zero::Nothing;
    job_.reshard = !options_.has("--torch-fsdp2-no-reshard-after-forward");
    const std::int64_t copies = options_.degree("--num-distributed-optimizer-instances", 1);
    if (copies > 1 && job_.zero == Zero::Parameters) {
      job_.layout.dp = copies;
    } else if (copies > 1) {
      assume(job_, "--num-distributed-optimizer-instances", std::to_string(copies),
             "optimizer states are counted as divided over all data-parallel ranks");
    }
    const bool overlaps = options_.has("--overlap-grad-reduce");
    const bool gathers = options_.has("--overlap-param-gather");
    job_.overlap_gradients = overlaps || is_fsdp2;
    if (job_.zero != Zero::Nothing) job_.overlap_parameters = gathers || is_fsdp2;
    if (!is_fsdp) return;
    // It overlaps what it divides, whatever is said.
    job_.overlap_gradients |= job_.zero >= Zero::Gradients;
    job_.overlap_parameters |= job_.zero == Zero::Parameters;
    gathers_ahead();
  }

  // Its second version gathers the next layer, and two buffers hold no more.
  void gathers_ahead() {
    std::optional<std::int64_t> unit;
    if (options_.has(kMegatronUnit))
      unit = options_.whole(kMegatronUnit, 0, 0, std::int64_t{1} << 40);
    const bool is_next = options_.text("--megatron-fsdp-version", "1") == "2" ||
                         options_.has("--fsdp-double-buffer") || options_.has("--use-nccl-ub");
    job_.prefetch = megatron_prefetch(job_, unit);
    if (is_next) job_.prefetch = std::min<std::int64_t>(job_.prefetch, 1);
  }

  void batch() {
    jobs::Batch& b = job_.batch;
    const std::int64_t micro = b.micro;  // what was said
    b.sequence = needed(options_, "--seq-length");
    b.micro = options_.degree("--micro-batch-size", 1);
    b.global = options_.whole("--global-batch-size",
                              (said_.says("mbs") ? micro : b.micro) * job_.layout.replicas());
  }

  void precision() {
    jobs::Precision& p = job_.precision;
    const bool is_half = options_.has("--fp16");
    const bool is_bf16 = options_.has("--bf16");
    if (is_half && is_bf16)
      throw InputError(options_.file() +
                       ": --fp16 and --bf16: expected one of them, as Megatron-LM does");
    const bool is_summed_in_f32 = options_.has("--accumulate-allreduce-grads-in-fp32");
    const bool is_reduced_in_bf16 = options_.has("--grad-reduce-in-bf16");
    p.compute = is_half ? DType::F16 : is_bf16 ? DType::BF16 : DType::F32;
    p.gradient = kMegatronGradients.read(options_, DType::F32);
    if (is_half && !is_summed_in_f32) p.gradient = DType::F16;
    if (is_reduced_in_bf16) p.gradient = DType::BF16;
    p.gradient = kMegatronFsdpGradients.read(options_, p.gradient);
    p.reduce = kMegatronFsdpReduce.read(options_, p.gradient);
    if (p.compute == DType::F32) p.master_bytes = 0;
    if (options_.text("--main-params-dtype", "fp32") == "fp16") p.master_bytes = 2;
    p.state_bytes = kMegatronFirst.read(options_, 4) + kMegatronSecond.read(options_, 4);
    if (options_.has("--fp8-format")) p.products = schedule::Operands::Fp8;
    const bool is_engine = options_.text(kMegatronLoss, "native") == "te";
    if (options_.has("--cross-entropy-loss-fusion") && is_engine) job_.loss = jobs::Loss::Fused;
    p.scaling = kMegatronScaling.read(options_, jobs::Scaling::Delayed);
    if (options_.has("--fp4-format")) p.products = schedule::Operands::Fp4;
    job_.optimizer = kMegatronOptimizer.read(options_, jobs::Optimizer::Adam);
    if (job_.optimizer != jobs::Optimizer::Adam) p.state_bytes = 4;
    buckets();
  }

  // REQUIRES: layout, sharding and optimizer are read.
  void buckets() {
    std::int64_t elements = options_.whole("--ddp-bucket-size", 0);
    const bool is_whole =
        job_.optimizer == jobs::Optimizer::Muon && job_.zero == jobs::Zero::Optimizer;
    if (is_whole) elements = whole_matrices(elements);
    if (elements > 0) {
      job_.bucket_bytes = elements * element_size(job_.precision.gradient).count();
    }
  }

  // With Muon the distributed optimizer leaves each matrix whole on one rank, so that a bucket is no less than the largest on each
  // rank (findings/megatron_muon_pads_its_buckets.sh).
  std::int64_t whole_matrices(std::int64_t elements) {
    const std::int64_t ranks = job_.layout.replicas() * job_.layout.cp;
    std::int64_t most = 0;
    for (const jobs::ParameterShape& shape : jobs::model_parameters(job_.model)) {
      if (shape.layer < 0 || shape.expert) continue;
      const auto local = jobs::local_shape(shape, job_.layout.tp, 1, 1);
      std::int64_t numel = 1;
      for (const std::int64_t extent : local) numel *= extent;
      const bool is_two = job_.model.gated && shape.part == jobs::Part::Mlp;  // gate and up are one
      most = std::max(most, is_two ? 2 * numel : numel);
    }
    const std::int64_t least = ranks * most / 10 * 9;
    const std::int64_t usual = std::max<std::int64_t>(40'000'000, 1'000'000 * ranks);
    if (least <= (elements > 0 ? elements : usual)) return elements;
    assume(job_, "--optimizer", "muon",
           "matrices stay whole on a rank: buckets of " + std::to_string(least) +
               " elements or more, the largest matrix times " + std::to_string(ranks) +
               " ranks; what pads them is not counted");
    return least;
  }

  // "core_attn", which a fused kernel does by itself, and others.
  void modules_again(std::string_view list) {
    while (!list.empty()) {
      const std::size_t blank = std::min(list.find(' '), list.size());
      const std::string_view name = list.substr(0, blank);
      list.remove_prefix(std::min(blank + 1, list.size()));
      const auto module = word_to<jobs::RecomputedModule>(name);
      if (module) {
        job_.recompute_modules |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(*module));
      } else if (name != "core_attn") {
        assume(job_, "--recompute-modules", name, "counted as kept");
      }
    }
  }

  void recompute() {
    using jobs::Recompute;
    const std::string backend = options_.text("--attention-backend", "auto");
    const bool is_flash = options_.has("--use-flash-attn");
    job_.flash = is_flash || (backend != "unfused" && backend != "local");
    if (is_flash || backend == "flash") job_.attention = schedule::AttentionKernel::Fa2;
    job_.recompute = kMegatronRecompute.read(
        options_, options_.has("--recompute-activations") ? Recompute::Selective : Recompute::None);
    const std::string method = options_.text("--recompute-method", "uniform");
    const std::string modules = options_.text("--recompute-modules", "core_attn");
    const std::int64_t layers = options_.degree("--recompute-num-layers", 1);
    if (job_.recompute == Recompute::Selective) modules_again(modules);
    if (job_.recompute != Recompute::Full) return;
    if (method == "block" && layers * job_.layout.vp * job_.layout.pp < job_.model.layers) {
      job_.recompute_layers = layers;  // of each chunk
    }
    if (method == "uniform" && layers > 1) {
      assume(job_, "--recompute-num-layers", std::to_string(layers),
             "the input of every layer is counted as kept, not of every so many");
    }
  }

  Options& options_;
  Behind said_;
  Job job_;
};

}  // namespace

jobs::Job read_megatron(Script script, const Behind& said) {
  Options options(said.where, std::move(script.flags));
  return MegatronReader(script, options, said).read();
}

}  // namespace dovetail::frameworks
