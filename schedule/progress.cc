// The abstract run of all roles.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/progress.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// The streams of one role: the commands of each in order, and how many have completed.
struct RoleState {
  const RankProgram* role = nullptr;
  std::vector<std::vector<const Command*>> streams;
  std::vector<std::size_t> done;
  std::set<EventId> recorded;

  [[nodiscard]] const Command* head(std::size_t stream) const {
    return done[stream] < streams[stream].size() ? streams[stream][done[stream]] : nullptr;
  }
};

class Run {
 public:
  explicit Run(const ScheduledProgram& program) : program_(program) {
    for (const RankProgram& role : program.roles) {
      RoleState state;
      state.role = &role;
      state.streams.resize(program.streams.size());
      for (const Command& command : role.commands) {
        state.streams[static_cast<std::size_t>(command.stream.value)].push_back(&command);
      }
      state.done.assign(program.streams.size(), 0);
      states_.push_back(std::move(state));
    }
  }

  void play(std::vector<Problem>& problems) {
    while (advance()) {
    }
    for (std::size_t role = 0; role < states_.size(); ++role) report(role, problems);
  }

 private:
  // One round over all streams; false when nothing moved.
  bool advance() {
    bool moved = false;
    for (RoleState& state : states_) {
      for (std::size_t stream = 0; stream < state.streams.size(); ++stream) {
        while (const Command* head = state.head(stream)) {
          if (!can_run(state, stream, *head)) break;
          moved = true;
        }
      }
    }
    return moved;
  }

  // Completes the head where possible; a collective completes on all of its roles at once.
  bool can_run(RoleState& state, std::size_t stream, const Command& head) {
    if (const auto* wait = std::get_if<WaitEvent>(&head.action)) {
      if (!state.recorded.contains(wait->event)) return false;
    }
    if (const auto* collective = std::get_if<RunCollective>(&head.action)) {
      const std::vector<RoleState*> peers = participants(*collective);
      const bool together = std::ranges::all_of(
          peers, [&](const RoleState* peer) { return matches(*collective, peer->head(stream)); });
      if (!together) return false;
      for (RoleState* peer : peers) ++peer->done[stream];
      return true;
    }
    if (const auto* record = std::get_if<RecordEvent>(&head.action)) {
      state.recorded.insert(record->event);
    }
    ++state.done[stream];
    return true;
  }

  std::vector<RoleState*> participants(const RunCollective& collective) {
    const std::vector<Rank>& ranks = program_.program.group(collective.group).ranks;
    std::vector<RoleState*> peers;
    for (RoleState& state : states_) {
      const bool member = std::ranges::any_of(
          state.role->ranks, [&](Rank rank) { return std::ranges::binary_search(ranks, rank); });
      if (member) peers.push_back(&state);
    }
    return peers;
  }

  [[nodiscard]] bool matches(const RunCollective& mine, const Command* head) const {
    if (head == nullptr) return false;
    const auto* theirs = std::get_if<RunCollective>(&head->action);
    return theirs != nullptr && theirs->kind == mine.kind && theirs->group == mine.group &&
           theirs->reduce == mine.reduce &&
           program_.bucket(theirs->bucket).size == program_.bucket(mine.bucket).size;
  }

  void report(std::size_t role, std::vector<Problem>& problems) const {
    const RoleState& state = states_[role];
    for (std::size_t stream = 0; stream < state.streams.size(); ++stream) {
      const Command* head = state.head(stream);
      if (head == nullptr) continue;
      const std::string at = "role " + std::to_string(role) + ", stream " +
                             program_.streams[stream].name + ": c" + std::to_string(head->id.value);
      if (const auto* collective = std::get_if<RunCollective>(&head->action)) {
        problems.push_back(
            {ProblemKind::RankMismatch, at + ": the other ranks of " +
                                            program_.program.group(collective->group).name +
                                            " never reach the matching collective of bucket " +
                                            std::to_string(collective->bucket.value)});
      } else {
        problems.push_back({ProblemKind::Deadlock, at + " waits for ever"});
      }
    }
  }

  const ScheduledProgram& program_;
  std::vector<RoleState> states_;
};

}  // namespace

void check_progress(const ScheduledProgram& program, std::vector<Problem>& problems) {
  Run(program).play(problems);
}

}  // namespace dovetail::schedule
