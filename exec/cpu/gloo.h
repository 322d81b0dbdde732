// Gloo's collectives behind the same interface: parity with PyTorch, and a second opinion on sums.
//
// All-reduce and all-gather are Gloo's rings. Reduce-scatter is a ring of its point-to-point
// messages, since Gloo has none for buffers of the caller. Ranks meet through the Session.
//
// Gloo runs one thread of its own per transport. It and the calling thread must have equal
// real-time priority (affinity.h: use_realtime_priority() before open_gloo()), else each collective
// may stall for a scheduler tick; without that, publish no timings.
//
// Compiled in where DOVETAIL_HAVE_GLOO is 1. Linking libgloo adds 0.5 ms to the start of the
// program (measured), so it is linked directly.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/cpu/transport.h"
#include "exec/launch/session.h"

#include <memory>

namespace dovetail::exec::cpu {

struct GlooOptions {
  Duration deadline = std::chrono::seconds(60);  // for one wait inside Gloo
};

// Whether this build can open_gloo().
bool has_gloo();

// As open_ring(), over all ranks of the session. Throws InputError when the build has no Gloo. The
// calls that training with all-reduce does not need (all-to-all, broadcast, send and receive) throw
// InputError: the ring has them.
std::unique_ptr<Transport> open_gloo(launch::Session& session, const GlooOptions& options = {});

}  // namespace dovetail::exec::cpu
