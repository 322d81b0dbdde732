// Reads CLI11's tables of commands and options into plain values, and words its errors as the rest
// of the tool words them: what was expected, what was found, the nearest known name.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/json_reader.h"

namespace dovetail::cli {
namespace {

// What validators say of the values: "1 to 64" of "TEXT:1 to 64".
std::string range_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  return colon == std::string::npos ? "" : type.substr(colon + 1);
}

OptionText describe_option(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  const bool is_placed = text.names.empty();
  const OptionWord known = option_word(is_placed ? option.get_name(true) : text.names.back());
  const bool is_flag = option.get_items_expected_max() == 0;
  text.word = is_flag ? "" : known.word;
  text.about = option.get_description();
  if (const std::string range = range_of(option); !range.empty()) text.about += " (" + range + ")";
  const bool is_plain = option.get_group() == "Options";
  text.group = is_plain ? known.group : option.get_group();
  text.required = option.get_required();
  text.repeats = option.get_items_expected_max() > 1;
  return text;
}

// "; did you mean NEAR?", or ";" where nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string> known) {
  const std::string near = word.size() > 2 ? nearest_word(word, known) : "";
  return near.empty() ? ";" : "; did you mean " + near + "?";
}

// Names every option, "--world" and "-o" alike.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// What stands where a subcommand (of import: a format) belongs, if it is none and no option there.
std::string unknown_command(const CLI::App& app, std::span<const std::string> words) {
  const std::string of = app.get_parent() == nullptr ? "" : app.get_name() + ": ";
  const std::string noun = of.empty() ? "subcommand" : "format";
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* const command : app.get_subcommands({})) {
    known.push_back(command->get_name());
    list += (list.empty() ? "" : ", ") + known.back();
  }
  if (words.empty()) return of + "name a " + noun + ": " + list;
  const std::string& word = words.front();
  if (std::ranges::find(known, word) != known.end()) return {};
  if (!word.starts_with('-')) {
    return of + "unknown " + noun + " \"" + word + "\"" + suggestion(word, known) +
           " there are: " + list;
  }
  const std::vector<std::string> options = option_names(app);
  if (std::ranges::find(options, word) != options.end()) return {};
  return of + "unknown option " + word + suggestion(word, options) + " expected a " + noun + ": " +
         list;
}

// The first option that a subcommand does not know, in words; "" if there is none.
std::string unknown_option(const CLI::App& command, std::span<const std::string> words) {
  const std::vector<std::string> known = option_names(command);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    const bool is_long = word.starts_with("--") && word.size() > 2;
    const bool is_short = !is_long && word.size() > 1 && word[0] == '-' &&
                          std::isalpha(static_cast<unsigned char>(word[1])) != 0;
    if (!is_long && !is_short) continue;
    const std::string name = is_long ? word : word.substr(0, 2);
    if (std::ranges::find(known, name) != known.end()) continue;
    const bool is_format =
        command.get_parent() != nullptr && command.get_parent()->get_parent() != nullptr;
    const std::string name_of_all =
        (is_format ? command.get_parent()->get_name() + " " : "") + command.get_name();
    return command.get_name() + ": unknown option " + word + suggestion(word, known) +
           " dovetail " + name_of_all + " --help lists them";
  }
  return {};
}

// "--policy", or for what is named by its place "PLAN".
std::string title(const OptionText& option) {
  return option.names.empty() ? option.word : option.names.back();
}

// An option that stands more often than it may, or lacks its value; or one that is missing.
std::string wrong_count(const CLI::App& command, const CLI::ParseError& error) {
  const std::string of = command.get_name() + ": ";
  const std::string said = error.what();
  for (const CLI::Option* const option : command.get_options()) {
    const OptionText text = describe_option(*option);
    const bool is_single = !text.repeats && !text.word.empty();
    if (is_single && option->count() > 1) return of + title(text) + " may be given once";
    const bool is_meant = said.starts_with(option->get_name() + ":");
    if (is_meant && error.get_name() == "ArgumentMismatch") {
      return of + title(text) + " needs a value: " + text.about;
    }
  }
  if (error.get_name() != "RequiredError") return {};
  for (const CLI::Option* const option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const OptionText text = describe_option(*option);
    return of + title(text) + " is missing: " + text.about;
  }
  return {};
}

}  // namespace

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto wrong = [low, high](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, value);
    if (status == std::errc() && rest == end && value >= low && value <= high) return {};
    return "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
           ", found \"" + text + "\"";
  };
  const bool is_bounded = high < kLargestNumber;
  return CLI::Validator(wrong,
                        is_bounded ? std::to_string(low) + " to " + std::to_string(high) : "");
}

CommandText describe(const CLI::App& command, const std::string& name) {
  CommandText text{.name = name,
                   .about = command.get_description(),
                   .options = {},
                   .more = command.get_footer(),
                   .commands = {}};
  for (const CLI::Option* const option : command.get_options()) {
    if (!option->get_group().empty()) text.options.push_back(describe_option(*option));
  }
  for (const CLI::App* const sub : command.get_subcommands({})) {
    if (!sub->get_group().empty())
      text.commands.push_back(describe(*sub, name + " " + sub->get_name()));
  }
  return text;
}

std::string refusal(const CLI::App& app, std::span<const std::string> words,
                    const CLI::ParseError& error) {
  if (std::string text = unknown_command(app, words); !text.empty()) return text;
  for (const CLI::App* const command : app.get_subcommands({})) {
    if (command->get_name() != words.front()) continue;
    if (!command->get_subcommands({}).empty()) return refusal(*command, words.subspan(1), error);
    if (std::string text = unknown_option(*command, words); !text.empty()) return text;
    if (std::string text = wrong_count(*command, error); !text.empty()) return text;
  }
  return words.front() + ": " + error.what();
}

}  // namespace dovetail::cli
