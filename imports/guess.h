// Guesses which format of `dovetail import` a text is in, so that a user who names none, or the
// wrong one, is told.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace dovetail::imports {

// "nccl-tests", "nccl-log", "kineto", ...; "" where it looks like none of them. Looks at the first 64 KiB.
std::string guess_format(std::string_view text);

// Where a file that is refused as one of `format` ("kineto") looks like another: which, and the way on from there. "" where
// there is nothing to say. Files that no format reads are named, too, with what to give instead.
//   "run.sqlite looks like nsys: dovetail import nsys run.sqlite --ranks N"
// Throws InputError where it cannot be read.
std::string way_on(const std::string& path, std::string_view format);

// Of a file, unpacked where it is gzip. Throws InputError where it cannot be read.
std::string guess_format_of_file(const std::string& path);

}  // namespace dovetail::imports
