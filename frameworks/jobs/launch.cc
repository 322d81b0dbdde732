// Tells a launcher's flags from those of its program, and hands both to who reads them.
//
// Read in accelerate (commands/launch.py), torch 2.11 (torch/distributed/run.py), DeepSpeed 0.19.6 (launcher/runner.py), LLaMA-Factory
// (launcher.py) and axolotl (cli/main.py).
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/launch.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "frameworks/jobs/toml.h"

namespace dovetail::frameworks {
namespace {

using Words = std::span<const std::string>;

enum class Launcher : std::uint8_t { Factory, Axolotl, Accelerate, Torchrun, DeepSpeed, Python };
constexpr std::array<std::pair<std::string_view, Launcher>, 8> kLaunchers = {
    {{"llamafactory-cli", Launcher::Factory},
     {"lmf", Launcher::Factory},
     {"axolotl", Launcher::Axolotl},
     {"accelerate", Launcher::Accelerate},
     {"torchrun", Launcher::Torchrun},
     {"deepspeed", Launcher::DeepSpeed},
     {"python", Launcher::Python},
     {"python3", Launcher::Python}}};

bool is_config(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::optional<Launcher> launcher_of(std::string_view word) {
  const auto known =
      std::ranges::find(kLaunchers, name_in(word), [](const auto& one) { return one.first; });
  return known == kLaunchers.end() ? std::nullopt : std::optional(known->second);
}

// Flags with what follows them up to the next; words before the first flag go to `loose`.
struct Arguments {
  std::vector<OptionText> flags = {};
  std::vector<std::string> loose = {};

  [[nodiscard]] std::string value(std::string_view name) const {
    const auto found = std::ranges::find(flags, name, &OptionText::name);
    return found == flags.end() ? "" : found->value;
  }
  [[nodiscard]] bool has(std::string_view name) const {
    return std::ranges::find(flags, name, &OptionText::name) != flags.end();
  }
};

Arguments arguments_of(Words words) {
  Arguments all;
  bool takes_value = false;
  for (const std::string& word : words) {
    const bool is_flag = word.size() > 2 && word.starts_with("--") &&
                         std::isalpha(static_cast<unsigned char>(word[2])) != 0;
    if (is_flag) {
      const std::size_t equals = std::min(word.find('='), word.size());
      std::string name = word.substr(2, equals - std::min<std::size_t>(equals, 2));
      std::ranges::replace(name, '-', '_');
      all.flags.push_back({.name = std::move(name)});
      if (equals < word.size()) all.flags.back().value = word.substr(equals + 1);
      takes_value = equals == word.size();
    } else if (takes_value) {
      std::string& value = all.flags.back().value;
      if (!value.empty() && word.starts_with('$')) continue;  // a variable that nobody sets
      value += (value.empty() ? "" : " ") + word;
    } else if (const std::size_t equals = word.find('=');
               equals != std::string::npos && equals > 0) {
      all.flags.push_back({.name = word.substr(0, equals), .value = word.substr(equals + 1)});
    } else {
      all.loose.push_back(word);
    }
  }
  for (OptionText& flag : all.flags) {
    if (flag.value.empty()) flag.value = "true";
  }
  return all;
}

std::int64_t count_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && number > 0 && number < (1 << 20) ? number : 0;
}

std::int64_t ranks(std::int64_t per_node, std::string_view nodes) {
  const std::int64_t count = nodes.empty() ? 1 : count_in(nodes);
  return per_node * count;
}

// "0,1,4": three.
std::int64_t listed(std::string_view list) {
  return list.empty() ? 0 : 1 + std::ranges::count(list, ',');
}

// DeepSpeed's "node1:0,1@node2:0,1"; 0 where a node is there with all that it has.
std::int64_t included(std::string_view nodes) {
  std::int64_t all = 0;
  while (!nodes.empty()) {
    const std::string_view node = nodes.substr(0, nodes.find('@'));
    nodes.remove_prefix(std::min(node.size() + 1, nodes.size()));
    const std::size_t colon = node.find(':');
    if (colon == std::string_view::npos) return 0;
    all += listed(node.substr(colon + 1));
  }
  return all;
}

// Launcher, its own flags, and what the program gets.
struct Command {
  Launcher launcher = Launcher::Python;
  Words own = {};
  std::string program = {};
  Words rest = {};
  std::int64_t ranks = 0;  // of mpirun before it; 0: not said
};

// What starts another command on each rank.
bool is_starter(std::string_view word) {
  return is_one_of(name_in(word), "mpirun|mpiexec|srun|nohup");
}

std::int64_t ranks_before(Words words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (is_one_of(words[i], "-np|-n|--np")) return count_in(words[i + 1]);
  }
  return 0;
}

std::optional<Command> command_of(Words words) {
  if (!words.empty() && (words.front() == "echo" || words.front() == "printf")) return std::nullopt;
  const auto begin = std::ranges::find_if(
      words, [](const std::string& word) { return launcher_of(word).has_value(); });
  if (begin == words.end()) return std::nullopt;
  Command command{.launcher = *launcher_of(*begin)};
  const auto before = static_cast<std::size_t>(begin - words.begin());
  if (command.launcher == Launcher::Python) command.ranks = ranks_before(words.first(before));
  Words behind = words.subspan(before + 1);
  const bool is_tool =
      command.launcher == Launcher::Factory || command.launcher == Launcher::Axolotl;
  const std::string_view what = is_tool                                    ? "train"
                                : command.launcher == Launcher::Accelerate ? "launch"
                                                                           : "";
  if (!what.empty()) {
    if (behind.empty() || behind.front() != what) return std::nullopt;
    behind = behind.subspan(1);
  }
  if (is_tool) {
    const auto cut = std::ranges::find(behind, "--");  // axolotl's, before its launcher's own
    command.rest = behind.first(static_cast<std::size_t>(cut - behind.begin()));
    if (cut != behind.end()) command.own = behind.subspan(command.rest.size() + 1);
    return command;
  }
  for (std::size_t at = 0; at < behind.size(); ++at) {
    const bool is_module =
        (behind[at] == "-m" || behind[at] == "--module") && at + 1 < behind.size();
    if (is_module && behind[at + 1].starts_with("torch.distributed.")) {
      command.launcher = Launcher::Torchrun;
      behind = behind.subspan(at + 2);
      at = static_cast<std::size_t>(-1);
      continue;
    }
    if (!is_module && !behind[at].ends_with(".py")) continue;
    const std::size_t program = is_module ? at + 1 : at;
    command.own = behind.first(at);
    command.program = behind[program];
    command.rest = behind.subspan(program + 1);
    return command;
  }
  return std::nullopt;
}

// accelerate's flags as keys of its file.
void put_launch_flags(Flat& keys, const Arguments& launch) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKinds = {
      {{"multi_gpu", "MULTI_GPU"},
       {"use_fsdp", "FSDP"},
       {"use_deepspeed", "DEEPSPEED"},
       {"use_megatron_lm", "MEGATRON_LM"}}};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kSections = {
      {{"fsdp_", "fsdp_config."},
       {"parallelism_config_", "parallelism_config."},
       {"megatron_lm_", "megatron_lm_config."},
       {"dynamo_", "dynamo_config."},
       {"fp8_", "fp8_config."}}};
  std::vector<OptionText> flags;
  for (const OptionText& flag : launch.flags) {
    const auto kind =
        std::ranges::find(kKinds, flag.name, [](const auto& one) { return one.first; });
    const auto section = std::ranges::find_if(
        kSections, [&flag](const auto& one) { return flag.name.starts_with(one.first); });
    const std::string in_deepspeed = "deepspeed_config." + flag.name;
    if (flag.name == "config_file") continue;
    if (kind != kKinds.end()) {
      flags.push_back({.name = "distributed_type", .value = std::string(kind->second)});
    } else if (section != kSections.end()) {
      flags.push_back({.name = std::string(section->second) + flag.name, .value = flag.value});
    } else if (KeyTable::accelerate().find(in_deepspeed).kind != Key::Class::Passed) {
      flags.push_back({.name = in_deepspeed, .value = flag.value});
    } else {
      flags.push_back(flag);
    }
  }
  replace(keys.options, std::move(flags));
  const auto is_kind = [](const OptionText& one) { return one.name == "distributed_type"; };
  if (std::ranges::none_of(keys.options, is_kind))
    keys.options.push_back({.name = "distributed_type", .value = "MULTI_GPU"});
}

