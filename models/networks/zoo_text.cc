// Text models of the zoo: those that jobs know by the same names, as transformers runs them without compiling.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/job.h"
#include "models/networks/tensors.h"
#include "models/networks/zoo_families.h"

#include <string>
#include <utility>

namespace dovetail::models::zoo {
namespace {

// Data parallel; gradients are summed and travel in the type of the parameters, of which there is no other copy.
jobs::Job data_parallel(const jobs::Model& model, const ZooOptions& options) {
  jobs::Job job{.model = model};
  job.layout.dp = options.world_size;
  job.batch = {.sequence = options.sequence,
               .micro = options.batch,
               .global = options.batch * options.world_size};
  const bool is_f32 = options.dtype == schedule::DType::F32;
  job.precision = {.compute = options.dtype,
                   .gradient = options.dtype,
                   .reduce = options.dtype,
                   .master_bytes = 0,
                   .state_bytes = schedule::element_size(options.dtype).count() *
                                  (options.optimizer == jobs::Optimizer::Adam ? 2 : 1),
                   .products = is_f32 ? schedule::Operands::Tf32 : schedule::Operands::Own};
  job.precision.autocast = options.autocast;
  if (options.autocast != jobs::Autocast::No) job.precision.products = schedule::Operands::Own;
  job.kernels = jobs::Kernels::Transformers;
  job.optimizer = options.optimizer;
  jobs::complete(job, model.name);
  return job;
}

Model text_model(const std::string& name, std::int64_t batch) {
  jobs::Model model = jobs::known_model(name);
  ZooEntry entry{.name = name,
                 .parameters = jobs::parameters(model),
                 .gradients = static_cast<std::int64_t>(jobs::model_parameters(model).size()),
                 .batch = batch,
                 .sequence = model.sequence,
                 .source = model.source};
  if (model.positions > 0) entry.sequence_limit = model.positions;
  return {.entry = std::move(entry),
          .job = [model](const ZooOptions& options) { return data_parallel(model, options); }};
}

}  // namespace

std::vector<Model> text_models() {
  return {text_model("gpt2", 8),        text_model("gpt2_medium", 8), text_model("gpt2_large", 4),
          text_model("gpt2_xl", 4),     text_model("llama2_7b", 1),   text_model("llama2_70b", 1),
          text_model("mixtral_8x7b", 1)};
}

}  // namespace dovetail::models::zoo
