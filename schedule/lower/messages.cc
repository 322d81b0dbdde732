// Streams for messages, and what must wait for them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/messages.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/count.h"
#include "base/error.h"

namespace dovetail::schedule::internal {
namespace {

const CollectiveWork* message_of(const Op& op) {
  const auto* work = std::get_if<CollectiveWork>(&op.work);
  const bool sends = work != nullptr && work->kind == Collective::SendRecv;
  return sends ? work : nullptr;
}

struct Channel {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

// The roles at the two ends, from the group's first pair of ranks.
Channel channel_of(const Draft& draft, const CollectiveWork& work) {
  const Program& program = draft.program();
  const ProcessGroup& group = program.group(work.group);
  if (group.size() != 2 || work.root < 0 || work.root > 1) {
    throw InputError("schedule " + draft.schedule.policy + ": group " + group.name +
                     " of a send does not consist of pairs");
  }
  const auto ranks = static_cast<std::int32_t>(program.world_size / program.stages);
  const auto root = static_cast<std::size_t>(work.root);
  return {group.ranks[root].value / ranks, group.ranks[1 - root].value / ranks};
}

StreamId stream_of(Draft& draft, Channel channel) {
  const std::string name = "p2p" + std::to_string(channel.from) + "-" + std::to_string(channel.to);
  std::vector<Stream>& streams = draft.out.streams;
  const auto known = std::ranges::find(streams, name, &Stream::name);
  if (known != streams.end()) return known->id;
  const StreamId id{static_cast<std::int32_t>(streams.size())};
  streams.push_back({id, name});
  return id;
}

bool touches(const Op& op, std::span<const TensorId> tensors) {
  return std::ranges::any_of(tensors, [&](TensorId id) {
    return std::ranges::count(op.reads, id) + std::ranges::count(op.writes, id) > 0;
  });
}

bool overwrites(const Op& op, std::span<const TensorId> tensors) {
  return std::ranges::any_of(tensors,
                             [&](TensorId id) { return std::ranges::count(op.writes, id) > 0; });
}

}  // namespace

void place_messages(Draft& draft, RoleDraft& role) {
  const Program& program = draft.program();
  if (program.stages == 1) return;
  std::vector<std::size_t> mine;  // positions of the role's ops
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (role_of(program, program.ops[i]) == role.role) mine.push_back(i);
  }
  std::set<TensorId> used;  // by the ops so far
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const Op& op = program.ops[mine[k]];
    if (const CollectiveWork* work = message_of(op)) {
      const Channel channel = channel_of(draft, *work);
      Message message{.op = mine[k], .stream = stream_of(draft, channel)};
      message.receives = channel.to == role.role;
      const std::vector<TensorId>& moved = message.receives ? op.writes : op.reads;
      message.after_compute = !message.receives || std::ranges::any_of(moved, [&](TensorId id) {
        return used.contains(id);
      });
      for (std::size_t later = k + 1; later < mine.size(); ++later) {
        const Op& next = program.ops[mine[later]];
        const bool conflict = message.receives ? touches(next, moved) : overwrites(next, moved);
        if (!conflict) continue;
        message.wait_before = mine[later];
        break;
      }
      role.messages.push_back(message);
    }
    used.insert(op.reads.begin(), op.reads.end());
    used.insert(op.writes.begin(), op.writes.end());
  }
}

std::string message_report(const Draft& draft, const std::vector<RoleDraft>& roles) {
  std::size_t sends = 0;
  std::set<StreamId> streams;
  for (const RoleDraft& role : roles) {
    for (const Message& message : role.messages) {
      if (!message.receives) ++sends;
      streams.insert(message.stream);
    }
  }
  if (draft.program().stages == 1 || sends == 0) return {};
  return "messages: " + counted(sends, "send") + " on " + counted(streams.size(), "stream");
}

}  // namespace dovetail::schedule::internal
