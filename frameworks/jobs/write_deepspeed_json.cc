// Writes a job as DeepSpeed's ds_config.json: batch sizes, ZeRO's stage, element types, buckets.
//
// The inverse of deepspeed_json.cc, for the same version (0.19.6, commit edaa722). Model, length of a sample, world
// and recomputation are the program's own and stand behind the file. What the file cannot say at all is refused:
// pipelines, context and expert parallelism. Tensor parallelism is AutoTP, which it has for all stages of ZeRO
// (docs/_pages/config-json.md), without sequence parallelism. Types of master weights and states other than f32 need
// ZeRO (runtime/config.py).
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/jobs/deepspeed_words.h"
#include "frameworks/jobs/writers.h"
#include "models/networks/tensors.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using jobs::Zero;
using schedule::DType;

constexpr const char* kDeepSpeedFile = "ds_config.json";

class DeepSpeedWriter {
 public:
  explicit DeepSpeedWriter(const Job& job) : job_(job) {}

  JobWords write() {
    require();
    batch();
    precision();
    zero();
    const std::string text = json_.dump(2);  // the braces around all are marked_text's
    return {.body = text.substr(2, text.size() - 3),
            .behind = behind(),
            .notes = {"model, optimizer's options and recomputation are the program's own"}};
  }

 private:
  void require() const {
    const jobs::Layout& l = job_.layout;
    for (const auto& [key, degree] :
         {std::pair{"pp", l.pp}, std::pair{"cp", l.cp}, std::pair{"ep", l.ep}}) {
      if (degree == 1) continue;
      throw InputError("export: ds_config.json cannot say this job: " + std::string(key) + "=" +
                       std::to_string(degree) + " is the program's own code (it has dp, tp, zero)");
    }
  }

  // "zero_optimization.stage": a member of a member.
  template <class T>
  void say(std::string_view name, const T& value) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    auto& outer = json_[std::string(name.substr(0, dot))];
    (dot == name.size() ? outer : outer[std::string(name.substr(dot + 1))]) = value;
  }

  void batch() {
    const jobs::Batch& b = job_.batch;
    say(kDeepSpeedGlobal, b.global);
    say(kDeepSpeedMicro, b.micro);
    say(kDeepSpeedSteps, job_.micro_batches());
  }

  void precision() {
    const jobs::Precision& p = job_.precision;
    const bool is_bf16 = p.compute == DType::BF16;
    if (is_bf16) say("bf16.enabled", true);
    if (p.compute == DType::F16) say("fp16.enabled", true);
    if (p.autocast != jobs::Autocast::No) {
      say(kDeepSpeedAutocast, true);
      say(kDeepSpeedAutocastType.name, kDeepSpeedAutocastType.word(p.autocast));
    }
    const bool is_half = p.compute != DType::F32;
    const bool is_small =
        is_half && p.master_bytes == 2 && p.gradient == p.compute && job_.zero != Zero::Nothing;
    if (is_small) say(is_bf16 ? kDeepSpeedBf16Master : kDeepSpeedFp16Master, true);
    if (is_small && is_bf16 && p.state_bytes == 4) say(kDeepSpeedBf16States, true);
    say(kDeepSpeedReduce.name, kDeepSpeedReduce.word(p.reduce));
    say(kDeepSpeedGradients.name, kDeepSpeedGradients.word(p.gradient));
    if (job_.optimizer != jobs::Optimizer::Adam) {
      say("optimizer.type", job_.optimizer == jobs::Optimizer::Sgd ? "SGD" : "Muon");
    }
  }

  void zero() {
    if (job_.layout.tp > 1) say(kDeepSpeedTensor.name, job_.layout.tp);
    say(kDeepSpeedStage.name, static_cast<int>(job_.zero));
    if (job_.zero == Zero::Nothing) return;
    const bool is_divided = job_.zero == Zero::Parameters;
    say(kDeepSpeedOverlap, job_.overlap_gradients);
    if (job_.bucket_bytes) {
      say(kDeepSpeedBucket,
          std::max<std::int64_t>(
              1, *job_.bucket_bytes / element_size(job_.precision.gradient).count()));
    }
    if (is_divided) gathers();
  }

  // What is read back: deepspeed_json.cc has what each of them does.
  void gathers() {
    std::int64_t all = 0;
    for (const jobs::ParameterShape& shape : jobs::model_parameters(job_.model))
      all += shape.numel();
    const std::int64_t layer = jobs::layer_elements(job_.model);
    const std::int64_t live = (job_.prefetch + 1) * layer;
    say(kDeepSpeedPrefetch, std::min<std::int64_t>(job_.prefetch * layer, 50'000'000));
    if (job_.prefetch > 0) say(kDeepSpeedLive, live);
    if (!job_.reshard) say(kDeepSpeedReuse, std::max(kDeepSpeedUsualLive, 2 * all));
    if (job_.reshard && all <= kDeepSpeedUsualLive / 2) say(kDeepSpeedReuse, 0);
  }

  // Keys in effect that are the program's own.
  [[nodiscard]] std::string behind() const {
    std::string list = "model=" + job_.model.name +
                       ",world=" + std::to_string(job_.layout.world()) +
                       ",seq=" + std::to_string(job_.batch.sequence);
    for (const jobs::Difference& one : jobs::differences(job_, {.model = job_.model})) {
      for (const std::string_view key :
           {"recompute", "recompute_layers", "recompute_modules", "lora", "lora_on", "flash",
            "attention", "imbalance", "etp", "products", "scaling", "loss", "dispatch", "kernels",
            "updates"}) {
        if (one.key == key) list += "," + one.key + "=" + one.here;
      }
    }
    return list;
  }

  const Job& job_;
  nlohmann::ordered_json json_;
};

