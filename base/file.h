// Whole files in and out; a file that we write is either complete or absent.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dovetail {

// The most that read_file takes: 1 GiB. What is larger is no file of ours, or a device without an end.
inline constexpr std::size_t kLargestFile = std::size_t{1} << 30;

// The content of a file. Throws InputError "PATH: cannot be read: REASON", also where it holds more than
// `largest` bytes.
std::string read_file(const std::string& path, std::size_t largest = kLargestFile);

// Writes to PATH.tmp.PID in the same directory, flushes, then renames: a reader never sees half of
// it. A link is followed: the file that it names is replaced, and the link stays. What exists and is
// no regular file (/dev/stdout, a pipe, a device) is written through in place. Throws InputError
// "PATH: cannot be written: REASON" and leaves nothing behind.
void write_file(const std::string& path, std::string_view content);

// A file and what it shall hold.
struct NewFile {
  std::string path;
  std::string content;
};

// Several files like that: none is replaced before all have been written.
void write_files(std::span<const NewFile> files);

// Finds out, before any work, that write_file has a place to write to: makes its temporary and
// removes it. Throws as write_file does.
void require_writable(const std::string& path);

// Whether both name one file, by any links, or would once it is written. Devices that hold nothing,
// such as /dev/null and a terminal, are never the same: nothing is lost there.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace dovetail
