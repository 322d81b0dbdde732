// Reads whole files, and writes them so that nobody ever sees half of one: the text goes to a
// temporary file beside the target, which is renamed over it when all of it is on disk. What
// cannot be renamed over (a pipe, a device, the file that standard output writes to) is written in
// place.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

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

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

bool is_one_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Standard output or error, if the path names what it is open on.
std::optional<int> standard_stream(const struct stat& status) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open {};
    if (::fstat(fd, &open) == 0 && is_one_file(open, status)) return fd;
  }
  return std::nullopt;
}

// The file behind the path's links, which need not exist.
std::string behind_links(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(at, error); ++links) {
    if (links == 40) fail(path, "written", ELOOP);
    const std::filesystem::path target = std::filesystem::read_symlink(at, error);
    if (error) fail(path, "written", error.value());
    at = at.parent_path() / target;  // the target alone, if it is absolute
  }
  return at.string();
}

// Zero, or why not all of it was written.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t size = ::write(fd, content.data(), content.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(size));
  }
  return 0;
}

// One file on its way: a temporary beside the target until it is put in its place. In place: what is
// no regular file, and what standard output writes to, which a rename would take from it.
class Writing {
 public:
  explicit Writing(const std::string& path) : path_(path) {
    if (const std::optional<struct stat> status = status_of(path)) {
      if (S_ISDIR(status->st_mode)) fail(path, "written", EISDIR);
      stream_ = standard_stream(*status);
      in_place_ = stream_ || !S_ISREG(status->st_mode);
      if (in_place_) {
        if (!stream_ && ::access(path.c_str(), W_OK) != 0) fail(path, "written", errno);
        return;
      }
    }
    target_ = behind_links(path);
    const std::string temporary = target_ + ".tmp." + std::to_string(::getpid());
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail(path, "written", errno);
    ::close(fd);
    temporary_ = temporary;
  }
  Writing(Writing&& other) noexcept { *this = std::move(other); }
  Writing& operator=(Writing&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(temporary_, other.temporary_);
    std::swap(stream_, other.stream_);
    std::swap(in_place_, other.in_place_);
    return *this;
  }
  ~Writing() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  // First all temporaries are filled, then what lies elsewhere is written, then all is renamed.
  void fill(std::string_view content) const {
    if (in_place_) return;
    const Descriptor file(::open(temporary_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (file.get() < 0) fail(path_, "written", errno);
    if (const int error = write_all(file.get(), content)) fail(path_, "written", error);
    if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS) {
      fail(path_, "written", errno);
    }
  }
  void write_in_place(std::string_view content) const {
    if (!in_place_) return;
    const Descriptor file(stream_ ? ::dup(*stream_)
                                  : ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (file.get() < 0) fail(path_, "written", errno);
    if (const int error = write_all(file.get(), content)) fail(path_, "written", error);
  }
  void put() {
    if (in_place_) return;
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(path_, "written", errno);
    temporary_.clear();
  }

 private:
  std::string path_;
  std::string target_;
  std::string temporary_;  // empty: there is none
  std::optional<int> stream_;
  bool in_place_ = false;
};

}  // namespace

std::string read_file(const std::string& path, std::size_t largest) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, "read", errno);
  std::string content;
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t size = ::read(file.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) fail(path, "read", errno);
    if (size == 0) return content;
    if (static_cast<std::size_t>(size) > largest - content.size()) {
      throw InputError(path + ": cannot be read: it holds more than " + std::to_string(largest) +
                       " bytes");
    }
    content.append(block.data(), static_cast<std::size_t>(size));
  }
}

void write_file(const std::string& path, std::string_view content) {
  Writing writing(path);
  writing.fill(content);
  writing.write_in_place(content);
  writing.put();
}

void write_files(std::span<const NewFile> files) {
  std::vector<Writing> writings;
  for (const NewFile& file : files) {
    writings.emplace_back(file.path);
    writings.back().fill(file.content);
  }
  for (std::size_t i = 0; i < files.size(); ++i) writings[i].write_in_place(files[i].content);
  for (Writing& writing : writings) writing.put();
}

void require_writable(const std::string& path) { const Writing probe(path); }

bool is_same_file(const std::string& a, const std::string& b) {
  const std::optional<struct stat> status_a = status_of(a);
  const std::optional<struct stat> status_b = status_of(b);
  if (status_a && S_ISCHR(status_a->st_mode)) return false;
  if (status_a && status_b) return is_one_file(*status_a, *status_b);
  if (status_a || status_b) return false;
  std::error_code error;
  const std::filesystem::path real_a = std::filesystem::weakly_canonical(behind_links(a), error);
  if (error) return false;
  return real_a == std::filesystem::weakly_canonical(behind_links(b), error) && !error;
}

}  // namespace dovetail