bool is_of_trainer(const Arguments& program) {
  return std::ranges::any_of(std::array{"per_device_train_batch_size", "model_name_or_path",
                                        "gradient_accumulation_steps", "output_dir"},
                             [&program](const char* name) { return program.has(name); });
}

std::string config_of(const Arguments& program) {
  std::string config = program.value("config");
  for (const std::string& word : program.loose) {
    if (config.empty() && is_config(word)) config = word;
  }
  return config;
}

constexpr const char* kTitanConfig = "job.config_file";

bool is_tool(const Command& command) {
  return command.launcher == Launcher::Factory || command.launcher == Launcher::Axolotl ||
         command.program.find("axolotl.cli") != std::string::npos;
}

// Whether its program takes TrainingArguments, or a file that is understood.
bool is_trainer(const Command& command) {
  const Arguments program = arguments_of(command.rest);
  return is_tool(command) || is_of_trainer(program) || !config_of(program).empty() ||
         program.has(kTitanConfig);
}

bool is_of_megatron(const Command& command) {
  return !is_trainer(command) && arguments_of(command.rest).has("num_layers");
}

// How well a command says that it trains: its program's name, and that it starts ranks.
int training_of(const Command& command) {
  const std::string_view name = name_in(command.program);
  const bool says = std::ranges::any_of(
      std::array<std::string_view, 4>{"train", "tune", "sft", "run_clm"},
      [name](std::string_view word) { return name.find(word) != std::string_view::npos; });
  return (says || is_tool(command) ? 2 : 0) + (command.launcher == Launcher::Python ? 0 : 1);
}

