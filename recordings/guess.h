// Guesses which format of `dovetail import` a text is in, so that a user who names none, or the
// wrong one, is told.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/formats.h"

#include <optional>
#include <string>
#include <string_view>

namespace dovetail::imports {

// Nothing where it looks like none of them. Looks at the first 64 KiB.
std::optional<Format> guess_format(std::string_view text);
// Of a file, unpacked where it is gzip; nothing where there is none. Throws InputError where it cannot be read.
std::optional<Format> guess_format_of_file(const std::string& path);

// Where a file that is refused as one of `format` looks like another: which, and the way on from there. "" where
// there is nothing to say. Files that no format reads are named, too, with what to give instead.
//   "run.sqlite looks like nsys: dovetail import nsys run.sqlite --step NVTX_RANGE --bytes SIZE,... --ranks N"
// Throws InputError where it cannot be read.
std::string way_on(const std::string& path, Format format);

// What a file is, or is read as: costs as a cluster, reports by no command.
enum class FileKind : std::uint8_t { Workload, Cluster, Plan, Trace, Foreign, Costs, Report };
constexpr auto words_of(FileKind) {
  return words("a workload", "a cluster", "a plan", "a trace of dovetail",
               "a file of another program", "a list of costs", "a report of dovetail");
}

// Where a file is plainly of another kind than expected: what it is, and the command for it. "" where it may be right, is
// not there, or nothing can be told. A measured workload may stand for its machine.
//   "x.json: a cluster, not a plan: name it with --cluster; dovetail show x.json prints it"
std::string wrong_kind(const std::string& path, FileKind expected);

// Whether it says of itself that it is a cluster of this tool.
bool is_cluster_file(const std::string& path);

}  // namespace dovetail::imports
