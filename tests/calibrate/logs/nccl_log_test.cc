// NCCL's own log: facts of the communicator, and the table of its model of times.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_log.h"

#include "base/file.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveLog read_text(const std::string& text) {
  const std::array<Source, 1> files = {Source{"nccl.log", text}};
  return read_nccl_log(files);
}

std::string info(const std::string& message) {
  return "[1,0]<stdout>:node0:4321:4399 [0] NCCL INFO " + message + "\n";
}

const std::string kCommunicator =
    info("comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0");

TEST(NcclLogTest, TellsTheCommunicatorItsChannelsAndItsChoices) {
  const CollectiveLog log = read_text(
      "NCCL version 2.28.3+cuda13.0\nnoise\n" + kCommunicator +
      info("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels") +
      info("Using network IBext_v8") +
      info("AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x1 count 262144 datatype 7 op 0 root 0") +
      info("AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}"));
  EXPECT_EQ(log.nccl, "2.28.3+cuda13.0");
  for (const char* what :
       {"1 communicator of 16 ranks on 2 nodes, seen from 1 rank, 24 channels for collectives",
        "network: IBext_v8", "1 collective: all-reduce 1 MiB; of float32, seen from 1 rank",
        "AllReduce of 1 MiB: algorithm RING, protocol LL128"}) {
    EXPECT_THAT(log.read, Contains(HasSubstr(what)));
  }
  EXPECT_THAT(log.samples, IsEmpty());
  EXPECT_THAT(log.left_out, Contains(HasSubstr("NCCL_DEBUG_SUBSYS=INIT,TUNING")));
}

TEST(NcclLogTest, TakesTheLeastOfLatencyPlusBytesOverBandwidth) {
  // Tree LL 10 us + B / 2.5 GB/s, ring simple 60 us + B / 100 GB/s; LL128 is off (0.0 GB/s).
  const CollectiveLog log = read_text(
      kCommunicator +
      info("  Algorithm   |                           Tree                   |      Ring |") +
      info("  Protocol    |             LL |          LL128 |         Simple |") +
      info("    AllReduce |    10.0/   2.5 |   20.0/   0.0 |   60.0/ 100.0 |"));
  const auto tables = tables_of(log.samples);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].ranks, 16);
  EXPECT_EQ(tables[0].nodes, 2);
  const auto& points = std::get<std::vector<models::CollectivePoint>>(tables[0].times);
  ASSERT_EQ(points.front().bytes, kib(1));
  EXPECT_EQ(points.front().isolated, from_us(10 + 1024 / 2500.0));
  EXPECT_EQ(points.back().bytes, gib(4));
  EXPECT_EQ(points.back().isolated, from_us(60 + 4294967296 / 100e3));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("NCCL's own model, not measured")));
}

// A line of one rank: eight to a host, threads of their own.
std::string of_rank(int rank, const std::string& message) {
  const std::string pid = std::to_string(4000 + rank);
  return std::to_string(rank) + ": host-" + std::string(1, static_cast<char>('a' + rank / 8)) +
         ":" + pid + ":1" + pid + " [" + std::to_string(rank % 8) + "] NCCL INFO " + message + "\n";
}

// AMD's library writes NCCL's lines under its own name.
TEST(NcclLogTest, ReadsTheVersionOfRccl) {
  const CollectiveLog log = read_text(info("RCCL version : 2.22.3-HEAD:271856d") +
                                      info("HIP version  : 6.4") + kCommunicator);
  EXPECT_EQ(library_in_words(log), ", RCCL 2.22.3-HEAD:271856d");
  EXPECT_EQ(log.tool, "RCCL's log");
}

