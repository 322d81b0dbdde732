// Messages between ranks outside of the timed region: numbers are packed as bytes, gathered by
// rank 0 and handed back to all.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/exchange.h"

#include "base/error.h"

#include <cstring>

namespace dovetail::exec {
namespace {

std::string to_bytes(std::span<const std::int64_t> numbers) {
  std::string bytes(numbers.size_bytes(), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<std::int64_t> to_numbers(const std::string& bytes) {
  if (bytes.size() % sizeof(std::int64_t) != 0) {
    throw DeviceError("a rank sent " + std::to_string(bytes.size()) +
                      " bytes where whole numbers were expected");
  }
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace

Exchange alone() {
  return {.rank = Rank{0},
          .world_size = 1,
          .barrier = [] {},
          .gather = [](const std::string& bytes) { return std::vector<std::string>{bytes}; },
          .broadcast = [](const std::string& bytes) { return bytes; }};
}

std::vector<std::vector<std::int64_t>> share(const Exchange& exchange,
                                             std::span<const std::int64_t> mine) {
  const std::vector<std::string> gathered = exchange.gather(to_bytes(mine));
  // All in one message: per rank a count, then its numbers.
  std::vector<std::int64_t> all;
  for (const std::string& bytes : gathered) {
    const std::vector<std::int64_t> numbers = to_numbers(bytes);
    all.push_back(static_cast<std::int64_t>(numbers.size()));
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  all = to_numbers(exchange.broadcast(to_bytes(all)));
  std::vector<std::vector<std::int64_t>> by_rank;
  for (std::size_t at = 0; at < all.size();) {
    const auto count = static_cast<std::size_t>(all[at++]);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
    by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    at += count;
  }
  return by_rank;
}

std::int64_t rank_0_says(const Exchange& exchange, std::int64_t mine) {
  return to_numbers(exchange.broadcast(to_bytes(std::span(&mine, 1)))).at(0);
}

}  // namespace dovetail::exec
