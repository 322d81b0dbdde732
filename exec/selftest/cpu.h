// The self-test of the cpu backend: transports, the law, and whether timings can make sense.
//
// About a second on two cores. Ranks are threads of this process and talk over loopback.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/job.h"
#include "exec/exchange.h"
#include "exec/launch/session.h"
#include "exec/selftest/row.h"

#include <vector>

namespace dovetail::exec::selftest {

inline constexpr std::int32_t kMostRanksTested = 4;

// Every collective of one transport over 1 .. kMostRanksTested ranks, on known values.
std::vector<Row> transport_rows(cpu::TransportKind kind);
// Every collective on the ranks of a running job; what rank 0 found out about all of them, one row.
Row transport_row_of_job(launch::Session& session);
// A small training job under several schedules: equal weights (exec/training/program.h).
std::vector<Row> cpu_law_rows();
// The clock and the speed of one core.
std::vector<Row> timing_rows();

}  // namespace dovetail::exec::selftest
