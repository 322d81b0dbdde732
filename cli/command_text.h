// What there is to say about a command: its options by group, and examples. Help texts, the man page and
// the completions of shells are all made from it.
//
//   dovetail predict - simulate a plan on a machine
//
//   usage: dovetail predict [OPTIONS] [PLAN...]
//
//   Input
//     PLAN...             plan files; several are compared
//     --cluster NAME      shipped name or file (default: the plan's own, unless that is a file)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dovetail::cli {

struct OptionText {
  std::vector<std::string> names;  // "-o", "--output"; none: it is named by its place
  std::string word;                // what stands for its value, "FILE"; "" for a flag
  std::string about;
  std::string group;  // "" is not shown
  bool required = false;
  bool repeats = false;
};

struct CommandText {
  std::string name;   // as typed: "dovetail import kineto"
  std::string about;  // a line
  std::vector<OptionText> options;
  std::string more;  // below the options: examples
  std::vector<CommandText> commands;
};

// The word that stands for an option's value, and the group that it is listed under.
struct OptionWord {
  std::string word;
  std::string group;
};
// By an option's long name ("--trace"), or by the name of its place.
OptionWord option_word(const std::string& name);

// Words of a text, in lines of at most `width` columns, each but the first indented.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

// The text of --help.
std::string help_text(const CommandText& command, std::size_t width);

}  // namespace dovetail::cli
