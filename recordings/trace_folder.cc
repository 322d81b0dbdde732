// Looks at the first bytes of each file that may be a trace.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/trace_folder.h"

#include "base/attempt.h"
#include "base/error.h"
#include "recordings/byte_source.h"
#include "recordings/guess.h"
#include "recordings/names.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace dovetail::imports {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestFolder = 3;  // folders below the one given

bool begins_as_trace(const std::string& path) {
  const auto head = attempt([&] { return head_of(path); });
  if (!head) return true;  // its reader says why
  const std::string& bytes = *head.value;
  if (const auto format = guess_format(bytes); format && is_recording(*format)) return true;
  if (contains(bytes, "\"schemaVersion\"") && contains(bytes, "\"deviceProperties\"")) return true;
  const std::size_t first = bytes.find_first_not_of(" \n\r\t");
  return first != std::string::npos && bytes[first] == '[' && contains(bytes, "\"ph\"");
}

// "iteration_20" is 20 of "iteration_"; nothing without digits at the end or anything before them.
std::optional<std::pair<std::string, std::int64_t>> numbered(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == 0 || digits == name.size() || name.size() - digits > 17) return std::nullopt;
  return std::pair(name.substr(0, digits),
                   static_cast<std::int64_t>(std::stoll(name.substr(digits))));
}

// Windows of one run, not ranks of it.
bool is_window(std::string_view word) {
  return word.starts_with("iter") || word.starts_with("step") || word.starts_with("epoch") ||
         word.starts_with("cycle") || word.starts_with("global_step");
}

class Folder {
 public:
  explicit Folder(TraceFiles& found) : found_(found) {}

  // Whether there was any.
  bool add(const fs::path& path, int depth) {
    std::vector<std::string> files;
    std::vector<fs::path> folders;
    std::error_code unreadable;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, unreadable)) {
      const std::string name = entry.path().string();
      if (entry.is_directory(unreadable)) {
        folders.push_back(entry.path());
      } else if (name.ends_with(".json") || name.ends_with(".json.gz") ||
                 name.ends_with(".sqlite")) {
        files.push_back(name);
      }
    }
    std::ranges::sort(files);
    std::ranges::sort(folders);
    bool any = false;
    for (const std::string& file : files) {
      if (begins_as_trace(file)) {
        found_.files.push_back(file);
        any = true;
      } else {
        found_.notes.push_back("left out: " + file + ", which does not begin as a trace does");
      }
    }
    if (any || depth == kDeepestFolder) return any;
    for (const fs::path& folder : last_windows(std::move(folders))) any |= add(folder, depth + 1);
    return any;
  }

 private:
  // Of numbered windows the last; all else.
  std::vector<fs::path> last_windows(std::vector<fs::path> folders) {
    std::map<std::string, std::vector<std::pair<std::int64_t, fs::path>>> windows;
    std::vector<fs::path> kept;
    for (fs::path& folder : folders) {
      const auto number = numbered(folder.filename().string());
      if (number && is_window(number->first)) {
        windows[number->first].emplace_back(number->second, std::move(folder));
      } else {
        kept.push_back(std::move(folder));
      }
    }
    for (auto& [word, list] : windows) {
      std::ranges::sort(list);
      kept.push_back(list.back().second);
      if (list.size() == 1) continue;
      found_.notes.push_back("of " + std::to_string(list.size()) + " folders " + word + "N " +
                             list.back().second.string() +
                             " was read, the last; name another one for its steps");
    }
    std::ranges::sort(kept);
    return kept;
  }

  TraceFiles& found_;
};

}  // namespace

TraceFiles find_traces(const std::vector<std::string>& given) {
  TraceFiles found;
  for (const std::string& path : given) {
    std::error_code unreadable;
    if (!fs::is_directory(path, unreadable)) {
      found.files.push_back(path);
    } else if (!Folder(found).add(path, 0)) {
      throw InputError(path + ": a folder without traces (*.json, *.json.gz, *.sqlite)" +
                       (found.notes.empty() ? "" : "; " + found.notes.back()));
    }
  }
  return found;
}

}  // namespace dovetail::imports
