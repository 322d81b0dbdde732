// Jobs of people who train with Hugging Face's tools: YAML as PyYAML reads it, public configurations as they are, each the same job as a
// line, commands that start them, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "frameworks/jobs/flat_json.h"
#include "frameworks/jobs/job_source.h"
#include "frameworks/jobs/yaml.h"
#include "models/networks/text.h"
#include "tests/support/errors.h"

namespace dovetail::frameworks {
namespace {

using dovetail::testing::error_of;
using jobs::Job;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

#ifdef DOVETAIL_YAML

std::string yaml(const std::string& text) { return read_yaml("f.yaml", text).dump(); }
std::string yaml_error(const std::string& text) {
  return error_of([&] { static_cast<void>(read_yaml("f.yaml", text)); });
}

TEST(YamlTest, ResolvesScalarsAsPyYamlDoes) {
  EXPECT_EQ(yaml("a: [yes, No, ON, off, true, False, y, tRUE, 'yes', !!str yes]"),
            R"({"a":[true,false,true,false,true,false,"y","tRUE","yes","yes"]})");
  EXPECT_EQ(yaml("a: [1, -2, +3, 1_000, 010, 0x1F, 0b101, 08, 1.5, 1., .5, -1_0.5e+3]"),
            R"({"a":[1,-2,3,1000,8,31,5,"08",1.5,1.0,0.5,-10500.0]})");
  // A float has a point, and a sign in its exponent.
  EXPECT_EQ(yaml("a: [1e-5, 1.0e-5, 1.0e5, 1e5]"), R"({"a":["1e-5",1e-05,"1.0e5","1e5"]})");
  EXPECT_EQ(yaml("a: [~, null, NULL, '', \"\"]\nb:"), R"({"a":[null,null,null,"",""],"b":null})");
  EXPECT_EQ(yaml("a: !!float 3\nb: !!int 4\n8: x"), R"({"8":"x","a":3.0,"b":4})");
}

TEST(YamlTest, TakesAnchorsAliasesAndMergeKeys) {
  EXPECT_EQ(yaml("base: &b {x: 1, y: 2}\nnext: {<<: *b, y: 3}\nalso: *b"),
            R"({"also":{"x":1,"y":2},"base":{"x":1,"y":2},"next":{"x":1,"y":3}})");
  EXPECT_EQ(yaml("- &a {x: 1}\n- &b {x: 2, z: 3}\n- {<<: [*a, *b]}"),
            R"([{"x":1},{"x":2,"z":3},{"x":1,"z":3}])");
}

TEST(YamlTest, SaysWhereItIsWrong) {
  EXPECT_EQ(yaml_error("a: 1\nb: {c: 2,\n  c: 3}"), "f.yaml:3:3: the key c is there twice");
  EXPECT_THAT(yaml_error("a: 1\nb: [1, 2\n"), StartsWith("f.yaml:"));
  EXPECT_EQ(yaml_error("a: 1\n---\nb: 2\n"),
            "f.yaml: expected one document, found another behind ---");
  EXPECT_EQ(yaml_error("a: !thing 3"), "f.yaml:1:4: the tag !thing of this value is not read");
  EXPECT_EQ(yaml_error("a: &a [1, *a]"), "f.yaml:1:11: an alias within what it names");
  EXPECT_EQ(yaml_error("? [1, 2]\n: 3"), "f.yaml:1:3: expected a word for a key");
  EXPECT_THAT(yaml_error("a: *b"), AllOf(StartsWith("f.yaml:1:"), HasSubstr("anchor")));
  EXPECT_EQ(yaml_error("a: {<<: 3}"),
            "f.yaml:1:9: expected a mapping, or a list of them, behind <<");
}

// Found by a fuzzer: the parser names the letter that it does not know.
TEST(YamlTest, SaysItInOneLine) {
  for (const std::string text :
       {"a: \"x\\\r\n\"", "? \"a\\nb\"\n: 1\n? \"a\\nb\"\n: 2", "a: \"\\\x01\""}) {
    const std::string message = yaml_error(text);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find('\x01'), std::string::npos) << message;
  }
  EXPECT_EQ(yaml_error("\"a\\nb\": 1\n\"a\\nb\": 2"), "f.yaml:2:1: the key a b is there twice");
}

TEST(YamlTest, HasLimits) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 7; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_THAT(yaml_error(bomb), HasSubstr("more than 200000 values, with those of aliases"));
  EXPECT_THAT(yaml_error("a: " + std::string(70, '[') + std::string(70, ']')),
              HasSubstr("more than 64 levels"));
  EXPECT_THAT(yaml_error(std::string(2'000'000, 'a')), HasSubstr("longer than 1 MiB"));
  EXPECT_FALSE(yaml_error("a: " + std::string(5000, '[')).empty());
}

std::string data(const std::string& file) {
  return std::string(DOVETAIL_SOURCE_DIR) + "/tests/frameworks/data/yaml/" + file;
}

class YamlJobTest : public ::testing::Test {
 protected:
  YamlJobTest() { std::filesystem::create_directories(folder_); }
  ~YamlJobTest() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
    return path.string();
  }
  static std::string error(const std::string& text) {
    return error_of([&] { static_cast<void>(load_job(text)); });
  }
  static std::string line(const std::string& text) { return jobs::to_string(load_job(text)); }
  static std::vector<std::string> assumed(const std::string& text) {
    std::vector<std::string> texts;
    for (const jobs::Assumed& one : load_job(text).assumed) texts.push_back(to_string(one));
    return texts;
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("dovetail_yaml_job." + std::to_string(::getpid()));
};

