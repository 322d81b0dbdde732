// Absences: when the cores of lanes are away, taken by something else on the machine.
//
// Meanwhile the lane computes nothing, and none of its transfers begins or ends. One in flight goes on for
// `shield_ns`, as far as what was already handed to the network lasts, and then stands still too. What runs on other
// streams without being a transfer is not held up.
//
// The player (player.cc) asks one of two policies who is away: AlwaysThere, which costs nothing, or Presences, which
// goes through the lists. Changes are events of the player's queue, numbered by lane and kind.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dovetail::sim {

// In ns from the start of the first step.
struct Absence {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct Absences {
  std::vector<std::vector<Absence>> by_lane;  // each by time and apart; empty: nobody is ever away
  std::int64_t shield_ns = 0;
};

struct AlwaysThere {
  static constexpr bool kCanLeave = false;
};

class Presences {
 public:
  static constexpr bool kCanLeave = true;
  // Keeps a reference.
  explicit Presences(const Absences& absences)
      : absences_(absences), lanes_(absences.by_lane.size()) {}

  [[nodiscard]] bool away(std::int32_t lane) const { return of(lane).away; }  // it computes nothing
  // Its transfers stand still too.
  [[nodiscard]] bool silent(std::int32_t lane) const { return of(lane).silent; }

  // The first change of each lane: expect(number, time).
  template <class Expect>
  void begin(const Expect& expect) {
    for (std::int32_t lane = 0; std::cmp_less(lane, lanes_.size()); ++lane) {
      expect_absence(lane, expect);
    }
  }

  // Makes a change and expects those that follow from it.
  template <class Expect>
  void change(std::int32_t number, const Expect& expect) {
    const std::int32_t lane = number / kChanges;
    State& state = lanes_[static_cast<std::size_t>(lane)];
    switch (static_cast<Change>(number % kChanges)) {
      case Change::Leaves: {
        const Absence& absence = list(lane)[state.next++];
        state.away = true;
        expect(number_of(lane, Change::Returns), absence.end);
        const std::int64_t silent = absence.begin + absences_.shield_ns;
        if (silent < absence.end) expect(number_of(lane, Change::Silent), silent);
        break;
      }
      case Change::Silent:
        state.silent = true;
        break;
      case Change::Returns:
        state.away = state.silent = false;
        expect_absence(lane, expect);
        break;
    }
  }

 private:
  enum class Change : std::int32_t { Leaves = 0, Silent = 1, Returns = 2 };
  static constexpr std::int32_t kChanges = 3;
  struct State {
    std::size_t next = 0;  // absence
    bool away = false;
    bool silent = false;
  };

  static std::int32_t number_of(std::int32_t lane, Change change) {
    return lane * kChanges + static_cast<std::int32_t>(change);
  }
  [[nodiscard]] const State& of(std::int32_t lane) const {
    return lanes_[static_cast<std::size_t>(lane)];
  }
  [[nodiscard]] const std::vector<Absence>& list(std::int32_t lane) const {
    return absences_.by_lane[static_cast<std::size_t>(lane)];
  }
  template <class Expect>
  void expect_absence(std::int32_t lane, const Expect& expect) {
    const std::size_t next = of(lane).next;
    if (next < list(lane).size()) expect(number_of(lane, Change::Leaves), list(lane)[next].begin);
  }

  const Absences& absences_;
  std::vector<State> lanes_;
};

}  // namespace dovetail::sim
