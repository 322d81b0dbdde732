// Numbers what is communicated and finds who takes part, in one walk over the commands of each
// role. Collectives are counted per process group, stream and direction; the n-th of one role
// meets the n-th of every other role with ranks in the same instance of the group.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/transfers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "schedule/moved_bytes.h"

namespace dovetail::schedule {
namespace {

// What tells the meetings of several roles apart: process group, the lowest role that takes part,
// stream, ~root of a send or 0, and how many of these came before.
using Key = std::tuple<GroupId, std::size_t, StreamId, std::int32_t, std::int32_t>;

class Linker {
 public:
  explicit Linker(ScheduledProgram& plan) : plan_(plan), messages_(plan) {}

  void run() {
    plan_.transfers.clear();
    for (std::size_t role = 0; role < plan_.roles.size(); ++role) link(role);
  }

 private:
  void link(std::size_t role) {
    std::map<Key, std::int32_t> count;
    std::optional<CommandId> open;  // the record, while the compute stream gets nothing else
    for (Command& command : plan_.roles[role].commands) {
      const bool on_compute = command.stream == kComputeStream;
      if (on_compute) open.reset();
      if (on_compute && std::holds_alternative<RecordEvent>(command.action)) open = command.id;
      command.transfer.reset();
      command.launch.reset();
      const std::optional<Transfer> transfer = messages_.of(command);
      if (!transfer) continue;
      if (!on_compute) command.launch = open;
      command.transfer = transfer_of(role, command.stream, *transfer, count);
    }
  }

  TransferId transfer_of(std::size_t role, StreamId stream, const Transfer& transfer,
                         std::map<Key, std::int32_t>& count) {
    // Ranks of one role issue the same commands, so among them every meeting is one of like commands.
    if (plan_.roles.size() == 1) return add(transfer);
    const std::set<std::size_t>& roles = roles_in(role, transfer.group);
    if (roles.size() == 1) return add(transfer);
    const bool send = transfer.kind == Collective::SendRecv;
    // Counted per role: the n-th of this role looks the key up under which the first role to get there put its n-th.
    Key key{transfer.group, *roles.begin(), stream, send ? ~transfer.root : 0, 0};
    std::get<4>(key) = count[key]++;
    const auto known = meetings_.find(key);
    if (known != meetings_.end()) return known->second;
    const TransferId id = add(transfer);
    meetings_.emplace(key, id);
    return id;
  }

  TransferId add(const Transfer& transfer) {
    const TransferId id{static_cast<std::int32_t>(plan_.transfers.size())};
    plan_.transfers.push_back(transfer);
    plan_.transfers.back().id = id;
    return id;
  }

  // The roles that have ranks in the same instances of the group as this one, itself included.
  const std::set<std::size_t>& roles_in(std::size_t role, GroupId id) {
    const auto [found, fresh] = roles_in_.try_emplace({role, id});
    if (!fresh) return found->second;
    if (role_of_.empty()) {
      for (std::size_t i = 0; i < plan_.roles.size(); ++i) {
        for (const Rank rank : plan_.roles[i].ranks) role_of_.emplace(rank, i);
      }
    }
    const ProcessGroup& group = plan_.program.group(id);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, group.size()));
    found->second.insert(role);
    for (std::size_t first = 0; first < group.ranks.size(); first += size) {
      std::set<std::size_t> here;
      for (std::size_t i = first; i < std::min(group.ranks.size(), first + size); ++i) {
        const auto player = role_of_.find(group.ranks[i]);
        if (player != role_of_.end()) here.insert(player->second);
      }
      if (here.contains(role)) found->second.insert(here.begin(), here.end());
    }
    return found->second;
  }

  ScheduledProgram& plan_;
  const Messages messages_;
  std::map<Rank, std::size_t> role_of_;
  std::map<std::pair<std::size_t, GroupId>, std::set<std::size_t>> roles_in_;
  std::map<Key, TransferId> meetings_;  // of several roles
};

}  // namespace

Messages::Messages(const ScheduledProgram& plan) {
  for (const Op& op : plan.program.ops) {
    if (std::holds_alternative<CollectiveWork>(op.work)) ops_[op.id] = &op;
  }
  for (const BucketLayout& layout : plan.buckets) layouts_[layout.bucket] = &layout;
}

std::optional<Transfer> Messages::of(const Command& command) const {
  const auto* run = std::get_if<Communicate>(&command.action);
  if (run == nullptr) return std::nullopt;
  Transfer transfer{.id = {},
                    .kind = run->kind,
                    .reduce = run->reduce,
                    .group = run->group,
                    .root = run->root,
                    .max_ctas = run->max_ctas,
                    .bucket = run->bucket};
  if (run->bucket) {
    const BucketLayout& layout = *layouts_.at(*run->bucket);
    transfer.bytes = moved_bytes(layout, *run);
    transfer.dtype = layout.dtype;
  } else {
    const Op& op = *ops_.at(*run->op);
    const auto& work = std::get<CollectiveWork>(op.work);
    transfer.bytes = work.bytes;
    transfer.copies = work.copies;
    transfer.dtype = op.dtype;
  }
  return transfer;
}

void link_transfers(ScheduledProgram& plan) { Linker(plan).run(); }

}  // namespace dovetail::schedule