TEST_F(YamlJobTest, PublicFilesAreTheJobsOfLines) {
  struct Said {
    std::string file, behind, line;
  };
  const std::string asked = ":model=llama3_8b,seq=4096,mbs=1";
  const std::vector<Said> all = {
      // mixed_precision bf16 under FSDP: f32 shards, gathered and reduced in bf16.
      {"accelerate_fsdp.yaml", asked,
       "llama3_8b:dp_shard=2,seq=4096,mbs=1,reduce=bf16,kernels=transformers,zero=3,as=fsdp,sp=no"},
      // DDP of 8 ranks on two machines, without mixed precision.
      {"accelerate_multi_node.yaml", asked,
       "llama3_8b:dp=8,seq=4096,mbs=1,dtype=f32,master=0,kernels=transformers,as=torch,sp=no"},
      {"accelerate_tp_hsdp.yaml", asked,
       "llama3_8b:dp=2,dp_shard=2,tp=2,sp=no,seq=4096,mbs=1,reduce=bf16,kernels=transformers,zero="
       "3,"
       "as=fsdp"},
      // Weights are loaded in bf16 and stay so; states of 8 bits; 8 micro-batches.
      {"axolotl_fft_8b.yaml", ":world=8",
       "llama3_8b:dp=8,seq=8192,mbs=1,gbs=64,dtype=bf16,grads=bf16,reduce=bf16,master=0,states=2,"
       "recompute=full,attention=fa2,kernels=transformers,as=torch,sp=no"},
      {"axolotl_qwen3_8b_fsdp_tp_cp.yaml", ":world=8",
       "qwen3_8b:dp_shard=2,tp=2,sp=no,cp=2,exchange=ring,seq=8192,mbs=1,reduce=bf16,"
       "attention=fa2,kernels=transformers,loss=chunked,zero=3,as=fsdp"},
      // LoRA: the frozen weights are in bf16, adapters and their gradients in f32.
      {"axolotl_lora_1b.yml", ":world=8",
       "llama3.2_1b:dp=8,seq=2048,mbs=2,gbs=32,lora=16,states=2,recompute=full,"
       "attention=fa2,kernels=transformers,as=torch,sp=no"},
      {"llamafactory_qwen3_full_sft.yaml", ":world=8",
       "qwen3_4b:dp_shard=8,seq=2048,mbs=1,gbs=16,grads=bf16,reduce=bf16,recompute=full,"
       "kernels=transformers,zero=3,overlap_grads=no,prefetch=0,bucket=12800KiB,as=deepspeed,sp="
       "no"},
      {"llamafactory_qwen3_lora_sft.yaml", ":world=8",
       "qwen3_4b:dp=8,seq=2048,mbs=1,gbs=64,lora=8,recompute=full,kernels=transformers,as=torch,"
       "sp=no"}};
  for (const Said& one : all) {
    const Job job = load_job(data(one.file) + one.behind);
    const Job said = load_job(one.line);
    EXPECT_EQ(jobs::to_string(jobs::in_effect(job)), jobs::to_string(jobs::in_effect(said)))
        << one.file;
  }
}

TEST_F(YamlJobTest, PublicFilesAreRefusedWithTheirTrueReason) {
  EXPECT_THAT(error(data("axolotl_qlora.yml") + ":world=8"),
              HasSubstr("axolotl_qlora.yml: adapter: other adapters than LoRA in whole weights"));
  EXPECT_THAT(error(data("llamafactory_qwen3_lora_dpo.yaml") + ":world=8"),
              HasSubstr("stage: other stages than pre-training and supervised fine-tuning"));
  EXPECT_THAT(error(data("accelerate_fsdp.yaml")),
              HasSubstr("model and batch are not in this file: say them behind, "
                        ":model=llama3_8b,seq=4096,mbs=1"));
  EXPECT_THAT(error(data("axolotl_fft_8b.yaml")),
              HasSubstr("how many ranks there are is not in this file: say it behind, :world=64"));
}

constexpr const char* kFactory = R"(
model_name_or_path: Qwen/Qwen3-8B
stage: sft
do_train: true
finetuning_type: full
cutoff_len: 4096
per_device_train_batch_size: 1
bf16: true
)";
constexpr const char* kZero2 = R"({
  "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto",
  "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}
})";

