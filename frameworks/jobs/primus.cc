// Reads Primus's experiments (AMD) into a job: a module of Megatron-LM or torchtitan, with its preset, its model and what overrides them.
//
// Read in Primus (commit fd1eeabb): core/launcher/parser.py, core/config/preset_loader.py, core/config/yaml_loader.py, configs/.
//
//   modules.NAME.config, .model    files of primus/configs/{modules,models}/FRAMEWORK, which are read where they are at hand: beside the
//                                  experiment or in a folder above it; those that they extend come first
//   overrides                      go before both
//   without .config                what Primus exported: the module holds all its keys
//   ${NAME:other}                  other, unless NAME stands before the file
//   vocab_size                     where it is absent, that of the model that tokenizer_model names
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/megatron_log.h"
#include "frameworks/jobs/trainer.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kModules = "modules.";
constexpr int kDeepestPreset = 16;

class PrimusReader {
 public:
  PrimusReader(const std::string& file, const Behind& said) : file_(file), said_(said) {}

  jobs::Job read(Flat text) {
    resolve(file_, text);
    const std::string module = module_of(text);
    const std::string front = std::string(kModules) + module + ".";
    const std::string framework = value_of_key(text, front + "framework");
    if (framework != "megatron" && framework != "torchtitan") {
      throw InputError(file_ + ": " + front + "framework: " + framework +
                       " is not read; megatron and torchtitan are");
    }
    const std::string config = value_of_key(text, front + "config");
    const std::string model = value_of_key(text, front + "model");
    if (config.empty()) {
      merge(flattened(text, front));
    } else {
      merge(preset("modules", framework, front + "config", config));
      if (!model.empty()) merge(model_preset(framework, front + "model", model));
    }
    merge(section(text, front + "overrides."));
    for (OptionText& flag : flags_) {
      const std::string overrides = front + "overrides.";
      if (flag.name.starts_with(overrides)) flag.name.erase(0, overrides.size());
      if (flag.name.starts_with(kModules))
        throw InputError(file_ + ": " + flag.name + ": expected a key below " + overrides);
    }
    replace(keys_, std::exchange(flags_, {}));
    return framework == "megatron" ? megatron() : torchtitan();
  }

  void add_flags(std::vector<OptionText> flags) { flags_ = std::move(flags); }

 private:
  static std::string value_of_key(const Flat& text, std::string_view key) {
    const auto found = std::ranges::find(text.options, key, &OptionText::name);
    return found == text.options.end() ? "" : found->value;
  }

  // The module that trains before others are tuned.
  std::string module_of(const Flat& text) const {
    std::string first;
    for (const OptionText& option : text.options) {
      if (!option.name.starts_with(kModules) || !option.name.ends_with(".framework")) continue;
      std::string name =
          option.name.substr(kModules.size(), option.name.size() - kModules.size() -
                                                  std::string_view(".framework").size());
      if (name == "pre_trainer") return name;
      if (first.empty()) first = name;
    }
    if (first.empty()) throw InputError(file_ + ": modules: expected one with a framework");
    return first;
  }

  static Flat section(const Flat& text, const std::string& front) {
    Flat part;
    for (const OptionText& option : text.options) {
      if (option.name.starts_with(front))
        part.options.push_back({.name = option.name.substr(front.size()), .value = option.value});
    }
    for (const std::string& name : text.nulls) {
      if (name.starts_with(front)) part.nulls.push_back(name.substr(front.size()));
    }
    return part;
  }

  // A module that Primus exported holds its keys itself.
  static Flat flattened(const Flat& text, const std::string& front) {
    Flat all = section(text, front);
    std::erase_if(all.options, [](const OptionText& one) {
      return one.name == "framework" || one.name == "model" || one.name == "name" ||
             one.name.starts_with("overrides.");
    });
    return all;
  }

