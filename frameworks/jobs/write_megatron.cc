// Writes a job as a script of Megatron-LM's arguments: the model's shape, layout, batch, element types, overlap.
//
// The inverse of megatron_job.cc, for the same version (Megatron-Core 0.20, commit d98e8a6). What that refuses to run
// was read in megatron/training/arguments.py: a sample that 2 x cp does not divide or
// that is longer than its learned positions, Muon with Megatron-FSDP. ZeRO 1 is its distributed optimizer; 2 and 3 are Megatron-FSDP's strategies.
//
// Stages are said by their number where they divide the layers, else one by one (--pipeline-model-parallel-layout).
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/megatron_words.h"
#include "frameworks/jobs/readers.h"
#include "frameworks/jobs/writers.h"
#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using jobs::Zero;
using schedule::DType;

constexpr const char* kMegatronFile = "Megatron's arguments";
constexpr std::int64_t kRanksOfANode = 8;

[[noreturn]] void megatron_cannot(const std::string& why) {
  throw InputError("export: Megatron cannot run this job: " + why);
}

// Arguments by what they are about, each list a variable of the script.
class ScriptText {
 public:
  void begin(const std::string& list) { lists_.push_back({list, ""}); }
  void say(std::string_view name, std::string_view value = {}) {
    lists_.back().lines +=
        "  " + std::string(name) + (value.empty() ? "" : " ") + std::string(value) + "\n";
  }
  void say(std::string_view name, std::int64_t value) { say(name, std::to_string(value)); }

  [[nodiscard]] std::string text() const {
    std::string text;
    for (const List& list : lists_) text += list.name + "=(\n" + list.lines + ")\n";
    return text;
  }
  // "${MODEL[@]}" "${LAYOUT[@]}"
  [[nodiscard]] std::string lists() const {
    std::string text;
    for (const List& list : lists_) text += " \"${" + list.name + "[@]}\"";
    return text;
  }

 private:
  struct List {
    std::string name, lines;
  };
  std::vector<List> lists_;
};

std::string number_text(double number) {
  std::ostringstream text;
  text.precision(12);
  text << number;
  return text.str();
}

class MegatronWriter {
 public:
  explicit MegatronWriter(const Job& job) : job_(job) {}

  JobWords write() {
    require();
    script_.begin("MODEL");
    model();
    script_.begin("LAYOUT");
    layout();
    sharding();
    script_.begin("BATCH");
    batch();
    recompute();
    script_.begin("PRECISION");
    precision();
    JobWords words{
        .body = head() + script_.text() + run(),
        .behind = imbalance_of(job_),
        .notes = {"without arguments it runs ten steps of made-up data; data, tokenizer, "
                  "learning rate and steps stand behind the script: "
                  "--data-path, --tokenizer-type, --lr, --train-iters, ..."}};
    // core/distributed/distributed_data_parallel.py: pp_rank > 0
    if (job_.layout.pp > 1 && job_.overlap_gradients && !is_fsdp()) {
      words.notes.emplace_back(
          "Megatron has buckets on the first stage only; each other stage is reduced at once, "
          "which is counted as in buckets");
    }
    return words;
  }

 private:
  // Why it cannot run the job at all.
  void require() const {
    const jobs::Model& m = job_.model;
    const jobs::Layout& l = job_.layout;
    if (m.patches) megatron_cannot(m.name + " is a model of pictures");
    if (job_.precision.autocast != jobs::Autocast::No)
      megatron_cannot("autocast=" + std::string(to_string(job_.precision.autocast)) +
                      ", and none of its arguments says autocast");
    if (job_.batch.sequence % (2 * l.cp) != 0 && l.cp > 1) {
      megatron_cannot("seq=" + std::to_string(job_.batch.sequence) +
                      " is no multiple of 2 x cp=" + std::to_string(2 * l.cp));
    }
    if (m.positions > 0 && job_.batch.sequence > m.positions) {
      megatron_cannot("seq=" + std::to_string(job_.batch.sequence) + " is longer than " + m.name +
                      "'s " + std::to_string(m.positions) + " positions");
    }
    if (is_fsdp() && job_.optimizer == jobs::Optimizer::Muon) {
      megatron_cannot("optimizer=muon, and Megatron-FSDP (zero=2, zero=3) has adam and sgd");
    }
  }

