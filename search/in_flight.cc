// Collectives that begin and end, and what each changes.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/in_flight.h"

#include <cstdlib>

namespace dovetail::search {

void InFlight::move_on(const FlightState& from, const FlightState& to,
                       std::span<const StreamState> stood, std::span<const StreamState> stand,
                       const Shift& shift) {
  FlightState moved = to;
  moved.too_long = to.too_long || state_.too_long;
  moved.limited = to.limited || state_.limited;
  moved.pauses = to.pauses || state_.pauses;
  moved.since += shift.time;
  moved.communication += state_.communication - from.communication;
  state_ = moved;
  for (std::size_t s = 0; s < stand.size(); ++s) {
    if (stood[s].head < 0 && stood[s].tail == stand[s].tail)
      continue;  // nothing was launched there
    const StreamState before = stream_[s];
    StreamState& stream = stream_[s];
    stream = stand[s];
    if (stream.head >= 0) stream.head -= shift.ahead;
    if (stream.tail >= 0) stream.tail -= shift.ahead;
    if (stream.event != kNever) stream.event += shift.time;
    stream.free += shift.time;
    stream.last_end += shift.time;
    stream.since += shift.time;
    if (stream.first_start >= 0) stream.first_start += shift.time;
    if (before.first_start < 0) continue;
    stream.first_start = before.first_start;
    stream.first_spread = before.first_spread;
  }
  known_ = false;
  pair_ = nullptr;
}

void InFlight::begin(StreamState& stream, std::int64_t time) {
  const BucketChoice& choice = choices_[stream.head];
  const BucketPrice& price = prices_.of(choice.begin, choice.end);
  if (stream.first_start < 0) {
    stream.first_start = time;
    stream.first_spread = std::abs(price.isolated - price.back_to_back);
  }
  state_.pauses = state_.pauses || price.isolated != price.back_to_back;
  const std::int64_t work = stream.used ? price.duration(time - stream.last_end) : price.isolated;
  state_.too_long = state_.too_long || work > kLargestWork;
  stream.in_flight = true;
  stream.left = (state_.too_long ? 0 : work) << kFractionBits;
  stream.since = time;
  stream.alone = std::max<std::int64_t>(work, 1);
  if (shares_links_) {
    const std::int64_t latency = std::min(data_.wire_latency, stream.alone);
    stream.wire = static_cast<double>(stream.alone - latency) / static_cast<double>(stream.alone);
  }
  stream.share = 1;
  stream.rate = transfer_rate(stream);
  stream.event = time + search::lasts(stream.left, stream.rate);
  if (state_.in_flight == 0) state_.since = time;
  state_.active[static_cast<std::size_t>(state_.in_flight++)] = choice.stream;
  known_ = false;
  if (shares_links_) share_links(time);
}

void InFlight::end(StreamState& stream, std::int64_t time) {
  const BucketChoice& choice = choices_[stream.head];
  std::int64_t done = time;
  if (data_.scales_after) {
    const std::int64_t issued = times_[stream.head].scale_issued;
    state_.limited = state_.limited || issued > time;
    done = std::max(time, issued) + prices_.of(choice.begin, choice.end).scale;
  }
  const auto last = state_.active.begin() + state_.in_flight;
  static_cast<void>(std::remove(state_.active.begin(), last, choice.stream));
  if (--state_.in_flight == 0) state_.communication += time - state_.since;
  known_ = false;
  stream.in_flight = false;
  stream.used = true;
  stream.last_end = time;
  stream.free = done_[stream.head] = done;
  stream.event = kNever;
  if (stream.head == stream.tail) {
    stream.head = -1;
  } else {
    do {
      ++stream.head;
    } while (choices_[stream.head].stream != choice.stream);
    stream.event = std::max(stream.free, times_[stream.head].issued);
  }
  if (shares_links_) share_links(time);
}

void InFlight::set_busy(bool busy, std::int64_t now) {
  if (state_.busy == busy) return;
  state_.busy = busy;
  if (data_.contention.collective_slowdown == 1 || state_.in_flight == 0) return;
  if (shares_links_) {
    share_links(now);
    return;
  }
  for (std::int32_t s = 0; s < streams_; ++s) {
    if (stream_[s].in_flight) retime(stream_[s], now);
  }
}

// Solves for all transfers in flight.
void InFlight::share_links(std::int64_t time) {
  known_ = false;
  pair_ = nullptr;
  if (state_.in_flight == 2) {
    share_among_two();
  } else if (state_.in_flight > 2) {
    shares_.clear();
    for (std::int32_t s = 0; s < streams_; ++s) {
      if (stream_[s].in_flight) shares_.add(data_.demands, stream_[s].wire / beside_compute());
    }
    const std::span<const double> shares = shares_.solve();
    std::size_t next = 0;
    for (std::int32_t s = 0; s < streams_; ++s) {
      if (stream_[s].in_flight) stream_[s].share = shares[next++];
    }
  }
  for (std::int32_t s = 0; s < streams_; ++s) {
    StreamState& stream = stream_[s];
    if (!stream.in_flight) continue;
    if (state_.in_flight == 1) stream.share = 1;
    retime(stream, time);
  }
}

void InFlight::share_among_two() {
  // In the order of the streams, as the simulator adds them.
  const bool in_order = state_.active[0] < state_.active[1];
  StreamState& first = active(in_order ? 0 : 1);
  StreamState& second = active(in_order ? 1 : 0);
  const double first_part = first.wire / beside_compute();
  const double second_part = second.wire / beside_compute();
  Pair& pair = memo_.at(first_part, second_part);
  const bool fresh = pair.first != first_part || pair.second != second_part;
  if (fresh) {
    shares_.clear();
    shares_.add(data_.demands, first_part);
    shares_.add(data_.demands, second_part);
    const std::span<const double> shares = shares_.solve();
    pair = {.first = first_part,
            .second = second_part,
            .first_share = shares[0],
            .second_share = shares[1]};
  }
  first.share = pair.first_share;
  second.share = pair.second_share;
  if (data_.contention.collective_cpu != Duration{}) return;
  if (fresh) pair.rates = rates_now();
  pair_ = &pair;
}

void InFlight::find_rates() {
  static constexpr std::array<Rate, 3> kFull = {};
  known_ = true;
  if (none()) {
    rates_ = &kFull;
  } else if (plain()) {
    rates_ = &data_.beside;
  } else if (pair_ != nullptr && state_.in_flight == 2) {
    rates_ = &pair_->rates;
  } else if (const StreamState& first = active(0); state_.in_flight == 1 && first.share == 1) {
    Single& single = memo_.at(first.alone);
    if (single.alone != first.alone) single = {.alone = first.alone, .rates = rates_now()};
    rates_ = &single.rates;
  } else {
    own_rates_ = rates_now();
    rates_ = &own_rates_;
  }
}

std::array<Rate, 3> InFlight::rates_now() const {
  sim::Taken taken;
  for (std::size_t i = 0; i < static_cast<std::size_t>(state_.in_flight); ++i) {
    taken.add(data_.contention, active(i).share, active(i).alone);
  }
  std::array<Rate, 3> rates;
  for (std::size_t kernel = 0; kernel < rates.size(); ++kernel) {
    rates[kernel] = Rate(sim::whole_rate(taken.left(static_cast<models::KernelClass>(kernel))));
  }
  return rates;
}

}  // namespace dovetail::search
