// What CLI11 knows about the commands, as text, and why it cannot parse a line, in our words.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <span>
#include <string>

#include "cli/command_text.h"

namespace dovetail::cli {

// What a subcommand does once the line is parsed; it prints to the stream. Its exit code.
using Action = std::function<int(std::ostream&)>;

inline constexpr std::int64_t kLargestNumber = std::numeric_limits<std::int32_t>::max();

// Refuses what is no whole number in the range.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

// The command with its options and subcommands; hidden ones are left out.
CommandText describe(const CLI::App& command, const std::string& name);

// Why the words behind the program's name cannot be parsed: one line, with the nearest known word.
std::string refusal(const CLI::App& app, std::span<const std::string> words,
                    const CLI::ParseError& error);

}  // namespace dovetail::cli
