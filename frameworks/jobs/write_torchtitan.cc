// Writes a job as torchtitan's TOML: flavor, mesh, batch, mixed precision, recomputation, the modules of each stage.
//
// The inverse of torchtitan.cc, for the same version (0.2.2, commit 73a0e69). What that refuses to run was read in
// distributed/parallel_dims.py, models/llama3/infra/parallelize.py, components/optimizer.py and config/job_config.py:
// a flavor that it does not have, stages of qwen3 and gpt_oss (models/*/__init__.py), context parallelism
// of gpt_oss and deepseek_v3 (models/*/model/args.py), fp16, an optimizer besides Adam, ZeRO's stages 1 and 2, DDP beside another
// parallelism, experts cut otherwise than whole or as the rest, a sample that 2 x cp x tp does not divide; compiled stages
// whose backward is split, in torch/distributed/pipelining/schedules.py (2.14).
//
// Layers of a pipeline are listed one by one (module_fqns_per_model_part): torchtitan itself counts embedding and head
// as a layer each, and so would divide them otherwise than was predicted.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/titan_words.h"
#include "frameworks/jobs/toml.h"
#include "frameworks/jobs/writers.h"
#include "frameworks/python_text.h"
#include "models/networks/program.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using jobs::Zero;
using schedule::DType;

constexpr const char* kTitanFile = "torchtitan's TOML";

[[noreturn]] void titan_cannot(const std::string& why) {
  throw InputError("export: torchtitan cannot run this job: " + why);
}

// Tables in the order in which they were first spoken of, each with its keys.
class TomlText {
 public:
  // "parallelism.tensor_parallel_degree": the key of a table.
  void say(std::string_view name, const std::string& value) {
    const std::size_t dot = name.rfind('.');
    const std::string table(name.substr(0, dot));
    auto found = std::ranges::find(tables_, table, &Table::name);
    if (found == tables_.end()) found = tables_.insert(found, {table, ""});
    found->lines += std::string(name.substr(dot + 1)) + " = " + value + "\n";
  }
  void say(std::string_view name, std::int64_t value) { say(name, std::to_string(value)); }
  void say_word(std::string_view name, std::string_view word) { say(name, python_quoted(word)); }

  [[nodiscard]] std::string text() const {
    std::string text;
    for (const Table& table : tables_) text += "\n[" + table.name + "]\n" + table.lines;
    return text;
  }

 private:
  struct Table {
    std::string name, lines;
  };
  std::vector<Table> tables_;
};

class TitanWriter {
 public:
  explicit TitanWriter(const Job& job) : job_(job) {}

  JobWords write() {
    model();
    layout();
    batch();
    precision();
    recompute();
    JobWords words{.body = toml_.text(),
                   .behind = imbalance_of(job_),
                   .notes = {"tokenizer, data set, learning rate and steps are torchtitan's own: "
                             "set model.hf_assets_path, training.dataset, optimizer.lr, "
                             "training.steps"}};
    if (job_.async_tp) words.notes.push_back("async_tp=yes: " + left_alone_by_async_tp(job_.batch));
    return words;
  }

 private:
  void model() {
    const auto flavor = std::ranges::find(kTitanFlavors, job_.model.name, &Flavor::model);
    if (flavor == kTitanFlavors.end()) {
      std::string known;
      for (const Flavor& one : kTitanFlavors) {
        known += (known.empty() ? "" : ", ") + std::string(one.model);
      }
      titan_cannot("it has no flavor of " + job_.model.name + " (it has " + known + ")");
    }
    if (job_.layout.pp > 1 && (flavor->name == "qwen3" || flavor->name == "gpt_oss")) {
      titan_cannot("pp=" + std::to_string(job_.layout.pp) + ", and its " +
                   std::string(flavor->name) + " has no pipelines");
    }
    if (job_.layout.cp > 1 && (flavor->name == "gpt_oss" || flavor->name == "deepseek_v3")) {
      titan_cannot("cp=" + std::to_string(job_.layout.cp) + ", and its " +
                   std::string(flavor->name) + " has no context parallelism");
    }
    toml_.say_word(kTitanModel, flavor->name);
    toml_.say_word(kTitanFlavor, flavor->flavor);
    if (job_.precision.products == schedule::Operands::Fp8) {
      toml_.say(kTitanConverters, R"(["quantize.linear.float8"])");
    }
    if (!kTitanOptimizer.has(job_.optimizer)) {
      titan_cannot("optimizer=" + std::string(to_string(job_.optimizer)) +
                   ", and it has Adam only");
    }
    toml_.say_word(kTitanOptimizer.name, kTitanOptimizer.word(job_.optimizer));
  }

