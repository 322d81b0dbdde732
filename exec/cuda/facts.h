// What the CUDA module was built with and what it finds on this machine: versions, devices, and
// why there is none to use.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

namespace dovetail::exec::cuda {

// Never throws: what is missing is told in Facts::objection.
Facts facts();

}  // namespace dovetail::exec::cuda
