// Quantities with their unit in the type: bytes, floating-point operations, rates and time.
//
// Time is a signed integer of nanoseconds, so equal means equal and golden files do not drift. A
// bare number never crosses a function boundary. The room `base` is the root namespace `dovetail`:
// its words are used everywhere.
//
//   parse_bytes("25MiB")      25 * 2^20         "25MB" is 25 * 10^6, "0.1MiB" 104857 (rounded down); "25" is refused
//   parse_duration("1.5ms")   1'500'000 ns      units ns, us, ms, s
//   parse_bit_rate("1gbit")   125'000'000 B/s   units bit, kbit, mbit, gbit per second, as tc writes them
//   to_string(Bytes{26214400}) == "25 MiB"      to_string(Duration{1500}) == "1.5 us"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace dovetail {

using Duration = std::chrono::nanoseconds;

// The clock of a Trace. It cannot be read: only a machine (sim or exec) makes an Instant, as time
// since its step 0 began.
struct TraceClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<TraceClock>;
  static constexpr bool is_steady = true;
};
using Instant = TraceClock::time_point;

// One number of one unit. Same-unit sums and scaling by a plain number are allowed, nothing else.
template <class Tag, class Rep>
class Quantity {
 public:
  using rep = Rep;

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep count) : count_(count) {}

  [[nodiscard]] constexpr Rep count() const { return count_; }

  friend constexpr auto operator<=>(const Quantity&, const Quantity&) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.count_ + b.count_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.count_ - b.count_);
  }
  friend constexpr Quantity operator*(Quantity a, Rep factor) {
    return Quantity(a.count_ * factor);
  }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return a * factor; }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }

 private:
  Rep count_ = 0;
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Flop =
    Quantity<struct FlopTag, double>;  // a count of floating-point operations; never a rate
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopPerSecond = Quantity<struct FlopPerSecondTag, double>;

constexpr Bytes kib(std::int64_t n) { return Bytes(n << 10); }
constexpr Bytes mib(std::int64_t n) { return Bytes(n << 20); }
constexpr Bytes gib(std::int64_t n) { return Bytes(n << 30); }

// Time to move or compute at a rate, rounded as from_ns does. REQUIRES: rate > 0.
Duration operator/(Bytes bytes, BytesPerSecond rate);
Duration operator/(Flop flop, FlopPerSecond rate);

// Longest time of one op or collective that a file may state, and that costs may come to: eleven days.
inline constexpr Duration kLongestTime{1'000'000'000'000'000};

// Microseconds as people and JSON files write them, e.g. 12.345; and back. What computes a time from
// doubles rounds to the nearest nanosecond and ends at 2^61 ns (73 years) either way, for NaN too, so that
// what is summed afterwards does not overflow before it is refused.
double to_us(Duration duration);
double to_us(Instant instant);
Duration from_us(double us);
Duration from_ns(double ns);
Duration stretched(Duration time, double factor);

// Readers for the command line and for JSON strings. A number without a unit, a negative number,
// NaN and trailing text throw InputError, which says what was expected; the caller adds the place.
Bytes parse_bytes(std::string_view text);
Duration parse_duration(std::string_view text);
// The rate of a link as tc words it: "1gbit", "500mbit", "2.5Gbit". Decimal prefixes of either case.
BytesPerSecond parse_bit_rate(std::string_view text);

// Shortest readable form: 3 significant digits for times ("1.5 us"), binary units for bytes where
// exact or close.
std::string to_string(Bytes bytes);
std::string to_string(Duration duration);
// Back to tc's words, with the largest unit that leaves at least 1: "1gbit", however it was written.
std::string bit_rate_text(BytesPerSecond rate);

std::ostream& operator<<(std::ostream& out, Bytes bytes);
std::ostream& operator<<(std::ostream& out, Flop flop);
std::ostream& operator<<(std::ostream& out, BytesPerSecond rate);
std::ostream& operator<<(std::ostream& out, FlopPerSecond rate);

}  // namespace dovetail