bool is_same(const Command& a, const Command& b) {
  return a.launcher == b.launcher && a.program == b.program && std::ranges::equal(a.own, b.own) &&
         std::ranges::equal(a.rest, b.rest);
}

// LLaMA-Factory's by the keys that only its files have.
bool is_of_factory(const Flat& keys) {
  return keys.has("model_name_or_path") &&
         std::ranges::any_of(
             std::array{"stage", "finetuning_type", "cutoff_len", "template", "dataset_dir"},
             [&keys](const char* key) { return keys.has(key); });
}

// Its own entry points, src/train.py among them, whose name says nothing: a flag does.
bool is_factory_program(const Command& command, const Arguments& program) {
  return command.launcher == Launcher::Factory ||
         command.program.find("llamafactory") != std::string::npos ||
         program.has("finetuning_type") ||
         is_one_of(program.value("stage"), "pt|sft|rm|ppo|dpo|kto");
}

class LaunchReader {
 public:
  LaunchReader(const Script& script, const Behind& said) : script_(script), said_(said) {}

  jobs::Job read(const Command& command) {
    Arguments own = arguments_of(command.own);
    Arguments program = arguments_of(command.rest);
    Launcher launcher = command.launcher;
    if (launcher == Launcher::Axolotl) launcher = take_launcher(own, program);
    if (launcher == Launcher::Accelerate) {
      Flat keys = launch_keys(own);
      if (!is_trainer(command)) return accelerate(own, keys, program);
      set_accelerate(t_, launch_file(own), keys, said_);
    }
    if (t_.world == 0) t_.world = world(launcher, own);
    if (t_.world == 0) t_.world = command.ranks;
    std::vector<OptionText> flags = program.flags;
    std::erase_if(flags, [](const OptionText& one) {
      return one.name == "config" || one.name == kTitanConfig;
    });
    if (program.has(kTitanConfig)) {
      Behind behind = said_;
      if (behind.world == 0) behind.world = t_.world;
      return read_titan_file(at_hand(program.value(kTitanConfig)), std::move(flags), behind);
    }
    return program_job(config_of(program), std::move(flags), is_factory_program(command, program));
  }

