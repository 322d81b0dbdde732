// The module of an executable that holds the executor and the emulated device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

extern "C" const dovetail::exec::cuda::Module* dovetail_emulated_module();
