// Reads what `accelerate config` writes into a job: engine, ranks, types. It says neither the model nor a batch.
//
// Read in accelerate (commit 16cb6eb8): commands/config/config_args.py, commands/launch.py, utils/launch.py, utils/dataclasses.py,
// parallelism_config.py.
//
//   num_processes                 all ranks, of all num_machines
//   FSDP                          fsdp_sharding_strategy of version 1, fsdp_reshard_after_forward of version 2
//   DEEPSPEED                     deepspeed_config_file, else what deepspeed_config says itself (ZeRO 2 where it does not)
//   MEGATRON_LM                   megatron_lm_config in Megatron-LM's arguments
//   keys of a section             get its front ("fsdp_") where they lack it; those that nobody knows are passed over
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/trainer.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using Engine = Training::Engine;
using schedule::DType;

constexpr std::string_view kFsdp = "fsdp_config.fsdp_";
constexpr std::string_view kInDeepSpeed = "deepspeed_config.";
constexpr std::string_view kMegatron = "megatron_lm_config.megatron_lm_";
constexpr std::string_view kMesh = "parallelism_config.parallelism_config_";

// Keys of sections as accelerate's launcher names them.
std::vector<OptionText> with_fronts(std::vector<OptionText> options) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kFronts = {
      {{"fsdp_config.", "fsdp_"}, {"fp8_config.", "fp8_"}, {"dynamo_config.", "dynamo_"}}};
  for (OptionText& option : options) {
    for (const auto& [section, front] : kFronts) {
      if (!option.name.starts_with(section)) continue;
      const bool has_front = std::string_view(option.name)
                                 .substr(section.size())
                                 .starts_with(front.substr(0, front.size() - 1));
      if (!has_front) option.name.insert(section.size(), front);
    }
  }
  return options;
}

std::string in(std::string_view section, std::string_view key) {
  return std::string(section) + std::string(key);
}

class AccelerateReader {
 public:
  AccelerateReader(Options& options, const Behind& said) : options_(options), said_(said) {}

  void fill(Training& t) {
    t.is_launched = true;
    options_.refuse(KeyTable::accelerate());
    const Kind kind = this->kind();
    t.world = options_.degree("num_processes", kind == Kind::Plain ? 1 : 0, -1);
    t.nodes = options_.degree("num_machines", 1);
    if (t.world < 1) t.world = 0;
    types(t);
    if (kind == Kind::Fsdp) set_fsdp(t, options_, std::string(kFsdp));
    if (kind == Kind::DeepSpeed) deepspeed(t);
    mesh(t);
    const std::string backend = options_.text("dynamo_config.dynamo_backend", "NO");
    if (!is_one_of(backend, "no|eager")) t.kernels = jobs::Kernels::Fused;
  }

  // REQUIRES: fill() was called.
  [[nodiscard]] bool is_megatron() { return kind() == Kind::Megatron; }

  jobs::Job megatron(const Training& t) {
    Script script = arguments(t);
    if (!said_.says("seq") || !said_.says("mbs")) {
      throw InputError(options_.file() +
                       ": the batch is not in this file: say it behind, :seq=4096,mbs=1");
    }
    jobs::Job probe{.model = t.model};
    jobs::set_options(probe, said_.list, said_.where);
    for (const auto& [name, value] : {std::pair{"--seq-length", probe.batch.sequence},
                                      {"--micro-batch-size", probe.batch.micro}}) {
      script.flags.push_back({.name = name, .value = std::to_string(value)});
    }
    const std::int64_t rounds = options_.degree(in(kMegatron, "num_micro_batches"), 1);
    Behind behind = said_;
    behind.shape = t.model;
    if (behind.world == 0) behind.world = t.world;
    jobs::Job job = read_megatron(std::move(script), behind);
    job.batch.global = job.batch.micro * rounds * job.layout.replicas();
    return job;
  }

 private:
  enum class Kind { Plain, Fsdp, DeepSpeed, Megatron };
  Kind kind() {
    return options_.word<Kind>("distributed_type", Kind::Plain,
                               {{"NO", Kind::Plain},
                                {"false", Kind::Plain},
                                {"MULTI_GPU", Kind::Plain},
                                {"MULTI_XPU", Kind::Plain},
                                {"MULTI_NPU", Kind::Plain},
                                {"MULTI_MLU", Kind::Plain},
                                {"MULTI_MUSA", Kind::Plain},
                                {"MULTI_SDAA", Kind::Plain},
                                {"MULTI_HPU", Kind::Plain},
                                {"FSDP", Kind::Fsdp},
                                {"DEEPSPEED", Kind::DeepSpeed},
                                {"MEGATRON_LM", Kind::Megatron}});
  }

  void types(Training& t) {
    const std::string kind = options_.word<std::string>(
        "mixed_precision", "no",
        {{"no", "no"}, {"fp16", "fp16"}, {"bf16", "bf16"}, {"fp8", "fp8"}});
    if (kind == "fp16") t.narrow = DType::F16;
    if (kind == "bf16" || kind == "fp8") t.narrow = DType::BF16;
    t.is_fp8 = kind == "fp8";
    if (t.is_fp8)
      t.assume("mixed_precision", kind, "products of layers are counted in fp8, all else in bf16");
  }

