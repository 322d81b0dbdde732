// The list of all models, and the way from a name and options to a Program.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo.h"

#include "base/error.h"
#include "base/json_reader.h"
#include "models/networks/program.h"
#include "models/networks/zoo_builder.h"
#include "models/networks/zoo_families.h"

#include <utility>

namespace dovetail::models {
namespace {

// Far above any real step, and low enough that no byte count overflows 64 bits: the largest tensor,
// attention scores, has tokens x sequence x heads elements: 2^24 x 2^17 x 2^6 x 8 bytes = 2^50.
constexpr std::int64_t kMaxBatch = 1 << 20;
constexpr std::int64_t kMaxSequence = 1 << 17;
constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr std::int64_t kMaxWorldSize = 1 << 20;

std::vector<zoo::Model> all_models() {
  std::vector<zoo::Model> models;
  for (const auto family :
       {zoo::resnet_models, zoo::vgg_models, zoo::inception_models, zoo::densenet_models,
        zoo::bert_models, zoo::text_models, zoo::mlp_models}) {
    for (zoo::Model& model : family()) models.push_back(std::move(model));
  }
  return models;
}

[[noreturn]] void fail_unknown(std::string_view name) {
  const std::vector<std::string> names = zoo_names();
  std::string message = "unknown model \"" + std::string(name) + "\"";
  const std::string nearest = nearest_word(name, names);
  if (!nearest.empty()) throw InputError(message + "; did you mean \"" + nearest + "\"?");
  message += "; known are";
  for (const std::string& known : names) message += " " + known;
  throw InputError(message);
}

void check_range(const ZooEntry& entry, const std::string& what, std::int64_t value,
                 std::int64_t limit) {
  if (value >= 1 && value <= limit) return;
  throw InputError(entry.name + ": expected a " + what + " of 1 to " + std::to_string(limit) +
                   ", found " + std::to_string(value));
}

// Fills in the defaults. Throws InputError for what the model does not take.
ZooOptions resolve(const ZooEntry& entry, ZooOptions options) {
  if (options.batch == 0) options.batch = entry.batch;
  check_range(entry, "batch", options.batch, kMaxBatch);
  check_range(entry, "world size", options.world_size, kMaxWorldSize);
  if (options.autocast != jobs::Autocast::No && options.dtype != schedule::DType::F32)
    throw InputError(entry.name + ": autocast is of f32 weights, not of dtype=" +
                     std::string(to_string(options.dtype)));
  if (options.optimizer == jobs::Optimizer::Muon)
    throw InputError(entry.name + ": expected optimizer=sgd or optimizer=adam");
  if (!entry.sequence) {
    if (options.sequence == 0) return options;
    throw InputError(entry.name + ": a sequence length was given, but the model takes no text");
  }
  if (options.sequence == 0) options.sequence = *entry.sequence;
  check_range(entry, "sequence", options.sequence, entry.sequence_limit.value_or(kMaxSequence));
  check_range(entry, "number of tokens (batch x sequence)", options.batch * options.sequence,
              kMaxTokens);
  return options;
}

zoo::Model model_named(std::string_view name) {
  for (zoo::Model& model : all_models()) {
    if (model.entry.name == name) return std::move(model);
  }
  fail_unknown(name);
}

}  // namespace

std::vector<ZooEntry> zoo_entries() {
  std::vector<ZooEntry> entries;
  for (zoo::Model& model : all_models()) entries.push_back(std::move(model.entry));
  return entries;
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (ZooEntry& entry : zoo_entries()) names.push_back(std::move(entry.name));
  return names;
}

schedule::Program zoo_program(std::string_view name, const ZooOptions& options) {
  const zoo::Model model = model_named(name);
  const ZooOptions resolved = resolve(model.entry, options);
  if (model.job) {
    schedule::Program program = jobs::program_of(model.job(resolved), jobs::Grain::Modules);
    program.name = model.entry.name;
    return program;
  }
  if (resolved.autocast != jobs::Autocast::No && model.entry.sequence)
    throw InputError(model.entry.name +
                     ": autocast is of networks for images and of text models that are jobs");
  zoo::Builder builder(model.entry.name, resolved);
  const zoo::Value result = model.forward(builder);
  return builder.finish(result);
}

std::optional<jobs::Job> zoo_job(std::string_view name, const ZooOptions& options) {
  const zoo::Model model = model_named(name);
  const ZooOptions resolved = resolve(model.entry, options);
  if (!model.job) return std::nullopt;
  return model.job(resolved);
}

}  // namespace dovetail::models