 private:
  // axolotl's own flags of its launcher: those are no keys of its file.
  static Launcher take_launcher(Arguments& own, Arguments& program) {
    const std::string name = program.has("launcher") ? program.value("launcher") : "accelerate";
    for (const OptionText& flag : program.flags) {
      if (flag.name == "num_processes" || flag.name == "num_machines") own.flags.push_back(flag);
    }
    std::erase_if(program.flags, [](const OptionText& flag) {
      return flag.name == "launcher" || flag.name == "num_processes" || flag.name == "num_machines";
    });
    if (own.flags.empty()) return Launcher::Axolotl;
    return name == "torchrun" ? Launcher::Torchrun
           : name == "python" ? Launcher::Python
                              : Launcher::Accelerate;
  }

  std::string at_hand(const std::string& path) const {
    std::string found = file_named(path, said_.where);
    if (found.empty())
      throw InputError(said_.where + ": " + path +
                       " is not at hand: looked for here, beside this "
                       "file and in the folders above it");
    return found;
  }

  std::string launch_file(const Arguments& own) const {
    const std::string path = own.value("config_file");
    return path.empty() ? said_.where : at_hand(path);
  }

  Flat launch_keys(const Arguments& own) const {
    Flat keys;
    if (own.has("config_file")) keys = read_flat(launch_file(own));
    put_launch_flags(keys, own);
    if (own.has("config_file")) return keys;
    // Without a file that it names there may be one of its own, which is not read.
    const bool has_world = own.has("num_processes");
    if (!has_world) keys.options.push_back({.name = "num_processes", .value = "-1"});
    return keys;
  }

  jobs::Job accelerate(const Arguments& own, const Flat& keys, const Arguments& program) const {
    jobs::Job job = read_accelerate(launch_file(own), keys, said_);
    for (const OptionText& flag : program.flags)
      assume(job, "--" + flag.name, flag.value, "the program's own: not heeded");
    return job;
  }

  std::int64_t world(Launcher launcher, const Arguments& own) const {
    const auto variable = [this](const char* name) {
      const auto found = script_.variables.find(name);
      return found == script_.variables.end() ? std::string() : found->second;
    };
    if (launcher == Launcher::Torchrun)
      return ranks(count_in(own.value("nproc_per_node")), own.value("nnodes"));
    const std::string visible = variable("CUDA_VISIBLE_DEVICES");
    if (launcher == Launcher::DeepSpeed) {
      if (own.has("include")) return included(own.value("include"));
      const std::int64_t here =
          own.has("num_gpus") ? count_in(own.value("num_gpus")) : listed(visible);
      return ranks(here, own.value("num_nodes"));
    }
    if (launcher == Launcher::Factory) {
      const std::string here = variable("NPROC_PER_NODE");
      return ranks(here.empty() ? listed(visible) : count_in(here), variable("NNODES"));
    }
    return 0;
  }

