// Joins the records of a profiling library with the commands that caused them, by correlation ids,
// and shortens the names of kernels to what a person reads.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/activity.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

struct Free {
  void operator()(char* text) const { std::free(text); }
};

std::string demangled(const std::string& name) {
  if (name.compare(0, 2, "_Z") != 0) return name;
  int status = 0;
  const std::unique_ptr<char, Free> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status));
  return status == 0 && text != nullptr ? std::string(text.get()) : name;
}

// Without template arguments and parameters: whatever stands in brackets.
std::string without_brackets(std::string_view text) {
  std::string outside;
  int depth = 0;
  for (const char c : text) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) outside += c;
    if (c == '>' || c == ')') --depth;
  }
  return outside;
}

}  // namespace

std::uint64_t external_id(CommandId command) {
  return static_cast<std::uint64_t>(command.value) + 1;
}

AttributedWork attribute(const ActivityLog& log) {
  AttributedWork result;
  for (const Activity& activity : log.activities) {
    const auto found = log.external.find(activity.correlation);
    if (found == log.external.end() || found->second == 0) continue;
    if (activity.start_ns == 0 || activity.end_ns < activity.start_ns) {
      ++result.lost;
      continue;
    }
    DeviceWork work;
    work.command = CommandId{static_cast<std::int32_t>(found->second - 1)};
    work.start_ns = activity.start_ns;
    work.end_ns = activity.end_ns;
    work.name = short_name(activity.name);
    result.works.push_back(std::move(work));
  }
  std::stable_sort(result.works.begin(), result.works.end(),
                   [](const DeviceWork& a, const DeviceWork& b) {
                     return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
                   });
  return result;
}

std::string short_name(std::string_view recorded) {
  std::string whole = demangled(std::string(recorded));
  // Only the name of a function has brackets; other words stay as they are.
  if (whole.find('(') == std::string::npos) return whole;
  std::string name = without_brackets(whole);
  const std::size_t space = name.find_last_of(' ');
  if (space != std::string::npos) name.erase(0, space + 1);
  const std::size_t colon = name.rfind("::");
  if (colon != std::string::npos) name.erase(0, colon + 2);
  return name.empty() ? whole : name;
}

}  // namespace dovetail::exec::cuda
