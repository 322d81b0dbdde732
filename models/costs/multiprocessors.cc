// Counts thread blocks as NCCL does, bytes as a ring moves them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/multiprocessors.h"

#include <algorithm>

#include "schedule/collective_traits.h"

namespace dovetail::models {
namespace {

using schedule::Collective;

constexpr std::int64_t kBytesPerCta = std::int64_t{32} << 10;
constexpr double kCtasThatReachAll = 19.0 / 24;  // of NCCL's number
constexpr double kReachable = 0.8;               // of the memory's nominal rate, as in op_model.h

bool holds_none(Collective kind) {
  return kind == Collective::AllToAll || kind == Collective::SendRecv;
}

// NCCL's own choice.
std::int64_t usual_ctas(const Multiprocessors& gpu, const GpuMessage& message) {
  if (holds_none(message.kind)) return 0;
  const std::int64_t most = message.nodes > 1                       ? gpu.network_ctas
                            : message.kind == Collective::AllReduce ? gpu.all_reduce_ctas
                                                                    : gpu.ctas;
  const std::int64_t wanted = (message.bytes.count() + kBytesPerCta - 1) / kBytesPerCta;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, most));
}

// Bytes that cross a rank's bus, as nccl-tests counts them.
double bus_bytes(const GpuMessage& message) {
  const std::int32_t crossings = schedule::traits_of(message.kind).crossings;
  const auto bytes = static_cast<double>(message.bytes.count());
  const auto ranks = static_cast<double>(message.ranks);
  return crossings == 0 ? bytes : bytes * crossings * (ranks - 1) / ranks;
}

double memory_bytes_per_bus_byte(Collective kind) {
  if (kind == Collective::AllReduce) return 2.5;
  return kind == Collective::ReduceScatter ? 3 : 2;
}

}  // namespace

std::int64_t Multiprocessors::ctas_of(const GpuMessage& message) const {
  const std::int64_t usual = usual_ctas(*this, message);
  return message.max_ctas > 0 ? std::min<std::int64_t>(usual, message.max_ctas) : usual;
}

Duration Multiprocessors::least_time(const GpuMessage& message) const {
  const std::int64_t held = ctas_of(message);
  if (held == usual_ctas(*this, message)) return {};
  const auto& rate = message.kind == Collective::AllReduce ? all_reduce_cta_rate : cta_rate;
  if (!rate) return {};
  return from_us(bus_bytes(message) / (static_cast<double>(held) * rate->count()) * 1e6);
}

double Multiprocessors::memory_share(const GpuMessage& message, Duration time) const {
  if (!memory || time <= Duration{}) return 0;
  const double bytes = memory_bytes_per_bus_byte(message.kind) * bus_bytes(message);
  return bytes / (to_us(time) / 1e6) / (kReachable * memory->count());
}

void set_cta_rates(Multiprocessors& gpu, BytesPerSecond node, BytesPerSecond all_reduce) {
  const auto of_one = [](BytesPerSecond rate, std::int64_t ctas) {
    return BytesPerSecond(rate.count() / (kCtasThatReachAll * static_cast<double>(ctas)));
  };
  if (gpu.ctas > 0) gpu.cta_rate = of_one(node, gpu.ctas);
  if (gpu.all_reduce_ctas > 0) gpu.all_reduce_cta_rate = of_one(all_reduce, gpu.all_reduce_ctas);
}

}  // namespace dovetail::models
