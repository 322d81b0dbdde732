// Reads a torchtitan configuration into a job: model by flavor, mesh, batch, mixed precision, recomputation.
//
// Read in torchtitan 0.2.2 (commit 73a0e69): config/job_config.py, distributed/parallel_dims.py,
// distributed/pipeline_parallel.py, distributed/activation_checkpoint.py, train.py, models/*/__init__.py,
// models/llama3/infra/parallelize.py. From February 2026 on torchtitan is configured in Python.
//
//   data_parallel_shard_degree = -1    what the other degrees leave of the world
//   fsdp_reshard_after_forward         "default": yes, but not in a pipeline
//   FSDP also divides over context-parallel ranks; without any FSDP it is DDP with buckets of 100 MiB
//   without FSDP nothing is cast under tensor or pipeline parallelism: products have training.dtype
//   a micro-batch                      pipeline_parallel_microbatch_size in a pipeline (until May 2025 their number was said,
//                                      pipeline_parallel_microbatches), else local_batch_size
//   global_batch_size = -1             local_batch_size for each replica
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/readers.h"
#include "frameworks/jobs/titan_words.h"
#include "models/networks/program.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;
using schedule::PipelineKind;

jobs::Model model_of_flavor(Options& options) {
  const std::string name = options.text(kTitanModel, "llama3");
  std::string flavor = options.text(kTitanFlavor, "debugmodel");
  for (const std::string_view kind : {"_flex", "_varlen", "_flex_attn", "_varlen_attn"}) {
    if (flavor.ends_with(kind)) flavor.resize(flavor.size() - kind.size());
  }
  std::string known;
  for (const Flavor& one : kTitanFlavors) {
    if (one.name != name) continue;
    if (one.flavor == flavor) return jobs::known_model(one.model);
    known += (known.empty() ? "" : ", ") + std::string(one.flavor);
  }
  throw InputError(options.file() + ": model.flavor: " + name + " " + flavor +
                   " is not known here" + (known.empty() ? "" : " (known: " + known + ")") +
                   "; say a model behind the file, :model=NAME or :model=config.json");
}

struct TitanSchedule {
  PipelineKind kind = PipelineKind::OneFOneB;
  bool has_chunks = false;  // several stages per rank
  std::string_view note = {};
};

TitanSchedule titan_schedule(Options& options) {
  const auto interleaved = [](std::string_view note) {
    return TitanSchedule{PipelineKind::Interleaved, true, note};
  };
  const auto split = [](PipelineKind kind) { return TitanSchedule{kind, true, ""}; };
  return options.word<TitanSchedule>(
      kTitanSchedule, {},
      {{"1F1B", {}},
       {"Interleaved1F1B", interleaved("")},
       {kTitanZeroBubble, split(PipelineKind::ZeroBubble)},
       {kTitanZbv, split(PipelineKind::Zbv)},
       {"GPipe", {.note = "counted as 1F1B: as long, and with fewer activations"}},
       {"LoopedBFS", interleaved("counted as Interleaved1F1B")},
       {"DualPipeV", interleaved("counted as Interleaved1F1B: its overlap is not modelled")}});
}

// Layers of each part of "[tok_embeddings,layers.0],[layers.1,norm,output]".
std::vector<std::int64_t> layers_of_parts(std::string_view text) {
  std::vector<std::int64_t> layers;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') layers.push_back(0);
    const bool is_layer = !layers.empty() && text.substr(at).starts_with("layers.");
    if (is_layer && (text[at - 1] == '[' || text[at - 1] == ',')) ++layers.back();
  }
  return layers;
}

class TitanReader {
 public:
  TitanReader(Options& options, const Behind& said)
      : options_(options), said_(said), job_{.model = said.model_or(model_of_flavor, options)} {}

  Job read() {
    job_.as = jobs::RunBy::Fsdp;
    options_.refuse(KeyTable::torchtitan());
    static_cast<void>(options_.has(kTitanModel));  // also where another model was said
    layout();
    batch();
    if (job_.async_tp)
      assume(job_, kTitanAsync, "true",
             "collectives are counted beside products that do not need them; " +
                 left_alone_by_async_tp(job_.batch));
    precision();
    recompute();
    take_rest(job_, options_, KeyTable::torchtitan(), said_);
    return std::move(job_);
  }