  // "${NAME:other}" and "${NAME}" in values.
  void resolve(const std::string& file, Flat& text) const {
    for (OptionText& option : text.options) {
      std::string& value = option.value;
      for (std::size_t at = value.find("${"); at != std::string::npos; at = value.find("${", at)) {
        const std::size_t end = value.find('}', at);
        if (end == std::string::npos) break;
        const std::string inner = value.substr(at + 2, end - at - 2);
        const std::size_t colon = std::min(inner.find(':'), inner.size());
        const auto known = said_.environment.find(inner.substr(0, colon));
        if (known == said_.environment.end() && colon == inner.size()) {
          throw InputError(file + ": " + option.name + ": " + inner +
                           " is a variable that nobody sets: say it before the file, \"" + inner +
                           "=... " + file_ + "\"");
        }
        const std::string with =
            known != said_.environment.end() ? known->second : inner.substr(colon + 1);
        value.replace(at, end - at + 1, with);
        at += with.size();
      }
    }
  }

  // Goes before what is there; what has no value is taken back.
  void merge(Flat by) {
    const auto is_null = [&by](const OptionText& old) {
      return std::ranges::any_of(by.nulls, [&old](const std::string& name) {
        return old.name == name || old.name.starts_with(name + ".");
      });
    };
    std::erase_if(keys_, is_null);
    replace(keys_, std::move(by.options));
  }

  Flat model_preset(const std::string& framework, const std::string& key, const std::string& name) {
    const bool is_said = !said_.model.empty() || said_.shape;
    if (is_said && path_of("models", framework, name).empty()) return {};
    return preset("models", framework, key, name);
  }

  [[nodiscard]] std::string path_of(const std::string& kind, const std::string& framework,
                                    const std::string& name) const {
    const std::string end = name.ends_with(".yaml") || name.ends_with(".yml") ? "" : ".yaml";
    const std::string inside = kind + "/" + framework + "/" + name + end;
    for (const std::string& path : {"primus/configs/" + inside, inside, name + end}) {
      std::string found = file_named(path, file_);
      if (!found.empty() && found != file_) return found;
    }
    return "";
  }

  Flat preset(const std::string& kind, const std::string& framework, const std::string& key,
              const std::string& name) {
    const std::string path = path_of(kind, framework, name);
    if (!path.empty()) return with_extended(path, 0);
    const bool is_model = kind == "models";
    throw InputError(file_ + ": " + key + ": " + name +
                     " is not at hand: expected primus/configs/" + kind + "/" + framework +
                     " beside this file or above it" +
                     (is_model ? "; or say :model=NAME behind the file" : ""));
  }

  // A preset on top of those that it extends.
  Flat with_extended(const std::string& path, int depth) const {
    if (depth > kDeepestPreset)
      throw InputError(path + ": extends: presets that extend each other");
    Flat own = read_flat(path);
    resolve(path, own);
    std::string list = value_of_key(own, "extends");
    std::erase_if(own.options, [](const OptionText& one) { return one.name == "extends"; });
    PrimusReader below(file_, said_);
    while (!list.empty()) {
      const std::size_t comma = std::min(list.find(','), list.size());
      const std::string name = list.substr(0, comma);
      list.erase(0, std::min(comma + 1, list.size()));
      const std::string next = (std::filesystem::path(path).parent_path() / name).string();
      std::error_code error;
      if (!std::filesystem::is_regular_file(next, error))
        throw InputError(path + ": extends: " + name + " is not beside it");
      below.merge(with_extended(next, depth + 1));
    }
    below.merge(own);
    return {.options = std::move(below.keys_), .nulls = std::move(own.nulls)};
  }

  // Those of Primus itself; the others stay.
  std::vector<OptionText> take_own(const KeyTable& backend, const std::string& front) {
    std::vector<OptionText> own;
    std::vector<OptionText> rest;
    for (OptionText& key : keys_) {
      const bool is_theirs = is_known(backend, front, key);
      (is_theirs ? rest : own).push_back(std::move(key));
    }
    keys_ = std::move(rest);
    return own;
  }

  static bool is_known(const KeyTable& backend, const std::string& front, const OptionText& key) {
    const Key own = KeyTable::primus().find(key.name);
    if (own.kind != Key::Class::Unknown && own.kind != Key::Class::Passed) return false;
    if (front.empty()) return backend.find(key.name).kind != Key::Class::Unknown;
    return is_megatron_attribute(key.name);
  }

