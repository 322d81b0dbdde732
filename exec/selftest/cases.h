// The collectives, reductions and sizes that the self-test of every transport goes through.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <array>
#include <string>

namespace dovetail::exec::selftest {

struct CollectiveCase {
  schedule::Collective kind = schedule::Collective::AllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::Sum;  // of those that reduce
};

inline constexpr std::array<CollectiveCase, 8> kCollectiveCases = {
    {{schedule::Collective::AllReduce, schedule::ReduceOp::Sum},
     {schedule::Collective::AllReduce, schedule::ReduceOp::Average},
     {schedule::Collective::ReduceScatter, schedule::ReduceOp::Sum},
     {schedule::Collective::ReduceScatter, schedule::ReduceOp::Average},
     {schedule::Collective::AllGather, schedule::ReduceOp::Sum},
     {schedule::Collective::AllToAll, schedule::ReduceOp::Sum},
     {schedule::Collective::Broadcast, schedule::ReduceOp::Sum},
     {schedule::Collective::SendRecv, schedule::ReduceOp::Sum}}};

constexpr bool reduces(schedule::Collective kind) {
  return kind == schedule::Collective::AllReduce || kind == schedule::Collective::ReduceScatter;
}

// "all-reduce, sum", "broadcast".
inline std::string name_of(const CollectiveCase& of) {
  const std::string kind(to_string(of.kind));
  return reduces(of.kind) ? kind + ", " + std::string(to_string(of.op)) : kind;
}

}  // namespace dovetail::exec::selftest
