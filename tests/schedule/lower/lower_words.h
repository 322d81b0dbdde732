// Commands as words, and the small Programs that the tests of lower share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "schedule/visit.h"
#include "tests/schedule/named.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {

// One word per command: "0:l1.backward", "1:wait3", "1:all-reduce0" (of bucket 0; "/shard": of this
// rank's part; "+": a sum, where an average has no mark), "0:scale0x1/2".
inline std::string words(const ScheduledProgram& program, std::size_t role = 0) {
  std::ostringstream out;
  for (const Command& command : program.roles.at(role).commands) {
    out << command.stream << ':';
    visit(
        command.action, [&](const RunOp& run) { out << program.program.op(run.op).name; },
        [&](const Communicate& run) {
          if (run.op) {
            out << program.program.op(*run.op).name;
            return;
          }
          out << to_string(run.kind) << *run.bucket;
          if (run.part == Part::Shard) out << "/shard";
          if (run.reduce == ReduceOp::Sum && run.kind != Collective::AllGather) out << '+';
        },
        [&](const Copy& copy) {
          out << (copy.direction == CopyDirection::Pack ? "pack" : "unpack") << copy.bucket;
        },
        [&](const RecordEvent& record) { out << "record" << record.event; },
        [&](const WaitEvent& wait) { out << "wait" << wait.event; },
        [&](const Scale& scale) {
          out << "scale" << scale.bucket << 'x' << scale.factor;
          if (scale.part == Part::Shard) out << "/shard";
        },
        [&](const Release& release) { out << "release" << release.bucket; });
    out << ' ';
  }
  return out.str();
}

// How often a kind of collective runs in a role.
inline std::int64_t count(const ScheduledProgram& program, Collective kind, std::size_t role = 0) {
  return std::ranges::count_if(program.roles.at(role).commands, [&](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->kind == kind;
  });
}

// Layers l0, l1, ... of 1 us and 400 bytes each, l1 of 800. The updates are elementwise and have a
// rescale factor.
inline Program layers(std::size_t n, std::int64_t world = 2) {
  using dovetail::testing::us;
  std::vector<dovetail::testing::Layer> list(n, {us(1), us(1), Bytes(400), us(1)});
  if (n > 1) list[1].bytes = Bytes(800);
  Program program = dovetail::testing::chain(list, world);
  for (Op& op : program.ops) {
    if (op.phase == Phase::Optimizer)
      op.effect = Update{.elementwise = true, .rescale = Rational(1)};
  }
  return program;
}

inline Schedule schedule_of(const Program& program, const std::string& policy) {
  return make_schedule(program, parse_policy(policy));
}

}  // namespace dovetail::schedule
