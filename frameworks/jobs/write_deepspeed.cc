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
#include "frameworks/jobs/deepspeed_words.h"
#include "frameworks/jobs/flat_json.h"
#include "frameworks/jobs/readers.h"
#include "frameworks/jobs/writers.h"
#include "frameworks/python_text.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using jobs::Zero;
using schedule::DType;

constexpr const char* kDeepSpeedFile = "ds_config.json";

// Members of an object and of the objects in it, in the order in which they were first spoken of.
class JsonText {
 public:
  // "zero_optimization.stage": a member of a member. `value` is JSON.
  void say(std::string_view name, const std::string& value) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string outer(name.substr(0, dot));
    auto found = std::ranges::find(members_, outer, &Member::name);
    if (found == members_.end()) found = members_.insert(found, {outer, {}});
    const std::string inner(name.substr(std::min(dot + 1, name.size())));
    found->values.push_back((inner.empty() ? "" : python_quoted(inner) + ": ") + value);
    found->is_object = !inner.empty();
  }
  void say(std::string_view name, std::int64_t value) { say(name, std::to_string(value)); }

  // Without the braces around all.
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const Member& one : members_) {
      text += (text.empty() ? "  " : ",\n  ") + python_quoted(one.name) + ": ";
      std::string values;
      for (const std::string& value : one.values) values += (values.empty() ? "" : ", ") + value;
      text += one.is_object ? "{" + values + "}" : values;
    }
    return text + "\n";
  }

 private:
  struct Member {
    std::string name;
    std::vector<std::string> values;
    bool is_object = false;
  };
  std::vector<Member> members_;
};

class DeepSpeedWriter {
 public:
  explicit DeepSpeedWriter(const Job& job) : job_(job) {}

  JobWords write() {
    require();
    batch();
    precision();
    zero();
    return {.body = json_.text(),
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

  void batch() {
    const jobs::Batch& b = job_.batch;
    json_.say(kDeepSpeedGlobal, b.global);
    json_.say(kDeepSpeedMicro, b.micro);
    json_.say(kDeepSpeedSteps, job_.micro_batches());
  }

  void precision() {
    const jobs::Precision& p = job_.precision;
    const bool is_bf16 = p.compute == DType::BF16;
    if (is_bf16) json_.say("bf16.enabled", "true");
    if (p.compute == DType::F16) json_.say("fp16.enabled", "true");
    if (p.autocast != jobs::Autocast::No) {
      json_.say(kDeepSpeedAutocast, "true");
      json_.say(kDeepSpeedAutocastType.name,
                python_quoted(kDeepSpeedAutocastType.word(p.autocast)));
    }
    const bool is_half = p.compute != DType::F32;
    const bool is_small =
        is_half && p.master_bytes == 2 && p.gradient == p.compute && job_.zero != Zero::Nothing;
    if (is_small) json_.say(is_bf16 ? kDeepSpeedBf16Master : kDeepSpeedFp16Master, "true");
    if (is_small && is_bf16 && p.state_bytes == 4) json_.say(kDeepSpeedBf16States, "true");
    json_.say(kDeepSpeedReduce.name, python_quoted(kDeepSpeedReduce.word(p.reduce)));
    json_.say(kDeepSpeedGradients.name, python_quoted(kDeepSpeedGradients.word(p.gradient)));
    if (job_.optimizer != jobs::Optimizer::Adam) {
      json_.say("optimizer.type", job_.optimizer == jobs::Optimizer::Sgd ? "\"SGD\"" : "\"Muon\"");
    }
  }

  void zero() {
    if (job_.layout.tp > 1) json_.say(kDeepSpeedTensor.name, job_.layout.tp);
    json_.say(kDeepSpeedStage.name, std::string(kDeepSpeedStage.word(job_.zero)));
    if (job_.zero == Zero::Nothing) return;
    const bool is_divided = job_.zero == Zero::Parameters;
    json_.say(kDeepSpeedOverlap, job_.overlap_gradients ? "true" : "false");
    if (job_.bucket_bytes) {
      json_.say(kDeepSpeedBucket,
                std::max<std::int64_t>(
                    1, *job_.bucket_bytes / element_size(job_.precision.gradient).count()));
    }
    if (is_divided) json_.say(kDeepSpeedPrefetch, job_.prefetch * deepspeed_layer(job_.model));
  }

  // Keys in effect that are the program's own.
  [[nodiscard]] std::string behind() const {
    std::string list = "model=" + job_.model.name +
                       ",world=" + std::to_string(job_.layout.world()) +
                       ",seq=" + std::to_string(job_.batch.sequence);
    for (const jobs::Difference& one : jobs::differences(job_, {.model = job_.model})) {
      for (const std::string_view key :
           {"recompute", "recompute_layers", "recompute_modules", "lora", "lora_on", "flash",
            "imbalance", "etp", "products", "scaling", "loss", "dispatch", "kernels", "updates"}) {
        if (one.key == key) list += "," + one.key + "=" + one.here;
      }
    }
    return list;
  }

  const Job& job_;
  JsonText json_;
};

JobWords write_ds_config(const Job& job) { return DeepSpeedWriter(job).write(); }

Job deepspeed_as_run(const Job& job, const JobWords& words) {
  Behind said = said_after(kDeepSpeedFile, words.behind);
  said.shape = job.model;
  Options options(kDeepSpeedFile, flat_json(kDeepSpeedFile, "{" + words.body + "}"));
  Job read = read_deepspeed(options, said);
  jobs::set_options(read, said.list, kDeepSpeedFile);
  jobs::complete(read, kDeepSpeedFile);
  return read;
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
                     {"sp", "AutoTP has no sequence parallelism"},
                     {"zero", "a rank that is alone has nothing to divide"},
                     {"wrap", "a rank that is alone has nobody to reduce with"},
                     {"graph", "no key of it has a training step captured"},
                     {"async_tp", "AutoTP's collectives are waited for"},
                     {"master", "the master weights are f32, or of the type of compute with ZeRO"},
                     {"states", "optimizer states are f32, or bf16 with bf16 master weights"},
                     {"reshard", "ZeRO frees parameters layer by layer"},
                     {"bucket", "without ZeRO it has no option; reduce_bucket_size is in elements"},
                     {"overlap_grads", "without ZeRO gradients are reduced after backward"},
                     {"overlap_params", "stages 1 and 2 gather parameters after the update"}},
          .write = write_ds_config,
          .as_run = deepspeed_as_run};
}

}  // namespace dovetail::frameworks