TEST_F(YamlJobTest, EveryKeyThatIsNotUnderstoodIsSaid) {
  const std::string base = file("base.yaml", kFactory) + ":world=8";
  EXPECT_EQ(load_job(base).assumed.size(), 1);  // how long samples are
  struct Key {
    std::string text, message;
  };
  const std::vector<Key> refused = {
      {"quantization_bit: 4", "quantization_bit: weights of few bits are not modelled"},
      {"use_galore: true", "use_galore: GaLore is not modelled"},
      {"finetuning_type_: lora", "not known to LLaMA-Factory"},
      {"cutoff_length: 4096", "did you mean cutoff_len?"},
      {"deepspeed: nowhere.json", "deepspeed: nowhere.json is not at hand"},
      {"fp16: true", "bf16 and fp16: expected one of them"},
      {"fsdp: [full_shard, offload]", "moving parameters to the host is not modelled"},
      {"fsdp: full_chard", "fsdp: expected full_shard"},
      {"fsdp: full_shard\nfsdp_config: {version: 2, reshard_after_forward: 2}",
       "fsdp_config.reshard_after_forward: expected true or false, found \"2\""},
      {"tensor_model_parallel_size: 2", "of Megatron-Bridge or mcore_adapter"},
      {"gradient_accumulation_steps: two", "expected a whole number"}};
  for (const Key& key : refused) {
    const std::string path = file("more.yaml", std::string(kFactory) + key.text + "\n");
    EXPECT_THAT(error(path + ":world=8"), HasSubstr(key.message)) << key.text;
  }
  const std::vector<Key> counted = {
      {"lora_dropout: 0.1", "lora_dropout 0.1: dropout is not modelled"},
      {"neat_packing: true", "neat_packing true: attention within documents"},
      {"optim: adafactor", "optim adafactor: counted as Adam"},
      {"enable_liger_kernel: true", "enable_liger_kernel true: counted as kernels=fused"},
      {"label_smoothing_factor: 0.1", "label_smoothing_factor 0.1: its sums"}};
  for (const Key& key : counted) {
    const std::string path = file("more.yaml", std::string(kFactory) + key.text + "\n");
    EXPECT_THAT(assumed(path + ":world=8"), Contains(StartsWith(key.message))) << key.text;
  }
  for (const std::string idle : {"lora_dropout: 0.0", "quantization_bit:", "use_galore: no",
                                 "learning_rate: 1e-5", "save_steps: 5", "adam_beta1: 0.8"}) {
    const std::string path = file("more.yaml", std::string(kFactory) + idle + "\n");
    EXPECT_EQ(line(path + ":world=8"), line(base)) << idle;
    EXPECT_EQ(load_job(path + ":world=8").assumed, load_job(base).assumed) << idle;
  }
  const std::string unknown = file("own.yaml", std::string(kFactory) + "mine: 3\n");
  EXPECT_THAT(assumed(unknown + ":world=8,unknown=ignored"), Contains("mine 3: not heeded"));
}

TEST_F(YamlJobTest, TrainerFillsWhatDeepSpeedCallsAuto) {
  file("ds.json", kZero2);
  const std::string steps = "gradient_accumulation_steps: 4\ndeepspeed: ds.json\n";
  const std::string path = file("run/sft.yaml", std::string(kFactory) + steps);
  // 8 ranks x 1 sample x 4 micro-batches; a bucket of 4096 x 4096 elements in bf16.
  EXPECT_EQ(
      line(path + ":world=8"),
      line("qwen3_8b:dp=8,zero=2,seq=4096,mbs=1,gbs=32,grads=bf16,reduce=bf16,recompute=full,"
           "bucket=32MiB,overlap_grads=no,overlap_params=no,kernels=transformers,as=deepspeed"));
  EXPECT_EQ(load_job(path + ":world=8,mbs=2").batch.global, 64);
  EXPECT_EQ(load_job(path + ":world=8,gbs=16").micro_batches(), 2);
  // Values that are there have to be those of the trainer.
  file("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}})");
  EXPECT_THAT(error(path + ":world=8"),
              HasSubstr("ds.json: train_micro_batch_size_per_gpu: 2, and "));
  file("ds.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_THAT(error(path + ":world=8"),
              HasSubstr("zero_optimization.offload_optimizer.device: moving states to the host"));
}

TEST_F(YamlJobTest, WhatAFileIsStandsInIt) {
  EXPECT_THAT(error(file("train.yaml", "a: 1\n")),
              HasSubstr("none of the YAML that is understood: accelerate's has distributed_type"));
  EXPECT_THAT(error(file("list.yaml", "- 1\n")), HasSubstr("expected keys and values"));
  // accelerate also keeps its configuration as JSON.
  const std::string json = file(
      "default.json", R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU",
        "num_processes": 8, "mixed_precision": "bf16"})");
  EXPECT_EQ(
      line(json + ":model=llama3_8b,seq=4096,mbs=1"),
      line("llama3_8b:dp=8,seq=4096,mbs=1,autocast=bf16,master=0,states=8,kernels=transformers,"
           "as=torch,sp=no"));
  EXPECT_THAT(
      error(file("sm.yaml", "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\n")),
      HasSubstr("compute_environment: of SageMaker"));
  EXPECT_THAT(
      error(file("a.yaml", "distributed_type: NO\nnum_process: 2\n") + ":model=gpt2,seq=64,mbs=1"),
      HasSubstr("did you mean num_processes?"));
  EXPECT_THAT(error(file("b.yaml", "distributed_type: NO\nmixed_precision: no\n") + ":model=gpt2"),
              HasSubstr("mixed_precision: expected no, fp16, bf16 or fp8, found \"false\""));
}

