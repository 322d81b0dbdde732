// Reading and atomic writing of whole files.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace dovetail {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw InputError(path + ": cannot be " + what + ": " + std::strerror(error));
}

}  // namespace

std::string read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, "read", errno);
  std::string content;
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t size = ::read(file.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) fail(path, "read", errno);
    if (size == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(size));
  }
}

void write_file(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  const auto give_up = [&](int error) {
    ::unlink(temporary.c_str());
    fail(path, "written", error);
  };
  {
    const Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) fail(path, "written", errno);
    while (!content.empty()) {
      const ssize_t size = ::write(file.get(), content.data(), content.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) give_up(errno);
      content.remove_prefix(static_cast<std::size_t>(size));
    }
    if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS) give_up(errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up(errno);
}

}  // namespace dovetail
