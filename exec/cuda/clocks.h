// Clocks and power of a GPU, by its management library, which is looked for when it is asked.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

namespace dovetail::exec::cuda {

// Never throws: what cannot be read stays 0.
DeviceState device_state(std::int32_t device);

}  // namespace dovetail::exec::cuda
