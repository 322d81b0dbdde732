// Stand-ins: makes a Program of measured times executable on another machine.
//
// Timed work says how long an op took somewhere else; it cannot be run. Each such op gets as many
// repetitions of this machine's unit kernel as fill its time (the mean over ranks, at least one
// repetition): the same compute profile in time, on real data. They are issued by this machine's
// host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/clusters/cluster.h"
#include "schedule/program.h"

namespace dovetail::models {

struct StandIn {
  schedule::Program program;
  std::int64_t replaced = 0;  // ops whose timed work was replaced
};

// Ops without timed work stay as they are. Throws InputError when there is timed work and the
// cluster has no unit kernel, or one so short that its repetitions could not be counted.
StandIn stand_in(const schedule::Program& program, const Cluster& cluster);

}  // namespace dovetail::models
