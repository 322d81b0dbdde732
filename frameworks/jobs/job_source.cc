// Tells what a job is said in, and what is said after it.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/job_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/statistics.h"
#include "frameworks/jobs/flat_json.h"
#include "frameworks/jobs/launch.h"
#include "frameworks/jobs/measured_run.h"
#include "frameworks/jobs/megatron_log.h"
#include "frameworks/jobs/readers.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kArguments = "Megatron's arguments";
constexpr std::array<std::string_view, 7> kScripts = {".sh",  ".bash", ".sbatch", ".slurm",
                                                      ".txt", ".log",  ".out"};

// Where ":KEY=VALUE,..." begins; npos where there is none.
std::size_t options_colon(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return colon;
  std::size_t at = colon + 1;
  while (at < text.size() &&
         (std::isalpha(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) {
    ++at;
  }
  return at > colon + 1 && at < text.size() && text[at] == '=' ? colon : std::string_view::npos;
}

// The words behind a file of keys: --KEY VALUE and KEY=VALUE. Throws InputError for any other.
std::vector<OptionText> flags_behind(const std::string& file, const Script& line) {
  std::vector<OptionText> flags;
  bool takes_value = false, is_first = true;
  for (const std::string& word :
       line.commands.empty() ? std::vector<std::string>() : line.commands.front()) {
    const bool is_flag = word.size() > 2 && word.starts_with("--");
    const std::size_t equals = std::min(word.find('='), word.size());
    if (!std::exchange(is_first, false)) {
      if (is_flag || (!takes_value && equals > 0 && equals < word.size())) {
        flags.push_back({.name = (is_flag ? "" : "--") + word.substr(0, equals)});
        if (equals < word.size()) flags.back().value = word.substr(equals + 1);
      } else if (takes_value) {
        flags.back().value = word;
      } else {
        throw InputError(file + ": " + word +
                         ": expected --KEY VALUE or KEY=VALUE behind the file");
      }
      takes_value = is_flag && equals == word.size();
    }
  }
  return flags;
}

bool is_script(std::string_view file) {
  return std::ranges::any_of(kScripts,
                             [file](std::string_view end) { return file.ends_with(end); });
}

jobs::Job read_plain(const std::string& name, const Behind& said) {
  if (!said.model.empty()) throw InputError(said.where + ": model: the model is said already");
  jobs::Job job = jobs::parse_job(name);
  job.model = recognised(std::move(job.model));
  job.batch.global = 0;
  jobs::set_options(job, said.list, said.where);
  const bool shards = job.zero == jobs::Zero::Parameters && !said.says("dp_shard");
  const Free free = shards ? Free::Sharded : Free::DataParallel;
  lay_out(job, said, said.world == 0 ? Free::None : free, "");
  return job;
}

bool is_yaml(std::string_view file) { return file.ends_with(".yaml") || file.ends_with(".yml"); }

// A file of keys, or the shape of a model.
jobs::Job read_source_file(const std::string& file, std::vector<OptionText> flags,
                           const Behind& said) {
  const bool is_shape = !is_yaml(file) && read_flat(file).has("model_type");
  return is_shape ? read_plain(file, said) : read_keys(file, std::move(flags), said);
}

// NAME=VALUE of a command line before what it starts; where that begins.
std::size_t take_environment(std::string_view text, std::map<std::string, std::string>& variables) {
  constexpr std::string_view kBlanks = " \t\n";
  std::size_t at = std::min(text.find_first_not_of(kBlanks), text.size());
  while (true) {
    std::size_t end = at;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
      ++end;
    }
    const bool is_name = end > at && end < text.size() && text[end] == '=' &&
                         std::isdigit(static_cast<unsigned char>(text[at])) == 0;
    const std::size_t blank = text.find_first_of(kBlanks, end);
    if (!is_name || blank == std::string_view::npos) return at;
    variables[std::string(text.substr(at, end - at))] = text.substr(end + 1, blank - end - 1);
    at = std::min(text.find_first_not_of(kBlanks, blank), text.size());
  }
}

// What stands behind a script is handed to its commands, of which one is read.
Script with_flags(Script script, const Script& behind) {
  if (script.commands.empty()) return script;
  for (const OptionText& flag : behind.flags) {
    for (std::vector<std::string>& command : script.commands) {
      command.push_back(flag.name);
      if (!flag.value.empty()) command.push_back(flag.value);
    }
  }
  return script;
}

void note_steps(jobs::Job& job, const MeasuredRun& run) {
  std::vector<Duration> times;
  for (const LoggedStep& step : run.steady()) times.push_back(step.time(job));
  if (times.empty()) return;
  const std::size_t count = times.size();
  job.notes.push_back("measured: iterations of this log took " +
                      to_string(median(std::move(times))) + " in the median of " +
                      std::to_string(count) + " behind the first " +
                      std::to_string(MeasuredRun::kWarmUp));
}

std::string text_of(const std::string& file) {
  std::string text = read_file(file);
  if (text.find('\0') != std::string::npos)
    throw InputError(file + ": expected text in UTF-8, found bytes of another kind");
  for (std::size_t at = text.find("\r\n"); at != std::string::npos; at = text.find("\r\n", at))
    text.erase(at, 1);
  return text;
}

bool is_of_megatron(const Script& script, const Script& behind) {
  constexpr std::array<std::string_view, 6> kOwn = {
      "--num-layers", "--hidden-size",      "--num-attention-heads",
      "--seq-length", "--micro-batch-size", "--tensor-model-parallel-size"};
  const auto is_own = [&](const OptionText& flag) {
    return std::ranges::find(kOwn, flag.name) != kOwn.end();
  };
  return std::ranges::any_of(script.flags, is_own) || std::ranges::any_of(behind.flags, is_own);
}

jobs::Job read_source(const std::string& source, const Behind& said) {
  const std::size_t space = std::min(source.find(' '), source.size());
  const std::string file = source.substr(0, space);
  Script flags = read_script(said.where, source);  // the file is its first word
  if (source.starts_with('-')) {
    return read_megatron(read_script(said.where, source), said);
  }
  if (starts_training(source)) {
    Script script = read_script(said.where, source, {.environment = said.environment});
    script.variables.insert(said.environment.begin(), said.environment.end());
    if (auto job = read_launch(script, said)) return *job;
    throw InputError(
        said.where +
        ": no command that trains: expected what accelerate launch, torchrun or "
        "deepspeed start with flags of TrainingArguments, or llamafactory-cli or axolotl train");
  }
  if (file.ends_with(".toml")) {
    return read_titan_file(file, without_dashes(flags_behind(file, flags)), said);
  }
  if (is_script(file)) {
    const std::string text = text_of(file);
    const bool is_log = has_megatron_arguments(text);
    Script script =
        is_log ? read_megatron_log(file, text)
               : read_script(file, text,
                             {.words = words_of(said.where, std::string_view(source).substr(space)),
                              .environment = said.environment});
    if (auto job = is_log ? std::nullopt : read_launch(with_flags(script, flags), said))
      return *job;
    if (!is_log && !is_of_megatron(script, flags)) {
      throw InputError(
          file +
          ": no launch that is understood stands in it: expected what torchrun, accelerate "
          "launch or deepspeed start with Megatron's arguments, TrainingArguments or "
          "torchtitan's --job.config_file, or llamafactory-cli or axolotl train");
    }
    replace(script.flags, std::move(flags.flags));
    const std::size_t trainings = script.trainings;
    jobs::Job job = read_megatron(std::move(script), said);
    if (is_log) note_steps(job, measured_run(text));
    note_trainings(job, file, trainings);
    return job;
  }
  if (file.ends_with(".json") || is_yaml(file))
    return read_source_file(file, without_dashes(flags_behind(file, flags)), said);
  return read_plain(source, said);
}

// "bash -x " before the name of a script: how long it is.
std::size_t shell_before(std::string_view text) {
  const auto word_at = [text](std::size_t at) {
    return text.substr(at, text.find_first_of(" :", at) - at);
  };
  const std::string_view shell = word_at(0);
  if (shell != "bash" && shell != "sh" && shell != "sbatch") return 0;
  for (std::size_t at = shell.size();;) {
    at = std::min(text.find_first_not_of(' ', at), text.size());
    const std::string_view word = word_at(at);
    if (is_script(word)) return at;
    if (!word.starts_with('-')) return 0;
    at += word.size();
  }
}

// What stands before the source of a job, that, and the keys behind it.
struct Parts {
  std::map<std::string, std::string> environment = {};
  std::string source, list;
};
Parts parts_of(const std::string& text) {
  Parts parts;
  std::size_t first = take_environment(text, parts.environment);
  first += shell_before(std::string_view(text).substr(first));
  const std::size_t colon = std::max(first, std::min(options_colon(text), text.size()));
  parts.source = text.substr(first, colon - first);
  while (!parts.source.empty() &&
         std::isspace(static_cast<unsigned char>(parts.source.back())) != 0)
    parts.source.pop_back();
  parts.list = text.substr(std::min(colon + 1, text.size()));
  return parts;
}

std::string file_of(const std::string& source) { return source.substr(0, source.find(' ')); }

}  // namespace

