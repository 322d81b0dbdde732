// Reads a file in pieces and unpacks gzip on the way, with a bound on what comes out; zlib is
// called here and nowhere else.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/byte_source.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dovetail::imports {

struct ByteSource::State {
  std::string name;
  ByteLimits limits;
  int fd = -1;              // of a file
  std::string_view memory;  // otherwise
  std::array<char, 128 * 1024> packed{};
  std::span<const char> ahead;  // read and not yet handed on
  bool is_gzip = false;
  bool in_member = false;  // of gzip
  bool ended = false;
  z_stream inflater{};
  bool inflater_ready = false;
  std::int64_t bytes_in = 0;
  std::int64_t bytes_out = 0;
  std::string damage;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (inflater_ready) ::inflateEnd(&inflater);
    if (fd >= 0) ::close(fd);
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw InputError(name + ": " + reason);
  }

  // Makes `ahead` longer than nothing, unless the file is at its end.
  void fill() {
    if (!ahead.empty()) return;
    if (fd < 0) {
      const std::size_t size = std::min(memory.size(), packed.size());
      ahead = {memory.data(), size};
      memory.remove_prefix(size);
    } else {
      ssize_t size = 0;
      do {
        size = ::read(fd, packed.data(), packed.size());
      } while (size < 0 && errno == EINTR);
      if (size < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
      ahead = {packed.data(), static_cast<std::size_t>(size)};
    }
    bytes_in += static_cast<std::int64_t>(ahead.size());
  }

  void begin() {
    fill();
    is_gzip = ahead.size() >= 2 && ahead[0] == '\x1f' && ahead[1] == '\x8b';
    if (!is_gzip) return;
    constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, with gzip's header
    if (::inflateInit2(&inflater, kGzipWindow) != Z_OK) fail("cannot be unpacked: zlib refuses");
    inflater_ready = true;
    in_member = true;
  }

  std::size_t read_plain(std::span<char> into) {
    fill();
    const std::size_t size = std::min(into.size(), ahead.size());
    std::copy_n(ahead.begin(), size, into.begin());
    ahead = ahead.subspan(size);
    return size;
  }

  std::size_t end_with(std::string reason) {
    damage = std::move(reason);
    ended = true;
    return 0;
  }

  // One call of zlib; how many bytes came out.
  std::size_t inflate_once(std::span<char> into) {
    fill();
    if (ahead.empty()) {
      if (in_member) return end_with("the gzip stream is cut off");
      ended = true;
      return 0;
    }
    if (!in_member) {
      if (ahead[0] != '\x1f') return end_with("bytes after the gzip stream");
      ::inflateReset(&inflater);
      in_member = true;
    }
    // zlib's interface is not const-correct; it does not write there.
    inflater.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(ahead.data()));  // NOLINT
    inflater.avail_in = static_cast<uInt>(ahead.size());
    inflater.next_out = reinterpret_cast<Bytef*>(into.data());
    inflater.avail_out = static_cast<uInt>(into.size());
    const int status = ::inflate(&inflater, Z_NO_FLUSH);
    ahead = ahead.last(inflater.avail_in);
    const std::size_t size = into.size() - inflater.avail_out;
    if (status == Z_STREAM_END) {
      in_member = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const char* const said = inflater.msg;
      static_cast<void>(
          end_with(std::string("the gzip stream is damaged: ") + (said ? said : "unknown error")));
    }
    return size;
  }

  void require_sane_size() const {
    if (bytes_out > limits.unpacked) {
      fail("unpacks to more than " + std::to_string(limits.unpacked) + " bytes, the limit");
    }
    if (is_gzip && bytes_out > limits.free_ratio && bytes_out / limits.ratio > bytes_in) {
      fail("unpacks to more than " + std::to_string(limits.ratio) +
           " times its own size: no log or trace shrinks that far; refused");
    }
  }

  std::size_t read(std::span<char> into) {
    if (into.size() > (1U << 30)) into = into.first(1U << 30);
    std::size_t size = 0;
    if (!is_gzip) {
      size = read_plain(into);
      ended = size == 0;
    } else {
      while (size == 0 && !ended) size = inflate_once(into);
    }
    bytes_out += static_cast<std::int64_t>(size);
    require_sane_size();
    return size;
  }
};

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) { state_->begin(); }
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

ByteSource ByteSource::file(const std::string& path, const ByteLimits& limits) {
  auto state = std::make_unique<State>();
  state->name = path;
  state->limits = limits;
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0) state->fail(std::string("cannot be read: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(state->fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    state->fail("cannot be read: it is a directory; name its files");
  }
  return ByteSource(std::move(state));
}

ByteSource ByteSource::memory(std::string name, std::string_view bytes, const ByteLimits& limits) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->limits = limits;
  state->memory = bytes;
  return ByteSource(std::move(state));
}

std::size_t ByteSource::read(std::span<char> into) {
  return state_->ended ? 0 : state_->read(into);
}
const std::string& ByteSource::damage() const { return state_->damage; }
const std::string& ByteSource::name() const { return state_->name; }
std::int64_t ByteSource::unpacked() const { return state_->bytes_out; }

std::string read_unpacked(const std::string& path, std::size_t largest) {
  ByteSource source = ByteSource::file(path, {.unpacked = static_cast<std::int64_t>(largest)});
  std::string text;
  std::array<char, 64 * 1024> piece{};
  while (const std::size_t size = source.read(piece)) text.append(piece.data(), size);
  if (!source.damage().empty()) throw InputError(path + ": " + source.damage());
  if (text.starts_with("\xFF\xFE") ||
      text.starts_with("\xFE\xFF")) {  // a shell of Windows wrote it
    throw InputError(path + ": UTF-16; make UTF-8 of it: iconv -f UTF-16 -t UTF-8");
  }
  return text;
}

}  // namespace dovetail::imports
