// Units: what a size or a time with its unit means, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include "base/count.h"
#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

namespace dovetail {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""us;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class Parse>
std::string refusal(Parse parse, std::string_view text) {
  try {
    static_cast<void>(parse(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refused_bytes(std::string_view text) { return refusal(parse_bytes, text); }
std::string refused_bit_rate(std::string_view text) { return refusal(parse_bit_rate, text); }
std::string refused_duration(std::string_view text) { return refusal(parse_duration, text); }

template <class T>
std::string streamed(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(ParseBytesTest, TellsBinaryFromDecimalUnits) {
  EXPECT_EQ(parse_bytes("25MiB"), Bytes(25 * 1024 * 1024));
  EXPECT_EQ(parse_bytes("25MB"), Bytes(25'000'000));
  EXPECT_EQ(parse_bytes("1KiB"), Bytes(1024));
  EXPECT_EQ(parse_bytes("1kB"), Bytes(1000));
  EXPECT_EQ(parse_bytes("1KB"), Bytes(1000));
  EXPECT_EQ(parse_bytes("2GiB"), gib(2));
  EXPECT_EQ(parse_bytes("2GB"), Bytes(2'000'000'000));
  EXPECT_EQ(parse_bytes("1TiB"), gib(1024));
  EXPECT_EQ(parse_bytes("7B"), Bytes(7));
  EXPECT_EQ(parse_bytes("0B"), Bytes(0));
}

TEST(ParseBytesTest, RoundsFractionsDown) {
  // 0.1 MiB = 104857.6 bytes.
  EXPECT_EQ(parse_bytes("0.1MiB"), Bytes(104857));
  EXPECT_EQ(parse_bytes("1.5KiB"), Bytes(1536));
}

TEST(ParseBytesTest, AllowsSpacesBetweenNumberAndUnitOnly) {
  EXPECT_EQ(parse_bytes("25 MiB"), mib(25));
  EXPECT_NE(refused_bytes(" 25MiB"), "accepted");
  EXPECT_NE(refused_bytes("25MiB "), "accepted");
}

TEST(ParseBytesTest, RefusesANumberWithoutUnitAndSaysWhatWasExpected) {
  EXPECT_EQ(refused_bytes("25"), "expected a size with its unit, e.g. 25MiB, found \"25\"");
}

TEST(ParseBytesTest, RefusesWhatIsNoSize) {
  for (const std::string_view text :
       {"", "MiB", "-1MiB", "-0MiB", "nanMiB", "infMiB", "NaNB", "25MiBs", "25MiB/s", "25mib",
        "25Mb", "+5MiB", "0x10MiB", "1e400MiB", "25us", "2 5MiB"}) {
    EXPECT_THAT(refused_bytes(text), ::testing::HasSubstr("found \"" + std::string(text) + "\""));
  }
}

TEST(ParseBytesTest, RefusesWhatACountCannotHoldExactly) {
  // The limit is 2^52 bytes = 4096 TiB.
  EXPECT_EQ(parse_bytes("4096TiB"), Bytes(std::int64_t{1} << 52));
  EXPECT_NE(refused_bytes("4097TiB"), "accepted");
  EXPECT_NE(refused_bytes("1e300B"), "accepted");
}

TEST(ParseDurationTest, KnowsFourUnits) {
  EXPECT_EQ(parse_duration("12ns"), 12ns);
  EXPECT_EQ(parse_duration("3us"), 3us);
  EXPECT_EQ(parse_duration("1.5ms"), 1500us);
  EXPECT_EQ(parse_duration("2s"), 2s);
  EXPECT_EQ(parse_duration("0s"), 0ns);
  EXPECT_EQ(parse_duration("2min"), 120s);
}

TEST(ParseDurationTest, RoundsToTheNearestNanosecond) {
  EXPECT_EQ(parse_duration("0.4ns"), 0ns);
  EXPECT_EQ(parse_duration("0.6ns"), 1ns);
  EXPECT_EQ(parse_duration("0.0015us"), 2ns);
}

TEST(ParseDurationTest, RefusesWhatIsNoTime) {
  EXPECT_EQ(refused_duration("5"), "expected a time with its unit, e.g. 1.5ms, found \"5\"");
  for (const std::string_view text :
       {"", "ms", "-1ms", "nans", "infs", "1m", "1h", "1msx", "1e30s", "5MiB"}) {
    EXPECT_NE(refused_duration(text), "accepted") << text;
  }
}

TEST(ParseBitRateTest, ReadsTheWordsOfTc) {
  EXPECT_EQ(parse_bit_rate("8bit"), BytesPerSecond(1));
  EXPECT_EQ(parse_bit_rate("1kbit"), BytesPerSecond(125));
  EXPECT_EQ(parse_bit_rate("500mbit"), BytesPerSecond(62.5e6));
  EXPECT_EQ(parse_bit_rate("1gbit"), BytesPerSecond(125e6));
  EXPECT_EQ(parse_bit_rate("2.5gbit"), BytesPerSecond(312.5e6));
  EXPECT_EQ(parse_bit_rate("2.5Gbit"), BytesPerSecond(312.5e6));
}

TEST(ParseBitRateTest, RefusesWhatIsNoRateAndSaysWhatWasExpected) {
  EXPECT_EQ(refused_bit_rate("1"),
            "expected a rate with its unit, e.g. 1gbit or 500mbit, found \"1\"");
  for (const std::string_view text : {"", "gbit", "-1gbit", "1gb", "1Gb/s", "1GB/s", "1gbits",
                                      "1GBIT", "1gibit", "nangbit", "1e400gbit", "1gbit "}) {
    EXPECT_THAT(refused_bit_rate(text),
                ::testing::HasSubstr("found \"" + std::string(text) + "\""));
  }
}

TEST(ParseBitRateTest, ARateHasOneSpellingInReports) {
  EXPECT_EQ(bit_rate_text(parse_bit_rate("1000mbit")), "1gbit");
  EXPECT_EQ(bit_rate_text(parse_bit_rate("1Gbit")), "1gbit");
  EXPECT_EQ(bit_rate_text(parse_bit_rate("2500mbit")), "2.5gbit");
  EXPECT_EQ(bit_rate_text(parse_bit_rate("0.5gbit")), "500mbit");
  EXPECT_EQ(bit_rate_text(parse_bit_rate("1500bit")), "1.5kbit");
  EXPECT_EQ(bit_rate_text(parse_bit_rate("7bit")), "7bit");
}

TEST(UnitsTest, MicrosecondsRoundTripToTheNanosecond) {
  for (const Duration time : {0ns, 1ns, 999ns, 12'345ns, 86'400'000'000'001ns}) {
    EXPECT_EQ(from_us(to_us(time)), time);
  }
  EXPECT_DOUBLE_EQ(to_us(Duration(12'345)), 12.345);
  EXPECT_DOUBLE_EQ(to_us(Instant(Duration(500))), 0.5);
}

// 2^61 ns: 73 years. Two of them still add up.
TEST(UnitsTest, TimesFromDoublesEndWhereSumsWouldOverflow) {
  const Duration end(std::int64_t{1} << 61);
  EXPECT_EQ(from_ns(1.4), 1ns);
  EXPECT_EQ(from_ns(-1.6), -2ns);
  EXPECT_EQ(from_ns(1e30), end);
  EXPECT_EQ(from_ns(-1e30), -end);
  EXPECT_EQ(from_us(std::numeric_limits<double>::infinity()), end);
  EXPECT_EQ(from_ns(std::numeric_limits<double>::quiet_NaN()), end);
  EXPECT_EQ(Flop(1e36) / FlopPerSecond(1), end);
  EXPECT_EQ(Bytes(std::int64_t{1} << 50) / BytesPerSecond(1e-3), end);
}

TEST(UnitsTest, AStretchedTimeIsRoundedOrLeftAlone) {
  EXPECT_EQ(stretched(10ns, 1.26), 13ns);
  EXPECT_EQ(stretched(kLongestTime, 1e9), Duration(std::int64_t{1} << 61));
  const Duration odd((std::int64_t{1} << 60) + 1);  // no double holds it
  EXPECT_EQ(stretched(odd, 1), odd);
}

TEST(UnitsTest, DividingByARateGivesTime) {
  // 25 MB at 10 GB/s: 2.5 ms. 1 GFLOP at 2 TFLOP/s: 0.5 ms. 1 B at 3 B/s: 333333333.3 ns.
  EXPECT_EQ(Bytes(25'000'000) / BytesPerSecond(10e9), 2500us);
  EXPECT_EQ(Flop(1e9) / FlopPerSecond(2e12), 500us);
  EXPECT_EQ(Bytes(1) / BytesPerSecond(3), 333'333'333ns);
}

TEST(UnitsTest, DividingByARateOfZeroIsOurMistake) {
  EXPECT_THAT([&] { static_cast<void>(Bytes(1) / BytesPerSecond(0)); },
              ThrowsMessage<CheckError>(HasSubstr("check failed: rate.count() > 0")));
}

TEST(UnitsTest, QuantitiesAddAndScale) {
  Bytes sum = kib(1) + Bytes(1);
  sum += Bytes(2);
  EXPECT_EQ(sum, Bytes(1027));
  sum -= Bytes(27);
  EXPECT_EQ(3 * sum, Bytes(3000));
  EXPECT_EQ(sum - Bytes(1), Bytes(999));
  EXPECT_LT(Bytes(999), sum);
}

TEST(UnitsTest, PrintsThreeDigitsAndAUnit) {
  EXPECT_EQ(to_string(mib(25)), "25 MiB");
  EXPECT_EQ(to_string(Bytes(1023)), "1023 B");
  EXPECT_EQ(to_string(Bytes(1536)), "1.5 KiB");
  EXPECT_EQ(to_string(gib(2048)), "2048 GiB");
  EXPECT_EQ(to_string(1500ns), "1.5 us");
  EXPECT_EQ(to_string(999ns), "999 ns");
  EXPECT_EQ(to_string(Duration(-1500)), "-1.5 us");
  EXPECT_EQ(to_string(20ms), "20 ms");
  EXPECT_EQ(to_string(2s), "2 s");
  EXPECT_EQ(streamed(kib(3)), "3 KiB");
  EXPECT_EQ(streamed(Flop(1e9)), "1e+09 FLOP");
  EXPECT_EQ(streamed(BytesPerSecond(12.5e9)), "12.5 GB/s");
  EXPECT_EQ(streamed(FlopPerSecond(312e12)), "312 TFLOP/s");
}

TEST(UnitsTest, PrintsNoExponentJustBelowTheNextUnit) {
  // 999.9996 us rounds to three digits as 1000, which "%.3g" alone would print as 1e+03.
  EXPECT_EQ(to_string(Duration(999'999)), "1000 us");
  EXPECT_EQ(to_string(Duration(999'400)), "999 us");
  EXPECT_EQ(to_string(mib(1) - Bytes(1)), "1024 KiB");
}

TEST(CountTest, OneThingIsNotSeveral) {
  EXPECT_EQ(counted(std::int64_t{0}, "bucket"), "0 buckets");
  EXPECT_EQ(counted(std::int64_t{1}, "bucket"), "1 bucket");
  EXPECT_EQ(counted(std::size_t{2}, "loss fill"), "2 loss fills");
}

}  // namespace
}  // namespace dovetail