  [[nodiscard]] bool is_fsdp() const { return job_.zero >= Zero::Gradients; }

  void model() {
    const jobs::Model& m = job_.model;
    const bool has_biases = m.mlp_bias || m.attention.out_bias;
    script_.say("--num-layers", m.layers);
    script_.say("--hidden-size", m.width);
    if (m.inner > 0) script_.say("--ffn-hidden-size", m.inner);
    // GPT-OSS's gate is the quick one; both are two products.
    if (m.gated) script_.say(m.attention.sinks ? "--quick-geglu" : "--swiglu");
    if (!has_biases) script_.say("--disable-bias-linear");
    script_.say(kMegatronNorm.name, kMegatronNorm.word(m.norm));
    if (!m.tied) script_.say("--untie-embeddings-and-output-weights");
    positions();
    script_.say("--vocab-size", m.vocabulary);
    script_.say("--make-vocab-size-divisible-by", 1);
    script_.say("--attention-dropout", "0");
    script_.say("--hidden-dropout", "0");
    attention(has_biases);
    if (m.experts) experts();
  }

  void positions() {
    const jobs::Model& m = job_.model;
    const jobs::RotaryScale scale = m.written.scale.value_or(jobs::RotaryScale{});
    const bool is_yarn = scale.kind == jobs::RotaryKind::Yarn;
    const bool is_latent = m.attention.latent.has_value();
    script_.say("--position-embedding-type", m.positions > 0         ? "learned_absolute"
                                             : is_yarn && !is_latent ? "yarn"
                                                                     : "rope");
    script_.say("--max-position-embeddings",
                m.positions > 0 ? m.positions : std::max(m.sequence, job_.batch.sequence));
    if (m.positions > 0) return;
    script_.say("--rotary-base", std::llround(scale.base));
    if (is_latent) script_.say("--rope-type", is_yarn ? "yarn" : "rope");
    if (is_yarn) script_.say("--rotary-scaling-factor", number_text(scale.factor));
    if (is_latent) return;
    if (scale.kind == jobs::RotaryKind::Llama3) {
      script_.say("--use-rope-scaling");
      script_.say("--rope-scaling-factor", number_text(scale.factor));
    } else if (scale.kind == jobs::RotaryKind::Linear) {
      script_.say("--rotary-seq-len-interpolation-factor", std::llround(scale.factor));
    }
  }

  void attention(bool has_biases) {
    const jobs::Attention& a = job_.model.attention;
    script_.say("--num-attention-heads", a.heads);
    if (a.latent) {
      script_.say("--multi-latent-attention");
      if (a.latent->query_rank > 0) script_.say("--q-lora-rank", a.latent->query_rank);
      script_.say("--kv-lora-rank", a.latent->key_value_rank);
      script_.say("--qk-head-dim", a.latent->nope_dim);
      script_.say("--qk-pos-emb-head-dim", a.latent->rope_dim);
      script_.say("--v-head-dim", a.latent->value_dim);
    } else {
      if (a.key_value_heads != a.heads) {
        script_.say("--group-query-attention");
        script_.say("--num-query-groups", a.key_value_heads);
      }
      script_.say("--kv-channels", a.head_dim);
    }
    if (a.normed_heads || a.latent) script_.say("--qk-layernorm");
    if (a.in_bias && !has_biases) script_.say("--add-qkv-bias");
    if (a.sinks) script_.say("--softmax-type", "learnable");
    if (a.window > 0) {
      script_.say("--window-size", "\"" + std::to_string(a.window - 1) + ",0\"");
      script_.say("--window-attn-skip-freq", 2);
    }
    if (!job_.flash) {
      script_.say("--attention-backend", "unfused");
    } else if (job_.attention != schedule::AttentionKernel::Cudnn) {
      script_.say("--attention-backend", "flash");
    }
  }

  void experts() {
    const jobs::Experts& e = *job_.model.experts;
    script_.say("--num-experts", e.count);
    script_.say("--moe-router-topk", e.per_token);
    script_.say("--moe-ffn-hidden-size", e.inner);
    if (e.shared_inner > 0) script_.say("--moe-shared-expert-intermediate-size", e.shared_inner);
    if (e.first_layer > 0) {
      script_.say("--moe-layer-freq", "\"([0]*" + std::to_string(e.first_layer) + "+[1]*" +
                                          std::to_string(job_.model.layers - e.first_layer) +
                                          ")\"");
    }
    router();
    script_.say("--moe-grouped-gemm");
    const bool is_flex = job_.dispatch != jobs::Dispatch::AllToAll;
    script_.say(kMegatronDispatcher, is_flex ? "flex" : "alltoall");
    if (is_flex) script_.say(kMegatronFlex.name, kMegatronFlex.word(job_.dispatch));
  }

