// Streams for messages, and what must wait for them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/messages.h"

#include <algorithm>
#include <set>

#include "base/count.h"
#include "base/error.h"
#include "schedule/id_table.h"

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

// The next op of a role, behind some position, that reads or writes each tensor, and that writes it.
struct NextUse {
  IdTable<TensorId, std::size_t> touch{kEnd};
  IdTable<TensorId, std::size_t> write{kEnd};

  void add(const Op& op, std::size_t position) {
    for (const TensorId id : op.reads) touch[id] = position;
    for (const TensorId id : op.writes) touch[id] = write[id] = position;
  }
};

}  // namespace

void place_messages(Draft& draft, RoleDraft& role) {
  const Program& program = draft.program();
  if (program.stages == 1) return;
  IdTable<TensorId, char> used;  // by the role's ops so far
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (role_of(program, op) != role.role) continue;
    if (const CollectiveWork* work = message_of(op)) {
      const Channel channel = channel_of(draft, *work);
      Message message{.op = i, .stream = stream_of(draft, channel)};
      message.receives = channel.to == role.role;
      message.after_compute = !message.receives || std::ranges::any_of(op.writes, [&](TensorId id) {
        return used.at(id) != 0;
      });
      role.messages.push_back(message);
    }
    for (const TensorId id : op.reads) used[id] = 1;
    for (const TensorId id : op.writes) used[id] = 1;
  }
  // What comes next is known on the way back.
  NextUse next;
  auto message = role.messages.rbegin();
  for (std::size_t i = program.ops.size(); i-- > 0 && message != role.messages.rend();) {
    const Op& op = program.ops[i];
    if (role_of(program, op) != role.role) continue;
    if (message->op == i) {
      for (const TensorId id : message->receives ? op.writes : op.reads) {
        const std::size_t there = message->receives ? next.touch.at(id) : next.write.at(id);
        message->wait_before = std::min(message->wait_before, there);
      }
      ++message;
    }
    next.add(op, i);
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
