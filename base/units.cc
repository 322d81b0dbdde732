// Arithmetic, parsing and printing of bytes, times and rates. Doubles are rounded to whole
// nanoseconds or bytes in one place each, so that the same input gives the same integer
// everywhere.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace dovetail {
namespace {

struct NamedUnit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {
    NamedUnit{"B", 1},        NamedUnit{"KiB", 0x1p10}, NamedUnit{"MiB", 0x1p20},
    NamedUnit{"GiB", 0x1p30}, NamedUnit{"TiB", 0x1p40}, NamedUnit{"kB", 1e3},
    NamedUnit{"KB", 1e3},     NamedUnit{"MB", 1e6},     NamedUnit{"GB", 1e9},
    NamedUnit{"TB", 1e12},
};
constexpr std::array kTimeUnits = {NamedUnit{"ns", 1}, NamedUnit{"us", 1e3}, NamedUnit{"ms", 1e6},
                                   NamedUnit{"s", 1e9}, NamedUnit{"min", 60e9}};
constexpr std::array kBitRateUnits = {
    NamedUnit{"bit", 1},    NamedUnit{"kbit", 1e3}, NamedUnit{"Kbit", 1e3}, NamedUnit{"mbit", 1e6},
    NamedUnit{"Mbit", 1e6}, NamedUnit{"gbit", 1e9}, NamedUnit{"Gbit", 1e9}};
constexpr double kBitsPerByte = 8;

// Largest count that a double still holds exactly, with room for sums of thousands of such values.
constexpr double kLargest = 0x1p52;

constexpr double kFarthestNs = 0x1p61;

template <std::size_t N>
double parse_with_unit(std::string_view text, const std::array<NamedUnit, N>& units,
                       const char* expected, bool is_above_zero = false) {
  const std::string found = "\"" + std::string(text) + "\"";
  const auto fail = [&]() -> double {
    throw InputError("expected " + std::string(expected) + ", found " + found);
  };
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (status == std::errc() && is_above_zero &&
      (std::signbit(number) || (number == 0 && rest == end)))
    throw InputError("expected " + std::string(expected) + ", above 0, found " + found);
  if (status != std::errc() || !std::isfinite(number) || std::signbit(number)) return fail();
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const NamedUnit& known : units) {
    if (unit != known.name) continue;
    const double value = number * known.factor;
    if (value <= kLargest) return value;
    throw InputError("expected " + std::string(expected) + ", found " + found +
                     ", which is too large");
  }
  if (unit.empty()) return fail();
  std::string list;
  for (const NamedUnit& known : units) list += (list.empty() ? "" : ", ") + std::string(known.name);
  const std::string what(expected, std::string_view(expected).find(" with"));
  throw InputError("expected " + what + " in " + list + ", found " + found);
}

std::string three_digits(double value, std::string_view unit) {
  // From 999.5 on, three digits would need an exponent.
  const char* format = std::abs(value) >= 999.5 ? "%.0f" : "%.3g";
  std::array<char, 48> text{};
  const int size = std::snprintf(text.data(), text.size(), format, value);
  return std::string(text.data(), static_cast<std::size_t>(size)) + " " + std::string(unit);
}

}  // namespace

Duration operator/(Bytes bytes, BytesPerSecond rate) {
  DOVETAIL_CHECK(rate.count() > 0) << "rate " << rate.count();
  return from_ns(static_cast<double>(bytes.count()) / rate.count() * 1e9);
}

Duration operator/(Flop flop, FlopPerSecond rate) {
  DOVETAIL_CHECK(rate.count() > 0) << "rate " << rate.count();
  return from_ns(flop.count() / rate.count() * 1e9);
}

double to_us(Duration duration) { return static_cast<double>(duration.count()) / 1e3; }
double to_us(Instant instant) { return to_us(instant.time_since_epoch()); }
Duration from_us(double us) { return from_ns(us * 1e3); }

Duration from_ns(double ns) {
  if (!(ns < kFarthestNs)) ns = kFarthestNs;  // NaN, too
  return Duration(std::llround(std::max(ns, -kFarthestNs)));
}

Duration stretched(Duration time, double factor) {
  return factor == 1 ? time : from_ns(static_cast<double>(time.count()) * factor);
}

Bytes parse_bytes(std::string_view text) {
  return Bytes(static_cast<std::int64_t>(
      parse_with_unit(text, kByteUnits, "a size with its unit, e.g. 25MiB", true)));
}

Duration parse_duration(std::string_view text) {
  return from_ns(parse_with_unit(text, kTimeUnits, "a time with its unit, e.g. 1.5ms"));
}

BytesPerSecond parse_bit_rate(std::string_view text) {
  return BytesPerSecond(
      parse_with_unit(text, kBitRateUnits, "a rate with its unit, e.g. 1gbit or 500mbit") /
      kBitsPerByte);
}

std::string bit_rate_text(BytesPerSecond rate) {
  const double bits = rate.count() * kBitsPerByte;
  NamedUnit unit{"bit", 1};
  for (const NamedUnit larger :
       {NamedUnit{"kbit", 1e3}, NamedUnit{"mbit", 1e6}, NamedUnit{"gbit", 1e9}}) {
    if (bits >= larger.factor) unit = larger;
  }
  std::array<char, 32> text{};
  const auto [end, status] =
      std::to_chars(text.data(), text.data() + text.size(), bits / unit.factor);
  DOVETAIL_CHECK(status == std::errc()) << bits;
  return std::string(text.data(), end) + std::string(unit.name);
}

std::string to_string(Bytes bytes) {
  const double count = static_cast<double>(bytes.count());
  const double magnitude = std::abs(count);
  if (magnitude >= 0x1p30) return three_digits(count / 0x1p30, "GiB");
  if (magnitude >= 0x1p20) return three_digits(count / 0x1p20, "MiB");
  if (magnitude >= 0x1p10) return three_digits(count / 0x1p10, "KiB");
  return std::to_string(bytes.count()) + " B";
}

std::string to_string(Duration duration) {
  const double ns = static_cast<double>(duration.count());
  const double magnitude = std::abs(ns);
  if (magnitude >= 1e9) return three_digits(ns / 1e9, "s");
  if (magnitude >= 1e6) return three_digits(ns / 1e6, "ms");
  if (magnitude >= 1e3) return three_digits(ns / 1e3, "us");
  return std::to_string(duration.count()) + " ns";
}

std::ostream& operator<<(std::ostream& out, Bytes bytes) { return out << to_string(bytes); }
std::ostream& operator<<(std::ostream& out, Flop flop) { return out << flop.count() << " FLOP"; }
std::ostream& operator<<(std::ostream& out, BytesPerSecond rate) {
  return out << three_digits(rate.count() / 1e9, "GB/s");
}
std::ostream& operator<<(std::ostream& out, FlopPerSecond rate) {
  return out << three_digits(rate.count() / 1e12, "TFLOP/s");
}

}  // namespace dovetail
