// Shares links, memory and compute among everything in flight: progressive filling of links for transfers, of memory for
// transfers and ops that stream, and what transfers take of compute for ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dovetail::sim {

std::int64_t whole_rate(double rate) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(kFullRate) * rate));
}

void LinkShares::clear() {
  for (const std::int32_t resource : used_) local_[static_cast<std::size_t>(resource)] = -1;
  used_.clear();
  uses_.clear();
  largest_.clear();
}

void LinkShares::add(std::span<const Demand> demands, double part) {
  const auto transfer = static_cast<std::int32_t>(largest_.size());
  largest_.push_back(0);
  for (const Demand& demand : demands) {
    const double amount = demand.amount * part;
    if (amount <= 0) continue;
    std::int32_t& local = local_[static_cast<std::size_t>(demand.resource)];
    if (local < 0) {
      local = static_cast<std::int32_t>(used_.size());
      used_.push_back(demand.resource);
    }
    uses_.push_back({transfer, local, amount});
    largest_.back() = std::max(largest_.back(), amount);
  }
}

std::span<const double> LinkShares::solve() {
  rates_.assign(largest_.size(), 0);
  settled_.assign(used_.size(), 0);
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (largest_[i] == 0) rates_[i] = 1;
  }
  while (fill()) {
  }
  return rates_;
}

// Each unsettled transfer uses level * amount / largest of its resources.
bool LinkShares::fill() {
  rising_.assign(used_.size(), 0);
  for (const Use& use : uses_) {
    const auto transfer = static_cast<std::size_t>(use.transfer);
    if (rates_[transfer] > 0) continue;
    rising_[static_cast<std::size_t>(use.resource)] += use.amount / largest_[transfer];
  }
  double level = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (rates_[i] == 0) level = std::min(level, largest_[i]);
  }
  const auto full_at = [this](std::size_t resource) {
    return std::max(0.0, 1 - settled_[resource]) / rising_[resource];
  };
  for (std::size_t r = 0; r < used_.size(); ++r) {
    if (rising_[r] > 0) level = std::min(level, full_at(r));
  }
  if (std::isinf(level)) return false;
  constexpr double kLeastRate = 1e-6;
  constexpr double kMarked = -1;
  for (const Use& use : uses_) {
    const auto resource = static_cast<std::size_t>(use.resource);
    double& rate = rates_[static_cast<std::size_t>(use.transfer)];
    if (rate == 0 && full_at(resource) <= level) rate = kMarked;
  }
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (rates_[i] == 0 && largest_[i] <= level) rates_[i] = kMarked;
  }
  for (const Use& use : uses_) {
    const auto transfer = static_cast<std::size_t>(use.transfer);
    if (rates_[transfer] != kMarked) continue;
    const double rate = std::clamp(level / largest_[transfer], kLeastRate, 1.0);
    settled_[static_cast<std::size_t>(use.resource)] += rate * use.amount;
  }
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (rates_[i] == kMarked) rates_[i] = std::clamp(level / largest_[i], kLeastRate, 1.0);
  }
  return true;
}

// The level rises from an equal part for all to an equal part of what those below it leave.
double memory_level(std::span<const double> wants, bool streams) {
  double level = 0;
  while (true) {
    double room = 1;
    int above = streams ? 1 : 0;
    for (const double want : wants) {
      if (want > level) {
        ++above;
      } else {
        room -= want;
      }
    }
    if (above == 0) return std::numeric_limits<double>::infinity();
    const double next = room / above;
    if (next <= level) return level;
    level = next;
  }
}

void Taken::add(const models::Contention& contention, const Transfer& transfer) {
  const auto& [rate, alone, takes] = transfer;
  gpu.multiprocessors += takes.multiprocessors;
  gpu.memory += rate * takes.memory;
  const std::int64_t busy = std::min(contention.collective_cpu.count(), alone);
  core += rate * static_cast<double>(busy) / static_cast<double>(alone);
  hold(contention, rate);
}

void Taken::add_waiting(const models::Contention& contention, const step::GpuShare& takes) {
  gpu.multiprocessors += takes.multiprocessors;
  hold(contention, 1);
}

void Taken::hold(const models::Contention& contention, double part) {
  for (const models::KernelClass kernel : kAllOf<models::KernelClass>) {
    compute[static_cast<std::size_t>(kernel)] += part * (1 - 1 / contention.slowdown_of(kernel));
  }
}

double Taken::left(models::KernelClass kernel) const {
  constexpr double kLeast = 1.0 / 64;
  double left =
      std::max(0.0, 1 - core) * std::max(0.0, 1 - compute[static_cast<std::size_t>(kernel)]);
  left *= std::max(0.0, 1 - gpu.multiprocessors);
  if (kernel == models::KernelClass::Memory) left *= std::max(0.0, 1 - gpu.memory);
  return std::clamp(left, kLeast, 1.0);
}

}  // namespace dovetail::sim
