// Joins the members of each communicator: by its id, else by how many ranks it has, as long as no rank and no
// process stands twice in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_communicators.h"

#include <algorithm>
#include <utility>

namespace dovetail::imports {
namespace {

// A communicator that is being put together.
struct Draft {
  NcclCommunicator made;
  std::string id;
  std::set<std::string> processes;
  std::set<std::int64_t> ranks;
};

// Whether a member whose communicator has no name may be of this one.
bool may_join(const Draft& draft, const NcclMember& member) {
  return static_cast<std::int64_t>(draft.made.members.size()) < member.ranks &&
         (member.process.empty() || !draft.processes.contains(member.process)) &&
         (!member.rank || !draft.ranks.contains(*member.rank));
}

void join(Draft& draft, const NcclMember& member, std::size_t index) {
  draft.made.ranks = member.ranks;
  draft.made.members.push_back(index);
  draft.processes.insert(member.process);
  if (member.rank) draft.ranks.insert(*member.rank);
  if (member.nodes) draft.made.nodes = std::max(draft.made.nodes.value_or(1), *member.nodes);
  draft.made.hosts.insert(member.host);
  draft.made.channels = std::max(draft.made.channels, member.channels);
}

// Drafts by number of ranks; those before `open` are full.
struct OfSize {
  std::vector<std::size_t> drafts;
  std::size_t open = 0;
};

}  // namespace

std::vector<NcclCommunicator> communicators_of(const std::vector<NcclMember>& members) {
  constexpr std::size_t kTried = 64;  // communicators of one size that a member is compared with
  std::vector<Draft> drafts;
  std::map<std::string, std::size_t> by_id;
  std::map<std::int64_t, OfSize> by_size;
  const auto add = [&](const NcclMember& member, std::size_t index) {
    OfSize& alike = by_size[member.ranks];
    alike.drafts.push_back(drafts.size());
    drafts.emplace_back();
    drafts.back().id = member.id;
    join(drafts.back(), member, index);
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].id.empty()) continue;
    const auto [entry, is_new] = by_id.try_emplace(members[i].id, drafts.size());
    if (is_new) {
      add(members[i], i);
    } else {
      join(drafts[entry->second], members[i], i);
    }
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!members[i].id.empty()) continue;
    OfSize& alike = by_size[members[i].ranks];
    while (alike.open < alike.drafts.size() &&
           static_cast<std::int64_t>(drafts[alike.drafts[alike.open]].made.members.size()) >=
               members[i].ranks) {
      ++alike.open;
    }
    const std::size_t last = std::min(alike.drafts.size(), alike.open + kTried);
    std::size_t at = alike.open;
    while (at < last && !may_join(drafts[alike.drafts[at]], members[i])) ++at;
    if (at < last) {
      join(drafts[alike.drafts[at]], members[i], i);
    } else {
      add(members[i], i);
    }
  }
  std::vector<NcclCommunicator> result;
  for (Draft& draft : drafts) {
    NcclCommunicator& made = draft.made;
    // Every rank shows its host.
    const bool all_seen = static_cast<std::int64_t>(made.members.size()) == made.ranks;
    if (!made.nodes && all_seen && !made.hosts.contains("")) {
      made.nodes = static_cast<std::int64_t>(made.hosts.size());
    }
    made.hosts.erase("");
    result.push_back(std::move(made));
  }
  std::ranges::stable_sort(
      result, {}, [](const NcclCommunicator& one) { return std::ranges::min(one.members); });
  return result;
}

std::vector<NcclCollective> collectives_of(const NcclCommunicator& communicator,
                                           const std::vector<NcclMember>& members) {
  std::map<std::pair<std::uint64_t, std::size_t>, std::map<NcclCall, std::size_t>> seen;
  for (const std::size_t member : communicator.members) {
    for (const auto& [op_count, calls] : members[member].calls) {
      for (std::size_t i = 0; i < calls.size(); ++i) ++seen[{op_count, i}][calls[i]];
    }
  }
  std::vector<NcclCollective> result;
  for (const auto& [place, calls] : seen) {
    for (const auto& [call, count] : calls) {
      result.push_back({place.first, place.second, call, count});
    }
  }
  return result;
}

}  // namespace dovetail::imports
