// Whole files in and out; a file that we write is either complete or absent.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace dovetail {

// The content of a file. Throws InputError "PATH: cannot be read: REASON".
std::string read_file(const std::string& path);

// Writes to PATH.tmp.PID in the same directory, flushes, then renames: a reader never sees half of
// it. Throws InputError "PATH: cannot be written: REASON" and leaves nothing behind.
void write_file(const std::string& path, std::string_view content);

}  // namespace dovetail
