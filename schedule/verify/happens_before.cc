// Computes which commands of one role are surely finished before another one begins, with a vector
// clock per command. Streams and events of all roles carry what they know of that role, so that an
// order which exists only by way of another rank (send, receive, send back) is found too.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/happens_before.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/interruption.h"

namespace dovetail::schedule {
namespace {

using Clock = std::vector<std::int32_t>;

void join(Clock& into, const Clock& other) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
}

// Whether the i-th ranks of two roles are always in the same instance of a group. Only then is an order that one
// role gains from the other an order for each of its ranks.
class Columns {
 public:
  explicit Columns(const ScheduledProgram& plan) : plan_(plan) {}

  bool meet(std::size_t a, std::size_t b, GroupId group) {
    const auto [known, fresh] = known_.try_emplace({a, b, group}, false);
    if (fresh) known->second = compare(plan_.roles[a].ranks, plan_.roles[b].ranks, group);
    return known->second;
  }

 private:
  bool compare(const std::vector<Rank>& a, const std::vector<Rank>& b, GroupId id) const {
    const ProcessGroup& group = plan_.program.group(id);
    const auto size = std::max<std::int64_t>(1, group.size());
    std::unordered_map<Rank, std::int64_t> instance;
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      instance.emplace(group.ranks[i], static_cast<std::int64_t>(i) / size);
    }
    return a.size() == b.size() && std::ranges::equal(a, b, [&](Rank one, Rank other) {
             return instance.contains(one) && instance.contains(other) &&
                    instance.at(one) == instance.at(other);
           });
  }

  const ScheduledProgram& plan_;
  std::map<std::tuple<std::size_t, std::size_t, GroupId>, bool> known_;
};

// What the streams and events of all roles know of the streams of one role: how many of its commands there
// are surely finished.
class Knowledge {
 public:
  Knowledge(const ScheduledProgram& plan, std::size_t role, std::size_t streams)
      : plan_(plan),
        role_(role),
        now_(plan.roles.size(), std::vector<Clock>(streams, Clock(streams, 0))),
        recorded_(plan.roles.size()),
        columns_(plan) {}

  [[nodiscard]] const Command& command(const Completion& part) const {
    return plan_.roles[part.role].commands[part.command];
  }
  [[nodiscard]] std::size_t stream(const Completion& part) const {
    return static_cast<std::size_t>(command(part).stream.value);
  }
  // Of the stream of this command.
  Clock& now(const Completion& part) { return now_[part.role][stream(part)]; }

  // These complete together. A clock only grows: what was known of a stream stays true.
  void complete(std::span<const Completion> parts) {
    for (const Completion& part : parts) {
      if (part.role == role_) ++now(part)[stream(part)];
    }
    const Completion& first = parts.front();
    if (parts.size() > 1) return meet(parts);
    if (const auto* wait = std::get_if<WaitEvent>(&command(first).action)) {
      join(now(first), recorded_[first.role].at(wait->event));
    } else if (const auto* record = std::get_if<RecordEvent>(&command(first).action)) {
      recorded_[first.role][record->event] = now(first);
    }
  }

 private:
  // All that is known to anybody who takes part is known to all of them afterwards: gathered by the first, then
  // handed back.
  void meet(std::span<const Completion> parts) {
    const Completion& first = parts.front();
    const auto meets_first = [&](const Completion& part) {
      return columns_.meet(first.role, part.role, first.group);
    };
    for (const Completion& part : parts.subspan(1)) {
      if (meets_first(part)) join(now(first), now(part));
    }
    for (const Completion& part : parts.subspan(1)) {
      if (meets_first(part)) join(now(part), now(first));
    }
  }

  const ScheduledProgram& plan_;
  std::size_t role_;
  std::vector<std::vector<Clock>> now_;                       // [role][stream]
  std::vector<std::unordered_map<EventId, Clock>> recorded_;  // [role]
  Columns columns_;
};

// How many of the completions from here on are of one meeting.
std::size_t together(std::span<const Completion> completions) {
  std::size_t count = 1;
  while (completions.front().meeting != Completion::kAlone && count < completions.size() &&
         completions[count].meeting == completions.front().meeting) {
    ++count;
  }
  return count;
}

}  // namespace

HappensBefore::HappensBefore(const ScheduledProgram& program, const RankProgram& role,
                             std::size_t steps)
    : streams_(std::max<std::size_t>(1, program.streams.size())) {
  const std::size_t count = role.commands.size() * steps;
  clock_.assign(count * streams_, 0);
  std::vector<std::int32_t> now(streams_ * streams_, 0);  // the clock of each stream's last command
  std::unordered_map<EventId, std::size_t> recorded;
  // In host issue order, which is an order of each stream. Before command i, `clock` is the clock of the command before
  // it on its stream; after it, its own.
  for (std::size_t i = 0; i < count; ++i) {
    const Command& command = role.commands[i % role.commands.size()];
    const auto asked = static_cast<std::size_t>(command.stream.value);
    const std::size_t stream = asked < streams_ ? asked : 0;
    std::int32_t* const clock = &now[stream * streams_];
    if (const auto* wait = std::get_if<WaitEvent>(&command.action)) {
      if (const auto found = recorded.find(wait->event); found != recorded.end()) {
        const std::int32_t* const theirs = &clock_[found->second * streams_];
        for (std::size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], theirs[s]);
      } else {
        unrecorded_.push_back({i, wait->event});
      }
    }
    stream_.push_back(stream);
    position_.push_back(++clock[stream]);
    std::copy_n(clock, streams_, &clock_[i * streams_]);
    if (const auto* record = std::get_if<RecordEvent>(&command.action)) recorded[record->event] = i;
  }
}

HappensBefore::HappensBefore(const ScheduledProgram& program, std::size_t role,
                             std::span<const Completion> completions, std::size_t steps)
    : streams_(std::max<std::size_t>(1, program.streams.size())) {
  const std::size_t commands = program.roles[role].commands.size();
  stream_.resize(commands * steps);
  position_.resize(commands * steps);
  clock_.assign(commands * steps * streams_, 0);
  Knowledge knowledge(program, role, streams_);
  // Completions come in an order in which they can happen, so what a command waits for is in the clocks already. Streams
  // carry over to the next step without a barrier.
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::span<const Completion> rest = completions; !rest.empty();) {
      throw_if_interrupted();
      const std::span<const Completion> parts = rest.first(together(rest));
      rest = rest.subspan(parts.size());
      knowledge.complete(parts);
      for (const Completion& part : parts) {
        if (part.role != role) continue;
        const std::size_t at = step * commands + part.command;
        const Clock& clock = knowledge.now(part);
        stream_[at] = knowledge.stream(part);
        position_[at] = clock[stream_[at]];
        std::ranges::copy(clock, clock_.begin() + static_cast<std::ptrdiff_t>(at * streams_));
      }
    }
  }
}

// b's clock says how many commands of a's stream are finished; a is the position-th of them.
bool HappensBefore::before(std::size_t a, std::size_t b) const {
  return clock_[b * streams_ + stream_[a]] >= position_[a];
}

}  // namespace dovetail::schedule
