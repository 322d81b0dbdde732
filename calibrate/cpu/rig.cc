// The set-up of every calibration of the cpu backend: one communication thread behind a gate,
// which opens when the whole queue of collectives is there, so that what is timed is the queue and
// not its filling.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/rig.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dovetail::calibrate {
namespace {

constexpr std::size_t kGate = 0;  // the event that opens the queue
constexpr std::size_t kEvents = 2;
constexpr StreamId kStream{1};

}  // namespace

Spread spread_of(std::vector<std::int64_t> samples_ns) {
  DOVETAIL_CHECK(!samples_ns.empty()) << "no samples";
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(samples_ns.size() - 1);
    return Duration(samples_ns[static_cast<std::size_t>(std::lround(position))]);
  };
  return {.p10 = at(0.1), .median = at(0.5), .p90 = at(0.9)};
}

Rig::Rig(exec::Exchange exchange, exec::cpu::Ports ports)
    : exchange_(std::move(exchange)),
      ports_(std::move(ports)),
      reference_load_(static_cast<std::uint64_t>(exchange_.rank.value)),
      events_(std::make_unique<exec::cpu::EventTable>(kEvents)) {
  if (ports_.workspace == nullptr) ports_.workspace = std::make_shared<exec::cpu::Workspace>();
  std::vector<Rank> all;
  for (std::int32_t rank = 0; rank < exchange_.world_size; ++rank) all.push_back(Rank{rank});
  const auto open = [this, all] {
    std::vector<std::unique_ptr<exec::cpu::Transport>> transports;
    transports.push_back(ports_.open_transport(kStream, all));
    return transports;
  };
  comm_ = std::make_unique<exec::cpu::CommThread>(
      exec::cpu::CommThread::Options{
          .stream = kStream, .prepare = ports_.prepare_comm_thread, .open_transports = open},
      *events_);
  events_->begin_step();
}

exec::cpu::Ports Rig::compute_ports() const {
  exec::cpu::Ports ports = ports_;
  ports.barrier = [] {};
  return ports;
}

void Rig::enqueue(const exec::cpu::CollectiveCall& call, std::int64_t count) {
  comm_->enqueue({.command = CommandId{0}, .call = exec::cpu::WaitCall{kGate}});
  for (std::int64_t i = 0; i < count; ++i) comm_->enqueue({.command = CommandId{1}, .call = call});
  events_->record(kGate);
}

std::vector<exec::Timing> Rig::drain() {
  std::vector<exec::Timing> timings = comm_->drain();
  events_->throw_failure();
  events_->begin_step();
  std::erase_if(timings, [](const exec::Timing& timing) { return timing.command != CommandId{1}; });
  return timings;
}

std::span<float> Rig::buffer(Bytes bytes) {
  const auto count = static_cast<std::size_t>(bytes.count() / 4);
  if (buffer_.size() < count) buffer_.assign(count, 0.0F);
  return std::span(buffer_).first(count);
}

}  // namespace dovetail::calibrate
