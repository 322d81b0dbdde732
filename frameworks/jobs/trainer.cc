// Makes a job of what a trainer of Hugging Face's was told.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/trainer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/deepspeed_words.h"
#include "frameworks/jobs/flat_json.h"
#include "models/networks/hugging_face.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;
using Engine = Training::Engine;

// What was said behind of one key; `otherwise` where nothing was.
std::int64_t said_number(const Behind& said, const jobs::Model& model, std::string_view key,
                         std::int64_t jobs::Batch::*field, std::int64_t otherwise) {
  if (!said.says(key)) return otherwise;
  Job job{.model = model};
  jobs::set_options(job, said.list, said.where);
  return job.batch.*field;
}

class Trainer {
 public:
  Trainer(Training training, Behind said) : t_(std::move(training)), said_(std::move(said)) {}

  Job train() {
    t_.micro = said_number(said_, t_.model, "mbs", &jobs::Batch::micro, t_.micro);
    t_.sequence = said_number(said_, t_.model, "seq", &jobs::Batch::sequence, t_.sequence);
    if (said_.world == 0 && !said_.says("dp") && !said_.says("dp_shard")) said_.world = t_.world;
    ask();
    Job job = t_.engine == Engine::DeepSpeed ? by_deepspeed() : by_torch();
    job.batch.sequence = t_.sequence;
    job.recompute = t_.recomputes ? jobs::Recompute::Full : jobs::Recompute::None;
    job.flash = t_.flash;
    job.attention = t_.attention;
    job.kernels = t_.kernels;
    job.loss = t_.loss;
    job.lora = t_.lora;
    job.lora_on = t_.lora_on;
    job.updates = t_.updates;
    if (t_.is_fp8) job.precision.products = schedule::Operands::Fp8;
    std::ranges::move(t_.assumed, std::back_inserter(job.assumed));
    std::ranges::move(t_.notes, std::back_inserter(job.notes));
    return job;
  }

 private:
  void ask() const {
    std::string missing;
    for (const auto& [value, key] : {std::pair{t_.sequence, "seq=4096"}, {t_.micro, "mbs=1"}}) {
      if (value == 0) missing += (missing.empty() ? "" : ",") + std::string(key);
    }
    if (!missing.empty()) {
      throw InputError(said_.where +
                       ": the length of a sample or of a micro-batch is not in this "
                       "file: say it behind, :" +
                       missing);
    }
  }

  static std::string unknown_world() {
    return "how many ranks there are is not in this file: say it behind, :world=64";
  }

  Job by_torch() {
    Job job{.model = t_.model};
    const bool is_fsdp = t_.engine == Engine::Fsdp && t_.sharding != Training::Sharding::None;
    job.as = is_fsdp ? jobs::RunBy::Fsdp : jobs::RunBy::Torch;
    job.layout.tp = t_.tp;
    job.layout.cp = t_.cp;
    job.layout.sp = false;
    job.exchange = t_.exchange;
    if (is_fsdp) {
      job.zero = jobs::Zero::Parameters;
      job.reshard = t_.sharding == Training::Sharding::Whole;
      if (t_.is_hybrid) job.layout.dp = t_.nodes;
      job.sync_each = t_.syncs_each || (t_.steps == 1 && !said_.says("gbs"));
    } else if (t_.syncs_each && t_.steps > 1) {
      t_.assume("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", "true",
                "gradients are counted as reduced after the last micro-batch alone");
    }
    if (t_.dp > 0) job.layout.dp = t_.dp;
    if (t_.dp_shard > 0) job.layout.dp_shard = t_.dp_shard;
    const bool is_set = is_fsdp ? t_.dp_shard > 0 : t_.dp > 0;
    lay_out(job, said_,
            is_set    ? Free::None
            : is_fsdp ? Free::Sharded
                      : Free::DataParallel,
            unknown_world());
    if (t_.bucket_bytes > 0 && !is_fsdp) job.bucket_bytes = t_.bucket_bytes;
    job.batch.micro = t_.micro;
    job.batch.global = t_.micro * t_.steps * job.layout.replicas();
    types(job.precision, is_fsdp);
    job.optimizer = t_.optimizer;
    return job;
  }

  void types(jobs::Precision& p, bool is_fsdp) const {
    const bool is_adam = t_.optimizer == jobs::Optimizer::Adam;
    p.state_bytes = is_adam ? 8 : 4;
    if (!t_.narrow) {
      p.compute = DType::F32;
      p.master_bytes = 0;
      if (t_.is_tf32) p.products = schedule::Operands::Tf32;
    } else if (is_fsdp && !t_.is_pure) {
      p.compute = p.reduce = *t_.narrow;
    } else if (t_.is_held_narrow && t_.lora == 0) {
      p.compute = p.gradient = p.reduce = *t_.narrow;
      p.master_bytes = 0;
      p.state_bytes /= 2;
    } else if (t_.is_held_narrow) {
      p.compute = *t_.narrow;  // adapters are f32
    } else {
      p.compute = DType::F32;
      p.autocast = *t_.narrow == DType::F16 ? jobs::Autocast::F16 : jobs::Autocast::Bf16;
      p.master_bytes = 0;
    }
    if (t_.state_bytes > 0) p.state_bytes = t_.state_bytes;
  }

