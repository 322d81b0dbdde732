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

namespace {

// How a file begins that some other packer wrote, and what unpacks it.
struct Packer {
  std::string_view begins;
  std::size_t at;
  const char* what;
  const char* how;  // with the file's name behind it
};
constexpr std::array kPackers = {
    Packer{std::string_view("PK\x03\x04", 4), 0, "a zip archive", "unzip "},
    Packer{std::string_view("\xFD"
                            "7zXZ\0",
                            6),
           0, "packed by xz", "xz -d "},
    Packer{std::string_view("\x28\xB5\x2F\xFD", 4), 0, "packed by zstd", "zstd -d "},
    Packer{std::string_view("BZh", 3), 0, "packed by bzip2", "bzip2 -d "},
    Packer{std::string_view("7z\xBC\xAF", 4), 0, "a 7z archive", "7z x "},
    Packer{std::string_view("ustar", 5), 257, "a tar archive", "tar -xf "},
};

constexpr bool is_gzip_head(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

}  // namespace

struct ByteSource::State {
  std::string name;
  std::unique_ptr<State> below;  // of gzip within gzip: the outer one
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
  std::array<char, 512> first{};
  std::string_view pending;  // of `first`: not yet handed out

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
    if (below != nullptr) {
      ahead = {packed.data(), below->is_over() ? 0 : below->read(packed)};
    } else if (fd < 0) {
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
    is_gzip = is_gzip_head({ahead.data(), ahead.size()});
    if (!is_gzip) return refuse_packed({ahead.data(), ahead.size()});
    constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, with gzip's header
    if (::inflateInit2(&inflater, kGzipWindow) != Z_OK) fail("cannot be unpacked: zlib refuses");
    inflater_ready = true;
    in_member = true;
    look_inside();
  }

  // The first bytes of what is packed, which are handed out first.
  void look_inside() {
    std::size_t held = 0;
    while (held < first.size() && !ended) {
      held += inflate_once(std::span(first).subspan(held));
    }
    pending = {first.data(), held};
    if (!is_gzip_head(pending)) refuse_packed(pending);
  }

  void refuse_packed(std::string_view begin) const {
    for (const Packer& packer : kPackers) {
      if (begin.size() < packer.at || !begin.substr(packer.at).starts_with(packer.begins)) continue;
      fail(std::string(packer.what) + ", which is not read: " + packer.how + name +
           " and give what is in it");
    }
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

  [[nodiscard]] bool is_over() const { return ended && pending.empty(); }

  std::size_t read(std::span<char> into) {
    if (into.size() > (1U << 30)) into = into.first(1U << 30);
    std::size_t size = 0;
    if (!pending.empty()) {
      size = pending.copy(into.data(), into.size());
      pending.remove_prefix(size);
    } else if (!is_gzip) {
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

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) {
  constexpr int kMostLevels = 4;
  state_->begin();
  for (int level = 1; is_gzip_head(state_->pending); ++level) {
    if (level == kMostLevels) state_->fail("gzip within gzip, over and over: unpack it");
    auto inner = std::make_unique<State>();
    inner->name = state_->name;
    inner->limits = state_->limits;
    inner->below = std::move(state_);
    state_ = std::move(inner);
    state_->begin();
  }
}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

ByteSource ByteSource::file(const std::string& path, const ByteLimits& limits) {
  auto state = std::make_unique<State>();
  state->name = path;
  state->limits = limits;
  const bool is_standard_input = path == "-";
  if (is_standard_input) state->name = "standard input";
  state->fd = is_standard_input ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
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
  return state_->is_over() ? 0 : state_->read(into);
}
const std::string& ByteSource::damage() const {
  const State* state = state_.get();
  while (state->damage.empty() && state->below != nullptr) state = state->below.get();
  return state->damage;
}
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

std::string head_of(const std::string& path) {
  ByteSource source = ByteSource::file(path, {});
  std::string head(kHeadOfFile, '\0');
  std::size_t held = 0;
  while (held < head.size()) {
    const std::size_t size = source.read(std::span(head).subspan(held));
    if (size == 0) break;
    held += size;
  }
  head.resize(held);
  return head;
}

}  // namespace dovetail::imports