// Two ranks began a communicator that never came to be; the one before it, and one that has calls, are counted.
TEST(NcclLogTest, ACommunicatorThatWasNeverCompletedIsNotCounted) {
  const auto init = [](int rank, const std::string& id, const std::string& stage) {
    return of_rank(rank, "ncclCommInitRank comm 0x1" + id + " rank " + std::to_string(rank) +
                             " nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x" + id +
                             " - Init " + stage);
  };
  std::string text;
  for (const int rank : {0, 1}) {
    text += init(rank, "7", "START") + init(rank, "7", "COMPLETE") + init(rank, "8", "START");
  }
  const CollectiveLog log = read_text(text);
  EXPECT_THAT(log.read, Contains(HasSubstr("1 communicator of 2 ranks")));
  EXPECT_THAT(log.left_out,
              Contains("1 communicator of 2 ranks never completed: 2 ranks began (\"Init START\"), "
                       "none says \"Init COMPLETE\""));
}

std::string complete(int rank, int of, const std::string& pointer, const std::string& rest) {
  return "comm " + pointer + " rank " + std::to_string(rank) + " nranks " + std::to_string(of) +
         " cudaDev 0 busId 1b000" + rest + " - Init COMPLETE";
}

// Two nodes as NCCL 2.18 logs them, which says no nodes and names a communicator after its channels.
std::string two_nodes(int seen, const std::array<std::string, 3>& ids) {
  std::string text = "NCCL version 2.18.5+cuda12.2\n";
  for (int rank = 0; rank < seen; ++rank)
    text += of_rank(rank, "16 coll channels, 0 nvls channels");
  for (int rank = 0; rank < seen; ++rank) text += of_rank(rank, complete(rank, 16, "0x1", ids[0]));
  for (int rank = 0; rank < seen; ++rank)
    text += of_rank(rank, "24 coll channels, 0 nvls channels");
  for (int rank = 0; rank < seen; ++rank) {
    text += of_rank(rank, complete(rank % 8, 8, "0x2", ids[rank < 8 ? 1 : 2]));
  }
  return text;
}

TEST(NcclLogTest, TellsTheCommunicatorsOfVersionsThatDoNotSayTheirNodes) {
  const std::array<std::string, 3> ids = {" commId 0x84", " commId 0xde", " commId 0x76"};
  const CollectiveLog log = read_text(two_nodes(16, ids));
  EXPECT_THAT(
      log.read,
      ElementsAre("1 communicator of 16 ranks on 2 nodes, seen from 16 ranks, 16 channels for "
                  "collectives",
                  "2 communicators of 8 ranks on 1 node, seen from 8 ranks, 24 channels for "
                  "collectives"));
  // Before 2.16 there are no ids: they are told apart by their ranks.
  EXPECT_EQ(read_text(two_nodes(16, {})).read, log.read);
  // The host of a rank that is not seen may be a third one.
  EXPECT_THAT(read_text(two_nodes(15, ids)).read,
              Contains(HasSubstr("of 16 ranks, nodes unknown (2 hosts seen), seen from 15 ranks")));
}

std::string all_reduce(int op, std::int64_t count, const std::string& pointer, int ranks) {
  std::array<char, 200> text{};
  std::snprintf(
      text.data(), text.size(),
      "AllReduce: opCount %x sendbuff 0x1 recvbuff 0x1 count %lld datatype 7 op 0 root 0 comm "
      "%s [nranks=%d] stream 0x55",
      static_cast<unsigned>(op), static_cast<long long>(count), pointer.c_str(), ranks);
  return text.data();
}

TEST(NcclLogTest, CountsACollectiveOnceWhateverRanksItIsSeenFrom) {
  // Behind Ray's prefix in its colours, from 3 of 128 ranks: 28.2, 27, 25 and 7.8 MiB.
  std::string text;
  int op = 0x139d;
  for (const std::int64_t count : {7382228, 7066572, 6563840, 2049000}) {
    for (int rank = 0; rank < 3; ++rank) {
      text += "\x1b[36m(RayTrainWorker pid=615, ip=10.0.0.6)\x1b[0m worker-" +
              std::to_string(rank) + ":61" + std::to_string(rank) + ":18953 [2] NCCL INFO " +
              all_reduce(op, count, "0x78cfda04584" + std::to_string(rank), 128) + "\n";
    }
    ++op;
  }
  const CollectiveLog log = read_text(text);
  EXPECT_THAT(
      log.read,
      ElementsAre("1 communicator of 128 ranks, nodes unknown (3 hosts seen), seen from 3 ranks",
                  "over 128 ranks: 4 collectives: all-reduce 28.2 MiB, all-reduce 27 MiB, "
                  "all-reduce 25 MiB, all-reduce 7.82 MiB; of float32, each seen from 3 ranks"));
}

