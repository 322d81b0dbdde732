// What the CUDA module was built with and what it finds on this machine: versions, devices, and
// why there is none to use.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

#include <string>

namespace dovetail::exec::cuda {

// Never throws: what is missing is told in Facts::objection.
Facts facts();

// "2.28.9" of NCCL's number for it.
std::string nccl_version(int number);

}  // namespace dovetail::exec::cuda