TEST_F(YamlJobTest, ModelsAreKnownByTheirIdOrAConfig) {
  const std::string front = "base_model: ";
  const std::string rest = "\nmicro_batch_size: 1\nsequence_len: 2048\nbf16: true\n";
  EXPECT_EQ(
      load_job(file("x.yml", front + "meta-llama/Llama-3.1-8B" + rest) + ":world=8").model.name,
      "llama3_8b");
  EXPECT_THAT(error(file("x.yml", front + "me/mine-3B" + rest) + ":world=8"),
              HasSubstr("base_model: me/mine-3B is not known here: say its shape behind, "
                        ":model=config.json (mine-3B's own)"));
  EXPECT_THAT(error(file("x.yml", front + "Qwen/Qwen2.5-VL-7B-Instruct" + rest) + ":world=8"),
              HasSubstr("pictures or sound beside text are not modelled"));
  EXPECT_EQ(load_job(file("x.yml", front + "me/mine-3B" + rest) + ":world=8,model=gpt2").model.name,
            "gpt2");
  file(
      "me/mine-3B/config.json",
      R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
           "num_attention_heads": 4, "vocab_size": 100})");
  EXPECT_EQ(load_job(file("x.yml", front + "me/mine-3B" + rest) + ":world=8").model.layers, 2);
}

TEST_F(YamlJobTest, AxolotlTakesBf16WhereNothingIsSaid) {
  const std::string front = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\nsequence_len: 2048\n";
  const auto dtype = [&](const std::string& text) {
    return load_job(file("x.yml", front + text) + ":world=8").precision.compute;
  };
  EXPECT_EQ(dtype(""), schedule::DType::BF16);
  EXPECT_EQ(dtype("bf16: auto\nfp16: true\n"), schedule::DType::F16);
  EXPECT_EQ(dtype("bf16:\n"), schedule::DType::F32);
  EXPECT_EQ(dtype("bf16: off\n"), schedule::DType::F32);
  // Adapters of PEFT stand beside queries and values where nobody says more.
  const std::string lora = file("x.yml", front + "adapter: lora\n") + ":world=8";
  EXPECT_EQ(load_job(lora).lora_on, jobs::LoraTargets::Attention);
  EXPECT_THAT(assumed(lora), Contains(StartsWith("lora_target_modules q_proj,v_proj: counted as")));
}

TEST_F(YamlJobTest, CommandsAndScriptsAreTheJobsOfTheirFiles) {
  const std::string sft = file("sft.yaml", kFactory);
  const std::string job = line(sft + ":world=16");
  EXPECT_EQ(line(file("a.sh",
                      "pip install x\nNNODES=2 NPROC_PER_NODE=8 FORCE_TORCHRUN=1 "
                      "llamafactory-cli train sft.yaml\n")),
            job);
  EXPECT_EQ(line("NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train " + sft), job);
  EXPECT_EQ(line(sft + " --cutoff_len 2048:world=16"),
            line("llamafactory-cli train " + sft + " cutoff_len=2048:world=16"));

  const std::string flags =
      " train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --bf16 True "
      "--gradient_checkpointing --max_seq_length 4096 ";
  const std::string own =
      "qwen3_8b:dp_shard=8,zero=3,seq=4096,mbs=1,gbs=8,reduce=bf16,"
      "recompute=full,kernels=transformers,as=fsdp";
  file("fsdp.yaml",
       "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n"
       "fsdp_config: {fsdp_version: 2}\n");
  EXPECT_EQ(
      line(file("b.sh", "accelerate launch --config_file fsdp.yaml --num_processes 8" + flags)),
      line(own + ",sp=no"));
  file("ds.json", kZero2);
  const std::string zero2 =
      "qwen3_8b:dp=8,zero=2,seq=4096,mbs=1,gbs=8,grads=bf16,reduce=bf16,"
      "recompute=full,bucket=32MiB,overlap_grads=no,overlap_params=no,"
      "kernels=transformers,as=deepspeed";
  for (const std::string start :
       {"torchrun --nproc_per_node 4 --nnodes 2", "deepspeed --num_gpus 8",
        "python -m torch.distributed.run --nproc-per-node=8"}) {
    EXPECT_EQ(line(file("c.sh", start + flags + "--deepspeed ds.json\n")), line(zero2)) << start;
  }
  EXPECT_THAT(assumed(file("d.sh", "torchrun --nproc_per_node 8" + flags + "--my_own 3")),
              Contains("my_own 3: not known to TrainingArguments: not heeded"));
  EXPECT_THAT(error(file("e.sh", "llamafactory-cli train none.yaml")),
              HasSubstr("none.yaml is not at hand"));
  EXPECT_THAT(error("accelerate env"), HasSubstr("no command that trains"));
  // A script of Megatron-LM stays one.
  EXPECT_THAT(error(file("m.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2")),
              HasSubstr("--hidden-size is missing"));
}

// Trained in 16 bits throughout: weights, gradients and states, without master copies.
constexpr const char* kNarrow = "grads=bf16,reduce=bf16,master=0,states=4,";

TEST_F(YamlJobTest, PureBf16NeedsNoBf16BesideIt) {
  std::string text = kFactory;
  text.replace(text.find("bf16: true"), 10, "pure_bf16: true");
  const std::string whole = std::string("qwen3_8b:dp=8,seq=4096,mbs=1,recompute=full,") + kNarrow +
                            "kernels=transformers,as=torch,sp=no";
  EXPECT_EQ(line(file("pure.yaml", text) + ":world=8"), line(whole));
  EXPECT_EQ(line(file("pure.yaml", text + "bf16: false\n") + ":world=8"), line(whole));
  text.replace(text.find("full"), 4, "lora");
  EXPECT_EQ(line(file("pure.yaml", text) + ":world=8"),
            line("qwen3_8b:dp=8,seq=4096,mbs=1,recompute=full,lora=8,kernels=transformers,as=torch,"
                 "sp=no"));
}