  Job by_deepspeed() {
    fill(kDeepSpeedMicro, t_.micro_key, std::to_string(t_.micro));
    if (said_.says("gbs")) {
      std::erase_if(t_.deepspeed, [](const OptionText& one) {
        return one.name == kDeepSpeedSteps || one.name == kDeepSpeedGlobal;
      });
    } else {
      fill(kDeepSpeedSteps, t_.steps_key, std::to_string(t_.steps));
      const auto is_auto = [](const OptionText& one) {
        return one.name == kDeepSpeedGlobal && one.value == "auto";
      };
      std::erase_if(t_.deepspeed, is_auto);
    }
    const bool is_half = t_.narrow == DType::F16;
    const bool is_bf16 = t_.narrow == DType::BF16;
    fill(kDeepSpeedBf16, t_.narrow_key, is_bf16 ? "true" : "false");
    fill(kDeepSpeedFp16, t_.narrow_key, is_half ? "true" : "false");
    Options options(t_.deepspeed_file, t_.deepspeed);
    Behind behind = said_;
    behind.shape = t_.model;
    const std::string recompute = t_.recomputes ? "full" : "none";
    behind.list = "recompute=" + recompute + (said_.list.empty() ? "" : ",") + said_.list;
    const bool names_optimizer = options.is_there("optimizer.type");
    Job job = read_deepspeed(options, behind);
    if (!names_optimizer) {
      job.optimizer = t_.optimizer;
      job.precision.state_bytes = t_.optimizer == jobs::Optimizer::Adam ? 8 : 4;
      if (t_.state_bytes > 0) job.precision.state_bytes = t_.state_bytes;
    }
    return job;
  }

  // "auto", and what is not there, becomes what the trainer was told; another value is refused as Trainer refuses it.
  void fill(std::string_view name, const std::string& key, const std::string& value) {
    const auto known = std::ranges::find(t_.deepspeed, name, &OptionText::name);
    if (known == t_.deepspeed.end()) {
      t_.deepspeed.push_back({.name = std::string(name), .value = value});
    } else if (known->value == "auto" || (name == kDeepSpeedMicro && said_.says("mbs"))) {
      known->value = value;
    } else if (!key.empty() && known->value != value) {
      throw InputError(t_.deepspeed_file + ": " + std::string(name) + ": " + known->value +
                       ", and " + said_.where + " says " + key + " as " + value +
                       ": expected the same, or \"auto\", as Trainer does");
    }
  }

  Training t_;
  Behind said_;
};

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string last_part(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace

jobs::Job train(Training training, const Behind& said) {
  return Trainer(std::move(training), said).train();
}

jobs::Model hub_model(Options& options, std::string_view key, const Behind& said) {
  const std::string id = options.text(key, "");
  if (said.shape) return *said.shape;
  if (!said.model.empty()) return recognised(jobs::parse_job(said.model).model);
  const std::string where = options.file() + ": " + std::string(key) + ": ";
  if (id.empty()) {
    throw InputError(options.file() + ": " + std::string(key) +
                     " is missing, which names the model; or say it behind, :model=llama3_8b");
  }
  const Key known = KeyTable::hub_models().find(id);
  if (known.kind == Key::Class::Read) return jobs::known_model(known.values);
  if (known.kind == Key::Class::Refused)
    throw InputError(where + id + ": " + std::string(known.why));
  for (const std::string& path : {file_named(id + "/config.json", options.file()),
                                  id.ends_with(".json") ? file_named(id, options.file()) : ""}) {
    if (!path.empty()) return recognised(jobs::load_config(path));
  }
  throw InputError(where + id + " is not known here: say its shape behind, :model=config.json (" +
                   last_part(id) + "'s own) or :model=NAME of a known model");
}

std::string file_named(const std::string& path, const std::string& in) {
  namespace fs = std::filesystem;
  if (is_there(path)) return path;
  if (fs::path(path).is_absolute()) return "";
  std::error_code error;
  fs::path folder = fs::absolute(in, error).parent_path();
  for (int level = 0; level < 16; ++level, folder = folder.parent_path()) {
    if (is_there((folder / path).string())) return (folder / path).string();
    if (folder == folder.root_path()) break;
  }
  return "";
}

}  // namespace dovetail::frameworks