JobWords write_ds_config(const Job& job) { return DeepSpeedWriter(job).write(); }

Job deepspeed_as_run(const Job& job, const JobWords& words) {
  return read_back(kDeepSpeedFile, words.behind, [&](Behind said) {
    said.shape = job.model;
    Options options(kDeepSpeedFile, flat_json(kDeepSpeedFile, "{" + words.body + "}"));
    return read_deepspeed(options, said);
  });
}

}  // namespace

JobWriter deepspeed_writer() {
  return {.id = "deepspeed",
          .title = "DeepSpeed 0.19",
          .writes = "a job as ds_config.json",
          .paste = "deepspeed train.py --deepspeed_config FILE",
          .marked = Marked::Member,
          .unsaid = {{"dp", "shards and replicas are one group (MiCS went with 0.19.7)"},
                     {"dp_shard", "shards and replicas are one group (MiCS went with 0.19.7)"},
                     {"recompute_modules", "what is computed again is the model's code"},
                     {"scaling", "narrow products are the model's code"},
                     {"sp", "AutoTP has no sequence parallelism"},
                     {"zero", "a rank that is alone has nothing to divide"},
                     {"wrap", "a rank that is alone has nobody to reduce with"},
                     {"graph", "no key of it has a training step captured"},
                     {"async_tp", "AutoTP's collectives are waited for"},
                     {"master", "the master weights are f32, or of the type of compute with ZeRO"},
                     {"states", "optimizer states are f32, or bf16 with bf16 master weights"},
                     {"reshard", "what fits stage3_max_live_parameters stays gathered"},
                     {"sync_each", "stages 2 and 3 reduce after each micro-batch"},
                     {"bucket", "without ZeRO it has no option; reduce_bucket_size is in elements"},
                     {"overlap_grads", "without ZeRO gradients are reduced after backward"},
                     {"overlap_params", "stages 1 and 2 gather parameters after the update"}},
          .write = write_ds_config,
          .as_run = deepspeed_as_run};
}

}  // namespace dovetail::frameworks