 private:
  void layout() {
    jobs::Layout& l = job_.layout;
    for (const Degree& one : kTitanDegrees) l.*one.field = options_.degree(one.name, 1);
    l.dp_shard = options_.degree(kTitanShards, -1, -1);
    if (l.ep == 1) l.etp = 1;  // without expert parallelism it has no effect
    pipeline();
    job_.exchange = kTitanRotate.read(options_, jobs::ContextExchange::AllGather);
    const bool is_free = l.dp_shard == -1;
    if (l.dp_shard < 1 && !is_free) {
      options_.fail(kTitanShards, "-1 or a whole number from 1");
    }
    lay_out(job_, said_, is_free ? Free::Sharded : Free::None,
            std::string(kTitanShards) +
                " is what the other degrees leave of the world: say how many ranks, " +
                options_.file() + ":world=64");
    job_.async_tp = options_.flag(kTitanAsync, false) && l.tp > 1;
    const auto dispatch = kTitanDispatch.read(options_, jobs::Dispatch::AllToAll);
    if (job_.model.experts) job_.dispatch = dispatch;
    sharding();
  }

  void pipeline() {
    jobs::Layout& l = job_.layout;
    const TitanSchedule schedule = titan_schedule(options_);
    const std::int64_t per_stage = options_.degree(kTitanPerStage, 0);
    const std::string parts = options_.text(kTitanParts, "");
    if (l.pp == 1) return;
    if (!schedule.note.empty()) {
      assume(job_, kTitanSchedule, options_.text(kTitanSchedule, ""), schedule.note);
    }
    l.order = schedule.kind;
    l.vp = schedule.has_chunks ? 2 : 1;
    if (!parts.empty()) return divide(layers_of_parts(parts), schedule.has_chunks);
    if (per_stage == 0) return;
    // Embedding and head count as a layer each.
    const std::int64_t stages = (job_.model.layers + 2 + per_stage - 1) / per_stage;
    if (stages % l.pp != 0 || (stages / l.pp > 1) != schedule.has_chunks) {
      options_.fail(kTitanPerStage,
                    "what makes " +
                        std::string(schedule.has_chunks ? "several stages" : "one stage") +
                        " for each of " + std::to_string(l.pp) + " ranks of " +
                        std::to_string(job_.model.layers) + " layers, embedding and head");
    }
    l.vp = stages / l.pp;
  }

  // The stages as module_fqns_per_model_part lists them.
  void divide(const std::vector<std::int64_t>& layers, bool has_chunks) {
    jobs::Layout& l = job_.layout;
    const auto stages = static_cast<std::int64_t>(layers.size());
    if (stages == 0 || stages % l.pp != 0 || (stages / l.pp > 1) != has_chunks) {
      options_.fail(kTitanParts,
                    "a list of modules for " +
                        std::string(has_chunks ? "each of several stages" : "the stage") +
                        " of each of " + std::to_string(l.pp) + " ranks");
    }
    l.vp = stages / l.pp;
    if (layers != jobs::layers_of_stages(job_)) l.layers = layers;
  }

  [[nodiscard]] bool is_sharded() const { return job_.layout.dp_shard * job_.layout.cp > 1; }

  void sharding() {
    const jobs::Layout& l = job_.layout;
    const std::string reshard = options_.word<std::string>(
        kTitanReshard, "default",
        {{"default", "default"}, {"always", "always"}, {"never", "never"}});
    if (is_sharded()) {
      job_.zero = jobs::Zero::Parameters;
      job_.reshard = reshard == "always" || (reshard == "default" && l.pp == 1);
      gathered_in_a_pipeline();
    } else if (l.dp > 1) {
      job_.as = jobs::RunBy::Torch;
      job_.bucket_bytes = kTitanDdpBucket;
    }
    job_.optimizer = kTitanOptimizer.read(options_, jobs::Optimizer::Adam);
    const std::string updates = options_.word<std::string>(
        "optimizer.implementation", "fused",
        {{"fused", ""}, {"foreach", "foreach"}, {"for-loop", "for-loop"}});
    if (updates == "foreach") job_.updates = jobs::Updates::Foreach;
    if (updates == "for-loop") job_.updates = jobs::Updates::Each;
  }

  // By torch.distributed.pipelining of PyTorch 2.15 (findings/fsdp2_in_a_pipeline.sh).
  void gathered_in_a_pipeline() {
    constexpr std::int64_t kActiveStages = 3;  // max_active_stages
    const jobs::Layout& l = job_.layout;
    if (l.pp > 1 && job_.reshard) {
      assume(job_, kTitanReshard, "always",
             "parameters are counted as gathered for each forward and each backward; a pipeline "
             "keeps them from a backward to the next forward");
    }
    if (l.vp <= kActiveStages) return;
    const bool is_listed = !options_.text(kTitanParts, "").empty();
    const std::int64_t said = options_.degree(kTitanPerStage, 0);
    assume(job_, is_listed ? kTitanParts : kTitanPerStage,
           is_listed ? std::to_string(l.pp * l.vp) + " stages" : std::to_string(said),
           "parameters are counted as gathered once a step; a rank keeps those of " +
               std::to_string(kActiveStages) + " of its " + std::to_string(l.vp) +
               " stages and gathers the others again");
  }

