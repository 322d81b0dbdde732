// The part of the module that only the self-test uses. Like the rest of the seam it needs no CUDA
// header; module.h points here.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/exchange.h"
#include "exec/selftest/row.h"

#include <chrono>
#include <cstdint>
#include <vector>

namespace dovetail::exec::cuda {

struct NcclTest {
  std::int32_t device = 0;
  Duration deadline = std::chrono::seconds(20);  // of any single wait
};

// Neither function throws for what the machine does: that is a failed row.
struct Tools {
  // Of every GPU: what it is, its clock, copies, products in each dtype against the physical peak and
  // as ops of a plan against cuBLAS alone, events; and how the GPUs are connected.
  std::vector<selftest::Row> (*device_rows)() = nullptr;
  // Of one GPU in a few seconds: what it is, its clock, copies.
  std::vector<selftest::Row> (*brief_rows)(std::int32_t device) = nullptr;
  // How the GPUs that this process sees are connected: a table of who can reach whom, and of rates.
  std::vector<selftest::Row> (*link_rows)() = nullptr;
  // Every collective, dtype and reduction on known values, straight on NCCL. All ranks call it;
  // each gets the same rows, with the counts of all ranks.
  std::vector<selftest::Row> (*nccl_rows)(const Exchange& exchange, const NcclTest& test) = nullptr;
};

}  // namespace dovetail::exec::cuda
