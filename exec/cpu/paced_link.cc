// A token bucket in user space that slows a link down to a given rate: one absolute time says when
// the next byte may go, so that errors of single sleeps do not add up.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/paced_link.h"

#include "base/error.h"

#include <algorithm>
#include <cstdint>

namespace dovetail::exec::cpu {
namespace {

// As scripts/campaigns/testbed.sh sets up its link: mtu 9000, and a bucket a little larger than a packet.
constexpr Bytes kSegment{9000 - 52};  // of the data, between its headers
constexpr Bytes kHeaders{66};         // of a segment: Ethernet, IP, TCP with timestamps
constexpr Bytes kMargin{400};

Bytes on_the_wire(Bytes bytes) {
  const std::int64_t segments = (bytes.count() + kSegment.count() - 1) / kSegment.count();
  return bytes + kHeaders * segments;
}

}  // namespace

PacedLink::PacedLink(BytesPerSecond rate)
    : rate_(rate), credit_((on_the_wire(kPacket) + kMargin) / rate) {}

PacedLink::Time PacedLink::departure(Bytes bytes, Time waiting_since) {
  DOVETAIL_CHECK(bytes > Bytes(0) && bytes <= kPacket) << bytes;
  const std::lock_guard lock(mutex_);
  free_at_ = std::max(free_at_, waiting_since - credit_) + on_the_wire(bytes) / rate_;
  return free_at_;
}

std::size_t PacedSender::allowed(std::size_t ready, Time now) {
  if (link_ == nullptr) return ready;
  if (packet_ == 0) {
    packet_ = std::min(ready, static_cast<std::size_t>(PacedLink::kPacket.count()));
    departure_ = link_->departure(Bytes(static_cast<std::int64_t>(packet_)), waiting_since_);
  }
  return now >= departure_ ? packet_ : 0;
}

void PacedSender::sent(std::size_t bytes) {
  if (link_ == nullptr) return;
  DOVETAIL_CHECK(bytes <= packet_) << bytes << ' ' << packet_;
  packet_ -= bytes;
  waiting_since_ = departure_;  // what is left was ready by then
}

}  // namespace dovetail::exec::cpu