  // Megatron's own is the softmax of the chosen, which is what normalizes them.
  void router() {
    const jobs::Router& r = job_.model.written.router;
    if (r.score == jobs::Score::Sigmoid) {
      script_.say("--moe-router-score-function", "sigmoid");
      script_.say("--moe-router-enable-expert-bias");
    } else if (r.score == jobs::Score::Softmax && !r.normalized) {
      script_.say("--moe-router-pre-softmax");
    }
    if (r.groups > 0) {
      script_.say("--moe-router-num-groups", r.groups);
      script_.say("--moe-router-group-topk", r.groups_chosen);
    }
    if (r.factor != 1) script_.say("--moe-router-topk-scaling-factor", number_text(r.factor));
    if (r.wide) script_.say("--moe-router-dtype", "fp32");
  }

  void layout() {
    const jobs::Layout& l = job_.layout;
    for (const Degree& one : kMegatronDegrees) script_.say(one.name, l.*one.field);
    if (job_.model.experts) script_.say("--expert-tensor-parallel-size", l.etp);
    if (l.tp > 1 && l.sp) script_.say("--sequence-parallel");
    if (job_.async_tp && l.sp) script_.say("--tp-comm-overlap");
    if (l.cp > 1) script_.say(kMegatronExchange.name, kMegatronExchange.word(job_.exchange));
    if (l.pp == 1) return;
    if (!l.layers.empty() || job_.model.layers % (l.pp * l.vp) != 0) {
      script_.say(kMegatronLayout, "\"" + stages() + "\"");
    } else if (l.vp > 1) {
      script_.say(kMegatronChunks, l.vp);
    }
  }

  // "Et*3|t*4|t*3L"
  [[nodiscard]] std::string stages() const {
    std::string text = "E";
    for (const std::int64_t layers : jobs::layers_of_stages(job_)) {
      text += (text.size() > 1 ? "|t*" : "t*") + std::to_string(layers);
    }
    return text + "L";
  }

  void sharding() {
    if (job_.zero != Zero::Nothing) script_.say("--use-distributed-optimizer");
    if (is_fsdp()) {
      script_.say("--use-megatron-fsdp");
      script_.say(kMegatronStrategy.name, kMegatronStrategy.word(job_.zero));
      script_.say("--ckpt-format", "fsdp_dtensor");
    }
    if (job_.zero == Zero::Parameters && job_.prefetch != megatron_prefetch(job_, std::nullopt)) {
      script_.say(kMegatronUnit, 2 * job_.prefetch * megatron_layer_elements(job_));
    }
    if (job_.zero == Zero::Parameters && job_.layout.dp > 1) {
      script_.say("--num-distributed-optimizer-instances", job_.layout.dp);
    }
    if (job_.overlap_gradients) script_.say("--overlap-grad-reduce");
    if (job_.overlap_gradients && job_.overlap_parameters && job_.zero != Zero::Nothing) {
      script_.say("--overlap-param-gather");
    }
    if (!job_.bucket_bytes) return;
    script_.say("--ddp-bucket-size",
                std::max<std::int64_t>(
                    1, *job_.bucket_bytes / element_size(gradient()).count()));  // in elements
  }

  void batch() {
    script_.say("--seq-length", job_.batch.sequence);
    script_.say("--micro-batch-size", job_.batch.micro);
    script_.say("--global-batch-size", job_.batch.global);
    script_.say(kMegatronOptimizer.name, kMegatronOptimizer.word(job_.optimizer));
  }

  void recompute() {
    if (job_.recompute == jobs::Recompute::None) return;
    const bool is_by_op = job_.recompute == jobs::Recompute::Op;
    script_.say(kMegatronRecompute.name,
                kMegatronRecompute.word(is_by_op ? jobs::Recompute::Selective : job_.recompute));
    std::string modules;
    for (const jobs::RecomputedModule module : kAllOf<jobs::RecomputedModule>) {
      if (recomputes(job_, module))
        modules += (modules.empty() ? "" : " ") + std::string(to_string(module));
    }
    if (!modules.empty())
      script_.say("--recompute-modules", job_.flash ? modules : "core_attn " + modules);
    if (job_.recompute != jobs::Recompute::Full) return;
    const bool is_all = job_.recompute_layers == 0;
    script_.say("--recompute-method", is_all ? "uniform" : "block");
    script_.say("--recompute-num-layers",  // of each chunk
                is_all ? 1 : job_.recompute_layers);
  }