constexpr const char* kTrainer =
    "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --max_length 2048 "
    "--per_device_train_batch_size 2 ";
constexpr const char* kTrained =
    "qwen2.5_7b:dp=8,seq=2048,mbs=2,kernels=transformers,as=torch,sp=no,";

TEST_F(YamlJobTest, WeightsThatAreLoadedIn16BitsAreTrainedSoWithoutMixedPrecision) {
  const std::string command = kTrainer, job = kTrained;
  EXPECT_EQ(line(command + "--torch_dtype bfloat16"), line(job + kNarrow));
  EXPECT_EQ(line(command + "--dtype bfloat16 --bf16 False"), line(job + kNarrow));
  EXPECT_EQ(line(command + "--dtype float16"),
            line(job + "dtype=f16,grads=f16,reduce=f16,master=0,states=4"));
  EXPECT_EQ(line(command + "--torch_dtype float32"), line(job + "dtype=f32,master=0"));
  EXPECT_THAT(assumed(command + "--torch_dtype auto"),
              Contains(StartsWith("torch_dtype auto: weights are counted as stored")));
  // FSDP raises weights under mixed precision alone.
  const std::string sharded =
      "qwen2.5_7b:dp_shard=8,zero=3,seq=2048,mbs=2,kernels=transformers,as=fsdp,sp=no,";
  EXPECT_EQ(line(command + "--torch_dtype bfloat16 --fsdp full_shard"), line(sharded + kNarrow));
  EXPECT_EQ(line(command + "--torch_dtype bfloat16 --bf16 --fsdp full_shard"),
            line(sharded + "reduce=bf16"));
}

TEST_F(YamlJobTest, OfSeveralCommandsTheFirstThatTrainsIsRead) {
  const std::string command = std::string(kTrainer) + "--bf16 --gradient_accumulation_steps 8";
  const std::string job = line(command);
  EXPECT_EQ(line(std::string(kTrainer) + "--bf16:gbs=128"), job);
  const std::string model = " --model_name_or_path Qwen/Qwen2.5-0.5B --max_length 128 ";
  const std::string out = "python merge.py --model_name_or_path out/x --max_length 128";
  for (const std::string& more :
       {"torchrun --nproc_per_node 8 eval.py" + model,
        "accelerate launch --num_processes 8 eval.py" + model, "python merge.py" + model, out,
        "echo " + std::string(kTrainer)}) {
    EXPECT_EQ(line(file("a.sh", command + "\n" + more + "\n")), job) << more;
    EXPECT_EQ(line(file("a.sh", more + "\n" + command + "\n")), job) << more;
    EXPECT_THAT(load_job(file("a.sh", command + "\n" + more)).notes,
                Not(Contains(HasSubstr("trainings"))))
        << more;
  }
  EXPECT_EQ(line(command + " && " + out), job);
  // Flags behind the script are those of the command that is read.
  EXPECT_EQ(line(file("a.sh", command + "\n" + out) + " --max_length 4096"),
            line(command + " --max_length 4096"));
  const std::string two = file("two.sh", command + "\n" + command + " --max_length 4096\n");
  EXPECT_EQ(line(two), job);
  EXPECT_THAT(load_job(two).notes,
              Contains(two + " starts 2 trainings: this is the first of them"));
}

TEST_F(YamlJobTest, OfSeveralTrainingsOfMegatronTheFirstIsRead) {
  const auto command = [](const std::string& layers) {
    return "torchrun --nproc_per_node 8 pretrain_gpt.py --hidden-size 64 --num-attention-heads 2 "
           "--seq-length 64 --micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 "
           "--max-position-embeddings 64 --num-layers " +
           layers + "\n";
  };
  const std::string two = file("two.sh", command("2") + command("4"));
  EXPECT_EQ(load_job(two + ":world=8").model.layers, 2);
  EXPECT_THAT(load_job(two + ":world=8").notes,
              Contains(two + " starts 2 trainings: this is the first of them"));
  const std::string before = "python tools/train_tokenizer.py --mine 1\n";
  EXPECT_EQ(line(file("one.sh", before + command("2")) + ":world=8"), line(two + ":world=8"));
  const std::string same = file("same.sh", "echo " + command("2") + command("2"));
  EXPECT_EQ(load_job(same + ":world=8").model.layers, 2);
  EXPECT_THAT(load_job(same + ":world=8").notes, Not(Contains(HasSubstr("trainings"))));
}

TEST_F(YamlJobTest, KeysAndValuesBehindAFileAreHeeded) {
  const std::string sft = file("sft.yaml", kFactory);
  EXPECT_EQ(line(sft + " per_device_train_batch_size=4 gradient_accumulation_steps=2:world=8"),
            line(sft + " --per_device_train_batch_size 4 --gradient_accumulation_steps=2:world=8"));
  EXPECT_EQ(load_job(sft + " per_device_train_batch_size=4:world=8").batch.micro, 4);
  const std::string axolotl = file("fft.yml", "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\n");
  EXPECT_EQ(load_job(axolotl + " micro_batch_size=4:world=8").batch.micro, 4);
  const std::string fsdp = file("fsdp.yaml", "distributed_type: FSDP\nmixed_precision: bf16\n");
  EXPECT_EQ(
      load_job(fsdp + " mixed_precision=no:world=8,model=gpt2,seq=64,mbs=1").precision.compute,
      schedule::DType::F32);
  const std::string toml = file("base.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n");
  EXPECT_EQ(load_job(toml + " training.local_batch_size=4:world=8").batch.micro, 4);
  for (const std::string& path : {sft, axolotl, fsdp, toml}) {
    EXPECT_EQ(error(path + " word:world=8"),
              path + ": word: expected --KEY VALUE or KEY=VALUE behind the file");
  }
}

