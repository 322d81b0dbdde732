// The reference: rank by rank, stream by stream.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/reference.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "schedule/visit.h"

namespace dovetail::sim {
namespace {

using schedule::Command;

// One command of a stream as its host issued it.
struct Item {
  const Command* command = nullptr;
  bool enqueue = false;       // not the command, but the host's work to enqueue it
  std::int64_t earliest = 0;  // start, as far as the host is concerned
  std::int32_t number = 0;    // of a collective: how many of its kind came before it
};

// What tells the collectives of one rank apart, but for their number: the group, the stream, and the
// direction of a send.
using Line = std::tuple<GroupId, StreamId, std::int32_t>;
// A collective of one instance, known by its first rank.
using Meeting = std::tuple<Rank, Line, std::int32_t>;

struct RankState {
  const schedule::RankProgram* role = nullptr;
  std::map<StreamId, std::deque<Item>> streams;  // what is still to be done in this step
  std::map<StreamId, std::int64_t> free;
  std::map<EventId, std::int64_t> events;
  std::map<CommandId, std::int64_t> enqueued;
  std::map<StreamId, std::int64_t> last_collective;
  std::int64_t host = 0;
};

struct Talk {
  schedule::Collective kind;
  GroupId group;
  Bytes bytes;
  std::int32_t root = 0;
};

class Reference {
 public:
  Reference(const schedule::ScheduledProgram& program, const models::Costs& costs)
      : program_(program),
        costs_(costs),
        inline_host_(costs.host.kind == models::HostModel::Kind::Inline),
        gap_(inline_host_ ? 0 : costs.host.launch_gap.count()) {
    for (const schedule::RankProgram& role : program.roles) {
      for (const Rank rank : role.ranks) ranks_[rank].role = &role;
    }
  }

  ReferenceTimeline run(std::int32_t steps) {
    for (step_ = 0; step_ < steps; ++step_) {
      for (auto& [rank, state] : ranks_) issue_all(state);
      arrived_.clear();
      bool moved = true;
      while (moved) {
        moved = false;
        for (auto& [rank, state] : ranks_) {
          for (auto& [stream, items] : state.streams) {
            while (!items.empty() && play(rank, state, stream)) moved = true;
          }
        }
      }
      for (const auto& [rank, state] : ranks_) {
        for (const auto& [stream, items] : state.streams) {
          DOVETAIL_CHECK(items.empty()) << "rank " << rank << " waits for ever";
        }
      }
    }
    return result_;
  }

 private:
  [[nodiscard]] std::optional<Talk> talk(const Command& command) const {
    if (const auto* run = std::get_if<schedule::RunCollective>(&command.action)) {
      const schedule::BucketLayout& layout = program_.bucket(run->bucket);
      const bool shard =
          run->part == schedule::Part::Shard && run->kind == schedule::Collective::AllReduce;
      return Talk{run->kind, run->group,
                  shard ? Bytes(layout.size.count() / layout.shards) : layout.size};
    }
    if (const auto* run = std::get_if<schedule::RunOp>(&command.action)) {
      const auto* work = std::get_if<schedule::CollectiveWork>(&program_.program.op(run->op).work);
      if (work != nullptr) return Talk{work->kind, work->group, work->bytes, work->root};
    }
    return std::nullopt;
  }

  static Line line(const Talk& talk, StreamId stream) {
    const bool send = talk.kind == schedule::Collective::SendRecv;
    return {talk.group, stream, send ? ~talk.root : 0};
  }

  [[nodiscard]] Duration host_cost(const Command& command) const {
    if (talk(command)) return costs_.host.collective;
    return schedule::visit(
        command.action, [&](const schedule::RunOp&) { return costs_.host.run_op; },
        [&](const schedule::RunCollective&) { return costs_.host.collective; },
        [&](const schedule::Copy&) { return costs_.host.copy; },
        [&](const schedule::RecordEvent&) { return costs_.host.event; },
        [&](const schedule::WaitEvent&) { return costs_.host.event; },
        [&](const schedule::Scale&) { return costs_.host.copy; },
        [](const schedule::Release&) { return Duration{}; });
  }

  // The host puts one step on its streams.
  void issue_all(RankState& state) {
    state.events.clear();
    state.enqueued.clear();
    std::map<Line, std::int32_t> numbers;
    for (const Command& command : state.role->commands) {
      Item item{&command};
      if (!inline_host_) {
        state.host += host_cost(command).count();
        item.earliest =
            std::max<std::int64_t>(0, state.host + costs_.host.launch_latency.count() - gap_);
      }
      if (const std::optional<Talk> about = talk(command)) {
        item.number = numbers[line(*about, command.stream)]++;
        const bool timed = inline_host_ && costs_.host.collective > Duration{};
        if (timed && command.stream != schedule::kComputeStream) {
          state.streams[schedule::kComputeStream].push_back({&command, true});
          state.enqueued[command.id] = -1;  // not yet
        }
      }
      state.streams[command.stream].push_back(item);
    }
  }

  // `time` of work on one stream of one rank, as soon as the stream is free.
  void occupy(Rank rank, RankState& state, StreamId stream, const Item& item, Duration time) {
    std::int64_t& free = state.free[stream];
    const std::int64_t start = std::max(free, item.earliest);
    free = start + gap_ + time.count();
    result_[{step_, rank, item.command->id, item.enqueue}] = {start, free};
  }

