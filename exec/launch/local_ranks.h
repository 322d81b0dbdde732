// Ranks as threads of this process: one call runs a whole job on one machine, without a launcher.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/launch/affinity.h"
#include "exec/launch/session.h"

#include <cstdint>
#include <functional>
#include <string>

namespace dovetail::exec::launch {

struct LocalRanksOptions {
  std::int32_t ranks = 2;
  std::string network_namespace{};  // prefix; the thread of rank r runs inside PREFIXr
  Cores cores = Cores::OneEach;
  Graces graces{};
};

// Runs body(session) on one thread per rank, with Cores::OneEach each pinned to core (rank mod
// cores), and returns when all have ended. If a body throws, the others are told, and the first
// exception is rethrown.
void run_local_ranks(const LocalRanksOptions& options,
                     const std::function<void(Session& session)>& body);

}  // namespace dovetail::exec::launch
