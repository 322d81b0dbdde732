// What a user asks of a machine that nobody has: half the link, twice the latency, another GPU, more ranks.
//
//   WhatIf asked = parse_what_if("link=0.5x,latency=2x,gpu=h200,world=64");
//   apply(asked, costs);            // the factors
//
//   link, compute, host   a speed: 2x is twice as fast
//   network, nvlink       the rate of a rank's link between nodes, in them: collectives change as the model of the links says (topology.h), so
//                         one that the other kind of link bounds does not
//   latency               a time: 2x is twice as long
//   gpu                   the compute of a shipped machine in place of the cluster's own; links and host stay
//   world                 so many ranks (of a job: in its dp, or in dp_shard where dp is 1)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dovetail::models {

struct Costs;

struct WhatIf {
  double link = 1, latency = 1, compute = 1, host = 1;
  double network = 1, nvlink = 1;
  std::string gpu = {};  // "": the cluster's own
  std::optional<std::int64_t> world = std::nullopt;
  bool is_given = false;  // by somebody: link=1x says that the link is as it is

  [[nodiscard]] bool changes_topology() const { return network != 1 || nvlink != 1; }
  [[nodiscard]] bool nothing() const { return *this == WhatIf{.is_given = is_given}; }
  friend bool operator==(const WhatIf&, const WhatIf&) = default;
};

// "" is nothing. Throws InputError, which names the part that is wrong.
WhatIf parse_what_if(const std::string& text);
// What parse_what_if reads back; "" for nothing.
std::string to_string(const WhatIf& what_if);

// Scales what the factors say (scaled_costs.h), but for network and nvlink, by which collectives are priced (cluster.h).
void apply(const WhatIf& what_if, Costs& costs);

}  // namespace dovetail::models
