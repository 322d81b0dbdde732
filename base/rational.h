// Exact fractions: the factors by which gradients are scaled.
//
// Scaling is bookkeeping, not arithmetic: verify multiplies the factors on a gradient's path and
// compares with 1 / (degree x micro-steps), so nothing may be rounded. Always in lowest terms, the
// denominator positive. Products that leave 63 bits are an InputError: degrees are small, so only the
// factors of a file make them.
//
//   Rational(1, 4) * Rational(1, 2) == Rational(1, 8)      to_string: "1/8", whole numbers "3"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace dovetail {

class Rational {
 public:
  constexpr Rational() = default;
  // REQUIRES: denominator != 0.
  explicit Rational(std::int64_t numerator, std::int64_t denominator = 1);

  [[nodiscard]] std::int64_t numerator() const { return numerator_; }
  [[nodiscard]] std::int64_t denominator() const { return denominator_; }
  // The nearest double.
  [[nodiscard]] double value() const;

  friend bool operator==(const Rational&, const Rational&) = default;

 private:
  std::int64_t numerator_ = 1;  // a default Rational is 1, the neutral factor
  std::int64_t denominator_ = 1;
};

Rational operator*(Rational a, Rational b);
// REQUIRES: b is not 0.
Rational operator/(Rational a, Rational b);

std::string to_string(Rational value);
std::ostream& operator<<(std::ostream& out, Rational value);
// "1/8" or "3", lowest terms not required; nothing where the text is no fraction, has a zero
// denominator or does not fit.
std::optional<Rational> parse_rational(std::string_view text);

}  // namespace dovetail
