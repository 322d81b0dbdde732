// What is asked of a machine: as text and back, and what it does to costs.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs.h"

namespace dovetail::models {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Costs costs_of_a_line() {
  Costs costs;
  costs.collectives.push_back(
      {.key = {schedule::Collective::AllReduce, 8},
       .time = CollectiveTable(AlphaBeta{.alpha = from_us(10), .ns_per_byte = 0.01})});
  costs.copies = CopyModel{.fixed = from_us(1), .ns_per_byte = 0.001};
  costs.host.run_op = from_us(6);
  return costs;
}

Duration all_reduce(const Costs& costs, std::int64_t bytes) {
  return costs.find({schedule::Collective::AllReduce, 8})->time.time(Bytes(bytes)).isolated;
}

TEST(WhatIfTest, TextReadsBack) {
  EXPECT_TRUE(parse_what_if("").nothing());
  for (const char* text : {"link=0.5x", "latency=2x,gpu=h200", "compute=1.3x,host=0.5x,world=64",
                           "network=2x,nvlink=0.5x"}) {
    EXPECT_EQ(to_string(parse_what_if(text)), text);
  }
  EXPECT_EQ(parse_what_if("link=2"), parse_what_if("link=2x"));
}

TEST(WhatIfTest, LinkAndComputeAreSpeedsAndLatencyIsATime) {
  const Costs before = costs_of_a_line();
  const auto with = [&before](const char* text) {
    Costs costs = before;
    apply(parse_what_if(text), costs);
    return costs;
  };
  EXPECT_EQ(all_reduce(before, 1'000'000), from_us(20));
  EXPECT_EQ(all_reduce(with("link=2x"), 1'000'000), from_us(15));
  EXPECT_EQ(all_reduce(with("latency=3x"), 1'000'000), from_us(40));
  EXPECT_EQ(all_reduce(with("link=2x,latency=3x"), 1'000'000), from_us(35));
  EXPECT_EQ(with("compute=2x").copies->fixed, from_us(0.5));
  EXPECT_EQ(with("host=0.5x").host.run_op, from_us(12));
  EXPECT_EQ(with("world=64,gpu=h200"), before);
}

// A ring over nodes of eight is bound by the network of each rank; in a node there is none.
TEST(WhatIfTest, LinksBetweenNodesAndInThemChangeApart) {
  Cluster cluster = load_cluster("h100", DOVETAIL_SOURCE_DIR "/models/clusters");
  const auto us = [&](const char* asked, CollectiveKey key) {
    cluster.what_if = parse_what_if(asked);
    return to_us(collective_table(cluster, key).time(mib(512)).isolated);
  };
  constexpr CollectiveKey kNode{schedule::Collective::AllGather, 8, 1};
  constexpr CollectiveKey kWide{schedule::Collective::AllGather, 16, 16};  // one rank a node
  EXPECT_NEAR(us("network=2x", kWide) / us("", kWide), 0.5, 0.02);
  EXPECT_EQ(us("network=2x", kNode), us("", kNode));
  EXPECT_EQ(us("nvlink=2x", kWide), us("", kWide));
  EXPECT_NEAR(us("nvlink=0.5x", kNode) / us("", kNode), 2, 0.05);  // a measured table, moved
}

TEST(WhatIfTest, SaysWhatItExpected) {
  const auto refused = [](const char* text, const char* why) {
    EXPECT_THAT([&] { parse_what_if(text); }, ThrowsMessage<InputError>(HasSubstr(why))) << text;
  };
  refused("link=0x", "--what-if link: expected 0.001x to 1000x, found \"0x\"");
  refused("link=nanx", "expected 0.001x to 1000x");
  refused("host=fast", "expected 0.001x to 1000x");
  refused("latency=", "expected 0.001x to 1000x");
  refused("world=0", "expected a whole number from 1 to 1048576");
  refused("link=2x,link=2x", "expected it once");
  refused("bandwidth=2x",
          "expected link=, network=, nvlink=, latency=, compute= or host= with a factor");
  refused("gpu=", "gpu=NAME");
  refused("link", "--what-if link: expected");
}

}  // namespace
}  // namespace dovetail::models
