// The outgoing link of a rank that paces itself (--rate): tells when bytes have left.
//
// It plays the link of scripts/campaigns/testbed.sh without root: a token bucket of one packet of 64 KiB with
// its headers. A packet leaves once all its bytes, headers included, have earned their time; after a
// pause one leaves at once. It knows nothing of sockets and clocks: whoever sends asks when, sleeps
// until then, and sends.
//
// All arithmetic is on one absolute time, when the link has carried everything that it was asked
// for. A sender that wakes up late asks for its next packet as of the time the last one left, so
// nothing is lost while bytes wait: a kernel would have sent them from the socket's buffer meanwhile.
//
// Why not the kernel's own pacing of a socket (SO_MAX_PACING_RATE)? It keeps no credit, and paces each
// ring for itself, where a rank has one link. Lone all-reduces of two ranks at 1 Gbit/s, in us, and the
// processor time of the communication thread (2 cores, other programs beside it, one run):
//                       64 KiB   128 KiB    1 MiB   share of a core
//   shaped link             60       581     7981   3.7 %
//   PacedLink               54       573     7982   6.5 %
//   the kernel's pacing    170       833     7699   3.9 %
// Without exact timers (exec/launch/affinity.h) PacedLink takes 627 us at 128 KiB.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/launch/socket.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace dovetail::exec::cpu {

class PacedLink {
 public:
  using Time = launch::Clock::time_point;

  // What leaves at a time, as segments go through a shaped link.
  static constexpr Bytes kPacket = kib(64);

  // REQUIRES: rate > 0.
  explicit PacedLink(BytesPerSecond rate);

  // When bytes that have been waiting since then have left: after all bytes of earlier calls,
  // whoever made them. May be called from any thread. REQUIRES: 0 < bytes <= kPacket.
  Time departure(Bytes bytes, Time waiting_since);

 private:
  BytesPerSecond rate_;
  Duration credit_;  // earned in a pause
  std::mutex mutex_;
  Time free_at_;  // everything asked for has left by then
};

// One ring's way to the link: one packet after another. Without a link everything may leave at once.
class PacedSender {
 public:
  using Time = PacedLink::Time;

  // Shared by the rings of a rank, which may live on several threads.
  explicit PacedSender(std::shared_ptr<PacedLink> link) : link_(std::move(link)) {}

  // Nothing was waiting; from now on something is.
  void begin(Time now) { waiting_since_ = now; }
  // How many of the bytes that are ready may leave now; 0: ask again at departure(). REQUIRES:
  // ready > 0, and no less than was ready before and not sent.
  std::size_t allowed(std::size_t ready, Time now);
  void sent(std::size_t bytes);
  // Of the last packet that was asked for; long ago if there was none.
  [[nodiscard]] Time departure() const { return departure_; }

 private:
  std::shared_ptr<PacedLink> link_;
  Time waiting_since_;
  std::size_t packet_ = 0;  // bytes asked for and not yet sent
  Time departure_;
};

}  // namespace dovetail::exec::cpu
