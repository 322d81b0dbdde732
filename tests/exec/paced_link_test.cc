// The paced link on a clock of the test's own: every time here is computed, none is measured.
//
// A link of 1 Gbit/s carries 125 bytes per microsecond. A packet of 64 KiB has 8 segments of at most
// 8948 bytes, each with 66 bytes of headers: 65536 + 8 * 66 = 66064 bytes, 528.512 us. The credit after
// a pause is a packet and 400 bytes: 66464 bytes, 531.712 us.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/paced_link.h"

#include "base/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace dovetail::exec::cpu {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Time = PacedLink::Time;

constexpr Bytes kPacket = PacedLink::kPacket;
constexpr Time kStart = Time(1000s);
constexpr Duration kPacketTime = 528'512ns;
constexpr Duration kCredit = 531'712ns;

BytesPerSecond gigabit() { return parse_bit_rate("1gbit"); }

TEST(PacedLinkTest, AfterAPauseOnePacketLeavesAtOnce) {
  PacedLink link(gigabit());
  // The credit was earned by kStart: the packet has left 531.712 - 528.512 = 3.2 us before.
  EXPECT_EQ(link.departure(kPacket, kStart), kStart - 3200ns);
}

TEST(PacedLinkTest, WhatFollowsLeavesAtTheRateOfTheLink) {
  PacedLink link(gigabit());
  Time last = link.departure(kPacket, kStart);
  for (int i = 0; i < 1000; ++i) {
    const Time next = link.departure(kPacket, kStart);
    EXPECT_EQ(next - last, kPacketTime);
    last = next;
  }
}

TEST(PacedLinkTest, HeadersAreCountedPerSegment) {
  PacedLink link(gigabit());
  const Time first = link.departure(Bytes(1), kStart);
  // 8948 + 66 bytes take 72.112 us; one byte more is a second segment: 9081 bytes, 72.648 us.
  const Time second = link.departure(Bytes(8948), kStart);
  EXPECT_EQ(second - first, 72'112ns);
  EXPECT_EQ(link.departure(Bytes(8949), kStart) - second, 72'648ns);
}

TEST(PacedLinkTest, ALongPauseEarnsNoMoreThanAShortOne) {
  PacedLink link(gigabit());
  static_cast<void>(link.departure(kPacket, kStart));
  EXPECT_EQ(link.departure(kPacket, kStart + 100s), kStart + 100s - 3200ns);
  // The second packet finds the credit spent.
  EXPECT_EQ(link.departure(kPacket, kStart + 100s), kStart + 100s - 3200ns + kPacketTime);
}

// The sender was kept from the processor for 5 ms, though its bytes were ready. On a real link the
// kernel would have sent them meanwhile.
TEST(PacedLinkTest, BytesThatWaitedForASleepingSenderLoseNoTime) {
  PacedLink prompt(gigabit());
  PacedLink late(gigabit());
  Time a = prompt.departure(kPacket, kStart);
  Time b = late.departure(kPacket, kStart);
  for (int i = 0; i < 100; ++i) {
    a = prompt.departure(kPacket, kStart);
    b = late.departure(kPacket, b);  // it has waited since the one before left
  }
  EXPECT_EQ(a, b);
}

TEST(PacedLinkTest, RingsOfOneRankShareTheLink) {
  PacedLink link(gigabit());
  const Time first = link.departure(kPacket, kStart);
  // Both ring's packets were ready at kStart; the one that asks later leaves later.
  EXPECT_EQ(link.departure(kPacket, kStart), first + kPacketTime);
  EXPECT_EQ(link.departure(kPacket, kStart), first + 2 * kPacketTime);
}

// Two threads with 1000 packets each: whatever their order, the last of 2000 leaves as late as in one
// thread, and no two leave together.
TEST(PacedLinkTest, ThreadsShareTheLinkToo) {
  PacedLink link(gigabit());
  std::vector<std::vector<Time>> left(2);
  {
    std::vector<std::jthread> threads;
    for (std::vector<Time>& mine : left) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) mine.push_back(link.departure(kPacket, kStart));
      });
    }
  }
  std::vector<Time> all = left[0];
  all.insert(all.end(), left[1].begin(), left[1].end());
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], kStart - kCredit + static_cast<std::int64_t>(i + 1) * kPacketTime);
  }
}

