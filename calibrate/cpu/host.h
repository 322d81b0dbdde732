// What the compute thread pays to launch collectives and to wait for them.
//
//   launch     record, then enqueue wait, collective and record: all that one launch costs, up to
//              the moment when the compute thread goes on
//   wait_done  a wait for an event that is already there
//   wake_up    from the record of an awaited event to the compute thread running again
// Medians over all ranks. The collective is of 4 bytes, so what the communication thread takes from
// the core after a launch is not counted here (contention.h measures it per collective).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/cpu/rig.h"

namespace dovetail::calibrate {

struct HostTimes {
  Duration launch{};
  Duration wait_done{};
  Duration wake_up{};
};

HostTimes measure_host(Rig& rig);

}  // namespace dovetail::calibrate
