// Taking up a walk, and moving on within it.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/kept_walk.h"

#include <algorithm>

namespace dovetail::search {
namespace {

// Whether the stream goes on now as the other one did then. `pauses`: the pause before a collective may
// matter.
bool stands_as(const StreamState& now, const StreamState& then, std::int64_t shift,
               std::int32_t ahead, std::int64_t time, bool pauses) {
  if (!now.in_flight && pauses &&
      (now.used != then.used || (now.used && now.last_end - then.last_end != shift))) {
    return false;
  }
  if (now.head < 0 || then.head < 0) {
    return now.head < 0 && then.head < 0 && now.free <= time && then.free <= time - shift;
  }
  if (now.head + ahead != then.head || now.tail + ahead != then.tail ||
      now.in_flight != then.in_flight || now.event - then.event != shift) {
    return false;
  }
  return !now.in_flight ||
         (now.left == then.left && now.since - then.since == shift && now.rate == then.rate &&
          now.alone == then.alone && now.wire == then.wire && now.share == then.share);
}

template <typename Index>
std::size_t at(Index index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

void order_waits(const StepData& data, std::span<const BucketChoice> choices,
                 std::vector<Wait>& waits) {
  waits.clear();
  for (std::size_t b = 0; b < choices.size(); ++b) {
    const Wait wait{data.wait_of(choices[b]), static_cast<std::int32_t>(b)};
    std::size_t i = waits.size();
    waits.push_back(wait);
    for (; i > 0 && waits[i - 1].place > wait.place; --i) waits[i] = waits[i - 1];
    waits[i] = wait;
  }
}

void KeptWalk::prepare(std::span<const BucketChoice> choices, std::size_t streams, bool copies) {
  choices_.assign(choices.begin(), choices.end());
  copies_ = copies;
  stride_ = streams;
  has_quiet_ = false;
  const std::size_t entries = choices.size() + 3;
  walk_.resize(entries);
  flight_.resize(entries);
  streams_.resize(entries * stride_);
  first_begin_.resize(choices.size());
  beside_.resize(choices.size());
  for (Beside& beside : beside_) beside.alone = -1;
  std::int32_t first = kBehindAllOps;
  for (std::size_t b = choices.size(); b-- > 0;) {
    first = first_begin_[b] = std::min(first, choices[b].begin);
  }
}

void KeptWalk::keep(std::size_t entry, const WalkState& walk, const InFlight& flight) {
  walk_[entry] = walk;
  flight_[entry] = flight.state();
  std::ranges::copy(flight.streams(),
                    streams_.begin() + static_cast<std::ptrdiff_t>(entry * stride_));
}

void KeptWalk::keep_beside(std::int32_t bucket, std::int64_t alone,
                           const std::array<Rate, 3>& rates, const StepData& data,
                           std::int32_t begin, std::int32_t end) {
  constexpr std::int32_t kMargin = 12;  // as a change may move the transfer
  Beside& known = beside_[at(bucket)];
  begin = std::max(0, begin - kMargin);
  end = std::min(data.ops(), end + kMargin);
  if (known.alone != alone) {
    known.alone = alone;
    known.first = begin;
    known.count = 0;
    known.sums[0] = 0;
  }
  while (known.count < Beside::kMost && known.first + known.count < end) {
    const std::int32_t op = known.first + known.count;
    const Rate& rate = rates[at(data.kernel[at(op)])];
    known.sums[at(known.count + 1)] =
        known.sums[at(known.count)] + rate.lasts(data.work[at(op)] << kFractionBits);
    ++known.count;
  }
}

void KeptWalk::keep_ends(std::span<const std::int64_t> done, const InFlight& flight) {
  done_.assign(done.begin(), done.end());
  pauses_ = flight.state().pauses;
}

void KeptWalk::keep_quiet(std::span<const Wait> waits, std::size_t next) {
  waits_.assign(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(next));
  has_quiet_ = true;
}

std::size_t KeptWalk::start_of(std::size_t first, std::size_t streams, bool copies) const {
  if (copies_ != copies || stride_ > streams) return 0;
  first = std::min(first, choices_.size());
  while (copies && first > 0 && first < choices_.size() &&
         first_begin_[first] < walk_[first].gradient) {
    --first;
  }
  return first;
}

void KeptWalk::forget_pending(std::span<const BucketChoice> choices,
                              std::span<const StreamState> streams, std::span<std::int64_t> done) {
  for (const StreamState& stream : streams) {
    if (stream.head < 0) continue;
    const std::int32_t on = choices[at(stream.head)].stream;
    for (std::int32_t b = stream.head; b <= stream.tail; ++b) {
      if (choices[at(b)].stream == on) done[at(b)] = kNever;
    }
  }
}

void KeptWalk::take_up(std::size_t entry, std::span<const BucketChoice> choices, WalkState& walk,
                       InFlight& flight, std::span<std::int64_t> done) const {
  walk = walk_[entry];
  flight.restore(flight_[entry], streams_at(entry));
  std::copy_n(done_.begin(), entry, done.begin());
  forget_pending(choices, streams_at(entry), done);
}

Alike KeptWalk::compare(std::span<const BucketChoice> choices, std::size_t changed,
                        std::size_t streams, bool copies) const {
  Alike alike{.changed = changed};
  if (copies_ != copies || stride_ != streams || changed >= choices_.size()) return alike;
  const std::size_t most = std::min(choices.size(), choices_.size()) - changed;
  std::size_t equal = 0;
  while (equal < most &&
         choices[choices.size() - 1 - equal] == choices_[choices_.size() - 1 - equal]) {
    ++equal;
  }
  alike.from = choices.size() - equal;
  alike.ahead = choices_.size() - choices.size();
  return alike;
}

bool KeptWalk::stands(std::size_t bucket, const Alike& alike, const WalkState& walk,
                      const InFlight& flight) const {
  const std::size_t entry = bucket + alike.ahead;
  const WalkState& then = walk_[entry];
  const FlightState& before = flight_[entry];
  const FlightState& now = flight.state();
  const std::int64_t shift = walk.now - then.now;
  if (walk.op != then.op || walk.launch != then.launch || walk.gradient != then.gradient ||
      now.too_long || now.in_flight != before.in_flight || now.busy != before.busy ||
      (now.in_flight > 0 && now.since - before.since != shift) ||
      !std::equal(now.active.begin(), now.active.begin() + now.in_flight, before.active.begin())) {
    return false;
  }

  const auto ahead = static_cast<std::int32_t>(alike.ahead);
  const std::span<const StreamState> streams = streams_at(entry);
  for (std::size_t s = 0; s < stride_; ++s) {
    const StreamState& stream = flight.streams()[s];
    if (stream.head >= 0 && at(stream.head) < alike.from) return false;
    if (!stands_as(stream, streams[s], shift, ahead, walk.now, pauses_)) return false;
  }
  return true;
}

bool KeptWalk::wait_alone(std::span<const BucketChoice> choices, const Alike& alike) const {
  const auto alone = [](const BucketChoice& of) { return of.scope == schedule::WaitScope::Event; };
  const std::span<const BucketChoice> before = choices_;
  const auto changed = [&alike](std::span<const BucketChoice> of, std::size_t from) {
    return of.subspan(alike.changed, from - alike.changed);
  };
  return std::ranges::all_of(changed(choices, alike.from), alone) &&
         std::ranges::all_of(changed(before, alike.from + alike.ahead), alone);
}

std::int64_t KeptWalk::move_on(std::size_t from, std::size_t to, const Alike& alike,
                               WalkState& walk, InFlight& flight) const {
  const WalkState& then = walk_[from];
  const std::int64_t shift = walk.now - then.now;
  WalkState moved = walk_[to];
  moved.now += shift;
  moved.host += walk.host - then.host;
  moved.overlapped += walk.overlapped - then.overlapped;
  moved.computed += walk.computed - then.computed;
  moved.packs += walk.packs - then.packs;
  walk = moved;
  flight.move_on(flight_[from], flight_[to], streams_at(from), streams_at(to),
                 {shift, static_cast<std::int32_t>(alike.ahead)});
  return shift;
}

void KeptWalk::shift_ends(std::span<const BucketChoice> choices, const Alike& alike,
                          std::int64_t shift, const InFlight& flight,
                          std::span<std::int64_t> done) const {
  for (std::size_t b = alike.from; b < choices.size(); ++b) {
    done[b] = done_[b + alike.ahead] + shift;
  }
  forget_pending(choices, flight.streams(), done);
}

std::size_t KeptWalk::waits_before_quiet(std::span<const BucketChoice> choices,
                                         std::span<const Wait> waits, const Alike& alike) const {
  if (!has_quiet_ || waits.size() < waits_.size()) return 0;
  for (std::size_t i = 0; i < waits_.size(); ++i) {
    const std::size_t bucket = at(waits[i].bucket);
    if (waits[i].place != waits_[i].place || !alike.same(bucket, at(waits_[i].bucket)) ||
        choices[bucket].scope != schedule::WaitScope::Event) {
      return 0;
    }
  }
  return waits_.size();
}

}  // namespace dovetail::search
