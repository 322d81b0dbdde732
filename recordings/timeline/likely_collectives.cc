// Each name of a kernel is judged once, by the parts of it that such libraries use.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/likely_collectives.h"

#include "recordings/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace dovetail::imports {
namespace {

struct Family {
  std::string_view part, what;
};

// The first that fits is taken: what is more exact stands first. In lower case.
constexpr std::array<Family, 22> kFamilies = {
    {{"internode::dispatch", "expert-parallel dispatch"},
     {"internode::combine", "expert-parallel combine"},
     {"intranode::dispatch", "expert-parallel dispatch"},
     {"intranode::combine", "expert-parallel combine"},
     {"internode_ll::dispatch", "expert-parallel dispatch"},
     {"internode_ll::combine", "expert-parallel combine"},
     {"multimem", "collectives over NVLink multicast"},
     {"one_shot_all_reduce", "all-reduces of symmetric memory"},
     {"two_shot_all_reduce", "all-reduces of symmetric memory"},
     {"cross_device_reduce", "custom all-reduces"},
     {"oneshotallreduce", "custom all-reduces"},
     {"twoshotallreduce", "custom all-reduces"},
     {"nvshmem", "communication of NVSHMEM"},
     {"hcom_", "collectives of HCCL"},
     {"allreduce", "all-reduces"},
     {"all_reduce", "all-reduces"},
     {"allgather", "all-gathers"},
     {"all_gather", "all-gathers"},
     {"reduce_scatter", "reduce-scatters"},
     {"reducescatter", "reduce-scatters"},
     {"all_to_all", "all-to-alls"},
     {"alltoall", "all-to-alls"}}};

// "oneccl" in "void oneccl::allgather<4>": the word that ends in ccl.
std::optional<std::string> library_in(std::string_view name) {
  const std::size_t at = name.find("ccl");
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at;
  while (begin > 0 && std::islower(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  if (begin == at) return std::nullopt;  // "ccl" begins a word: anything
  return std::string(name.substr(begin, at + 3 - begin));
}

std::optional<LikelyCollectives> judged(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Family& family : kFamilies) {
    if (contains(text, family.part)) {
      return LikelyCollectives{std::string(family.what), std::string(family.part), 0};
    }
  }
  if (auto library = library_in(text)) {
    return LikelyCollectives{"collectives of " + *library, *library, 0};
  }
  return std::nullopt;
}

// "cross_rank_sum" of "void my::cross_rank_sum<float>(float*, int)".
std::string core_of(std::string_view name) {
  name = name.substr(0, std::min(name.find('<'), name.find('(')));
  const std::size_t colon = name.rfind(':');
  if (colon != std::string_view::npos) name.remove_prefix(colon + 1);
  const std::size_t space = name.rfind(' ');
  if (space != std::string_view::npos) name.remove_prefix(space + 1);
  return std::string(name);
}

bool is_launched_by_c10d(const Recording& trace, const RankTimeline& line, const GpuWork& work) {
  if (work.launch == kNone) return false;
  std::int32_t at = line.calls[static_cast<std::size_t>(work.launch)].event;
  for (; at != kNone; at = line.parent[static_cast<std::size_t>(at)]) {
    if (trace.is(at, Is::Comms) || trace.is(at, Is::C10d)) return true;
  }
  return false;
}

}  // namespace

std::vector<LikelyCollectives> likely_collectives(const Recording& trace,
                                                  const RankTimeline& line) {
  std::map<std::int32_t, std::optional<LikelyCollectives>> by_name;
  std::map<std::string, LikelyCollectives> found;  // by pattern
  const auto count = [&](const LikelyCollectives& likely) {
    ++found.emplace(likely.pattern, likely).first->second.kernels;
  };
  for (const GpuWork& work : line.works) {
    const RecordedEvent& event = trace.events[static_cast<std::size_t>(work.event)];
    if (event.kind != EventKind::Kernel || work.collective != kNone) continue;
    const auto [entry, is_new] = by_name.try_emplace(event.name);
    if (is_new) entry->second = judged(trace.name_of(event));
    if (entry->second) count(*entry->second);
  }
  if (found.empty() && line.collectives.empty()) {
    for (const GpuWork& work : line.works) {
      const RecordedEvent& event = trace.events[static_cast<std::size_t>(work.event)];
      if (event.kind != EventKind::Kernel || !is_launched_by_c10d(trace, line, work)) continue;
      count({"what calls of c10d launched", core_of(trace.name_of(event)), 0});
    }
  }
  std::vector<LikelyCollectives> result;
  for (auto& [pattern, likely] : found) result.push_back(std::move(likely));
  std::ranges::stable_sort(result, std::ranges::greater{}, &LikelyCollectives::kernels);
  return result;
}

}  // namespace dovetail::imports