TEST(NcclLogTest, TellsWhatAStepRepeats) {
  std::string text;
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      text += of_rank(rank, all_reduce(3 * step, 1 << 18, "0x1", 2));
      text += of_rank(rank, all_reduce(3 * step + 1, 1 << 20, "0x1", 2));
      text += of_rank(rank, all_reduce(3 * step + 2, 1 << 20, "0x1", 2));
    }
  }
  EXPECT_THAT(
      read_text(text).read,
      Contains("over 2 ranks: 9 calls, repeats 3 collectives: all-reduce 1 MiB, all-reduce 4 "
               "MiB, all-reduce 4 MiB; of float32, each seen from 2 ranks"));
}

TEST(NcclLogTest, KeepsCommunicatorsApartThatCountAlike) {
  // Two pairs with ids of their own, whose opCounts are equal and whose sizes are not; grouped calls share an opCount.
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string id = rank < 2 ? " commId 0xa" : " commId 0xb";
    text += of_rank(rank, complete(rank % 2, 2, "0x1", id));
    text += of_rank(rank, all_reduce(0, rank < 2 ? 1 << 18 : 1 << 20, "0x1", 2));
    text += of_rank(rank, all_reduce(0, 1 << 19, "0x1", 2));
  }
  const CollectiveLog log = read_text(text);
  EXPECT_THAT(
      log.read,
      ElementsAre("2 communicators of 2 ranks on 1 node, seen from 2 ranks",
                  "over 2 ranks: 2 collectives: all-reduce 1 MiB, all-reduce 2 MiB; of float32, "
                  "each seen from 2 ranks",
                  "over 2 ranks: 2 collectives: all-reduce 4 MiB, all-reduce 2 MiB; of float32, "
                  "each seen from 2 ranks"));
  EXPECT_EQ(log.left_out.size(), 1u);  // no table
}

TEST(NcclLogTest, KnowsASplitCommunicatorByWhatItWasSplitFrom) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    text += of_rank(rank, complete(rank, 4, "0x1", " commId 0xa"));
    text += of_rank(rank, "ncclCommSplit " + complete(rank / 2, 2, "0x2",
                                                      " parent 0x1 splitCount 1 color " +
                                                          std::to_string(rank % 2) + " key 0"));
  }
  EXPECT_THAT(read_text(text).read,
              ElementsAre("1 communicator of 4 ranks on 1 node, seen from 4 ranks",
                          "2 communicators of 2 ranks on 1 node, seen from 2 ranks"));
}

// One process that drives eight devices says "[0]" to "[7]" in front of its lines.
// A pointer that was freed is another communicator's when it comes again.
TEST(NcclLogTest, KeepsCommunicatorsOfOnePointerApart) {
  const std::string call = of_rank(0, all_reduce(0, 1 << 18, "0x1", 2));
  const std::string one = of_rank(0, complete(0, 2, "0x1", "")) + call;
  const std::string gone =
      of_rank(0, "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1b000 - Destroy COMPLETE");
  EXPECT_THAT(read_text(one + call).read, Contains(HasSubstr("2 calls, repeats 1 collective")));
  EXPECT_THAT(
      read_text(one + gone + one).read,
      Contains("2 communicators of 2 ranks, nodes unknown (1 host seen), seen from 1 rank"));
}

