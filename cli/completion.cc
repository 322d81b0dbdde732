// Writes completion scripts for bash, zsh and fish from the commands and options themselves.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json_reader.h"
#include "frameworks/framework.h"
#include "models/clusters/cluster.h"
#include "models/workloads/workload.h"
#include "schedule/policies/policies.h"

namespace dovetail::cli {
namespace {

using Words = std::vector<std::string>;

// What an option's value can be, beside a file; by the option's name, or by "COMMAND NAME" where commands differ.
using Values = std::map<std::string, Words>;

Values known_values(const std::string& data_dir) {
  Values values;
  values["--workload"] = models::workload_names(data_dir);
  values["--cluster"] = models::cluster_choices(data_dir + "/clusters");
  values["--over"] = values["--cluster"];
  for (const schedule::PolicyHelp& policy : schedule::policy_help(frameworks::presets())) {
    values["--policy"].push_back(policy.name);
  }
  values["--policies"] = values["--policy"];
  values["--to"] = frameworks::ids(frameworks::has_writer);
  values["--mode"] = {"view", "copy"};
  values["--wait"] = {"first-use", "end-of-backward"};
  values["--backend"] = {"cpu", "cuda"};
  values["--collectives"] = {"ring", "gloo"};
  values["explore --framework"] = frameworks::ids(frameworks::has_rows);
  values["diagnose --framework"] = frameworks::ids(frameworks::has_settings);
  values["--f32-math"] = {"full", "tf32"};
  values["--issue"] = {"eager", "graph"};
  values["--scales"] = {"kernel", "collective"};
  values["--trace-detail"] = {"commands", "full"};
  values["--stand-in"] = {"send-to-self"};
  values["--dtype"] = {"f32", "f16", "bf16", "f64"};
  values["SHELL"] = {"bash", "zsh", "fish", "man"};
  values["WHAT"] = {"workloads", "clusters", "policies", "program", "schedule", "commands"};
  for (const char* const list : {"--cluster", "--workload", "--policy"}) {
    const Words& names = values[list];
    values["WHAT"].insert(values["WHAT"].end(), names.begin(), names.end());
  }
  return values;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string last_word(const CommandText& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

// All commands below, each before its own: "dovetail import", "dovetail import kineto".
void collect(const CommandText& command, std::vector<const CommandText*>& all) {
  all.push_back(&command);
  for (const CommandText& sub : command.commands) collect(sub, all);
}

// Its place or last name, as `Values` has it.
std::string key_of(const OptionText& option) {
  return option.names.empty() ? option.word : option.names.back();
}

std::string values_of(const CommandText& command, const OptionText& option, const Values& values) {
  auto found = values.find(last_word(command) + " " + key_of(option));
  if (found == values.end()) found = values.find(key_of(option));
  return found == values.end() ? "" : joined(found->second);
}

// ---- bash

std::string bash_command(const CommandText& command, const Values& values) {
  std::string text = "    '" + command.name + "')\n      case $prev in\n";
  Words names;
  std::string placed;
  for (const OptionText& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.names.empty()) placed = values_of(command, option, values);
    if (option.names.empty() || option.word.empty()) continue;
    std::string pattern;
    for (const std::string& name : option.names) pattern += (pattern.empty() ? "" : " | ") + name;
    text += "        " + pattern + ") words='" + values_of(command, option, values) +
            "' files=yes ;;\n";
  }
  for (const CommandText& sub : command.commands) placed += " " + last_word(sub);
  const std::string files = command.commands.empty() ? "yes" : "";
  return text + "        *) words='" + placed + "' files=" + files + " options='" + joined(names) +
         "' ;;\n      esac\n      ;;\n";
}

std::string bash_text(const CommandText& tool, const Values& values) {
  std::vector<const CommandText*> all;
  collect(tool, all);
  std::string known;
  std::string cases;
  for (const CommandText* const command : all) {
    if (command != &tool) known += (known.empty() ? "'" : " | '") + command->name + "'";
    cases += bash_command(*command, values);
  }
  return R"(# bash completion of dovetail; written by `dovetail completion bash`
_dovetail() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local command=dovetail words='' options='' files='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
      )" +
         known + R"() command+=" ${COMP_WORDS[i]}" ;;
    esac
  done
  case $command in
)" + cases +
         R"(  esac
  COMPREPLY=()
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  [[ -z $files ]] && return
  compopt -o filenames 2>/dev/null
  mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _dovetail dovetail
)";
}

