// Reads a torchtitan configuration into a job: model by flavor, mesh, batch, mixed precision, recomputation.
//
// Read in torchtitan 0.2.2 (commit 73a0e69): config/job_config.py, distributed/parallel_dims.py,
// distributed/pipeline_parallel.py, distributed/activation_checkpoint.py, train.py, models/*/__init__.py,
// models/llama3/infra/parallelize.py. From February 2026 on torchtitan is configured in Python.
//
//   data_parallel_shard_degree = -1    what the other degrees leave of the world
//   fsdp_reshard_after_forward         "default": yes, but not in a pipeline
//   FSDP also divides over context-parallel ranks; without any FSDP it is DDP with buckets of 100 MiB
//   a micro-batch                      pipeline_parallel_microbatch_size in a pipeline, else local_batch_size
//   global_batch_size = -1             local_batch_size for each replica
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/readers.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;
using schedule::PipelineKind;

struct Flavor {
  std::string_view name, flavor, model;
};

constexpr std::array kFlavors = {
    Flavor{"llama3", "8B", "llama3_8b"},
    Flavor{"llama3", "70B", "llama3_70b"},
    Flavor{"llama3", "405B", "llama3_405b"},
    Flavor{"qwen3", "0.6B", "qwen3_0.6b"},
    Flavor{"qwen3", "1.7B", "qwen3_1.7b"},
    Flavor{"qwen3", "4B", "qwen3_4b"},
    Flavor{"qwen3", "8B", "qwen3_8b"},
    Flavor{"qwen3", "14B", "qwen3_14b"},
    Flavor{"qwen3", "32B", "qwen3_32b"},
    Flavor{"qwen3", "30B-A3B", "qwen3_30b_a3b"},
    Flavor{"qwen3", "235B-A22B", "qwen3_235b_a22b"},
    Flavor{"deepseek_v3", "671B", "deepseek_v3"},
    Flavor{"gpt_oss", "20b", "gpt_oss_20b"},
    Flavor{"gpt_oss", "120b", "gpt_oss_120b"},
};

constexpr std::array kTitanRefused = {
    NotModelled{"training.enable_cpu_offload", "false",
                "moving states to the host is not modelled"},
    NotModelled{"fault_tolerance.enable", "false", "replicas that come and go are not modelled"},
};

constexpr std::array kTitanNotModelled = {
    NotModelled{"parallelism.disable_loss_parallel", "false",
                "the loss is counted as divided over tensor-parallel ranks"},
    NotModelled{"parallelism.module_fqns_per_model_part", "",
                "layers are divided over stages as evenly as they can be"},
    NotModelled{"parallelism.pipeline_parallel_first_stage_less_layers", "",
                "layers are divided over stages as evenly as they can be"},
    NotModelled{"parallelism.pipeline_parallel_last_stage_less_layers", "",
                "layers are divided over stages as evenly as they can be"},
    NotModelled{"parallelism.pipeline_parallel_schedule_csv", "",
                "the order of pipeline_parallel_schedule is taken"},
    NotModelled{"parallelism.context_parallel_load_balancer", "headtail",
                "context-parallel ranks are counted as equally busy"},
    NotModelled{"parallelism.expert_parallel_comm_backend", "standard",
                "all-to-alls are counted as NCCL's"},
    NotModelled{"optimizer.early_step_in_backward", "false",
                "the update is counted after the backward pass"},
    NotModelled{"optimizer.implementation", "fused|foreach",
                "the update is counted as one pass over memory"},
    NotModelled{"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "",
                "which products are computed again is not modelled"},
    NotModelled{"activation_checkpoint.memory_budget", "0.5", "not modelled"},
    NotModelled{"compile.backend", "inductor", "another compiler's kernels are not modelled"},
    NotModelled{"quantize.linear.float8.enable_fsdp_float8_all_gather", "false",
                "parameters are gathered in the element type of compute"},
    NotModelled{"quantize.linear.float8.emulate", "false", "not modelled"},
    NotModelled{"debug.deterministic", "false", "slower deterministic kernels are not modelled"},
    NotModelled{"comm.mode", "default", "not modelled"},
};

// Of these, keys that are not among those above.
constexpr std::array<std::string_view, 30> kTitanHarmless = {
    "job.*",
    "profiling.*",
    "metrics.*",
    "checkpoint.*",
    "validation.*",
    "lr_scheduler.*",
    "memory_estimation.*",
    "experimental.*",
    "fault_tolerance.*",
    "comm.*",
    "debug.*",
    "model.hf_assets_path",
    "model.tokenizer_path",
    "model.print_after_conversion",
    "optimizer.lr",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.eps",
    "optimizer.weight_decay",
    "training.dataset",
    "training.dataset_path",
    "training.max_norm",
    "training.steps",
    "training.gc_freq",
    "training.gc_debug",
    "training.dataloader.*",
    "activation_checkpoint.*",
    "quantize.*",
    "compile.components",
    "parallelism.pipeline_parallel_expert_parallel_overlap",
};

