// Bytes of a file in pieces, unpacked on the way where the file is gzip.
//
//   ByteSource source = ByteSource::file("rank0.json.gz", {});
//   while (const std::size_t size = source.read(buffer)) ...
//
// Plain or gzip is decided by the first two bytes, not by the name; several gzip members in a row
// are one stream, as gzip itself has it, and gzip within gzip is unpacked, too. What other packers wrote (zip, tar, xz, zstd, bzip2)
// is refused with the command that unpacks it. Memory: 256 KiB, whatever the file holds. A file that
// unpacks to more than the limit, or 200 times its own size beyond the first 64 MiB, is refused: it
// was made to fill a disk, not by a profiler (whose traces shrink 10 to 30 times).
//
// A file that ends in the middle of its gzip stream, or whose check sum is wrong, gives what could be
// unpacked; damage() then says so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dovetail::imports {

struct ByteLimits {
  std::int64_t unpacked = std::int64_t{16} << 30;    // bytes that a file may hold
  std::int64_t free_ratio = std::int64_t{64} << 20;  // bytes that may come from next to nothing
  std::int64_t ratio = 200;                          // beyond those: unpacked per packed byte
};

class ByteSource {
 public:
  // "-" is standard input. Throws InputError "PATH: cannot be read: REASON", or one that names another packer.
  static ByteSource file(const std::string& path, const ByteLimits& limits);
  // Bytes in memory, which must outlive the source; `name` stands for the file in messages.
  static ByteSource memory(std::string name, std::string_view bytes, const ByteLimits& limits);
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;
  ~ByteSource();

  // Fills the front of `into`; how many bytes, 0 only at the end. Throws InputError beyond the
  // limits and where reading fails.
  std::size_t read(std::span<char> into);

  // Why the bytes ended before the file said so; empty: they did not.
  [[nodiscard]] const std::string& damage() const;
  [[nodiscard]] const std::string& name() const;
  // Bytes handed out so far.
  [[nodiscard]] std::int64_t unpacked() const;

 private:
  struct State;
  explicit ByteSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A whole file, unpacked where it is gzip, for readers that want all of it at once. Throws InputError:
// unreadable, a gzip stream that is damaged or cut off, more than `largest` bytes, or text in UTF-16.
std::string read_unpacked(const std::string& path, std::size_t largest = kLargestFile);

// The first bytes of a file, unpacked where it is gzip, for who asks what it is. Throws InputError: unreadable.
inline constexpr std::size_t kHeadOfFile = std::size_t{1} << 16;
std::string head_of(const std::string& path);

}  // namespace dovetail::imports