  // Gradients as it keeps them: with bf16 and fp16 in f32 or in the type of compute.
  [[nodiscard]] DType gradient() const {
    const jobs::Precision& p = job_.precision;
    return p.gradient == p.compute ? p.compute : DType::F32;
  }

  void precision() {
    const jobs::Precision& p = job_.precision;
    const DType kept = gradient();
    if (job_.loss == jobs::Loss::Fused) {
      script_.say("--cross-entropy-loss-fusion");
      script_.say(kMegatronLoss, "te");
    }
    if (p.compute == DType::BF16) script_.say("--bf16");
    if (p.compute == DType::F16) script_.say("--fp16");
    if (p.compute == DType::BF16 && kept == DType::BF16) script_.say("--grad-reduce-in-bf16");
    if (p.compute == DType::F16 && kept == DType::F32) {
      script_.say("--accumulate-allreduce-grads-in-fp32");
    }
    if (is_fsdp() && p.reduce != kept) {
      script_.say(kMegatronFsdpReduce.name, kMegatronFsdpReduce.word(p.reduce));
    }
    if (p.products == schedule::Operands::Fp8) {
      script_.say("--fp8-format", "hybrid");
      if (p.scaling != jobs::Scaling::Delayed)
        script_.say(kMegatronScaling.name, kMegatronScaling.word(p.scaling));
    }
    if (p.products == schedule::Operands::Fp4) script_.say("--fp4-format", "e2m1");
    moments();
  }

  // Bytes of Adam's moments and of the master weights, where the optimizer takes other types than f32.
  void moments() {
    const jobs::Precision& p = job_.precision;
    if (job_.optimizer != jobs::Optimizer::Adam || job_.zero == Zero::Nothing || is_fsdp()) return;
    const bool is_half_master = p.compute != DType::F32 && p.master_bytes == 2;
    for (const std::int64_t first : {4, 2, 1}) {
      const std::int64_t second = p.state_bytes - first;
      if (p.state_bytes == 8 || second > first || !kMegatronSecond.has(second)) continue;
      script_.say(kMegatronFirst.name, kMegatronFirst.word(first));
      script_.say(kMegatronSecond.name, kMegatronSecond.word(second));
      break;
    }
    if (is_half_master) script_.say("--main-params-dtype", "fp16");
    const bool is_aware = is_half_master || (p.state_bytes < 8 && p.state_bytes > 1);
    if (is_aware) script_.say("--use-precision-aware-optimizer");
  }

  [[nodiscard]] std::int64_t ranks_of_a_node() const {
    std::int64_t ranks = std::min(kRanksOfANode, job_.layout.world());
    while (job_.layout.world() % ranks != 0) --ranks;
    return ranks;
  }

  [[nodiscard]] std::string head() const {
    const std::int64_t ranks = ranks_of_a_node();
    std::string text = "GPUS_PER_NODE=" + std::to_string(ranks) +
                       "\nNNODES=" + std::to_string(job_.layout.world() / ranks) + "\n";
    // Before Blackwell collectives that overlap products need one queue, and FSDP needs several.
    if (!is_fsdp() && job_.layout.tp * job_.layout.cp > 1) {
      text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
    }
    return text;
  }

  // How nodes find each other: by srun, else by what is said in each one's environment. Without arguments behind the script
  // ten steps of made-up data are run.
  [[nodiscard]] std::string run() const {
    std::string text =
        "DATA=(--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 10)\n"
        "if [ $# -gt 0 ]; then DATA=(\"$@\"); fi\n";
    std::string meeting;
    if (job_.layout.world() > ranks_of_a_node()) {
      text +=
          ": \"${NODE_RANK:=${SLURM_NODEID:?NODE_RANK is needed, the number of this node from 0 "
          "on; "
          "srun sets its own}}\"\n"
          "if [ -n \"$SLURM_JOB_NODELIST\" ]; then\n"
          "  : \"${MASTER_ADDR:=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)}\"\n"
          "fi\n"
          ": \"${MASTER_ADDR:?MASTER_ADDR is needed, the host of node 0}\"\n";
      meeting =
          " --node_rank \"$NODE_RANK\" --master_addr \"$MASTER_ADDR\" --master_port "
          "\"${MASTER_PORT:-29500}\"";
    }
    return text + "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES" + meeting +
           " pretrain_gpt.py" + script_.lists() + " \"${DATA[@]}\"\n";
  }