TEST(NcclLogTest, ReadsTheFirstVersions) {
  EXPECT_THAT(
      read_text(of_rank(0, "comm 0x1 rank 0 nranks 2 - COMPLETE") +
                of_rank(0, "Using 256 threads, Min Comp Cap 7, Trees enabled up to size 1048576"))
          .read,
      ElementsAre("1 communicator of 2 ranks, nodes unknown (1 host seen), seen from 1 rank",
                  "trees up to 1 MiB, rings above"));
}

TEST(NcclLogTest, JoinsTheDevicesOfOneProcess) {
  std::string text;
  for (int rank = 0; rank < 8; ++rank) {
    text += "node0:1:1 [" + std::to_string(rank) + "] NCCL INFO " +
            complete(rank, 8, "0x" + std::to_string(rank), "") + "\n";
  }
  EXPECT_THAT(read_text(text).read,
              ElementsAre("1 communicator of 8 ranks on 1 node, seen from 8 ranks"));
}

TEST(NcclLogTest, ReadsGatheredAndScatteredSizesAsTheWholeBuffer) {
  const auto call = [](const std::string& name, int op) {
    return info(
        name + ": opCount " + std::to_string(op) +
        " sendbuff 0x1 recvbuff 0x2 count 1048576 datatype 9 op 0 root 0 comm 0x3 [nranks=8] "
        "stream 0x4");
  };
  EXPECT_THAT(read_text(call("AllGather", 0) + call("ReduceScatter", 1) + call("Broadcast", 2) +
                        call("Send", 3))
                  .read,
              Contains("over 8 ranks: 4 collectives: all-gather 16 MiB, reduce-scatter 16 MiB, "
                       "broadcast 2 MiB, Send 2 MiB; of bfloat16, each seen from 1 rank"));
}

TEST(NcclLogTest, ReadsLinesOfSeveralProcessesThatAreGlued) {
  const std::string one = "host-a:1:9 [0] NCCL INFO " + all_reduce(2, 1 << 18, "0xa", 8);
  const std::string two = "host-a:2:9 [1] NCCL INFO " + all_reduce(2, 1 << 18, "0xb", 8);
  const std::string three = "host-a:3:9 [2] NCCL INFO " + all_reduce(2, 1 << 18, "0xc", 8);
  const std::string lost = all_reduce(2, 1 << 18, "0xd", 8);  // its front is elsewhere
  const CollectiveLog log =
      read_text("host-a:4:9 [3] NCCL INFO " + one + "\n" + two + three + "\n" +
                "host-a:4:9 [3] NCCL INFO Launch mode Parallel\n" + lost + "\n");
  EXPECT_THAT(log.read,
              ElementsAre("1 communicator of 8 ranks, nodes unknown (1 host seen), seen from 4 "
                          "ranks",
                          "over 8 ranks: 1 collective: all-reduce 1 MiB; of float32, seen "
                          "from 4 ranks"));
}

TEST(NcclLogTest, SaysWhereTheRanksContradictEachOther) {
  const CollectiveLog log = read_text(of_rank(0, all_reduce(0, 1 << 18, "0x1", 8)) +
                                      of_rank(1, all_reduce(0, 1 << 19, "0x1", 8)));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("under 1 opCount the ranks call different")));
}

TEST(NcclLogTest, ReadsTheTableThatStandsBeforeItsCommunicator) {
  // 2.18: two blocks of three algorithms, then channels, then who it was. 2.7 has one line of header.
  for (const std::string head :
       {"  Algorithm   |   Tree |   Ring |", "Latency/AlgBw |    Tree/    LL |"}) {
    const CollectiveLog log = read_text(
        of_rank(0, head) + of_rank(0, " Max NThreads |            512 |            640 |") +
        of_rank(0, "    Broadcast |     0.0/   0.0 |     9.0/   5.0 |") +
        of_rank(0, "    AllReduce |    10.0/   2.5 |    60.0/ 100.0 |") +
        of_rank(0, "    AllReduce |     0.0/   0.0 |    30.0/ 200.0 |") +
        of_rank(0, "24 coll channels, 0 nvls channels") + of_rank(0, complete(0, 16, "0x1", "")));
    const auto tables = tables_of(log.samples);
    ASSERT_EQ(tables.size(), 2u);
    EXPECT_EQ(tables[0].ranks, 16);
    EXPECT_EQ(tables[0].nodes, std::nullopt);
    EXPECT_EQ(std::get<0>(tables[0].times).back().isolated, from_us(30 + 4294967296 / 200e3));
  }
  EXPECT_THAT(read_text(of_rank(0, "    AllReduce |    10.0/   2.5 |")).left_out,
              Contains(HasSubstr("as no line says over how many ranks")));
}

