// What is kept of the walk of a settled candidate (full_walk.h), so that a changed one is walked only where
// it differs.
//
// Moments of it are entries:
//   0 .. buckets - 1   before the launch of that bucket
//   buckets            behind the last launch
//   buckets + 1        between two waits, when nothing is in flight any more
//   buckets + 2        at the end
// A changed candidate starts at the entry of its first changed bucket. As soon as all stands as at an entry
// with the same buckets to come, but for a shift in time, it may move on to a later one, shifted likewise.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "search/in_flight.h"
#include "search/step_data.h"

namespace dovetail::search {

// Where the compute stream and the host stand.
struct WalkState {
  std::int64_t now = 0;
  std::int64_t host = 0;
  std::int64_t overlapped = 0;  // of the time with a collective in flight: compute was running
  std::int64_t computed = 0;    // by what counts as compute
  std::int32_t op = 0;          // next
  std::int32_t gradient = 0;    // next to be packed, if any bucket is copied
  std::int32_t launch = 0;      // op behind which the last bucket was launched
  std::int32_t packs = 0;
};

struct Wait {
  std::int32_t place = 0;  // the op before which it stands
  std::int32_t bucket = 0;
};

// Of a candidate, in order of place, then launch.
void order_waits(const StepData& data, std::span<const BucketChoice> choices,
                 std::vector<Wait>& waits);

// How a changed candidate lies beside the settled one: its buckets from `from` on are those that stand
// `ahead` places further on there.
struct Alike {
  std::size_t changed = 0;      // the first bucket that differs
  std::size_t from = SIZE_MAX;  // none
  std::size_t ahead = 0;        // may wrap around, and back

  // Whether the buckets have the same gradients and the same place in what follows.
  [[nodiscard]] bool same(std::size_t bucket, std::size_t settled) const {
    if (bucket < changed) return bucket == settled;
    return bucket >= from && bucket + ahead == settled;
  }
};

// How long ops take beside one transfer that is alone, as prefix sums over those around which it was in
// flight.
struct Beside {
  static constexpr std::int32_t kMost = 127;
  std::int64_t alone = -1;  // of the transfer; -1: unknown
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::array<std::int64_t, kMost + 1> sums;

  [[nodiscard]] bool has(std::int32_t op) const { return op >= first && op < first + count; }
};

class KeptWalk {
 public:
  // Makes room for a candidate.
  void prepare(std::span<const BucketChoice> choices, std::size_t streams, bool copies);
  void keep(std::size_t entry, const WalkState& walk, const InFlight& flight);
  void keep_ends(std::span<const std::int64_t> done, const InFlight& flight);
  // That waits[next] comes first after the quiet entry, which is kept already.
  void keep_quiet(std::span<const Wait> waits, std::size_t next);

  // That ops of these rates ran beside this transfer from here to there.
  void keep_beside(std::int32_t bucket, std::int64_t alone, const std::array<Rate, 3>& rates,
                   const StepData& data, std::int32_t begin, std::int32_t end);
  // What is known of ops beside the same transfer; nothing: null.
  [[nodiscard]] const Beside* beside(std::int32_t bucket, std::int64_t alone,
                                     const Alike& alike) const {
    const auto of = static_cast<std::size_t>(bucket);
    const std::size_t settled = of < alike.changed ? of : of + alike.ahead;
    if (of >= alike.changed && of < alike.from) return nullptr;
    return beside_[settled].alone == alone ? &beside_[settled] : nullptr;
  }

  [[nodiscard]] std::size_t launched() const { return choices_.size(); }
  [[nodiscard]] std::size_t quiet() const { return choices_.size() + 1; }
  [[nodiscard]] std::size_t ended() const { return choices_.size() + 2; }

  // The entry at which a candidate that differs from bucket `first` on can start, or 0: the last one up to
  // `first` in front of which no gradient of that bucket or a later one has been packed, for how packs are
  // divided depends on all buckets that hold them.
  [[nodiscard]] std::size_t start_of(std::size_t first, std::size_t streams, bool copies) const;
  // Gives the walk as it was at this entry, and when each bucket before it is done, if it is.
  void take_up(std::size_t entry, std::span<const BucketChoice> choices, WalkState& walk,
               InFlight& flight, std::span<std::int64_t> done) const;

  [[nodiscard]] Alike compare(std::span<const BucketChoice> choices, std::size_t changed,
                              std::size_t streams, bool copies) const;
  // Whether all stands as before the launch of the same bucket, but for a shift in time.
  [[nodiscard]] bool stands(std::size_t bucket, const Alike& alike, const WalkState& walk,
                            const InFlight& flight) const;
  // Whether each bucket that differs is waited for by itself.
  [[nodiscard]] bool wait_alone(std::span<const BucketChoice> choices, const Alike& alike) const;
  // From one entry to a later one; gives the shift in time. REQUIRES: all stands as at `from`.
  std::int64_t move_on(std::size_t from, std::size_t to, const Alike& alike, WalkState& walk,
                       InFlight& flight) const;
  // When the buckets of a candidate that stands behind its last launch are done, if they are.
  void shift_ends(std::span<const BucketChoice> choices, const Alike& alike, std::int64_t shift,
                  const InFlight& flight, std::span<std::int64_t> done) const;
  // How many waits come before the quiet entry, if those of the candidate are the same ones; else 0.
  [[nodiscard]] std::size_t waits_before_quiet(std::span<const BucketChoice> choices,
                                               std::span<const Wait> waits,
                                               const Alike& alike) const;

 private:
  [[nodiscard]] std::span<const StreamState> streams_at(std::size_t entry) const {
    return std::span(streams_).subspan(entry * stride_, stride_);
  }
  static void forget_pending(std::span<const BucketChoice> choices,
                             std::span<const StreamState> streams, std::span<std::int64_t> done);

  std::vector<BucketChoice> choices_;
  std::vector<WalkState> walk_;            // [entry]
  std::vector<FlightState> flight_;        // [entry]
  std::vector<StreamState> streams_;       // [entry][stream]
  std::vector<std::int32_t> first_begin_;  // [bucket]: first gradient of it and all later ones
  std::vector<std::int64_t> done_;         // [bucket]
  std::vector<Beside> beside_;             // [bucket]
  std::vector<Wait> waits_;                // before the quiet entry
  bool has_quiet_ = false;
  bool pauses_ = false;  // FlightState::pauses, at the end
  std::size_t stride_ = 0;
  bool copies_ = false;
};

}  // namespace dovetail::search
