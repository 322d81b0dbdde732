// The meeting of the ranks: rank 0 listens, the others find it, and each pair leaves with two
// connections, one for calls (barrier, gather, ...) and one for control (heartbeats, failures).
//
// A rank says hello with a magic word, the token of its job, its rank and the size it believes in;
// rank 0 answers welcome, or refuses with a sentence. Whoever answers otherwise, or not at all, is
// a stranger on that port, and the next candidate port is tried (world.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/launch/socket.h"
#include "exec/launch/world.h"

#include <vector>

namespace dovetail::exec::launch {

// The connections between one rank and rank 0.
struct Link {
  Descriptor calls;
  Descriptor control;
};

// Rank 0 has one link per rank, at the position of the rank (its own stays closed); any other rank
// has one, at position 0.
struct Links {
  std::vector<Link> by_rank;
  std::string local_address;  // of this machine, as the other ranks see it
};

// Returns when all ranks have met. Throws DeviceError naming the ranks that did not come in time.
Links meet(const World& world, const StoreAddress& address, Duration patience);

// The links of ranks that are threads of this process; element r belongs to rank r.
std::vector<Links> local_links(std::int32_t ranks);

}  // namespace dovetail::exec::launch
