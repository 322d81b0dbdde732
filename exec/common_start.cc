// Lets all ranks begin a step at one moment: rank 0 names a moment slightly ahead by its own
// clock, and every rank waits for it by its own, corrected by its estimated offset.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/common_start.h"

#include "exec/clock.h"

#include <algorithm>
#include <array>
#include <thread>

namespace dovetail::exec {
namespace {

// Two crystals drift apart by some 20 us in a second.
constexpr Duration kRenewAfter = std::chrono::seconds(2);
// A moment that lies further ahead than this is no moment that was agreed on: clocks jumped.
constexpr Duration kMostWait = std::chrono::milliseconds(100);
constexpr Duration kSpin = std::chrono::microseconds(200);
constexpr std::int64_t kEstimateAnew = 0;  // instead of a moment

}  // namespace

std::int64_t CommonStart::read_clock() const {
  return exchange_.clock ? exchange_.clock() : now_ns();
}

void CommonStart::estimate() {
  offset_ = clock_offset(exchange_);
  std::int64_t worst = 0;
  for (const auto& of_rank : share(exchange_, std::array{offset_.error_ns})) {
    worst = std::max(worst, of_rank.front());
  }
  clocks_differ_ = worst > 0;
  is_estimated_ = true;
}

void CommonStart::await() {
  if (exchange_.world_size == 1) return;
  if (!is_estimated_) estimate();
  const bool is_old = clocks_differ_ && read_clock() - offset_.at_ns > kRenewAfter.count();
  std::int64_t moment =
      rank_0_says(exchange_, is_old ? kEstimateAnew : read_clock() + lead_.count());
  if (moment == kEstimateAnew) {
    estimate();
    moment = rank_0_says(exchange_, read_clock() + lead_.count());
  }
  const std::int64_t mine = moment - offset_.offset_ns;
  for (std::int64_t left = mine - read_clock(); left > 0 && left < kMostWait.count();
       left = mine - read_clock()) {
    if (left > 2 * kSpin.count()) std::this_thread::sleep_for(Duration(left) - kSpin);
  }
  lateness_ = Duration(std::max<std::int64_t>(0, read_clock() - mine));
}

}  // namespace dovetail::exec
