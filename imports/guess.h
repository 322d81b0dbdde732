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

// Of a file, unpacked where it is gzip. Throws InputError where it cannot be read.
std::string guess_format_of_file(const std::string& path);

}  // namespace dovetail::imports