TEST(PacedLinkTest, ATenthOfTheRateTakesTenTimesAsLong) {
  PacedLink link(parse_bit_rate("100mbit"));
  const Time first = link.departure(kPacket, kStart);
  EXPECT_EQ(link.departure(kPacket, kStart) - first, 10 * kPacketTime);
}

TEST(PacedSenderTest, WithoutALinkEverythingLeavesAtOnce) {
  PacedSender sender(nullptr);
  sender.begin(kStart);
  EXPECT_EQ(sender.allowed(1'000'000, kStart), 1'000'000U);
  sender.sent(1'000'000);
  EXPECT_LT(sender.departure(), kStart);
}

// 150'000 bytes: a packet at once, one after 525.312 us, and the rest, 18928 bytes in 3 segments:
// 19126 bytes, 153.008 us.
TEST(PacedSenderTest, PacketsLeaveOneByOne) {
  PacedSender sender(std::make_shared<PacedLink>(gigabit()));
  sender.begin(kStart);
  EXPECT_EQ(sender.allowed(150'000, kStart), 65'536U);
  sender.sent(65'536);
  EXPECT_EQ(sender.allowed(84'464, kStart), 0U);
  EXPECT_EQ(sender.departure(), kStart + 525'312ns);
  EXPECT_EQ(sender.allowed(84'464, kStart + 525'311ns), 0U);
  EXPECT_EQ(sender.allowed(84'464, kStart + 525'312ns), 65'536U);
  sender.sent(65'536);
  EXPECT_EQ(sender.allowed(18'928, kStart + 525'312ns), 0U);
  EXPECT_EQ(sender.departure(), kStart + 525'312ns + 153'008ns);
}

// The socket took 1000 bytes of the packet: the others may follow when it takes them.
TEST(PacedSenderTest, APacketMayBeSentInParts) {
  PacedSender sender(std::make_shared<PacedLink>(gigabit()));
  sender.begin(kStart);
  EXPECT_EQ(sender.allowed(100'000, kStart), 65'536U);
  sender.sent(1000);
  EXPECT_EQ(sender.allowed(99'000, kStart), 64'536U);
  sender.sent(64'536);
  EXPECT_EQ(sender.allowed(34'464, kStart), 0U);
}

// It comes back 5 ms late: nine packets, 525.312 + 8 * 528.512 us = 4.753408 ms, may leave at once.
TEST(PacedSenderTest, ALateSenderCatchesUp) {
  PacedSender sender(std::make_shared<PacedLink>(gigabit()));
  sender.begin(kStart);
  const Time late = kStart + 5ms;
  int packets = 0;
  static_cast<void>(sender.allowed(65'536, kStart));
  sender.sent(65'536);
  while (sender.allowed(10'000'000, late) > 0) {
    sender.sent(65'536);
    ++packets;
  }
  EXPECT_EQ(packets, 9);
  EXPECT_EQ(sender.departure(), kStart + 525'312ns + 9 * kPacketTime);
}

// Nothing was ready for 5 ms, and so nothing but the credit is caught up.
TEST(PacedSenderTest, APauseWithNothingToSendIsNotCaughtUp) {
  PacedSender sender(std::make_shared<PacedLink>(gigabit()));
  sender.begin(kStart);
  EXPECT_EQ(sender.allowed(65'536, kStart), 65'536U);
  sender.sent(65'536);
  sender.begin(kStart + 5ms);
  EXPECT_EQ(sender.allowed(10'000'000, kStart + 5ms), 65'536U);
  sender.sent(65'536);
  EXPECT_EQ(sender.allowed(9'000'000, kStart + 5ms), 0U);
}

}  // namespace
}  // namespace dovetail::exec::cpu
