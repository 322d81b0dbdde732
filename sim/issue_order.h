// The order in which the commands of several roles are given their nodes.
//
// With one role it is host issue order. With several, roles meet in collectives (the sends and
// receives of a pipeline), and no interleaving of host orders need work: both may send before they
// receive, on streams of their own. So the roles are played abstractly, each as far as it gets: the head
// of a stream goes ahead once its event is recorded, its enqueue is done, and all roles that meet in
// it have it at the head of a stream; of several heads the first in host order, which so decides which of two
// transfers is first that begin at once on one link. Every command then comes after all that it waits for.
//
//   role 0  s0 F0 ......... B0      role 1  s0 .... F1 B1
//           s1 send0 recv0                  s1 recv0 send0
//   order   F0, {send0, recv0}, F1, B1, {recv0, send0}, B0
//
// Which commands meet is stored with the program: those that name one Transfer (schedule/transfers.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/scheduled_program.h"

namespace dovetail::sim {

// One role's command.
struct Side {
  std::int32_t role = 0;
  std::int32_t command = 0;  // index in the role's list
  friend bool operator==(const Side&, const Side&) = default;
};

// Several sides: one collective in which these roles meet.
struct Issue {
  // Enqueue: the host's work before a collective on another stream than its own.
  enum class Kind { Command, Enqueue } kind = Kind::Command;
  std::int32_t first = 0;  // in IssueOrder::sides
  std::int32_t count = 1;
};
struct IssueOrder {
  std::vector<Issue> issues;
  std::vector<Side> sides;

  [[nodiscard]] std::span<const Side> sides_of(const Issue& issue) const {
    return std::span(sides).subspan(static_cast<std::size_t>(issue.first),
                                    static_cast<std::size_t>(issue.count));
  }
  void add(Issue::Kind kind, std::span<const Side> more) {
    issues.push_back(
        {kind, static_cast<std::int32_t>(sides.size()), static_cast<std::int32_t>(more.size())});
    sides.insert(sides.end(), more.begin(), more.end());
  }
};

// Whether the host that is the compute stream enqueues collectives of other streams in its own time.
enum class Enqueues { Free, Timed };

// REQUIRES: verify(program) is empty; a circle of waits is a failed check.
IssueOrder issue_order(const schedule::ScheduledProgram& program, Enqueues enqueues);

}  // namespace dovetail::sim
