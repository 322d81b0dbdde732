// What every calibration works with: the ranks, this rank's ports, and one communication thread.
//
// All ranks call the same calibrations in the same order. Whatever decides how often something is
// repeated is shared among the ranks first (exchange.h), so they always agree on the number of
// collectives; and as every result is computed from shared samples, it is the same on every rank.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/backend.h"
#include "exec/cpu/backend.h"
#include "exec/cpu/comm_thread.h"
#include "exec/cpu/memory.h"
#include "exec/exchange.h"
#include "exec/yardstick.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dovetail::exec::calibrate {

// The 10th, 50th and 90th percentile of some samples.
struct Spread {
  Duration p10{}, median{}, p90{};
  friend bool operator==(const Spread&, const Spread&) = default;
};
// Nearest rank. REQUIRES: there is a sample.
Spread spread_of(std::vector<std::int64_t> samples_ns);

class Rig {
 public:
  // Opens the transport of stream 1 and keeps it.
  Rig(Exchange exchange, cpu::Ports ports);

  [[nodiscard]] const Exchange& exchange() const { return exchange_; }
  [[nodiscard]] cpu::Workspace& workspace() { return *ports_.workspace; }
  [[nodiscard]] cpu::CommThread& comm() { return *comm_; }
  [[nodiscard]] cpu::EventTable& events() { return *events_; }

  // Runs from the beginning to the end of the rig, on the cores of the thread that made it.
  [[nodiscard]] const Yardstick& yardstick() const { return yardstick_; }

  // How long the network goes on without a rank (shield.h); 0 until it is known.
  [[nodiscard]] Duration shield() const { return shield_; }
  void know_shield(Duration shield) { shield_ = shield; }

  // Ports for a backend without communication: its barrier does nothing.
  [[nodiscard]] cpu::Ports compute_ports() const;

  // Puts `count` calls on the communication thread, which starts them once all are queued.
  void enqueue(const cpu::CollectiveCall& call, std::int64_t count);
  // Their timings, in order. Throws what a call threw.
  std::vector<Timing> drain();

  // Zeros to be reduced, on this rank.
  std::span<float> buffer(Bytes bytes);

 private:
  Exchange exchange_;
  cpu::Ports ports_;
  Yardstick yardstick_;
  Duration shield_{};
  std::vector<float> buffer_;
  std::unique_ptr<cpu::EventTable> events_;
  std::unique_ptr<cpu::CommThread> comm_;
};

}  // namespace dovetail::exec::calibrate
