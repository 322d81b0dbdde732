// When a step is host-bound: the device stands still for the host, and buckets have nothing to hide.
//
// The one rule of what is recorded (recordings/diagnose/) and of what is predicted (answers/): the device waits for the
// host for a quarter of the step or more, and a network that took no time would save a fiftieth at most.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

namespace dovetail::step {

struct HostWait {
  Duration step{};
  Duration waits{};         // of the step: nothing runs, only because the host has not launched it
  Duration network_gain{};  // what the step would save with a network that takes no time
};

inline bool network_matters(const HostWait& of) { return of.network_gain * 50 > of.step; }
inline bool is_host_bound(const HostWait& of) {
  return of.waits * 4 >= of.step && !network_matters(of);
}

}  // namespace dovetail::step
