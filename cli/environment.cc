// The only place that reads environment variables for the tool itself: where its data and its CUDA
// module are, how wide the terminal is, and whether it wants colours.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.h"

#include <dlfcn.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace dovetail::cli {
namespace {

bool holds_data(const std::filesystem::path& folder) {
  std::error_code unreadable;
  return std::filesystem::is_directory(folder / "clusters", unreadable) &&
         std::filesystem::is_directory(folder / "workloads", unreadable);
}

// The file that holds this code: of a library that a program loaded its own, else the program's.
std::filesystem::path own_file() {
  std::error_code unreadable;
  std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  if (unreadable) file.clear();
  Dl_info found{};
  const void* const here = reinterpret_cast<const void*>(&data_dir);
  if (::dladdr(here, &found) == 0 || found.dli_fname == nullptr) return file;
  const std::filesystem::path library = found.dli_fname;
  const std::string name = library.filename().string();  // libdovetail.so.0.1, _core.abi3.so
  const bool is_library = name.ends_with(".so") || name.find(".so.") != std::string::npos;
  return is_library ? std::filesystem::absolute(library, unreadable) : file;
}

std::string now_as(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &utc)};
}

}  // namespace

std::string data_dir() {
  const char* const given = std::getenv("DOVETAIL_DATA");
  if (given != nullptr && *given != '\0') return given;
  // PREFIX/bin/dovetail, PREFIX/lib/libdovetail.so or PREFIX/lib/MACHINE/libdovetail.so
  std::filesystem::path prefix = own_file().parent_path();
  for (int up = 0; up < 2 && prefix.has_relative_path(); ++up) {
    prefix = prefix.parent_path();
    const std::filesystem::path installed = prefix / "share" / "dovetail" / "models";
    if (holds_data(installed)) return installed.string();
  }
  return DOVETAIL_DATA_DIR;
}

void check_environment() {
  if (holds_data(data_dir())) return;
  const char* const given = std::getenv("DOVETAIL_DATA");
  const bool is_given = given != nullptr && *given != '\0';
  throw InputError((is_given ? "DOVETAIL_DATA: " : "no data of dovetail in ") + data_dir() +
                   ": expected a folder with the folders workloads and clusters" +
                   (is_given ? "" : "; name it with DOVETAIL_DATA"));
}

std::string cuda_module() {
  const char* const given = std::getenv("DOVETAIL_CUDA_MODULE");
  return given != nullptr ? given : "";
}

std::size_t text_width() {
  constexpr std::size_t kUsual = 80;
  constexpr std::size_t kLeast = 40;
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    const std::string_view text = columns;
    std::size_t width = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), width);
    const bool is_number = status == std::errc() && end == text.data() + text.size();
    if (is_number && width > 0) return std::max(width, kLeast);
  }
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::max<std::size_t>(size.ws_col, kLeast);
  }
  return kUsual;
}

bool wants_colour() {
  const auto is_set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  const char* const terminal = std::getenv("TERM");
  const bool is_dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return ::isatty(STDOUT_FILENO) == 1 && !is_set("NO_COLOR") && !is_dumb;
}

std::int64_t timeline_columns() {
  constexpr std::int64_t kNames = 8;  // "r15 s12 "
  const auto width = static_cast<std::int64_t>(text_width());
  return ::isatty(STDOUT_FILENO) == 1 ? width - kNames : width;
}

std::string date_of_today() { return now_as("%Y-%m-%d"); }
std::string time_of_now() { return now_as("%Y-%m-%dT%H:%M:%SZ"); }

}  // namespace dovetail::cli
