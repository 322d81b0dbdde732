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
#include "testbed/reference_load.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dovetail::calibrate {

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
  Rig(exec::Exchange exchange, exec::cpu::Ports ports);

  [[nodiscard]] const exec::Exchange& exchange() const { return exchange_; }
  [[nodiscard]] exec::cpu::Workspace& workspace() { return *ports_.workspace; }
  [[nodiscard]] exec::cpu::CommThread& comm() { return *comm_; }
  [[nodiscard]] exec::cpu::EventTable& events() { return *events_; }

  // Runs from the beginning to the end of the rig, on the cores of the thread that made it.
  [[nodiscard]] const testbed::ReferenceLoad& reference_load() const { return reference_load_; }

  // How long the network goes on without a rank (network_shield.h); 0 until it is known.
  [[nodiscard]] Duration shield() const { return shield_; }
  void know_shield(Duration shield) { shield_ = shield; }

  // Ports for a backend without communication: its barrier does nothing.
  [[nodiscard]] exec::cpu::Ports compute_ports() const;

  // Puts `count` calls on the communication thread, which starts them once all are queued.
  void enqueue(const exec::cpu::CollectiveCall& call, std::int64_t count);
  // Their timings, in order. Throws what a call threw.
  std::vector<exec::Timing> drain();

  // Zeros to be reduced, on this rank.
  std::span<float> buffer(Bytes bytes);

 private:
  exec::Exchange exchange_;
  exec::cpu::Ports ports_;
  testbed::ReferenceLoad reference_load_;
  Duration shield_{};
  std::vector<float> buffer_;
  std::unique_ptr<exec::cpu::EventTable> events_;
  std::unique_ptr<exec::cpu::CommThread> comm_;
};

}  // namespace dovetail::calibrate
