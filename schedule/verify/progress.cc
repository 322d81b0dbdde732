// Plays the streams of all roles against each other, without data, until nothing moves. What
// stands still then is either a collective that its peers never join or streams that wait in a
// circle, and is reported as such.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/progress.h"

#include "base/interruption.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

namespace dovetail::schedule {
namespace {

using verification::Index;

// What the ranks of a group must agree on.
struct Meeting {
  GroupId group;
  Collective kind = Collective::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  Bytes bytes = {};
  DType dtype = DType::F32;
  std::int32_t root = 0;
  friend bool operator==(const Meeting&, const Meeting&) = default;
};

// Of a SendRecv.
enum class Side { None, Sends, Receives };

std::optional<Meeting> meeting_of(const Index& index, const Command& command) {
  const auto* run = std::get_if<Communicate>(&command.action);
  if (run == nullptr) return std::nullopt;
  Meeting meeting{.group = run->group, .kind = run->kind, .reduce = run->reduce, .root = run->root};
  if (run->bucket) {
    const BucketLayout& bucket = *index.bucket(*run->bucket);
    const bool shard = run->part == Part::Shard;
    meeting.bytes = shard ? Bytes(bucket.size.count() / bucket.shards) : bucket.size;
    meeting.dtype = bucket.dtype;
  } else {
    const Op& op = *index.op(*run->op);
    meeting.bytes = std::get<CollectiveWork>(op.work).bytes;
    meeting.dtype = op.dtype;
  }
  return meeting;
}

Side side_of(const Index& index, const Command& command) {
  const auto* run = std::get_if<Communicate>(&command.action);
  if (run == nullptr || !run->op || !traits_of(run->kind).pair) return Side::None;
  return index.op(*run->op)->writes.empty() ? Side::Sends : Side::Receives;
}

// The streams of one role: the commands of each in order, and how many have completed.
struct RoleState {
  const RankProgram* role = nullptr;
  std::vector<std::vector<const Command*>> streams;
  std::vector<std::size_t> done;
  std::unordered_set<EventId> recorded;

  [[nodiscard]] const Command* head(std::size_t stream) const {
    return done[stream] < streams[stream].size() ? streams[stream][done[stream]] : nullptr;
  }
};

class Run {
 public:
  Run(const Index& index, std::vector<Problem>& problems) : index_(index), problems_(problems) {
    for (std::size_t i = 0; i < index.scheduled.roles.size(); ++i) {
      const RankProgram& role = index.scheduled.roles[i];
      RoleState state;
      state.role = &role;
      state.streams.resize(index.scheduled.streams.size());
      for (const Command& command : role.commands) {
        state.streams[static_cast<std::size_t>(command.stream.value)].push_back(&command);
      }
      state.done.assign(index.scheduled.streams.size(), 0);
      states_.push_back(std::move(state));
      if (index.scheduled.roles.size() == 1) continue;  // nobody to meet
      for (const Rank rank : role.ranks) {
        if (role_of_.emplace(rank, i).second) continue;
        problems_.push_back(
            {ProblemKind::BadReference, "rank " + std::to_string(rank.value) + " plays two roles"});
      }
    }
  }

  std::vector<Completion> play() {
    while (advance()) {
    }
    std::vector<Problem> mismatches;
    std::vector<Problem> circles;
    for (std::size_t role = 0; role < states_.size(); ++role) {
      for (std::size_t stream = 0; stream < states_[role].streams.size(); ++stream) {
        if (states_[role].head(stream) != nullptr) explain(role, stream, mismatches, circles);
      }
    }
    // Ranks that do not meet keep others waiting; only the cause is told.
    const std::vector<Problem>& found = mismatches.empty() ? circles : mismatches;
    problems_.insert(problems_.end(), found.begin(), found.end());
    return std::move(completions_);
  }

 private:
  // One round over all streams; false when nothing moved.
  bool advance() {
    bool moved = false;
    for (std::size_t role = 0; role < states_.size(); ++role) {
      throw_if_interrupted();
      for (std::size_t stream = 0; stream < states_[role].streams.size(); ++stream) {
        while (const Command* head = states_[role].head(stream)) {
          if (!proceed(role, stream, *head)) break;
          moved = true;
        }
      }
    }
    return moved;
  }

  // Completes the head where possible; communication completes on all of its roles at once.
  bool proceed(std::size_t role, std::size_t stream, const Command& head) {
    RoleState& state = states_[role];
    if (const auto* wait = std::get_if<WaitEvent>(&head.action)) {
      if (!state.recorded.contains(wait->event)) return false;
    }
    if (const auto meeting = meeting_of(index_, head)) {
      const std::vector<std::size_t>& all = roles_in(role, meeting->group);
      const bool together = std::ranges::all_of(all, [&](std::size_t peer) {
        return peer == role || meets(head, states_[peer].head(stream));
      });
      if (!together) return false;
      const std::int32_t number = all.size() == 1 ? Completion::kAlone : meetings_++;
      for (const std::size_t peer : all) complete(peer, stream, number, meeting->group);
      return true;
    }
    if (const auto* record = std::get_if<RecordEvent>(&head.action)) {
      state.recorded.insert(record->event);
    }
    complete(role, stream, Completion::kAlone, {});
    return true;
  }

