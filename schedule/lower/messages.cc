// Streams for messages, where they are issued, and what must wait for them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/messages.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "schedule/id_table.h"
#include "schedule/lower/layout.h"
#include "schedule/lower/survey.h"
#include "schedule/visit.h"

namespace dovetail::schedule::internal {
namespace {

const CollectiveWork* work_of(const Op& op) { return std::get_if<CollectiveWork>(&op.work); }

bool is_send(const Op& op) {
  const CollectiveWork* work = work_of(op);
  return work != nullptr && work->kind == Collective::SendRecv;
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

StreamId stream_between(Draft& draft, Channel channel) {
  const std::string name = "p2p" + std::to_string(channel.from) + "-" + std::to_string(channel.to);
  std::vector<Stream>& streams = draft.out.streams;
  const auto known = std::ranges::find(streams, name, &Stream::name);
  if (known != streams.end()) return known->id;
  const StreamId id{static_cast<std::int32_t>(streams.size())};
  streams.push_back({id, name});
  return id;
}

// The placements by position in the op list, in every micro-step.
using Placed = std::map<std::size_t, const OpPlacement*>;

Placed placements(const Draft& draft, const RoleDraft& role) {
  Placed placed;
  const Program& program = draft.program();
  for (const OpPlacement& placement : draft.schedule.collectives) {
    const std::size_t position = draft.positions.at(placement.op);
    const Op* const op = position == kEnd ? nullptr : &program.ops[position];
    if (op == nullptr || work_of(*op) == nullptr) {
      throw InputError(draft.name(placement) + ": the program has no such op that communicates");
    }
    if (program.role_of(*op) != role.role) continue;
    const std::string name = draft.name(placement);
    if (placement.wait != WaitPoint::FirstUse) {
      throw InputError(name + ": an op is waited for before the first use of what it brings");
    }
    if (std::holds_alternative<InlineStream>(placement.stream)) continue;
    const std::int32_t last = program.micro_steps - 1;
    for (std::int32_t step = is_repeated(*op) ? 0 : last; step <= last; ++step) {
      const std::size_t at = position_of(draft, role, name, placement.op, step);
      if (!placed.emplace(at, &placement).second) throw InputError(name + " is placed twice");
    }
  }
  return placed;
}

// Finds what the role issues off its compute stream, in two walks over its ops.
class Messages {
 public:
  Messages(Draft& draft, RoleDraft& role)
      : draft_(draft), program_(draft.program()), role_(role), placed_(placements(draft, role)) {}

  void run() {
    if (program_.stages == 1 && placed_.empty()) return;
    walk_forwards();
    walk_backwards();
    for (Travel& message : messages_) place_launch(message);
    // Where each is issued: before the op at its own position, or behind another.
    std::ranges::stable_sort(messages_, {}, [](const Travel& message) {
      return message.launch_after ? 2 * *message.launch_after + 1 : 2 * message.what;
    });
    role_.travels.insert(role_.travels.end(), messages_.begin(), messages_.end());
  }

 private:
  // What came before is known on the way there.
  void walk_forwards() {
    for (const std::size_t i : draft_.ops_of(role_.role)) {
      const Op& op = program_.ops[i];
      if (const auto at = placed_.find(i); at != placed_.end()) {
        add_placed(i, op, *at->second);
      } else if (program_.stages > 1 && is_send(op)) {
        add_send(i, op);
      }
      for (const TensorId id : op.reads) touched_[id] = i;
      for (const TensorId id : op.writes) touched_[id] = written_[id] = i;
    }
  }

  void add_send(std::size_t i, const Op& op) {
    const Channel channel = channel_of(draft_, *work_of(op));
    Travel message{
        .kind = Travel::Kind::Message, .what = i, .stream = stream_between(draft_, channel)};
    message.between_stages = true;
    message.receives = channel.to == role_.role;
    message.after_compute = !message.receives || std::ranges::any_of(op.writes, [&](TensorId id) {
      return touched_.at(id) != kEnd;
    });
    messages_.push_back(message);
  }

  void add_placed(std::size_t i, const Op& op, const OpPlacement& placement) {
    messages_.push_back({.kind = Travel::Kind::Message,
                         .what = i,
                         .stream = stream_of(placement.stream),
                         .scope = placement.scope,
                         .max_ctas = placement.max_ctas,
                         .launch_after = behind(op)});
  }

  // The last op that must have run; none if the op is to stay where it stands.
  [[nodiscard]] std::optional<std::size_t> behind(const Op& op) const {
    std::optional<std::size_t> latest;
    const auto follow = [&](TensorId id, const IdTable<TensorId, std::size_t>& last) {
      if (program_.tensor(id).kind != TensorKind::Activation) return false;
      const std::size_t before = last.at(id);
      if (before != kEnd) latest = std::max(latest.value_or(0), before);
      return true;
    };
    for (const TensorId id : op.reads) {
      if (!follow(id, written_)) return std::nullopt;
    }
    for (const TensorId id : op.writes) {
      if (!follow(id, touched_)) return std::nullopt;
    }
    if (latest && work_of(program_.ops[*latest]) != nullptr) return std::nullopt;
    return latest;
  }

  // What comes next is known on the way back.
  void walk_backwards() {
    IdTable<TensorId, std::size_t> touch{kEnd};
    IdTable<TensorId, std::size_t> write{kEnd};
    auto message = messages_.rbegin();
    const std::vector<std::size_t>& mine = draft_.ops_of(role_.role);
    for (auto at = mine.rbegin(); at != mine.rend() && message != messages_.rend(); ++at) {
      const std::size_t i = *at;
      const Op& op = program_.ops[i];
      if (message->what == i) {
        const bool both = placed_.contains(i);
        const auto before = [&](std::size_t there) {
          message->wait_before = std::min(message->wait_before, there);
        };
        if (both || message->receives) {
          for (const TensorId id : op.writes) before(touch.at(id));
        }
        if (both || !message->receives) {
          for (const TensorId id : op.reads) before(write.at(id));
        }
        ++message;
      }
      for (const TensorId id : op.reads) touch[id] = i;
      for (const TensorId id : op.writes) touch[id] = write[id] = i;
    }
  }

  void place_launch(Travel& message) const {
    const auto at = placed_.find(message.what);
    if (at == placed_.end()) return;
    const OpPlacement& placement = *at->second;
    if (std::holds_alternative<LaunchWhenReady>(placement.launch)) return;
    const std::string name = draft_.name(placement);
    visit(
        placement.launch, [](const LaunchWhenReady&) {},
        [&](const LaunchAfterOp& after) {
          const Op& op = program_.ops[message.what];
          const std::int32_t step =
              op.phase == Phase::Optimizer ? program_.micro_steps - 1 : op.micro_step;
          const std::size_t asked = position_of(draft_, role_, name, after.op, step);
          const std::size_t ready = message.launch_after.value_or(message.what);
          if (asked <= ready) return;
          // Behind its first use it would come too late.
          message.launch_after = std::min(asked, message.wait_before - 1);
        },
        [&](const LaunchBeforeOp&) { refuse(name, "in front of an op"); },
        [&](const LaunchAfterBackward&) { refuse(name, "after backward"); },
        [&](const LaunchInBatch&) { refuse(name, "in a batch"); });
  }

  [[noreturn]] static void refuse(const std::string& name, const std::string& where) {
    throw InputError(name + ": it cannot be launched " + where);
  }

  Draft& draft_;
  const Program& program_;
  RoleDraft& role_;
  const Placed placed_;
  std::vector<Travel> messages_;
  IdTable<TensorId, std::size_t> touched_{kEnd};  // by the role's last op so far
  IdTable<TensorId, std::size_t> written_{kEnd};
};

}  // namespace

void place_messages(Draft& draft, RoleDraft& role) { Messages(draft, role).run(); }

std::string message_report(const std::vector<RoleDraft>& roles) {
  std::size_t sends = 0;
  std::size_t collectives = 0;
  std::set<StreamId> send_streams;
  std::set<StreamId> streams;
  for (const RoleDraft& role : roles) {
    for (const Travel& message : role.travels) {
      if (message.kind != Travel::Kind::Message) continue;
      const bool paired = message.between_stages;
      if (!paired) ++collectives;
      if (paired && !message.receives) ++sends;
      (paired ? send_streams : streams).insert(message.stream);
    }
  }
  std::string text;
  if (sends > 0) text = counted(sends, "send") + " on " + counted(send_streams.size(), "stream");
  if (collectives > 0) {
    text += (text.empty() ? "" : ", ") + counted(collectives, "collective") +
            " of the program on " + counted(streams.size(), "stream");
  }
  return text;
}

}  // namespace dovetail::schedule::internal