TEST(NcclLogTest, ReadsTheChoicesOfEveryVersion) {
  // 2.20 to 2.22, 2.23, 2.24 and later, symmetric kernels of 2.27, copies of 2.29. Without a name it is the last call's.
  const std::string call = of_rank(0, all_reduce(0, 1 << 18, "0x1", 8));
  for (const std::string& text :
       {call + of_rank(0, "1048576 Bytes -> Algo 1 proto 2 time 25.229528"),
        call + of_rank(0, "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 25.229528")}) {
    const CollectiveLog log = read_text(text);
    EXPECT_THAT(log.read,
                Contains("AllReduce of 1 MiB: algorithm Ring, protocol Simple, 25.2 us by "
                         "NCCL's model"));
    ASSERT_EQ(log.samples.size(), 1u);
    EXPECT_TRUE(log.is_model);
    EXPECT_EQ(log.samples[0].ranks, 8);
    EXPECT_EQ(log.samples[0].time, from_us(25.229528));
  }
  // Nothing says of what it is.
  const CollectiveLog lone =
      read_text(of_rank(0, "1048576 Bytes -> Algo 0 proto 0 time 25.229528"));
  EXPECT_THAT(lone.read, Contains(HasSubstr("a collective of 1 MiB: algorithm Tree, protocol LL")));
  EXPECT_THAT(lone.left_out, Contains(HasSubstr("does not say of which collective")));
  EXPECT_THAT(lone.samples, IsEmpty());
  EXPECT_THAT(
      read_text(
          of_rank(0,
                  "AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels "
                  "4 nthreads 512 nWorks 1"))
          .read,
      Contains("AllReduce of 1 MiB: algorithm AllReduce_AGxLL_R"));
  EXPECT_THAT(
      read_text(of_rank(0, "AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpyBatchAsync")).read,
      Contains("AllGather of 1 MiB: algorithm cudaMemcpyBatchAsync"));
}

// 2.31 and 2.32: a share of 1 MiB on each of 8 ranks, as the line of the call shows.
TEST(NcclLogTest, ChoicesHaveTheSizesOfTheirCalls) {
  const std::string call = info(
      "AllGather: opCount 1 sendbuff 0x1 recvbuff 0x2 count 524288 datatype 9 op 0 root 0 comm 0x3 "
      "[nranks=8] stream 0x4");
  for (const auto& [choice, algorithm] :
       {std::pair("AllGather: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23} "
                  "cgaClusterSize 4",
                  "RING, protocol LL128"),
        std::pair("AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpy; CE synchronization with "
                  "NVLS",
                  "cudaMemcpy"),
        std::pair("AllGather [Hierarchical CE]: 1048576 Bytes -> RMA proxy + CE",
                  "RMA proxy + CE")}) {
    EXPECT_THAT(read_text(call + info(choice)).read,
                Contains("AllGather of 8 MiB: algorithm " + std::string(algorithm)));
  }
}

