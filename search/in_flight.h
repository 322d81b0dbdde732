// The communication streams of a candidate while it is walked: what is queued and in flight on them, when
// the next collective begins or ends, and how fast all goes meanwhile (sim/rates.h).
//
// The walk (full_walk.cc) moves time on: it launches buckets, asks for the next event, runs compute up to
// it at the rates that hold until then, and hands the event over. Rates change at events only, or where
// the compute stream starts or stops waiting (set_busy).
//
// All that changes is in FlightState and StreamState, so that a walk can be taken up again.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "search/step_data.h"

namespace dovetail::search {

// A communication stream: a queue of launched buckets, the first of which may be in flight.
struct StreamState {
  std::int32_t head = -1;       // first that has not ended
  std::int32_t tail = -1;       // last one launched in this step
  bool in_flight = false;       // the head is
  bool used = false;            // a collective has ended before: last_end holds
  std::int64_t event = kNever;  // when the head ends or begins
  std::int64_t free = 0;        // end of what it did last
  std::int64_t last_end = 0;
  std::int64_t left = 0;  // of the head in flight, in 2^-20 ns, at `since`
  std::int64_t since = 0;
  std::int64_t rate = kFullRate;
  std::int64_t alone = 1;  // its duration at full rate
  double wire = 0;         // the share of it that is no latency
  double share = 1;        // its rate as far as links go
  // Of its first collective: the start, and by how much its duration can depend on the pause before.
  std::int64_t first_start = -1;
  std::int64_t first_spread = 0;
};

// What comes after two moments that are alike: how much later all is, and how many places further on the
// buckets stood in the list at the earlier one.
struct Shift {
  std::int64_t time = 0;
  std::int32_t ahead = 0;
};

struct FlightState {
  std::array<std::int32_t, kMostStreams>
      active{};  // streams in flight, in the order in which they began
  std::int32_t in_flight = 0;
  bool busy = false;               // the compute stream computes
  bool too_long = false;           // a collective takes more than can be counted
  bool limited = false;            // the host held something back
  bool pauses = false;             // a collective's duration depended on the pause before it
  std::int64_t since = 0;          // when the first of those in flight began
  std::int64_t communication = 0;  // time with a collective in flight, up to `since`
};

// How two transfers share the links, and what compute does beside them: found once per pair of parts that
// they want (sim/rates.h), for a search meets the same pairs again and again.
struct Pair {
  double first = -1;
  double second = -1;
  double first_share = 1;
  double second_share = 1;
  std::array<Rate, 3> rates = {};  // where collectives take no processor time
};
// What compute does beside one transfer that is alone on its links, by the transfer's duration.
struct Single {
  std::int64_t alone = -1;
  std::array<Rate, 3> rates = {};
};
class RateMemo {
 public:
  Single& at(std::int64_t alone) {
    const std::uint64_t key = static_cast<std::uint64_t>(alone) * 0x9E3779B97F4A7C15ULL;
    return singles_[key >> (64 - kBits)];
  }
  Pair& at(double first, double second) {
    const std::uint64_t key = std::bit_cast<std::uint64_t>(first) * 0x9E3779B97F4A7C15ULL ^
                              std::bit_cast<std::uint64_t>(second);
    return entries_[key * 0xC2B2AE3D27D4EB4FULL >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 12;
  std::vector<Pair> entries_ = std::vector<Pair>(std::size_t{1} << kBits);
  std::vector<Single> singles_ = std::vector<Single>(std::size_t{1} << kBits);
};

// Of a bucket, in ns from the start of the first step.
struct BucketTimes {
  std::int64_t issued = 0;  // its collective may not begin before
  std::int64_t scale_issued = 0;
};

class InFlight {
 public:
  InFlight(const StepData& data, std::span<const BucketChoice> choices, PriceMemo& prices,
           std::span<const BucketTimes> times, std::span<std::int64_t> done,
           sim::LinkShares& shares, RateMemo& memo, std::span<StreamState, kMostStreams> states)
      : data_(data),
        choices_(choices),
        prices_(prices),
        times_(times),
        done_(done),
        shares_(shares),
        memo_(memo),
        stream_(states) {
    bool several = false;
    for (const BucketChoice& choice : choices) {
      streams_ = std::max(streams_, choice.stream + 1);
      several = several || choice.stream != choices.front().stream;
    }
    shares_links_ = several && !data.demands.empty();
    std::fill_n(stream_.begin(), streams_, StreamState{});
  }

  [[nodiscard]] const FlightState& state() const { return state_; }
  [[nodiscard]] std::span<const StreamState> streams() const {
    return stream_.first(static_cast<std::size_t>(streams_));
  }
  // Takes up a walk. REQUIRES: no more streams than the candidate has.
  void restore(const FlightState& state, std::span<const StreamState> streams) {
    state_ = state;
    std::ranges::copy(streams, stream_.begin());
    known_ = false;
  }
  // Goes on as from one moment to a later one of another walk. REQUIRES: all stands as at the first of
  // them, but for the shift.
  void move_on(const FlightState& from, const FlightState& to, std::span<const StreamState> stood,
               std::span<const StreamState> stand, const Shift& shift);

  void begin_step() {
    for (StreamState& stream : stream_.first(static_cast<std::size_t>(streams_))) {
      stream.head = stream.tail = -1;
    }
    state_.limited = false;
  }

  // The bucket is queued at `now`.
  void launch(std::int32_t bucket, std::int64_t now) {
    StreamState& stream = stream_[choices_[bucket].stream];
    stream.tail = bucket;
    if (stream.head >= 0) return;
    stream.head = bucket;
    stream.event = std::max({stream.free, now, times_[bucket].issued});
  }

  [[nodiscard]] StreamState& active(std::size_t i) const {
    return stream_[static_cast<std::size_t>(state_.active[i])];
  }
  [[nodiscard]] bool none() const { return state_.in_flight == 0; }
  // Whether nothing is in flight or behind it at this time, and nothing queued.
  [[nodiscard]] bool idle(std::int64_t now) const {
    for (std::int32_t s = 0; s < streams_; ++s) {
      if (stream_[s].head >= 0 || stream_[s].free > now) return false;
    }
    return true;
  }
  // Whether compute goes as beside one transfer that takes no processor time.
  [[nodiscard]] bool plain() const {
    return state_.in_flight == 1 && data_.contention.collective_cpu == Duration{};
  }
  [[nodiscard]] std::int64_t next_event() const {
    std::int64_t first = stream_[0].event;
    for (std::int32_t s = 1; s < streams_; ++s) first = std::min(first, stream_[s].event);
    return first;
  }

  // All events of this moment.
  void handle(std::int64_t time) {
    for (std::int32_t s = 0; s < streams_; ++s) {
      StreamState& stream = stream_[s];
      while (stream.event == time) {
        if (stream.in_flight) {
          end(stream, time);
        } else {
          begin(stream, time);
        }
      }
    }
  }

  // The compute stream computes or waits from now on.
  void set_busy(bool busy, std::int64_t now);

  // The transfer in flight, if it is the only one and alone on its links; else null.
  [[nodiscard]] const StreamState* single() const {
    if (state_.in_flight != 1) return nullptr;
    const StreamState& only = active(0);
    return only.share == 1 ? &only : nullptr;
  }
  // Of compute; they hold until the next event.
  const std::array<Rate, 3>& rates() {
    if (!known_) find_rates();
    return *rates_;
  }

  // Time with a collective in flight so far.
  [[nodiscard]] std::int64_t communication() const { return state_.communication; }

 private:
  void begin(StreamState& stream, std::int64_t time);
  void end(StreamState& stream, std::int64_t time);
  void share_links(std::int64_t time);
  void share_among_two();
  void find_rates();
  [[nodiscard]] std::array<Rate, 3> rates_now() const;

  // Gives the transfer its rate from this time on.
  void retime(StreamState& stream, std::int64_t time) {
    const std::int64_t rate = transfer_rate(stream);
    if (rate == stream.rate) return;
    stream.left = std::max<std::int64_t>(0, stream.left - (time - stream.since) * stream.rate);
    stream.since = time;
    stream.rate = rate;
    stream.event = time + search::lasts(stream.left, rate);
  }
  // How much slower transfers are at most for what is computed.
  [[nodiscard]] double beside_compute() const {
    return state_.busy ? data_.contention.collective_slowdown : 1;
  }
  [[nodiscard]] std::int64_t transfer_rate(const StreamState& stream) const {
    if (stream.share == 1) return state_.busy ? data_.slowed : kFullRate;
    return sim::whole_rate(stream.share / beside_compute());
  }

  const StepData& data_;
  const std::span<const BucketChoice> choices_;
  PriceMemo& prices_;
  const std::span<const BucketTimes> times_;
  const std::span<std::int64_t> done_;  // [bucket]: its end with the scale behind it, or kNever
  sim::LinkShares& shares_;
  RateMemo& memo_;
  const Pair* pair_ = nullptr;  // of the two in flight, where they share links
  std::int32_t streams_ = 0;
  bool shares_links_ = false;
  FlightState state_;
  const std::span<StreamState, kMostStreams> stream_;
  std::array<Rate, 3> own_rates_;
  const std::array<Rate, 3>* rates_ = nullptr;
  bool known_ = false;  // rates_ are those of what is in flight
};

}  // namespace dovetail::search