  // parallelism_config, of version 2 of FSDP.
  void mesh(Training& t) {
    t.tp = options_.degree(in(kMesh, "tp_size"), 1);
    t.cp = options_.degree(in(kMesh, "cp_size"), 1);
    t.dp = options_.degree(in(kMesh, "dp_replicate_size"), 0);
    t.dp_shard = options_.degree(in(kMesh, "dp_shard_size"), 0);
    const std::string how = options_.text(in(kMesh, "cp_comm_strategy"), "allgather");
    if (how == "alltoall") t.exchange = jobs::ContextExchange::Ring;
  }

  void deepspeed(Training& t) {
    const std::string key = in(kInDeepSpeed, "deepspeed_config_file");
    const std::string stage = options_.text(in(kInDeepSpeed, "zero_stage"), "2");
    const std::string said = options_.text(in(kInDeepSpeed, "gradient_accumulation_steps"), "auto");
    const std::int64_t steps =
        said == "auto" ? 1 : options_.degree(in(kInDeepSpeed, "gradient_accumulation_steps"), 1);
    if (options_.text(key, "none") == "none") {
      t.engine = Engine::DeepSpeed;
      t.deepspeed_file = options_.file();
      t.deepspeed = {{.name = "zero_optimization.stage", .value = stage}};
      t.steps = steps;
      if (said != "auto")
        t.deepspeed.push_back({.name = "gradient_accumulation_steps", .value = said});
      return;
    }
    set_deepspeed(t, options_, key);
    Options file(t.deepspeed_file, t.deepspeed);
    t.steps = file.is("gradient_accumulation_steps", "auto")
                  ? steps
                  : file.degree("gradient_accumulation_steps", 1);
  }

  Script arguments(const Training& t) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kArguments = {
        {{"tp_degree", "--tensor-model-parallel-size"},
         {"pp_degree", "--pipeline-model-parallel-size"},
         {"context_parallel_size", "--context-parallel-size"},
         {"expert_model_parallel_size", "--expert-model-parallel-size"},
         {"expert_tensor_parallel_size", "--expert-tensor-parallel-size"},
         {"recompute_granularity", "--recompute-granularity"},
         {"recompute_method", "--recompute-method"},
         {"recompute_num_layers", "--recompute-num-layers"},
         {"attention_backend", "--attention-backend"}}};
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kFlags = {
        {{"sequence_parallelism", "--sequence-parallel"},
         {"recompute_activations", "--recompute-activations"},
         {"use_distributed_optimizer", "--use-distributed-optimizer"}}};
    Script script;
    for (const auto& [key, argument] : kArguments) {
      const std::string value = options_.text(in(kMegatron, key), "");
      if (!value.empty()) script.flags.push_back({.name = std::string(argument), .value = value});
    }
    for (const auto& [key, argument] : kFlags) {
      if (options_.flag(in(kMegatron, key), false))
        script.flags.push_back({.name = std::string(argument)});
    }
    if (t.narrow) script.flags.push_back({.name = *t.narrow == DType::F16 ? "--fp16" : "--bf16"});
    for (const auto* none : {"--attention-dropout", "--hidden-dropout"})
      script.flags.push_back({.name = none, .value = "0"});
    return script;
  }

  Options& options_;
  const Behind& said_;
};

}  // namespace

void set_accelerate(Training& training, const std::string& file, const Flat& text,
                    const Behind& said) {
  Options options(file, with_fronts(text.options));
  options.rename(KeyTable::accelerate());
  AccelerateReader reader(options, said);
  reader.fill(training);
  if (reader.is_megatron())
    throw InputError(file +
                     ": distributed_type: MEGATRON_LM under a program of its own is not read");
  training.take_rest(options, KeyTable::accelerate(), said);
}

jobs::Job read_accelerate(const std::string& file, const Flat& text, const Behind& said) {
  Options options(file, with_fronts(text.options));
  options.rename(KeyTable::accelerate());
  AccelerateReader reader(options, said);
  Training t;
  reader.fill(t);
  if (said.model.empty() && !said.shape) {
    throw InputError(file +
                     ": model and batch are not in this file: say them behind, "
                     ":model=llama3_8b,seq=4096,mbs=1 (or model=config.json)");
  }
  t.model = hub_model(options, "model", said);
  const bool is_megatron = reader.is_megatron();
  jobs::Job job = is_megatron ? reader.megatron(t) : train(t, said);
  if (job.precision.autocast != jobs::Autocast::No)
    assume(job, "torch_dtype", "", "weights are counted as loaded in f32, as transformers 4 does");
  if (!is_megatron && !said.says("recompute") && job.recompute == jobs::Recompute::None) {
    assume(job, "gradient_checkpointing", "",
           "whether layers are computed again is the program's: counted as not; say "
           ":recompute=full");
  }
  take_rest(job, options, KeyTable::accelerate(), said);
  return job;
}

}  // namespace dovetail::frameworks