  const Job& job_;
  ScriptText script_;
};

// Names, sources and usual lengths aside; Megatron pads the vocabulary.
bool is_same_shape(jobs::Model model, const jobs::Model& read) {
  model.name = read.name;
  model.sequence = read.sequence;
  model.published = read.published;
  model.source = read.source;
  model.vocabulary = read.vocabulary;
  model.written = read.written;
  return model == read;
}

Job megatron_as_run(const Job& job, const JobWords& words) {
  Job read = read_back(kMegatronFile, words.behind, [&](const Behind& said) {
    return read_megatron(read_script(kMegatronFile, words.body), said);
  });
  if (!is_same_shape(job.model, read.model)) {
    megatron_cannot("its arguments cannot say the shape of " + job.model.name);
  }
  const auto scale = job.model.written.scale ? read.model.written.scale : std::nullopt;
  if (job.model.vocabulary == read.model.vocabulary) read.model = job.model;
  read.model.written.scale = scale;
  return read;
}

JobWords write_megatron(const Job& job) { return MegatronWriter(job).write(); }

}  // namespace

JobWriter megatron_writer() {
  return {
      .id = "megatron",
      .title = "Megatron-Core 0.20",
      .writes = "a job as arguments",
      .paste = "bash FILE --data-path ... --tokenizer-type ... --lr ... --train-iters ...",
      .unsaid = {{"vocabulary", "it is padded to a multiple of tp"},
                 {"rope_scaling", "its arguments have whole factors of linear, Llama 3.1's, YaRN"},
                 {"dp", "shards and replicas are one group where parameters are whole"},
                 {"dp_shard", "shards and replicas are one group where parameters are whole"},
                 {"schedule", "its pipelines are 1F1B, with chunks interleaved"},
                 {"async_tp", "--tp-comm-overlap needs sequence parallelism"},
                 {"grads", "gradients are kept in f32 or in the type of compute"},
                 {"reduce", "gradients travel as they are kept, but with Megatron-FSDP"},
                 {"master", "the master weights are f32, or fp16 with the distributed optimizer"},
                 {"states",
                  "moments are f32, or of two given types with the distributed "
                  "optimizer"},
                 {"loss", "its logits are whole, in place with Transformer Engine's loss"},
                 {"scaling", "--fp4-format has a scale for each block"},
                 {"products", "no argument has f32 multiplied in TF32"},
                 {"updates", "Transformer Engine's FusedAdam updates"},
                 {"wrap", "gradients are made in their buckets"},
                 {"graph", "what its arguments capture is layers, or depends on the version"},
                 {"attention", "which FlashAttention there is is what is installed"},
                 {"zero", "a rank that is alone has nothing to divide"},
                 {"kernels", "Transformer Engine fuses what lies between products"},
                 {"recompute", "its selective recomputation is of attention, not op by op"},
                 {"recompute_modules", "modules are computed again with selective recomputation"},
                 {"recompute_layers", "as many layers of each chunk are computed again"},
                 {"lora", "adapters are Megatron-Bridge's, which is started from Python"},
                 {"lora_on", "adapters are Megatron-Bridge's, which is started from Python"},
                 {"reshard", "Megatron-FSDP frees parameters after forward"},
                 {"sync_each", "what is divided is reduced after each micro-batch"},
                 {"prefetch", "a stage has no more layers to gather ahead"},
                 {"bucket", "--ddp-bucket-size is in elements"},
                 {"overlap_grads",
                  "Megatron-FSDP overlaps what it divides, and a rank that is alone has nothing to "
                  "reduce"},
                 {"overlap_params",
                  "--overlap-param-gather needs --overlap-grad-reduce, and Megatron-FSDP overlaps "
                  "its gathers"}},
      .write = write_megatron,
      .as_run = megatron_as_run};
}

}  // namespace dovetail::frameworks