  void layout() {
    const jobs::Layout& l = job_.layout;
    const bool is_sharded = l.dp_shard * l.cp > 1;
    if (job_.zero == Zero::Optimizer || job_.zero == Zero::Gradients) {
      titan_cannot("zero=" + std::string(to_string(job_.zero)) +
                   ", and it divides everything (FSDP2: dp_shard= in place of dp=) or nothing");
    }
    if (job_.zero == Zero::Nothing && l.dp * l.cp > 1 && l.dp != l.world()) {
      titan_cannot(
          "DDP beside another parallelism; with zero=3 (dp_shard= in place of dp=) it is FSDP2");
    }
    if (l.ep > 1 && l.etp != 1 && l.etp != l.tp) {
      titan_cannot("etp=" + std::to_string(l.etp) +
                   ", and experts are whole or cut as the rest is");
    }
    if (l.ep > 1 && l.dp_shard * l.cp * l.tp % (l.ep * l.etp) != 0) {
      titan_cannot("experts lie within a replica: ep x etp has to divide dp_shard x cp x tp");
    }
    const std::int64_t divisor = 2 * l.cp * l.tp;
    if (job_.batch.sequence % divisor != 0) {
      titan_cannot("seq=" + std::to_string(job_.batch.sequence) +
                   " is no multiple of 2 x cp x tp=" + std::to_string(divisor));
    }
    for (const Degree& one : kTitanDegrees) toml_.say(one.name, l.*one.field);
    toml_.say(kTitanShards, l.dp_shard);
    if (is_sharded) toml_.say_word(kTitanReshard, job_.reshard ? "always" : "never");
    if (l.cp > 1) toml_.say_word(kTitanRotate.name, kTitanRotate.word(job_.exchange));
    if (job_.async_tp) toml_.say(kTitanAsync, "true");
    if (job_.dispatch != jobs::Dispatch::AllToAll)
      toml_.say(kTitanDispatch.name, "\"" + std::string(kTitanDispatch.word(job_.dispatch)) + "\"");
    const bool is_split = l.vp > 1 && splits_backward(l.order);
    if (is_split && job_.async_tp) {
      titan_cannot("async_tp=yes, which is compiled, and stages whose backward is split cannot be");
    }
    if (!is_split && (job_.async_tp || job_.kernels == jobs::Kernels::Fused)) {
      toml_.say(kTitanCompile, "true");
      toml_.say("compile.components", R"(["model", "loss"])");
    }
    if (l.pp > 1) pipeline();
  }