// ---- zsh

// Inside single quotes, and with the characters of _arguments taken as they are.
std::string zsh_quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result;
}

std::string zsh_action(const std::string& words) {
  return words.empty() ? "_files"
                       : "{_alternative \"words:value:(" + words + ")\" \"files:file:_files\"}";
}

std::string zsh_function(const CommandText& command) {
  std::string name = "_" + command.name;
  for (char& c : name) c = c == ' ' || c == '-' ? '_' : c;
  return name;
}

std::string zsh_command(const CommandText& command, const Values& values) {
  std::string text = zsh_function(command) + "() {\n  local state line\n";
  if (!command.commands.empty()) {
    text += "  local -a commands=(\n";
    for (const CommandText& sub : command.commands) {
      text += "    '" + last_word(sub) + ":" + zsh_quoted(sub.about) + "'\n";
    }
    text += "  )\n";
  }
  text += "  _arguments -C";
  for (const OptionText& option : command.options) {
    const std::string about = "[" + zsh_quoted(option.about) + "]";
    const std::string value =
        option.word.empty()
            ? ""
            : ":" + option.word + ":" + zsh_action(values_of(command, option, values));
    if (option.names.empty()) {
      text += " \\\n    '" + std::string(option.repeats ? "*" : "1") + value + "'";
    }
    for (const std::string& name : option.names) {
      text += " \\\n    '" + std::string(option.repeats ? "*" : "") + name + about + value + "'";
    }
  }
  if (command.commands.empty()) return text + "\n}\n";
  text +=
      " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n"
      "    command) _describe command commands ;;\n    argument)\n      case $line[1] in\n";
  for (const CommandText& sub : command.commands) {
    text += "        " + last_word(sub) + ") " + zsh_function(sub) + " ;;\n";
  }
  return text + "      esac\n      ;;\n  esac\n}\n";
}

std::string zsh_text(const CommandText& tool, const Values& values) {
  std::vector<const CommandText*> all;
  collect(tool, all);
  std::string text = "#compdef dovetail\n# written by `dovetail completion zsh`\n";
  for (const CommandText* const command : all) text += zsh_command(*command, values);
  return text + "_dovetail \"$@\"\n";
}

// ---- fish

std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// Where a command's options apply, in fish's words.
std::string fish_condition(const CommandText& command) {
  std::string text;
  std::size_t begin = command.name.find(' ');
  while (begin != std::string::npos) {
    const std::size_t end = command.name.find(' ', begin + 1);
    text += (text.empty() ? "" : "; and ") + std::string("__fish_seen_subcommand_from ") +
            command.name.substr(begin + 1, end - begin - 1);
    begin = end;
  }
  if (command.commands.empty()) return text;
  if (text.empty()) return "__fish_use_subcommand";
  text += "; and not __fish_seen_subcommand_from";
  for (const CommandText& sub : command.commands) text += " " + last_word(sub);
  return text;
}

std::string fish_option(const OptionText& option, const std::string& words) {
  std::string text;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.word.empty()) text += option.names.empty() ? " -F" : " -r -F";
  if (!words.empty()) text += " -a " + fish_quoted(words);
  return text + " -d " + fish_quoted(option.about);
}

std::string fish_text(const CommandText& tool, const Values& values) {
  std::vector<const CommandText*> all;
  collect(tool, all);
  std::string text = "# written by `dovetail completion fish`\n";
  for (const CommandText* const command : all) {
    const std::string start = "complete -c dovetail -n " + fish_quoted(fish_condition(*command));
    for (const CommandText& sub : command->commands) {
      text += start + " -f -a " + last_word(sub) + " -d " + fish_quoted(sub.about) + "\n";
    }
    for (const OptionText& option : command->options) {
      text += start + fish_option(option, values_of(*command, option, values)) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_text(const std::string& shell, const CommandText& tool,
                            const std::string& data_dir) {
  if (shell == "man") return man_page(tool);
  const Values values = known_values(data_dir);
  if (shell == "bash") return bash_text(tool, values);
  if (shell == "zsh") return zsh_text(tool, values);
  if (shell == "fish") return fish_text(tool, values);
  throw InputError("completion: expected bash, zsh, fish or man, found \"" + shell + "\"");
}

}  // namespace dovetail::cli
