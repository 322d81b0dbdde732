// Exact arithmetic of fractions. They are reduced before they are multiplied, so that a result
// that fits 63 bits never overflows on the way.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/rational.h"

#include <charconv>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace dovetail {
namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw InputError("the factors of a gradient do not multiply within 63 bits: " +
                     std::to_string(a) + " * " + std::to_string(b));
  }
  return result;
}

std::optional<std::int64_t> parse_whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
  return value;
}

}  // namespace

Rational::Rational(std::int64_t numerator, std::int64_t denominator) {
  DOVETAIL_CHECK(denominator != 0) << numerator << " / 0";
  const std::int64_t divisor = std::gcd(numerator, denominator);
  const std::int64_t sign = denominator < 0 ? -1 : 1;
  numerator_ = sign * numerator / divisor;
  denominator_ = sign * denominator / divisor;
}

double Rational::value() const {
  return static_cast<double>(numerator_) / static_cast<double>(denominator_);
}

Rational operator*(Rational a, Rational b) {
  // Crosswise first, so that no factor grows beyond the result.
  const Rational left(a.numerator(), b.denominator());
  const Rational right(b.numerator(), a.denominator());
  return Rational(product(left.numerator(), right.numerator()),
                  product(left.denominator(), right.denominator()));
}

Rational operator/(Rational a, Rational b) { return a * Rational(b.denominator(), b.numerator()); }

std::string to_string(Rational value) {
  std::string text = std::to_string(value.numerator());
  if (value.denominator() != 1) text += "/" + std::to_string(value.denominator());
  return text;
}

std::ostream& operator<<(std::ostream& out, Rational value) { return out << to_string(value); }

std::optional<Rational> parse_rational(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::optional<std::int64_t> numerator = parse_whole(text.substr(0, slash));
  if (!numerator) return std::nullopt;
  if (slash == std::string_view::npos) return Rational(*numerator);
  const std::optional<std::int64_t> denominator = parse_whole(text.substr(slash + 1));
  if (!denominator || *denominator == 0) return std::nullopt;
  return Rational(*numerator, *denominator);
}

}  // namespace dovetail