  void pipeline() {
    using schedule::PipelineKind;
    const PipelineKind order = job_.layout.order;
    toml_.say_word(kTitanSchedule, job_.layout.vp == 1                 ? "1F1B"
                                   : order == PipelineKind::ZeroBubble ? kTitanZeroBubble
                                   : order == PipelineKind::Zbv        ? kTitanZbv
                                                                       : "Interleaved1F1B");
    toml_.say(kTitanPiece, job_.batch.micro);
    std::string parts = "[  # one for each stage\n";
    const std::vector<std::int64_t> layers = jobs::layers_of_stages(job_);
    std::int64_t next = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      std::vector<std::string> modules;
      if (stage == 0) modules.emplace_back("tok_embeddings");
      for (std::int64_t i = 0; i < layers[stage]; ++i) {
        modules.push_back("layers." + std::to_string(next++));
      }
      if (stage + 1 == layers.size()) modules.insert(modules.end(), {"norm", "output"});
      parts += "    " + quoted_list(modules) + ",\n";
    }
    toml_.say(kTitanParts, parts + "]");
  }

  void batch() {
    const jobs::Batch& b = job_.batch;
    const std::int64_t local = b.global / job_.layout.replicas();
    toml_.say(kTitanSequence, b.sequence);
    toml_.say(kTitanLocalBatch, job_.layout.pp > 1 ? local : b.micro);
    toml_.say(kTitanGlobalBatch, b.global);
  }

  void precision() {
    const jobs::Precision& p = job_.precision;
    if (!kTitanMixed.has(p.product())) {
      titan_cannot("products of " + std::string(to_string(p.product())) +
                   ", and it has bf16 and f32");
    }
    const bool is_held_in_bf16 =
        p.compute == DType::BF16 && p.gradient == DType::BF16 && p.master_bytes == 0;
    toml_.say_word(kTitanHeld.name, kTitanHeld.word(is_held_in_bf16 ? DType::BF16 : DType::F32));
    toml_.say_word(kTitanMixed.name, kTitanMixed.word(p.product()));
    toml_.say_word(kTitanReduce.name, kTitanReduce.word(DType::F32));  // it takes no other
  }

  void recompute() {
    using jobs::Recompute;
    const std::int64_t every = every_which_layer();
    const bool is_whole = job_.recompute == Recompute::Full && every == 1;
    const bool is_nothing =
        job_.recompute == Recompute::None || job_.recompute == Recompute::Selective;
    toml_.say_word(kTitanCheckpoints, is_nothing ? "none" : is_whole ? "full" : "selective");
    if (job_.recompute == Recompute::Op) toml_.say_word(kTitanSelective, "op");
    if (job_.recompute == Recompute::Full && !is_whole) {
      toml_.say_word(kTitanSelective, std::to_string(every));
    }
  }

  // Of a virtual stage's layers every n-th is computed again: the n that comes nearest.
  [[nodiscard]] std::int64_t every_which_layer() const {
    const std::int64_t layers = job_.model.layers / (job_.layout.pp * job_.layout.vp);
    if (job_.recompute_layers == 0) return 1;
    std::int64_t best = 1;
    for (std::int64_t n = 1; n <= layers; ++n) {
      const auto distance = [&](std::int64_t every) {
        return std::abs(layers / every - job_.recompute_layers);
      };
      if (distance(n) < distance(best)) best = n;
    }
    return best;
  }

  const Job& job_;
  TomlText toml_;
};

JobWords write_titan(const Job& job) { return TitanWriter(job).write(); }

Job titan_as_run(const Job& /*job*/, const JobWords& words) {
  return read_back(kTitanFile, words.behind, [&](const Behind& said) {
    Options options(kTitanFile, read_toml(kTitanFile, words.body));
    return read_torchtitan(options, said);
  });
}

}  // namespace

JobWriter torchtitan_writer() {
  return {.id = "torchtitan",
          .title = "torchtitan 0.2.2",
          .writes = "a job as TOML",
          .paste = "CONFIG_FILE=FILE ./run_train.sh",
          .unsaid = {{"rope_scaling", "each of its flavors has its own"},
                     {"products", "it has products of fp8 or of the training type"},
                     {"loss", "its logits are whole"},
                     {"scaling", "its own casts are compiled into what stands before them"},
                     {"sp", "its tensor parallelism is with sequence parallelism"},
                     {"etp", "without ep= experts are not cut"},
                     {"schedule", "without chunks its pipelines are 1F1B"},
                     {"dtype", "without FSDP nothing is cast under tensor or pipeline parallelism"},
                     {"autocast", "what casts is FSDP, or autocast where it runs without it"},
                     {"grads", "gradients are kept in training.dtype"},
                     {"reduce", "mixed_precision_reduce is float32"},
                     {"master", "parameters are held in training.dtype, without a copy"},
                     {"states", "optimizer states have training.dtype"},
                     {"recompute", "what fused attention computes again needs no word"},
                     {"recompute_layers", "every n-th layer is computed again"},
                     {"recompute_modules", "it computes layers again whole, or op by op"},
                     {"lora", "its configuration has no adapters"},
                     {"lora_on", "its configuration has no adapters"},
                     {"zero", "one replica is not sharded"},
                     {"prefetch", "FSDP2 gathers the next layer by itself (--to fsdp2 has lists)"},
                     {"reshard", "without FSDP nothing is gathered"},
                     {"sync_each", "it reduces after each micro-batch"},
                     {"bucket", "DDP's buckets are 100 MiB, FSDP2's are layers"},
                     {"overlap_grads", "gradients are reduced beside backward"},
                     {"overlap_params", "parameters are gathered beside compute"},
                     {"flash", "attention is one kernel"},
                     {"attention", "which one is PyTorch's choice"},
                     {"kernels", "asynchronous tp is compiled, what splits backward is not"},
                     {"updates", "optimizer.implementation is fused"},
                     {"wrap", "a rank that is alone runs without DDP and FSDP"},
                     {"graph", "no option of it has a whole step captured"}},
          .write = write_titan,
          .as_run = titan_as_run};
}

}  // namespace dovetail::frameworks