// src/tuning/tuning.cc of 2.31: -1.0 for what does not exist; what NCCL_ALGO rules out keeps its bandwidth, where
// 2.30 wrote 0.0.
TEST(NcclLogTest, LeavesOutATableThatHasWhatIsRuledOut) {
  const std::string forced = info("NCCL_ALGO set by environment to Ring");
  const std::string best = info(
      "Best tuning { .id = 5, .valid = 1, timeUs = 135.9,  .algo = RING, .proto = SIMPLE, "
      ".symKernelId = Unknown, .ceMethodId = 0, nChannels = 24, maxChannels = 24, nWarps = 17, "
      "forced = 1 }");
  const std::string before = info("    AllReduce |     0.0/   0.0 |   56.0/ 210.0 |");
  const std::string since = info("    AllReduce |    25.0/ 320.0 |   56.0/ 210.0 |") +
                            info("    AllGather |    -1.0/  -1.0 |   56.0/ 210.0 |");
  for (const std::string& text : {forced + kCommunicator + since, kCommunicator + since + best}) {
    const CollectiveLog log = read_text(text);
    EXPECT_THAT(log.samples, IsEmpty());
    EXPECT_THAT(log.left_out, ElementsAre(HasSubstr("NCCL_ALGO and NCCL_PROTO rule out")));
  }
  EXPECT_EQ(tables_of(read_text(kCommunicator + since).samples).size(), 2u);
  EXPECT_EQ(tables_of(read_text(forced + kCommunicator + before).samples).size(), 1u);
}

// What `ncclras` and `ncclras -f json` print (NCCL's user guide, RAS): versions and states, and nothing that plans use.
TEST(NcclLogTest, RefusesWhatNcclrasPrintsWithTheWay) {
  for (const std::string text :
       {"NCCL version 2.28.7 compiled with CUDA 13.0\nCUDA runtime version 13000, driver version "
        "13000\n\n"
        "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n      4          8            1      "
        "   32       32\n\n"
        "Communicators... (0.00s)\n=============\n\n"
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    0         1         4         8        32        32   RUNNING      OK\n",
        "{\n  \"nccl_version\": \"2.28.7\",\n  \"communicators\": []\n}\n"}) {
    EXPECT_THAT(error_of([&] { read_text(text); }),
                HasSubstr("ncclras tells the state of communicators"));
    EXPECT_THAT(error_of([&] { read_text(text); }),
                HasSubstr("NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING"));
  }
  EXPECT_THAT(
      error_of([] { read_text("NCCL version 2.28.3+cuda13.0\n" + info("Bootstrap: Using eth0")); }),
      HasSubstr("no communicator, collective or choice"));
  // A log in which somebody also ran ncclras is read.
  EXPECT_THAT(read_text("Job summary\n" + kCommunicator).read,
              Contains(HasSubstr("1 communicator of 16 ranks")));
}

// Two ranks of one H100 over sockets, PyTorch 2.11 (h100/README.md): sizes for which it chose alike are one line.
TEST(NcclLogTest, ReadsALogOfPyTorch) {
  const CollectiveLog log =
      read_text(read_file(DOVETAIL_SOURCE_DIR "/tests/calibrate/logs/h100/nccl-rank0.log"));
  EXPECT_EQ(log.nccl, "2.28.9+cuda13.0");
  EXPECT_THAT(log.read, Contains("network: Socket"));
  EXPECT_THAT(log.read,
              Contains(HasSubstr("1 communicator of 2 ranks on 2 nodes, seen from 1 rank")));
  EXPECT_THAT(log.read, Contains("AllReduce of 4 B to 104 MiB: algorithm RING, protocol SIMPLE"));
  EXPECT_TRUE(log.is_model);
}

TEST(NcclLogTest, RefusesATextWithoutALineOfNccl) {
  EXPECT_THAT(error_of([] { read_text("hello\n"); }), HasSubstr("no line of NCCL's log"));
  EXPECT_THAT(error_of([] { read_text(""); }), HasSubstr("no line of NCCL's log"));
  // Cells that are no numbers, ranks beyond all bounds, lines that end early.
  const CollectiveLog log = read_text(
      info("AllReduce | nan/1 | /5 | 1e400/2 |") + info(" coll channels") +
      info("nNodes 99999999999999999999 nRanks 5 rank 1") + info("AllReduce: x Bytes -> Algo "));
  EXPECT_THAT(log.samples, IsEmpty());
}

}  // namespace
}  // namespace dovetail::imports