  jobs::Job megatron() {
    Options own(file_, take_own(KeyTable::megatron(), "--"));
    own.refuse(KeyTable::primus());
    set_vocabulary(own);
    const std::string chunks = own.text("virtual_pipeline_model_parallel_size", "");
    if (!chunks.empty())
      keys_.push_back({.name = "num_virtual_stages_per_pipeline_rank", .value = chunks});
    Script script{.flags = megatron_flags(keys_)};
    for (OptionText& flag : script.flags) {  // lists, as Megatron's own arguments write them
      const bool is_list = flag.value.find(',') != std::string::npos;
      if (is_list && flag.name == "--recompute-modules") std::ranges::replace(flag.value, ',', ' ');
      if (is_list && flag.name == "--moe-layer-freq" && !flag.value.starts_with('['))
        flag.value = "[" + flag.value + "]";
    }
    jobs::Job job = read_megatron(std::move(script), said_);
    adapters(job, own);
    take_rest(job, own, KeyTable::primus(), said_);
    std::ranges::move(assumed_, std::back_inserter(job.assumed));
    return job;
  }

  // Of supervised fine-tuning, in the words of Megatron-Bridge.
  static void adapters(jobs::Job& job, Options& own) {
    const bool is_on = own.flag("lora.enabled", false);
    const std::int64_t rank = own.degree("lora.dim", 32);
    const std::string targets = own.text("lora.target_modules", "");
    if (!is_on) return;
    job.lora = rank;
    const bool is_dense = targets.empty() || targets.find("linear_fc") != std::string::npos;
    job.lora_on = is_dense ? jobs::LoraTargets::AllLinear : jobs::LoraTargets::Attention;
    assume(job, "lora.target_modules", targets,
           "counted as lora_on=" + std::string(to_string(job.lora_on)) +
               ", with adapters of separate queries, keys and values");
  }

  // No tokenizer is read: of one that is named after a known model the vocabulary is that model's.
  void set_vocabulary(Options& own) {
    const std::string tokenizer = own.text("tokenizer_model", "");
    static_cast<void>(own.has("hf_path"));
    const auto has = [this](std::string_view name) {
      return std::ranges::find(keys_, name, &OptionText::name) != keys_.end();
    };
    if (tokenizer.empty() || has("vocab_size") || has("padded_vocab_size")) return;
    const Key known = KeyTable::hub_models().find(tokenizer);
    if (known.kind != Key::Class::Read) return;
    const std::int64_t size = jobs::known_model(known.values).vocabulary;
    keys_.push_back({.name = "vocab_size", .value = std::to_string(size)});
    assumed_.push_back(
        {.option = "tokenizer_model",
         .value = tokenizer,
         .counted = "a vocabulary of " + std::to_string(size) + ", as that model has"});
  }

  jobs::Job torchtitan() {
    Options own(file_, take_own(KeyTable::torchtitan(), ""));
    own.refuse(KeyTable::primus());
    Options options(file_, std::move(keys_));
    jobs::Job job = read_torchtitan(options, said_);
    const std::int64_t layers = own.degree("model.n_layers", job.model.layers);
    if (layers != job.model.layers && said_.model.empty())
      own.fail("model.n_layers", "those of the flavor, " + std::to_string(job.model.layers) +
                                     ", or the shape behind the file, :model=config.json");
    take_rest(job, own, KeyTable::primus(), said_);
    return job;
  }

  const std::string& file_;
  const Behind& said_;
  std::vector<OptionText> keys_, flags_;
  std::vector<jobs::Assumed> assumed_;
};

}  // namespace

jobs::Job read_primus(const std::string& file, const Flat& text, const Behind& said,
                      std::vector<OptionText> flags) {
  for (OptionText& flag : flags) std::ranges::replace(flag.name, '-', '_');
  PrimusReader reader(file, said);
  reader.add_flags(std::move(flags));
  return reader.read(text);
}

}  // namespace dovetail::frameworks