  jobs::Job program_job(const std::string& config, std::vector<OptionText> flags, bool is_factory) {
    if (config.empty()) {
      const Flat keys{.options = std::move(flags)};
      return is_factory ? read_llamafactory(said_.where, keys, said_, std::move(t_))
                        : read_trainer(said_.where, keys, said_, std::move(t_));
    }
    const std::string file = at_hand(config);
    Flat keys = read_flat(file);
    replace(keys.options, std::move(flags));
    if (keys.has("base_model")) return read_axolotl(file, keys, said_, std::move(t_));
    return is_factory || is_of_factory(keys) ? read_llamafactory(file, keys, said_, std::move(t_))
                                             : read_trainer(file, keys, said_, std::move(t_));
  }

  const Script& script_;
  const Behind& said_;
  Training t_;
};

}  // namespace

jobs::Job read_keys(const std::string& file, std::vector<OptionText> flags, const Behind& said) {
  const bool is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  Flat keys = read_flat(file);
  if (keys.has("modules")) return read_primus(file, keys, said, std::move(flags));
  replace(keys.options, std::move(flags));
  if (keys.has("distributed_type") || keys.has("compute_environment"))
    return read_accelerate(file, keys, said);
  if (keys.has("base_model")) return read_axolotl(file, keys, said);
  if (is_of_factory(keys)) return read_llamafactory(file, keys, said);
  if (keys.has("model") &&
      (keys.has("dist_config") || keys.has("train_dataset") || keys.has("peft_config")))
    throw InputError(file +
                     ": a file of LLaMA-Factory's v1 (USE_V1=1), which is not read; those with "
                     "model_name_or_path and stage are");
  if (is_yaml) {
    throw InputError(
        file +
        ": none of the YAML that is understood: accelerate's has distributed_type, axolotl's "
        "base_model, LLaMA-Factory's model_name_or_path and finetuning_type or stage");
  }
  Options options(file, keys.options);
  return read_deepspeed(options, said);
}

// torchtitan's flags are its file's keys: --training.seq_len=4096, --compile.no_enable.
jobs::Job read_titan_file(const std::string& file, std::vector<OptionText> flags,
                          const Behind& said) {
  for (OptionText& flag : flags) {
    const std::size_t no = flag.name.find(".no_");
    if (no == std::string::npos || flag.value != "true") continue;
    flag.value = "false";
    flag.name.erase(no + 1, 3);
  }
  std::vector<OptionText> keys = read_toml(file, read_file(file));
  replace(keys, std::move(flags));
  Options options(file, std::move(keys));
  return read_torchtitan(options, said);
}

std::optional<jobs::Job> read_launch(const Script& script, const Behind& said) {
  // The first of those that say best that they train: others prepare, evaluate or merge.
  std::vector<Command> commands;
  int best = 0;
  for (const std::vector<std::string>& words : script.commands) {
    const std::optional<Command> command = command_of(words);
    if (!command || (command->launcher != Launcher::Accelerate && !is_trainer(*command) &&
                     !is_of_megatron(*command)))
      continue;
    const int training = training_of(*command);
    if (training > best) commands.clear();
    best = std::max(best, training);
    const bool is_there = std::ranges::any_of(
        commands, [&](const Command& other) { return is_same(other, *command); });
    if (training == best && !is_there) commands.push_back(*command);
  }
  if (commands.empty() || is_of_megatron(commands.front())) return std::nullopt;
  jobs::Job job = LaunchReader(script, said).read(commands.front());
  note_trainings(job, said.where, commands.size());
  return job;
}

void note_trainings(jobs::Job& job, const std::string& where, std::size_t count) {
  if (count < 2) return;
  job.notes.push_back(where + " starts " + std::to_string(count) +
                      " trainings: this is the first of them");
}

bool starts_training(std::string_view command) {
  const std::string_view first = command.substr(0, command.find(' '));
  return launcher_of(first).has_value() || is_starter(first);
}

std::vector<OptionText> without_dashes(std::vector<OptionText> flags) {
  for (OptionText& flag : flags) {
    if (flag.name.starts_with("--")) flag.name.erase(0, 2);
    if (flag.value.empty()) flag.value = "true";
  }
  return flags;
}

}  // namespace dovetail::frameworks
