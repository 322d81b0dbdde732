// Our own ring over TCP: one thread, one poll() loop, no spinning. The timing reference.
//
// A ring of n ranks; the data is cut into n segments, as even as it can be. In n - 1 phases each
// rank passes a partial sum to its successor, until rank r holds the sum of segment r (reduce-
// scatter); in n - 1 more the sums travel on (all-gather). 2(n-1)/n of the bytes leave each rank.
//
// Pipelined by bytes, not by phases: what arrives in phase p is exactly what leaves in phase p + 1,
// so a byte may be sent on as soon as it is reduced. Sending and receiving go on side by side.
// InterleavedProbes arrivals the thread sleeps in poll().
//
// Cost of S bytes on a full-duplex link: about alpha + 2(n-1)/n * S / bandwidth. Each collective
// begins with a header of 16 bytes that tells its size and number, so that ranks which disagree get
// a message and not a wrong sum. A broadcast runs once around the ring; in an all-to-all each part
// is handed on until it is there, so n/2 times the data leaves each rank: meant for small groups. A
// send or receive is between neighbours.
//
// With a PacedLink the rank's bytes leave at the rate of that link: the thread sleeps until the next
// 64 KiB may go, and receives meanwhile.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/cpu/paced_link.h"
#include "exec/cpu/transport.h"
#include "exec/launch/session.h"

#include <memory>
#include <span>

namespace dovetail::exec::cpu {

struct RingOptions {
  Duration deadline = std::chrono::seconds(60);  // without a single byte moving
  Duration patience = std::chrono::seconds(60);  // for the neighbours to connect
  Bytes chunk = kib(256);                        // received and reduced at a time
  // Shared by all rings of the rank; absent: as fast as the sockets take it.
  std::shared_ptr<PacedLink> link{};
};

// Connects this rank with its neighbours. Every rank of the session calls it, in the same order when
// there are several transports, also those that are in no such group. REQUIRES: the session outlives
// the transport; the calling thread is inside the rank's namespace.
std::unique_ptr<Transport> open_ring(launch::Session& session, const RingOptions& options = {});
// A ring of some ranks. Several groups may connect in one call of all ranks: each rank lists those
// of its own group, in the same order, or itself alone.
std::unique_ptr<Transport> open_ring(launch::Session& session, std::span<const Rank> ranks,
                                     const RingOptions& options = {});

}  // namespace dovetail::exec::cpu