  void complete(std::size_t role, std::size_t stream, std::int32_t meeting, GroupId group) {
    RoleState& state = states_[role];
    const Command* const head = state.head(stream);
    completions_.push_back({.role = role,
                            .command = static_cast<std::size_t>(head - state.role->commands.data()),
                            .meeting = meeting,
                            .group = group});
    ++state.done[stream];
  }

  [[nodiscard]] bool meets(const Command& mine, const Command* theirs) const {
    if (theirs == nullptr || meeting_of(index_, mine) != meeting_of(index_, *theirs)) return false;
    if (!hold_the_same(mine, *theirs)) return false;
    const Side side = side_of(index_, mine);
    return side == Side::None || side != side_of(index_, *theirs);
  }

  // Buckets of one size may hold different gradients: what would be added up then is nonsense.
  [[nodiscard]] bool hold_the_same(const Command& mine, const Command& theirs) const {
    const Communicate* a = bucket_collective(mine);
    const Communicate* b = bucket_collective(theirs);
    if (a == nullptr || b == nullptr || a->bucket == b->bucket) return true;
    return index_.bucket(*a->bucket)->members == index_.bucket(*b->bucket)->members;
  }

  // The roles that have ranks in the same instances of the group as this one, itself included.
  const std::vector<std::size_t>& roles_in(std::size_t role, GroupId id) {
    const auto [found, fresh] = peers_.try_emplace({role, id});
    if (!fresh) return found->second;
    const ProcessGroup& group = *index_.group(id);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, group.size()));
    std::set<std::size_t> all{role};
    for (std::size_t first = 0; first < group.ranks.size(); first += size) {
      const std::size_t end = std::min(group.ranks.size(), first + size);
      std::set<std::size_t> here;
      for (std::size_t i = first; i < end; ++i) {
        const auto player = role_of_.find(group.ranks[i]);
        if (player != role_of_.end()) here.insert(player->second);
      }
      if (here.contains(role)) all.insert(here.begin(), here.end());
    }
    found->second.assign(all.begin(), all.end());
    return found->second;
  }

  // Why the head of this stream stands still: it never meets its peers, or something else is in the
  // way.
  void explain(std::size_t role, std::size_t stream, std::vector<Problem>& mismatches,
               std::vector<Problem>& circles) {
    const Command& head = *states_[role].head(stream);
    const std::string at = "role " + std::to_string(role) + ", stream " +
                           index_.scheduled.streams[stream].name + ": " + index_.label(head);
    const auto meeting = meeting_of(index_, head);
    if (meeting) {
      const std::string over = index_.group(meeting->group)->name;
      for (const std::size_t peer : roles_in(role, meeting->group)) {
        if (peer == role) continue;
        const Command* next = next_meeting(peer, stream, meeting->group);
        if (meets(head, next)) continue;
        const std::string who = "role " + std::to_string(peer);
        const std::string why =
            next == nullptr ? who + " never reaches a matching collective over " + over
                            : who + " meets it over " + over + " with " + index_.label(*next);
        mismatches.push_back({ProblemKind::RankMismatch, at + ": " + why});
      }
    }
    circles.push_back({ProblemKind::Deadlock, at + (meeting ? " waits for its peers for ever"
                                                            : " stands still for ever")});
  }

  // What the role has next on this stream for ranks of the group.
  [[nodiscard]] const Command* next_meeting(std::size_t role, std::size_t stream,
                                            GroupId group) const {
    const RoleState& state = states_[role];
    for (std::size_t i = state.done[stream]; i < state.streams[stream].size(); ++i) {
      const auto meeting = meeting_of(index_, *state.streams[stream][i]);
      if (meeting && meeting->group == group) return state.streams[stream][i];
    }
    return nullptr;
  }

  const Index& index_;
  std::vector<Problem>& problems_;
  std::vector<RoleState> states_;
  std::map<Rank, std::size_t> role_of_;
  std::map<std::pair<std::size_t, GroupId>, std::vector<std::size_t>> peers_;
  std::vector<Completion> completions_;
  std::int32_t meetings_ = 0;
};

}  // namespace

std::vector<Completion> check_progress(const Index& index, std::vector<Problem>& problems) {
  return Run(index, problems).play();
}

}  // namespace dovetail::schedule