TEST_F(YamlJobTest, OtherEntriesOfLlamaFactoryAreItsOwn) {
  std::string text = kFactory;
  text.replace(text.find("full"), 4, "lora");
  const std::string path = file("lora.yaml", text);
  const std::string job = line(path + ":world=8");
  EXPECT_EQ(load_job(path + ":world=8").lora, 8);
  EXPECT_EQ(line("torchrun --nproc_per_node 8 src/train.py " + path), job);
  EXPECT_EQ(line("torchrun --nproc_per_node 8 src/llamafactory/launcher.py " + path), job);
  EXPECT_EQ(line("accelerate launch --num_processes 8 src/train.py " + path), job);
  const std::string flags =
      "deepspeed --num_gpus 8 src/train.py --stage sft --do_train --finetuning_type lora "
      "--model_name_or_path Qwen/Qwen3-8B --cutoff_len 4096 --per_device_train_batch_size 1 "
      "--bf16 ";
  EXPECT_EQ(line(flags), job);
  EXPECT_THAT(error(flags + "--quantization_bit 4"),
              HasSubstr("quantization_bit: weights of few bits are not modelled"));
}

TEST_F(YamlJobTest, AdaptersOfOtherProgramsAreTakenByTheirRank) {
  const std::string command = std::string(kTrainer) + "--bf16 ";
  const std::string job = std::string(kTrained) + "autocast=bf16,master=0,lora_on=attention,lora=";
  EXPECT_EQ(line(command + "--lora_r 8 --lora_alpha 16"), line(job + "8"));
  EXPECT_EQ(line(command + "--use_lora True --lora_rank 4"), line(job + "4"));
  EXPECT_EQ(line(command + "--use_peft"), line(job + "16"));
  EXPECT_THAT(assumed(command + "--lora_enable --lora_r 8"),
              Contains("lora_r 8: counted as LoRA of PEFT beside frozen weights"));
  EXPECT_EQ(load_job(command + "--use_lora False --lora_r 8").lora, 0);
  for (const std::string key : {"use_lora", "lora_enable"}) {
    EXPECT_THAT(error(command + "--" + key + " True"),
                HasSubstr(key + ": the rank of its adapters is not said"));
    EXPECT_EQ(load_job(command + "--" + key + " True:lora=8").lora, 8);
  }
  EXPECT_THAT(error(command + "--bits 4"), HasSubstr("bits: weights of few bits"));
  EXPECT_EQ(load_job(command + "--bits 16").lora, 0);
  EXPECT_THAT(error(command + "--q_lora True"), HasSubstr("q_lora: weights of 4 bits"));
}

TEST_F(YamlJobTest, AxolotlsLauncherHasItsOwnArguments) {
  file("acc.yaml",
       "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n"
       "fsdp_config: {fsdp_version: 2}\n");
  const std::string path =
      file("fft.yml", "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\nsequence_len: 2048\n");
  const std::string script =
      file("a.sh", "axolotl train fft.yml --launcher accelerate -- --config_file=acc.yaml\n");
  EXPECT_EQ(line(script),
            line("qwen3_8b:dp_shard=4,zero=3,seq=2048,mbs=1,reduce=bf16,exchange=ring,"
                 "kernels=transformers,as=fsdp,sp=no"));
  EXPECT_EQ(line("axolotl train " + path + " --launcher torchrun -- --nproc_per_node=8"),
            line(path + ":world=8"));
  EXPECT_EQ(line("axolotl train " + path + " --num-processes 8"), line(path + ":world=8"));
}

TEST_F(YamlJobTest, AxolotlsUnslothIsOffloadAndItsPluginCutsTheLoss) {
  const std::string front = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\n";
  EXPECT_THAT(error(file("x.yml", front + "gradient_checkpointing: unsloth\n") + ":world=8"),
              HasSubstr("moving activations to the host (unsloth is offload) is not modelled"));
  const std::string plugin =
      front + "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n";
  EXPECT_EQ(load_job(file("x.yml", plugin) + ":world=8").loss, jobs::Loss::Chunked);
  EXPECT_EQ(load_job(file("x.yml", plugin + "cut_cross_entropy: false\n") + ":world=8").loss,
            jobs::Loss::Whole);
}

TEST_F(YamlJobTest, BatchesThatAreDividedOverRanksAreRefused) {
  const std::string command = std::string(kTrainer) + "--bf16 --accelerator_config ";
  EXPECT_THAT(
      error(command + R"('{"split_batches": true}')"),
      HasSubstr("accelerator_config.split_batches: batches that are divided over the ranks"));
  EXPECT_EQ(line(command + R"('{"split_batches": false}')"),
            line(std::string(kTrainer) + "--bf16"));
  EXPECT_THAT(
      error(file("x.yaml", std::string(kFactory) + "accelerator_config: {split_batches: on}\n") +
            ":world=8"),
      HasSubstr("accelerator_config.split_batches"));
}

