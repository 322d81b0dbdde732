// Gives the cpu backend of a job what it needs from its launch session: a way to exchange messages
// with the other ranks, and transports to them.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/job.h"

#include "base/error.h"
#include "exec/clock_offset.h"
#include "exec/cpu/gloo.h"
#include "exec/cpu/ring.h"
#include "exec/launch/affinity.h"

#include <memory>
#include <thread>

namespace dovetail::exec::cpu {

std::string_view to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::Ring:
      return "ring";
    case TransportKind::Gloo:
      return "gloo";
  }
  return "?";
}

Exchange exchange_of(launch::Session& session) {
  Exchange exchange;
  exchange.rank = session.rank();
  exchange.world_size = session.size();
  exchange.barrier = [&session] { session.barrier(); };
  exchange.gather = [&session](const std::string& bytes) { return session.gather(bytes); };
  exchange.broadcast = [&session](const std::string& bytes) { return session.broadcast(bytes); };
  exchange.clock_id = this_clock();
  return exchange;
}

Ports ports_of(launch::Session& session, TransportKind kind, std::optional<BytesPerSecond> rate) {
  Ports ports;
  ports.rank = session.rank();
  ports.barrier = [&session] { session.barrier("the start of a step"); };
  ports.workspace = std::make_shared<Workspace>();
  if (kind == TransportKind::Ring) {
    ports.prepare_comm_thread = [] {
      if (launch::use_realtime_priority(launch::RealTime::Transfers).empty()) return;
      static_cast<void>(launch::ask_for_quick_wakeups());
    };
    // Of the whole rank, whatever its rings.
    const auto link = rate ? std::make_shared<PacedLink>(*rate) : nullptr;
    ports.open_transport = [&session, link](StreamId, std::span<const Rank> ranks) {
      return open_ring(session, ranks, {.link = link});
    };
  } else {
    ports.prepare_comm_thread = [] {
      static_cast<void>(launch::use_realtime_priority(launch::RealTime::Transfers));
    };
    ports.open_transport = [&session](StreamId, std::span<const Rank> ranks) {
      if (static_cast<std::int32_t>(ranks.size()) != session.size()) {
        throw InputError(
            "Gloo connects all ranks, not the groups of this plan; use the transport "
            "\"ring\"");
      }
      return open_gloo(session);
    };
  }
  return ports;
}

std::string realtime_warning() {
  // Tried on a thread of its own: the calling thread keeps the priority it has.
  std::string warning;
  std::thread([&] { warning = launch::use_realtime_priority(launch::RealTime::Transfers); }).join();
  if (warning.empty()) return "";
  return warning + "; Gloo may stall for a scheduler tick per collective, do not trust its timings";
}

}  // namespace dovetail::exec::cpu