jobs::Model model_of_flavor(Options& options) {
  const std::string name = options.text("model.name", "llama3");
  std::string flavor = options.text("model.flavor", "debugmodel");
  for (const std::string_view kind : {"_flex", "_varlen", "_flex_attn", "_varlen_attn"}) {
    if (flavor.ends_with(kind)) flavor.resize(flavor.size() - kind.size());
  }
  std::string known;
  for (const Flavor& one : kFlavors) {
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
  constexpr std::string_view kName = "parallelism.pipeline_parallel_schedule";
  const auto interleaved = [](std::string_view note) {
    return TitanSchedule{PipelineKind::Interleaved, true, note};
  };
  return options.word<TitanSchedule>(
      kName, {},
      {{"1F1B", {}},
       {"Interleaved1F1B", interleaved("")},
       {"GPipe", {.note = "counted as 1F1B: as long, and with fewer activations"}},
       {"LoopedBFS", interleaved("counted as Interleaved1F1B")},
       {"InterleavedZeroBubble",
        interleaved("counted as Interleaved1F1B: its smaller bubble is not modelled")},
       {"ZBVZeroBubble",
        interleaved("counted as Interleaved1F1B: its smaller bubble is not modelled")},
       {"DualPipeV", interleaved("counted as Interleaved1F1B: its overlap is not modelled")}});
}

class TitanReader {
 public:
  TitanReader(Options& options, const Behind& said)
      : options_(options), said_(said), job_{.model = said.model_or(model_of_flavor, options)} {}

  Job read() {
    job_.framework = "fsdp";
    options_.refuse(kTitanRefused);
    static_cast<void>(options_.has("model.name"));  // also where another model was said
    layout();
    batch();
    precision();
    recompute();
    for (std::string& note : options_.notes(kTitanNotModelled, kTitanHarmless)) {
      job_.notes.push_back(std::move(note));
    }
    return std::move(job_);
  }

 private:
  void note(std::string_view key, const std::string& text) {
    job_.notes.push_back(std::string(key) + ": " + text);
  }

  std::int64_t degree(const std::string& name) {
    return options_.degree("parallelism." + name + "_parallel_degree", 1);
  }

  void layout() {
    jobs::Layout& l = job_.layout;
    l.dp = options_.degree("parallelism.data_parallel_replicate_degree", 1);
    l.dp_shard = options_.degree("parallelism.data_parallel_shard_degree", -1, -1);
    l.tp = degree("tensor");
    l.cp = degree("context");
    l.pp = degree("pipeline");
    l.ep = degree("expert");
    l.etp = degree("expert_tensor");
    if (l.ep == 1) l.etp = 1;  // without expert parallelism it has no effect
    pipeline();
    job_.exchange = options_.word("parallelism.context_parallel_rotate_method",
                                  jobs::ContextExchange::AllGather,
                                  {{"allgather", jobs::ContextExchange::AllGather},
                                   {"alltoall", jobs::ContextExchange::Ring}});
    const bool is_free = l.dp_shard == -1;
    if (l.dp_shard < 1 && !is_free) {
      options_.fail("parallelism.data_parallel_shard_degree", "-1 or a whole number from 1");
    }
    lay_out(job_, said_, is_free ? Free::Sharded : Free::None,
            "parallelism.data_parallel_shard_degree is what the other degrees leave of the world: "
            "say how many ranks, " +
                options_.file() + ":world=64");
    job_.async_tp = options_.flag("parallelism.enable_async_tensor_parallel", false) && l.tp > 1;
    sharding();
  }

  void pipeline() {
    jobs::Layout& l = job_.layout;
    const TitanSchedule schedule = titan_schedule(options_);
    const std::int64_t per_stage =
        options_.degree("parallelism.pipeline_parallel_layers_per_stage", 0);
    if (l.pp == 1) return;
    if (!schedule.note.empty()) {
      note("parallelism.pipeline_parallel_schedule " +
               options_.text("parallelism.pipeline_parallel_schedule", ""),
           std::string(schedule.note));
    }
    l.order = schedule.kind;
    l.vp = schedule.has_chunks ? 2 : 1;
    if (per_stage == 0) return;
    // Embedding and head count as a layer each.
    const std::int64_t stages = (job_.model.layers + 2 + per_stage - 1) / per_stage;
    if (stages % l.pp != 0 || (stages / l.pp > 1) != schedule.has_chunks) {
      options_.fail("parallelism.pipeline_parallel_layers_per_stage",
                    "what makes " +
                        std::string(schedule.has_chunks ? "several stages" : "one stage") +
                        " for each of " + std::to_string(l.pp) + " ranks of " +
                        std::to_string(job_.model.layers) + " layers, embedding and head");
    }
    l.vp = stages / l.pp;
  }

  void sharding() {
    const jobs::Layout& l = job_.layout;
    const bool is_sharded = l.dp_shard * l.cp > 1;
    const std::string reshard = options_.word<std::string>(
        "parallelism.fsdp_reshard_after_forward", "default",
        {{"default", "default"}, {"always", "always"}, {"never", "never"}});
    if (is_sharded) {
      job_.zero = jobs::Zero::Parameters;
      job_.reshard = reshard == "always" || (reshard == "default" && l.pp == 1);
    } else if (l.dp > 1) {
      job_.framework = "torch";
      job_.bucket_bytes = std::int64_t{100} << 20;
    }
    job_.optimizer =
        options_.word("optimizer.name", jobs::Optimizer::Adam,
                      {{"AdamW", jobs::Optimizer::Adam}, {"Adam", jobs::Optimizer::Adam}});
  }

  void batch() {
    jobs::Batch& b = job_.batch;
    const bool is_piped = job_.layout.pp > 1;
    const std::int64_t piece = options_.degree("parallelism.pipeline_parallel_microbatch_size", 1);
    std::int64_t local = options_.degree("training.local_batch_size", 8);
    if (!is_piped && said_.says("mbs")) local = b.micro;
    b.sequence = options_.whole("training.seq_len", 2048);
    b.micro = is_piped ? piece : local;
    const std::int64_t all = local * job_.layout.replicas();
    const std::int64_t global = options_.degree("training.global_batch_size", -1, -1);
    b.global = global < 0 ? all : global;
    if (is_piped && b.global > all) {
      note("training.global_batch_size",
           "the pipeline is counted as filled once a step; torchtitan fills it once for each "
           "local_batch_size");
    }
  }

  void precision() {
    const std::vector<std::pair<std::string_view, DType>> types = {{"float32", DType::F32},
                                                                   {"bfloat16", DType::BF16}};
    jobs::Precision& p = job_.precision;
    const DType held = options_.word("training.dtype", DType::F32, types);
    const DType mixed = options_.word("training.mixed_precision_param", DType::BF16, types);
    p.reduce = options_.word("training.mixed_precision_reduce", DType::F32, types);
    p.gradient = held;
    p.compute = held == DType::BF16 ? held : mixed;
    if (held == p.compute) p.master_bytes = 0;
    if (held == DType::BF16) p.state_bytes = 4;
    const std::string converters = "," + options_.text("model.converters", "") + ",";
    if (converters.find("float8") != std::string::npos) p.fp8_products = true;
    if (converters.find(".mx,") != std::string::npos ||
        converters.find(",mx,") != std::string::npos) {
      p.fp8_products = true;
    }
    if (options_.flag("compile.enable", false)) {
      note("compile.enable", "kernels that torch.compile fuses are counted apart");
    }
    if (options_.text("model.flavor", "").find("_flex") != std::string::npos) {
      note("model.flavor", "attention within documents is counted as over whole samples");
    }
  }

  void recompute() {
    constexpr std::string_view kOption = "activation_checkpoint.selective_ac_option";
    const std::string mode = options_.word<std::string>("activation_checkpoint.mode", "selective",
                                                        {{"selective", "selective"},
                                                         {"full", "full"},
                                                         {"memory_budget", "memory_budget"},
                                                         {"none", "none"}});
    const std::string option = options_.text(kOption, "2");
    if (mode == "none") return;
    if (mode == "full") {
      job_.recompute = jobs::Recompute::Full;
    } else if (mode == "memory_budget") {
      note("activation_checkpoint.mode memory_budget", "counted as none");
    } else if (option == "op") {
      job_.recompute = jobs::Recompute::Selective;
      note(std::string(kOption) + " op",
           "counted in memory; the time of every second product, which is computed again, is not");
    } else {
      every(options_.degree(kOption, 2, 0));
    }
  }

  // Whole layers, every n-th.
  void every(std::int64_t n) {
    const std::int64_t layers = job_.model.layers / job_.layout.pp;
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

jobs::Job read_torchtitan(Options& options, const Behind& said) {
  return TitanReader(options, said).read();
}

}  // namespace dovetail::frameworks