// accelerate's no_sync, which is FSDP2's set_requires_gradient_sync(False).
TEST_F(YamlJobTest, MicroBatchesOfFsdpAreReducedInTheLastUnlessEachIsAskedFor) {
  const std::string each = R"({"gradient_accumulation_kwargs": {"sync_each_batch": true}})";
  const std::string four = "--bf16 --gradient_accumulation_steps 4";
  const std::string sharded = std::string(kTrainer) + four + " --fsdp full_shard";
  EXPECT_THAT(line(sharded), HasSubstr("sync_each=no"));
  EXPECT_THAT(assumed(sharded), Not(Contains(HasSubstr("micro-batch"))));
  EXPECT_THAT(line(sharded + " --accelerator_config '" + each + "'"), Not(HasSubstr("sync_each")));
  EXPECT_THAT(line(std::string(kTrainer) + "--bf16 --fsdp full_shard"),
              Not(HasSubstr("sync_each")));
  const std::string replicated = std::string(kTrainer) + four;
  EXPECT_THAT(assumed(replicated), Not(Contains(HasSubstr("micro-batch"))));
  EXPECT_THAT(assumed(replicated + " --accelerator_config '" + each + "'"),
              Contains(HasSubstr("sync_each_batch true: gradients are counted as reduced after the "
                                 "last micro-batch alone")));
  const std::string factory = std::string(kFactory) + "gradient_accumulation_steps: 4\n";
  EXPECT_THAT(assumed(file("x.yaml", factory + "accelerator_config:\n"
                                               "  gradient_accumulation_kwargs:\n"
                                               "    sync_each_batch: true\n") +
                      ":world=8"),
              Contains(HasSubstr("sync_each_batch true")));
}

TEST_F(YamlJobTest, RedirectionsAndWordsThatNobodyGivesAreNoValues) {
  const std::string command = std::string(kTrainer) + "--bf16 --gradient_accumulation_steps 4";
  const std::string job = line(command);
  for (const std::string end : {" 2>&1 | tee log", " > log 2>&1", " >> log 2>&1 &", " 2>err.log",
                                " &> log", " < /dev/null", " > >(tee log) 2>&1", " \"$@\"",
                                " ${@:1}", " $*", " $EXTRA_ARGS", " \"${ARGS[@]}\" \"$@\""}) {
    EXPECT_EQ(line(file("a.sh", command + end + "\n")), job) << end;
    EXPECT_EQ(line(command + end), job) << end;
  }
  const std::string all = file("b.sh", std::string(kTrainer) + "\"$@\" 2>&1\n");
  EXPECT_EQ(load_job(all + " --bf16 --gradient_accumulation_steps 4:world=8").batch.global, 64);
}

TEST_F(YamlJobTest, AScriptWithoutALaunchSaysSo) {
  for (const std::string text : {"", "trl sft --bf16 --model_name_or_path x\n",
                                 "swift sft --model x --torch_dtype bfloat16\n",
                                 "python3 -m verl.trainer.main_ppo data.train_batch_size=4\n"}) {
    EXPECT_THAT(
        error(file("x.sh", text)),
        HasSubstr("x.sh: no launch that is understood stands in it: expected what torchrun"));
  }
  EXPECT_THAT(error(file("x.sh", std::string("\xff\xfet\0r\0", 6))),
              HasSubstr("x.sh: expected text in UTF-8"));
  const std::string command = std::string(kTrainer) + "\\\r\n --bf16\r\n";
  EXPECT_EQ(line(file("crlf.sh", command)), line(std::string(kTrainer) + "--bf16"));
  EXPECT_EQ(line("bash " + file("crlf.sh", command)), line(std::string(kTrainer) + "--bf16"));
  EXPECT_EQ(line("bash -e -x " + file("crlf.sh", command)), line(std::string(kTrainer) + "--bf16"));
  for (const std::string none : {"bash", "bash -c x", "bash ", "sh x", "bash -"})
    EXPECT_THAT(error(none), HasSubstr("no such model")) << none;
}

TEST_F(YamlJobTest, TorchtitansLaunchIsItsFile) {
  const std::string toml = file("base.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n");
  const std::string job = line(toml + " --training.seq_len 4096 --compile.no_enable:world=8");
  const std::string command =
      "torchrun --nproc_per_node=8 --rdzv_backend c10d -m torchtitan.train --job.config_file ";
  EXPECT_EQ(line(command + toml + " --training.seq_len 4096 --compile.no_enable"), job);
  const std::string run =
      file("run_train.sh", "CONFIG_FILE=${CONFIG_FILE:-\"base.toml\"}\noverrides=\"$*\"\n" +
                               command + "${CONFIG_FILE} $overrides\n");
  EXPECT_EQ(line(run), line(toml + ":world=8"));
  EXPECT_EQ(line("bash " + run + " --training.seq_len 4096 --compile.no_enable"), job);
}

