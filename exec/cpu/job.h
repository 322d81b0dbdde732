// Plugs a rank of a launched job into the cpu backend: the session becomes an Exchange and Ports.
//
//   launch::run_local_ranks({.ranks = 2}, [&](launch::Session& session) {
//     cpu::CpuBackend backend(plan, cpu::ports_of(session, cpu::TransportKind::Ring));
//     ... measure(cpu::exchange_of(session), lanes, options, provenance) ...
//   });
//
// One Ports value may serve several backends of a rank that run in turn: they share its workspace.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/cpu/backend.h"
#include "exec/exchange.h"
#include "exec/launch/session.h"

#include <optional>
#include <string>
#include <string_view>

namespace dovetail::exec::cpu {

enum class TransportKind { Ring, Gloo };
std::string_view to_string(TransportKind kind);

// Both hold a reference to the session. REQUIRES: it outlives them and all that is made from them.
Exchange exchange_of(launch::Session& session);
// The communication threads ask for real-time priority. Without it Gloo's timings mean nothing
// (realtime_warning); a ring asks for quick wake-ups instead. Measured where another program had a core for
// 30 % of the time, 50 ms at once: overlapped steps of 600 ms took 40 ms longer than predicted without real-time
// priority, 10 ms with it.
Ports ports_of(launch::Session& session, TransportKind kind,
               std::optional<BytesPerSecond> rate = std::nullopt);

// "" when threads of this process may have real-time priority, else why not, for the report.
std::string realtime_warning();

}  // namespace dovetail::exec::cpu