jobs::Job load_job(const std::string& text) {
  Parts parts = parts_of(text);
  const std::string& source = parts.source;
  const std::string file = file_of(source);
  const bool is_file =
      file.ends_with(".toml") || file.ends_with(".json") || is_yaml(file) || is_script(file);
  const bool is_command = starts_training(source);
  const bool is_arguments = source.starts_with("-");
  const bool is_name = !is_file && !is_arguments && !is_command;
  if (is_name && source.find(':') != std::string::npos) return jobs::parse_job(text);
  const std::string where = is_file        ? file
                            : is_arguments ? std::string(kArguments)
                            : is_command   ? file
                                           : "job \"" + text + "\"";
  Behind said = said_after(where, parts.list);
  said.environment = std::move(parts.environment);
  if (!said.environment.empty() && !is_script(file) && !is_yaml(file) && !is_command)
    throw InputError(where + ": " + said.environment.begin()->first +
                     "=: variables stand before a script");
  jobs::Job job = read_source(source, said);
  jobs::set_options(job, said.list, where);
  jobs::complete(job, where);
  return job;
}

std::optional<std::string> log_of_job(const std::string& text) {
  const std::string file = file_of(parts_of(text).source);
  const bool is_log = is_script(file) && has_megatron_arguments(read_file(file));
  return is_log ? std::optional(file) : std::nullopt;
}

}  // namespace dovetail::frameworks