  void batch() {
    jobs::Batch& b = job_.batch;
    const bool is_piped = job_.layout.pp > 1;
    std::int64_t piece = options_.degree(kTitanPiece, 1);
    std::int64_t local = options_.degree(kTitanLocalBatch, 8);
    const std::int64_t pieces = options_.degree(kTitanPieces, 0);
    if (is_piped && pieces > 0) {
      if (local % pieces != 0)
        options_.fail(kTitanPieces,
                      "what divides training.local_batch_size=" + std::to_string(local));
      piece = local / pieces;
    }
    if (!is_piped && said_.says("mbs")) local = b.micro;
    b.sequence = options_.whole(kTitanSequence, 2048);
    b.micro = is_piped ? piece : local;
    const std::int64_t all = local * job_.layout.replicas();
    const std::int64_t global = options_.degree(kTitanGlobalBatch, -1, -1);
    b.global = global < 0 ? all : global;
    if (is_piped && b.global > all) {
      assume(job_, kTitanGlobalBatch, std::to_string(global),
             "the pipeline is counted as filled once a step; torchtitan fills it once for each "
             "local_batch_size");
    }
  }

  void precision() {
    jobs::Precision& p = job_.precision;
    const DType held = kTitanHeld.read(options_, DType::F32);
    const DType mixed = kTitanMixed.read(options_, DType::BF16);
    const bool casts = is_sharded() || job_.layout.tp * job_.layout.pp == 1;
    p.reduce = kTitanReduce.read(options_, DType::F32);
    p.gradient = held;
    p.compute = held == DType::BF16 || !casts ? held : mixed;
    // Without FSDP it is autocast that casts.
    if (!is_sharded() && p.compute != held) {
      p.autocast = jobs::Autocast::Bf16;
      p.compute = held;
    }
    if (held == p.compute) p.master_bytes = 0;
    if (held == DType::BF16) p.state_bytes = 4;
    // Its first versions had "" and "dynamic".
    const std::string linear = options_.text("float8.enable_float8_linear", "");
    const bool is_flag = !linear.empty() && linear != "dynamic";
    if (is_flag ? options_.flag("float8.enable_float8_linear", false) : linear == "dynamic")
      p.products = schedule::Operands::Fp8;
    const std::string converters = "," + options_.text(kTitanConverters, "") + ",";
    for (const std::string_view fp8 : {"float8", ".mx,", ",mx,"}) {
      if (converters.find(fp8) != std::string::npos) p.products = schedule::Operands::Fp8;
    }
    const bool is_compiled = options_.flag(kTitanCompile, false);
    job_.kernels = is_compiled ? jobs::Kernels::Fused : jobs::Kernels::Eager;
    if (is_compiled && splits_backward(job_.layout.order)) {
      assume(job_, kTitanCompile, "true",
             "torch refuses compiled stages in " + options_.text(kTitanSchedule, "") +
                 " (pytorch#161904); counted as if it did not");
    }
    if (options_.text(kTitanFlavor, "").find("_flex") != std::string::npos) {
      assume(job_, kTitanFlavor, options_.text(kTitanFlavor, ""),
             "attention within documents is counted as over whole samples");
    }
  }

  void recompute() {
    const std::string mode = options_.word<std::string>(kTitanCheckpoints, "selective",
                                                        {{"selective", "selective"},
                                                         {"full", "full"},
                                                         {"memory_budget", "memory_budget"},
                                                         {"none", "none"}});
    const std::string option = options_.text(kTitanSelective, "2");
    if (mode == "none") return;
    if (mode == "full") {
      job_.recompute = jobs::Recompute::Full;
    } else if (mode == "memory_budget") {
      assume(job_, kTitanCheckpoints, mode, "counted as none");
    } else if (option == "op") {
      job_.recompute = jobs::Recompute::Op;
    } else {
      every(options_.degree(kTitanSelective, 2, 0));
    }
  }

  // Whole layers, every n-th of a chunk. (Its counter runs on over the chunks of a rank.)
  void every(std::int64_t n) {
    const std::int64_t layers = job_.model.layers / (job_.layout.pp * job_.layout.vp);
    job_.recompute = jobs::Recompute::Full;
    if (n < 2) return;
    job_.recompute_layers = layers / n;
    if (job_.recompute_layers == 0) job_.recompute = jobs::Recompute::None;
  }

  Options& options_;
  const Behind& said_;
  Job job_;
};

}  // namespace

std::string left_alone_by_async_tp(const jobs::Batch& batch) {
  return "PyTorch 2.15 joins them with the products that they feed or follow, but " +
         std::string(batch.micro == 1
                         ? "of one sample a micro-batch no gather and nothing of backward"
                         : "for the reduce-scatters of backward");
}

jobs::Job read_torchtitan(Options& options, const Behind& said) {
  options.rename(KeyTable::torchtitan());
  return TitanReader(options, said).read();
}

}  // namespace dovetail::frameworks
