// Lays out help texts: options by group, in columns that fit the terminal.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/command_text.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace dovetail::cli {
namespace {

struct KnownWord {
  std::string_view name;
  std::string_view word;
  std::string_view group;
};

constexpr std::string_view kInput = "Input";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kRanks = "Ranks and links";
constexpr std::string_view kCuda = "GPUs (--backend cuda)";
constexpr std::string_view kOther = "Options";

// An option of one name means the same wherever it stands.
constexpr std::array kWords = {
    KnownWord{"--workload", "NAME", kInput},
    KnownWord{"--cluster", "NAME", kInput},
    KnownWord{"--plan", "FILE", kInput},
    KnownWord{"--world", "RANKS", kInput},
    KnownWord{"--layout", "DEGREES", kInput},
    KnownWord{"--what-if", "CHANGES", kInput},
    KnownWord{"--force", "", kInput},
    KnownWord{"--policy", "POLICY", kOther},
    KnownWord{"--policies", "POLICIES", kOther},
    KnownWord{"--thresholds", "SIZES", kOther},
    KnownWord{"--points", "COUNT", kOther},
    KnownWord{"--first-bucket", "SIZE", kOther},
    KnownWord{"--mode", "WORD", kOther},
    KnownWord{"--wait", "WORD", kOther},
    KnownWord{"--steps", "COUNT", kOther},
    KnownWord{"--step", "NAME", kOther},
    KnownWord{"--parameters", "FILE", kInput},
    KnownWord{"--tables", "DIRECTORY", kInput},
    KnownWord{"--to", "TARGET", kOther},
    KnownWord{"--shape", "SHAPE", kOther},
    KnownWord{"--mesh", "SHAPE", kOther},
    KnownWord{"--to-mesh", "SHAPE", kOther},
    KnownWord{"--to-first-rank", "RANK", kOther},
    KnownWord{"--from", "LAYOUT", kOther},
    KnownWord{"--dtype", "TYPE", kOther},
    KnownWord{"--latency", "TIME", kOther},
    KnownWord{"--wire", "RATE", kOther},
    KnownWord{"--copy", "RATE", kOther},
    KnownWord{"--name", "NAME", kOther},
    KnownWord{"--over", "NAME", kOther},
    KnownWord{"--gpu", "GPU", kInput},
    KnownWord{"--collective", "NAME", kOther},
    KnownWord{"--collective-pattern", "TEXT", kOther},
    KnownWord{"--framework", "NAME", kOther},
    KnownWord{"--bytes", "SIZES", kOther},
    KnownWord{"--warmup", "STEPS", kOther},
    KnownWord{"--rounds", "COUNT", kOther},
    KnownWord{"--time", "TIME", kOther},
    KnownWord{"--op-steps", "COUNT", kOther},
    KnownWord{"--budget", "TIME", kOther},
    KnownWord{"--yes", "", kOther},
    KnownWord{"--output", "FILE", kOutput},
    KnownWord{"--trace", "FILE", kOutput},
    KnownWord{"--perfetto", "FILE", kOutput},
    KnownWord{"--html", "FILE", kOutput},
    KnownWord{"--costs", "FILE", kOutput},
    KnownWord{"--json", "", kOutput},
    KnownWord{"--csv", "", kOutput},
    KnownWord{"--markdown", "", kOutput},
    KnownWord{"--plot", "", kOutput},
    KnownWord{"--timeline", "", kOutput},
    KnownWord{"--ranks", "COUNT", kRanks},
    KnownWord{"--node-ranks", "COUNT", kRanks},
    KnownWord{"--fit-ranks", "COUNT", kRanks},
    KnownWord{"--backend", "NAME", kRanks},
    KnownWord{"--netns", "PREFIX", kRanks},
    KnownWord{"--collectives", "NAME", kRanks},
    KnownWord{"--rate", "RATE", kRanks},
    KnownWord{"--store", "HOST:PORT", kRanks},
    KnownWord{"--device", "NUMBER", kCuda},
    KnownWord{"--stand-in", "NAME", kCuda},
    KnownWord{"--f32-math", "WORD", kCuda},
    KnownWord{"--issue", "WORD", kCuda},
    KnownWord{"--graph", "", kCuda},
    KnownWord{"--scales", "WORD", kCuda},
    KnownWord{"--trace-detail", "WORD", kCuda},
    KnownWord{"--cluster-size", "COUNT", kCuda},
    KnownWord{"--deadline", "TIME", kCuda},
    KnownWord{"--buffers", "WORD", kCuda},
    KnownWord{"--two-events", "", kCuda},
    KnownWord{"--largest", "SIZE", kCuda},
    KnownWord{"--max-ctas", "COUNT", kCuda},
    KnownWord{"--job", "JOB", kInput},
    KnownWord{"--with-steps", "", kOther},
    KnownWord{"--rows", "FILE", kOutput},
    KnownWord{"--all", "", kOutput},
    KnownWord{"--notes", "", kOutput},
    KnownWord{"plans", "PLAN", kInput},
    KnownWord{"plan", "PLAN", kInput},
    KnownWord{"first", "FIRST", kInput},
    KnownWord{"second", "SECOND", kInput},
    KnownWord{"what", "WHAT", kInput},
    KnownWord{"files", "FILE", kInput},
    KnownWord{"file", "FILE", kInput},
    KnownWord{"command", "COMMAND", kInput},
    KnownWord{"against", "WHAT", kInput},
    KnownWord{"shell", "SHELL", kInput},
};

// Groups stand in this order, then others as they come.
constexpr std::array kOrder = {kInput, kOther, kRanks, kCuda, kOutput};

// "-o, --output FILE"
std::string left_side(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + name;
  if (!option.word.empty()) text += (text.empty() ? "" : " ") + option.word;
  if (option.repeats && option.names.empty()) text += "...";
  return text;
}

std::string right_side(const OptionText& option) {
  std::string text = option.about;
  if (option.required) text += " (required)";
  if (option.repeats && !option.names.empty()) text += " (may be repeated)";
  return text;
}

void add_row(std::string& text, const std::string& left, const std::string& right,
             std::size_t width) {
  constexpr std::size_t kColumn = 24;
  std::string line = "  " + left;
  if (line.size() + 2 > kColumn) {
    text += line + "\n";
    line.clear();
  }
  line += std::string(kColumn - line.size(), ' ');
  text += line + wrapped(right, kColumn, width) + "\n";
}

std::vector<std::string> groups_of(const CommandText& command) {
  std::vector<std::string> groups;
  const auto add = [&](std::string_view group) {
    const bool is_used =
        std::ranges::find(command.options, group, &OptionText::group) != command.options.end();
    if (is_used && std::ranges::find(groups, group) == groups.end()) groups.emplace_back(group);
  };
  for (const std::string_view group : kOrder) add(group);
  for (const OptionText& option : command.options) {
    if (!option.group.empty()) add(option.group);
  }
  return groups;
}

// "usage: dovetail plan --workload NAME [OPTIONS]"
std::string usage(const CommandText& command) {
  std::string text = "usage: " + command.name;
  if (!command.commands.empty()) text += " COMMAND";
  for (const OptionText& option : command.options) {
    if (option.required && !option.names.empty())
      text += " " + option.names.back() + " " + option.word;
  }
  text += " [OPTIONS]";
  for (const OptionText& option : command.options) {
    if (!option.names.empty()) continue;
    const std::string place = option.word + (option.repeats ? "..." : "");
    text += option.required ? " " + place : " [" + place + "]";
  }
  return text;
}

}  // namespace

OptionWord option_word(const std::string& name) {
  const auto known = std::ranges::find(kWords, name, &KnownWord::name);
  if (known == kWords.end()) return {.word = "VALUE", .group = std::string(kOther)};
  return {.word = std::string(known->word), .group = std::string(known->group)};
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  const std::size_t room = width > indent + 20 ? width - indent : 20;
  std::string result;
  std::size_t column = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > 0 && column + 1 + word.size() > room) {
      result += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    begin = end + 1;
  }
  return result;
}

std::string help_text(const CommandText& command, std::size_t width) {
  std::string text = wrapped(command.name + " - " + command.about, 2, width) + "\n\n" +
                     wrapped(usage(command), 4, width) + "\n";
  if (!command.commands.empty()) text += "\n";
  for (const CommandText& sub : command.commands) {
    add_row(text, sub.name.substr(sub.name.rfind(' ') + 1), sub.about, width);
  }
  for (const std::string& group : groups_of(command)) {
    text += "\n" + group + "\n";
    for (const OptionText& option : command.options) {
      if (option.group == group) add_row(text, left_side(option), right_side(option), width);
    }
  }
  if (!command.more.empty()) text += "\n" + command.more + "\n";
  return text;
}

}  // namespace dovetail::cli