TEST_F(YamlJobTest, WorldsOfOtherStarters) {
  std::string program = kTrainer;
  program.erase(0, program.find("sft.py"));
  const std::string job = line(kTrainer);
  EXPECT_EQ(line("mpirun -np 8 python " + program), job);
  EXPECT_EQ(line("deepspeed --include=\"node1:0,1,2,3@node2:0,1,2,3\" " + program), job);
  EXPECT_EQ(line("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 deepspeed " + program), job);
  EXPECT_EQ(line("srun torchrun --nnodes 2 --nproc_per_node 4 " + program), job);
  EXPECT_THAT(error("deepspeed --include=node1 " + program),
              HasSubstr("how many ranks there are is not in this file"));
  const std::string sft = file("sft.yaml", kFactory);
  EXPECT_EQ(line("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train " + sft), line(sft + ":world=2"));
}

TEST_F(YamlJobTest, KeysOfEvaluationAndOfRecomputationAreHarmless) {
  EXPECT_THAT(
      assumed(std::string(kTrainer) + "--bf16 --evaluation_strategy no "
                                      "--gradient_checkpointing_kwargs.use_reentrant False"),
      Each(Not(HasSubstr("not heeded"))));
}

constexpr const char* kExperiment = R"(
exp_name: ${PRIMUS_EXP_NAME:x}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: small.yaml
    overrides:
      micro_batch_size: 1
      global_batch_size: 64
      seq_length: 4096
      tensor_model_parallel_size: ${TP:2}
      recompute_granularity: full
      recompute_method: null
      enable_primus_turbo: true
      use_turbo_attention: true
)";

TEST_F(YamlJobTest, PrimusIsReadWithItsPresets) {
  const std::string config = "primus/configs/";
  const std::string path = file("examples/megatron/small.yaml", kExperiment);
  EXPECT_THAT(error(path + ":world=8"),
              HasSubstr("modules.pre_trainer.config: pre_trainer.yaml is not at hand: expected "
                        "primus/configs/modules/megatron beside this file or above it"));
  file(config + "modules/megatron/pre_trainer.yaml",
       "extends: [base.yaml]\noverlap_grad_reduce: true\nrecompute_method: uniform\n");
  file(config + "modules/megatron/base.yaml",
       "bf16: true\noverlap_grad_reduce: false\nuse_distributed_optimizer: true\nmicro_batch_size: "
       "4\n");
  file(config + "models/megatron/small.yaml",
       "num_layers: 32\nhidden_size: 4096\nffn_hidden_size: 14336\nnum_attention_heads: 32\n"
       "group_query_attention: true\nnum_query_groups: 8\nswiglu: true\nadd_bias_linear: false\n"
       "normalization: RMSNorm\nuntie_embeddings_and_output_weights: "
       "true\nposition_embedding_type: rope\n"
       "hidden_dropout: 0.0\nattention_dropout: 0.0\nsequence_parallel: true\n"
       "tokenizer_model: meta-llama/Llama-3.1-8B\n");
  const std::string arguments =
      "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
      "--group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization "
      "RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope "
      "--hidden-dropout 0 "
      "--attention-dropout 0 --sequence-parallel --vocab-size 128256 --bf16 --overlap-grad-reduce "
      "--use-distributed-optimizer --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 "
      "--recompute-granularity full --tensor-model-parallel-size ";
  EXPECT_EQ(line(path + ":world=8"), line(arguments + "2:world=8"));
  EXPECT_EQ(line("TP=4 " + path + ":world=8"), line(arguments + "4:world=8"));
  EXPECT_EQ(line(path + " --seq_length 8192:world=8"),
            line(arguments + "2 --seq-length 8192:world=8"));
  EXPECT_EQ(line(path + " seq_length=8192:world=8"),
            line(path + " --modules.pre_trainer.overrides.seq_length 8192:world=8"));
  EXPECT_EQ(load_job(path + " seq_length=8192:world=8").batch.sequence, 8192);
  EXPECT_THAT(error(path + " --modules.other.seq_length 8192:world=8"),
              HasSubstr("expected a key below modules.pre_trainer.overrides."));
  EXPECT_THAT(
      assumed(path + ":world=8"),
      Contains("use_turbo_attention true: kernels are counted as those of Transformer Engine"));
  EXPECT_THAT(
      error(file("y.yaml", "modules: {pre_trainer: {framework: maxtext, config: a, model: b}}")),
      HasSubstr("modules.pre_trainer.framework: maxtext is not read"));
}

TEST_F(YamlJobTest, PrimusOfTorchtitanIsItsToml) {
  file("primus/configs/modules/torchtitan/pre_trainer.yaml",
       "training: {local_batch_size: 8}\nactivation_checkpoint: {mode: none}\ntrainable: false\n"
       "compile: {enable: true}\n");
  file("primus/configs/models/torchtitan/llama3.1_8B.yaml",
       "model: {name: llama3, flavor: 8B, converters: [primus_turbo, quantize.linear.float8]}\n");
  const std::string path = file("x.yaml", R"(
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      training: {seq_len: 8192, local_batch_size: 2, mock_data: true}
      primus_turbo: {enable_primus_turbo: true}
)");
  const std::string toml = file("x.toml", R"(
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
seq_len = 8192
local_batch_size = 2
[activation_checkpoint]
mode = "none"
[compile]
enable = true
)");
  EXPECT_EQ(line(path + ":world=8"), line(toml + ":world=8"));
  EXPECT_THAT(load_job(path + ":world=8").assumed, IsEmpty());
}

#endif

}  // namespace
}  // namespace dovetail::frameworks
