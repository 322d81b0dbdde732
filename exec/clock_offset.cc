// Estimates how far a rank's clock is from rank 0's by round trips: each one bounds the offset
// from both sides, and the tightest one counts.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/clock_offset.h"

#include "exec/clock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

namespace dovetail::exec {
namespace {

constexpr int kRoundTrips = 32;

std::string number_bytes(std::int64_t number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::int64_t number_of(const std::string& bytes) {
  std::int64_t number = 0;
  if (bytes.size() == sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

std::int64_t clock_of(const Exchange& exchange) {
  return exchange.clock ? exchange.clock() : now_ns();
}

}  // namespace

ClockOffset clock_offset(const Exchange& exchange) {
  ClockOffset best = {.at_ns = clock_of(exchange)};
  if (exchange.world_size == 1) return best;
  const std::string clock_0 = exchange.broadcast(exchange.clock_id);
  // All ranks take part in the round trips, or none does.
  const std::int64_t differs = clock_0 == exchange.clock_id ? 0 : 1;
  std::int64_t any = 0;
  for (const auto& of_rank : share(exchange, std::array{differs})) any += of_rank.front();
  if (any == 0) return best;
  std::int64_t narrowest = -1;
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t before = clock_of(exchange);
    static_cast<void>(exchange.gather(std::string()));
    const std::int64_t there = number_of(exchange.broadcast(number_bytes(clock_of(exchange))));
    const std::int64_t after = clock_of(exchange);
    if (narrowest >= 0 && after - before >= narrowest) continue;
    narrowest = after - before;
    const std::int64_t middle = before + narrowest / 2;
    best = {.at_ns = middle, .offset_ns = there - middle, .error_ns = (narrowest + 1) / 2};
  }
  if (differs == 0) return {.at_ns = best.at_ns};
  return best;
}

std::int64_t offset_at(const ClockOffset& before, const ClockOffset& after, std::int64_t at_ns) {
  if (after.at_ns <= before.at_ns) return before.offset_ns;
  const double place =
      static_cast<double>(at_ns - before.at_ns) / static_cast<double>(after.at_ns - before.at_ns);
  const auto drift = static_cast<double>(after.offset_ns - before.offset_ns);
  return before.offset_ns + std::llround(place * drift);
}

std::string this_clock() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/time", name.data(), name.size() - 1);
  return boot + " " + std::string(name.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

}  // namespace dovetail::exec
