// The parts of the self-test that need a GPU (tools.h lists them), and what their files share:
// waiting with a deadline, timing with events.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/check.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/tools.h"

#include <functional>
#include <vector>

namespace dovetail::exec::cuda {

const Tools& tools();

std::vector<selftest::Row> device_rows();
std::vector<selftest::Row> link_rows(int devices);
// Products that the backend executes, against cuBLAS alone.
std::vector<selftest::Row> executed_product_rows(int device);
std::vector<selftest::Row> nccl_rows(const Exchange& exchange, const NcclTest& test);

// The longest that a piece of the self-test waits for the device.
inline constexpr Duration kWaitAtMost = std::chrono::seconds(20);

// Waits until the stream is idle, asking `trouble` meanwhile (it throws when the wait is
// pointless). Throws DeviceError naming `what` when the deadline passes. Never blocks inside CUDA.
void await_stream(cudaStream_t stream, Duration deadline, const char* what,
                  const std::function<void()>& trouble = {});

// The time of the work that `enqueue` puts on the stream, by events around it: the best of several.
double best_milliseconds(cudaStream_t stream, const std::function<void()>& enqueue);

}  // namespace dovetail::exec::cuda