  // The head of one stream; false where it has to wait for something that is not known yet.
  bool play(Rank rank, RankState& state, StreamId stream) {
    const Item item = state.streams[stream].front();
    const Command& command = *item.command;
    if (item.enqueue) {
      occupy(rank, state, stream, item, costs_.host.collective);
      state.enqueued[command.id] = state.free[stream];
    } else if (const std::optional<Talk> about = talk(command)) {
      return arrive(rank, state, item, *about);
    } else if (const auto* wait = std::get_if<schedule::WaitEvent>(&command.action)) {
      const auto event = state.events.find(wait->event);
      if (event == state.events.end()) return false;
      state.free[stream] = std::max(state.free[stream], event->second);
      const bool wake_up =
          inline_host_ && stream == schedule::kComputeStream && costs_.host.event > Duration{};
      if (wake_up) occupy(rank, state, stream, item, costs_.host.event);
    } else if (const auto* record = std::get_if<schedule::RecordEvent>(&command.action)) {
      state.events[record->event] = state.free[stream];
    } else if (!std::holds_alternative<schedule::Release>(command.action)) {
      occupy(rank, state, stream, item, work(rank, command));
    }
    state.streams[stream].pop_front();
    return true;
  }

  [[nodiscard]] Duration work(Rank rank, const Command& command) const {
    const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
    if (const auto* run = std::get_if<schedule::RunOp>(&command.action)) {
      return costs_.op(program_.program.op(run->op), rank);
    }
    if (const auto* scale = std::get_if<schedule::Scale>(&command.action)) {
      const schedule::BucketLayout& layout = program_.bucket(scale->bucket);
      const bool shard = scale->part == schedule::Part::Shard;
      const Bytes bytes = shard ? Bytes(layout.size.count() / layout.shards) : layout.size;
      return fixed + (costs_.scale ? costs_.scale(bytes) : costs_.copy(bytes));
    }
    const auto& copy = std::get<schedule::Copy>(command.action);
    Bytes bytes;
    for (const schedule::BucketMember& member : program_.bucket(copy.bucket).members) {
      if (std::ranges::count(copy.gradients, member.tensor) == 0) continue;
      const schedule::Tensor& tensor = program_.program.tensor(member.tensor);
      bytes += schedule::element_size(tensor.dtype) * member.elements(tensor);
    }
    return fixed + costs_.copy(bytes);
  }

  // One rank is ready for a collective; the last one to be so plays it for all.
  bool arrive(Rank rank, RankState& state, const Item& item, const Talk& about) {
    const auto enqueued = state.enqueued.find(item.command->id);
    if (enqueued != state.enqueued.end() && enqueued->second < 0) return false;
    const std::span<const Rank> peers = program_.program.group(about.group).instance_of(rank);
    DOVETAIL_CHECK(!peers.empty()) << "rank " << rank << " is not in the group";
    auto& here = arrived_[{peers.front(), line(about, item.command->stream), item.number}];
    if (!here.emplace(rank, item).second) return false;
    if (here.size() < peers.size()) return false;
    std::int64_t start = 0;
    for (const auto& [peer, theirs] : here) {
      RankState& each = ranks_.at(peer);
      start = std::max({start, theirs.earliest, each.free[theirs.command->stream]});
      const auto done = each.enqueued.find(theirs.command->id);
      if (done != each.enqueued.end()) start = std::max(start, done->second);
    }
    const auto& first = *here.begin();
    const std::int64_t end =
        start + duration(ranks_.at(first.first), first.second.command->stream, about, start);
    for (const auto& [peer, theirs] : here) {
      RankState& each = ranks_.at(peer);
      const StreamId stream = theirs.command->stream;
      each.free[stream] = end;
      each.last_collective[stream] = end;
      each.streams[stream].pop_front();
      result_[{step_, peer, theirs.command->id, false}] = {start, end};
    }
    return true;
  }

  // The pause counts on the stream of the first rank.
  [[nodiscard]] std::int64_t duration(const RankState& first, StreamId stream, const Talk& about,
                                      std::int64_t start) const {
    const models::CollectiveTime time =
        costs_.collective(about.kind, program_.program.group(about.group), about.bytes);
    const std::int64_t isolated = time.isolated.count();
    const std::int64_t queued = time.back_to_back.count();
    const auto previous = first.last_collective.find(stream);
    if (previous == first.last_collective.end()) return isolated;
    const std::int64_t pause = start - previous->second;
    return std::min(std::max(isolated, queued - pause), queued + pause);
  }

  const schedule::ScheduledProgram& program_;
  const models::Costs& costs_;
  const bool inline_host_;
  const std::int64_t gap_;
  std::int32_t step_ = 0;
  std::map<Rank, RankState> ranks_;
  std::map<Meeting, std::map<Rank, Item>> arrived_;  // in this step
  ReferenceTimeline result_;
};

}  // namespace

ReferenceTimeline reference_simulate(const schedule::ScheduledProgram& program,
                                     const models::Costs& costs, std::int32_t steps) {
  return Reference(program, costs).run(steps);
}

}  // namespace dovetail::sim
