// Exact fractions: what is equal is equal to the last bit, and what does not fit is never rounded.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/rational.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>

namespace dovetail {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(RationalTest, ADefaultOneIsTheNeutralFactor) {
  EXPECT_EQ(Rational(), Rational(1));
  EXPECT_EQ(Rational(3, 7) * Rational(), Rational(3, 7));
}

TEST(RationalTest, IsAlwaysInLowestTermsWithAPositiveDenominator) {
  const Rational value(6, -8);
  EXPECT_EQ(value.numerator(), -3);
  EXPECT_EQ(value.denominator(), 4);
  // All zeros are one: 0/1.
  EXPECT_EQ(Rational(0, -5), Rational(0));
  EXPECT_EQ(Rational(0, -5).denominator(), 1);
}

TEST(RationalTest, ComparesByValueAndNotByHowItWasWritten) {
  EXPECT_EQ(Rational(2, 6), Rational(1, 3));
  EXPECT_NE(Rational(1, 3), Rational(333333333, 1000000000));
}

// In doubles 1/3 x 1/7 x 21 need not be 1, and ten times 1/10 is not 1.
TEST(RationalTest, ProductsAndQuotientsAreExact) {
  EXPECT_EQ(Rational(1, 3) * Rational(1, 7) * Rational(21), Rational(1));
  EXPECT_EQ(Rational(1, 4) / Rational(1, 2), Rational(1, 2));
  EXPECT_EQ(Rational(-2, 3) / Rational(-4, 9), Rational(3, 2));
  for (std::int64_t degree = 1; degree <= 1024; ++degree) {
    EXPECT_EQ(Rational(1, degree) * Rational(degree), Rational(1));
  }
}

// 1 / 60466176 = 6^-10 by ten factors, and back again.
TEST(RationalTest, ALongPathOfFactorsMultipliesToExactlyWhatIsOwed) {
  Rational path;
  for (int i = 0; i < 10; ++i) path = path * Rational(1, 6);
  EXPECT_EQ(path, Rational(1, 60466176));
  for (int i = 0; i < 10; ++i) path = path * Rational(6);
  EXPECT_EQ(path, Rational());
}

TEST(RationalTest, FactorsAreCancelledCrosswiseBeforeTheyAreMultiplied) {
  // Multiplied out, numerator and denominator would be 2^63 - 1 squared.
  EXPECT_EQ(Rational(kLargest, 2) * Rational(2, kLargest), Rational(1));
  EXPECT_EQ(Rational(kLargest, 3) / Rational(kLargest, 6), Rational(2));
}

TEST(RationalTest, AProductThatDoesNotFitIsRefused) {
  EXPECT_THROW(Rational(kLargest) * Rational(2), InputError);
  EXPECT_THROW(Rational(1, kLargest) * Rational(1, 2), InputError);
}

TEST(RationalTest, NothingIsDividedByZero) {
  EXPECT_THAT([&] { static_cast<void>(Rational(1, 0)); },
              ThrowsMessage<CheckError>(HasSubstr("1 / 0")));
  EXPECT_THAT([&] { static_cast<void>(Rational(1, 2) / Rational(0)); },
              ThrowsMessage<CheckError>(HasSubstr("/ 0")));
}

TEST(RationalTest, ValueIsTheNearestDouble) {
  EXPECT_EQ(Rational(1, 8).value(), 0.125);
  EXPECT_EQ(Rational(1, 3).value(), 1.0 / 3.0);
  EXPECT_EQ(Rational(-5).value(), -5.0);
}

TEST(RationalTest, IsPrintedAsAFractionAndAWholeNumberAsOne) {
  EXPECT_EQ(to_string(Rational(2, 16)), "1/8");
  EXPECT_EQ(to_string(Rational(-3, 4)), "-3/4");
  EXPECT_EQ(to_string(Rational(12, 4)), "3");
  std::ostringstream out;
  out << Rational(5, 10) << ' ' << Rational(0);
  EXPECT_EQ(out.str(), "1/2 0");
}

TEST(RationalTest, WhatIsPrintedIsReadBack) {
  for (std::int64_t numerator = -12; numerator <= 12; ++numerator) {
    for (std::int64_t denominator = 1; denominator <= 12; ++denominator) {
      const Rational value(numerator, denominator);
      EXPECT_EQ(parse_rational(to_string(value)), value);
    }
  }
  EXPECT_EQ(parse_rational("9223372036854775807"), Rational(kLargest));
}

TEST(RationalTest, ReadsFractionsThatAreNotInLowestTerms) {
  EXPECT_EQ(parse_rational("4/8"), Rational(1, 2));
  EXPECT_EQ(parse_rational("1/-2"), Rational(-1, 2));
}

TEST(RationalTest, ReadsNothingElse) {
  for (const char* text :
       {"", "/", "1/", "/2", "1/0", "a", "1/2/3", "0.5", " 1", "1 ", "+1", "1//2",
        "9223372036854775808", "-9223372036854775808", "1/9223372036854775808"}) {
    EXPECT_EQ(parse_rational(text), std::nullopt) << '"' << text << '"';
  }
}

}  // namespace
}  // namespace dovetail
