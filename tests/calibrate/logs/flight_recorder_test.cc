// Dumps of PyTorch's flight recorder. Its JSON of a real NCCL job was not found in public; the entries
// follow its sources and a dump of PyTorch 2.14.1 over Gloo.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/flight_recorder.h"

#include "base/file.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string entry(int serial, const std::string& name, const std::string& in,
                  const std::string& out, const std::string& duration) {
  return R"({"record_id":)" + std::to_string(serial) +
         R"(,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":)" +
         std::to_string(serial) + R"(,"p2p_seq_id":0,"op_id":1,"profiling_name":")" + name +
         R"(","time_created_ns":1763772000000000000,"input_sizes":)" + in +
         R"(,"input_dtypes":["Float"],"output_sizes":)" + out + R"(,"output_dtypes":["Float"])" +
         (duration.empty() ? "" : R"(,"duration_ms":)" + duration) +
         R"(,"state":"completed","time_discovered_started_ns":null,"is_p2p":false})";
}

std::string dump(const std::string& entries) {
  return R"({"version":"2.10","comm_lib_version":"2.28.3","pg_status":{},"pg_config":{"0":)"
         R"({"name":"0","desc":"default_pg","ranks":"[0, 1]"}},"entries":[)" +
         entries + "]}";
}

CollectiveLog read_dumps(const std::string& first, const std::string& second) {
  const std::array<Source, 2> files = {Source{"fr0.json", first}, Source{"fr1.json", second}};
  return read_flight_recorder(files);
}

CollectiveLog read_dumps(const std::string& text) {
  const std::array<Source, 1> files = {Source{"fr0.json", text}};
  return read_flight_recorder(files);
}

TEST(FlightRecorderTest, JoinsTheRanksByGroupAndNumber) {
  const auto one = [](const char* ms) {
    return entry(1, "nccl:all_reduce", "[[512,512]]", "[[512,512]]", ms);
  };
  const CollectiveLog log = read_dumps(dump(one("0.9")), dump(one("0.071")));
  ASSERT_EQ(log.samples.size(), 1u);
  EXPECT_EQ(log.samples[0].bytes, mib(1));
  EXPECT_EQ(log.samples[0].ranks, 2);
  EXPECT_EQ(log.samples[0].time, from_us(71));
  EXPECT_EQ(log.nccl, "2.28.3");
  EXPECT_THAT(log.left_out, IsEmpty());
}

TEST(FlightRecorderTest, TakesTheSideThatHoldsTheWholeBuffer) {
  const CollectiveLog log =
      read_dumps(dump(entry(1, "nccl:_all_gather_base", "[[500]]", "[[1000]]", "0.1") + "," +
                      entry(2, "nccl:_reduce_scatter_base", "[[3000]]", "[[1500]]", "0.1")));
  ASSERT_EQ(log.samples.size(), 2u);
  EXPECT_EQ(log.samples[0].bytes.count() + log.samples[1].bytes.count(), 16000);
}

TEST(FlightRecorderTest, TellsTheBucketsOfAJobThatRepeatsItself) {
  std::string entries = entry(1, "nccl:broadcast", "[[7]]", "[[7]]", "");
  for (int step = 0; step < 3; ++step) {
    for (const char* size : {"[[262144]]", "[[524288]]"}) {
      entries += "," + entry(2 + step, "gloo:all_reduce", size, size, "");
    }
  }
  const CollectiveLog log = read_dumps(dump(entries));
  EXPECT_THAT(log.samples, IsEmpty());
  EXPECT_THAT(log.read,
              Contains("the job repeats 2 collectives: all-reduce 1 MiB, all-reduce 2 MiB"));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("7 entries without duration_ms")));
}

TEST(FlightRecorderTest, TellsOrderAndSizesOfAJobWithoutTimesThatDoesNotRepeatItself) {
  std::string entries;
  for (const char* size : {"[[2049000]]", "[[7875584]]", "[[2431040]]"}) {
    entries += (entries.empty() ? "" : ",") + entry(1, "nccl:all_reduce", size, size, "");
  }
  EXPECT_THAT(read_dumps(dump(entries)).read,
              Contains("the job: 3 collectives: all-reduce 7.82 MiB, all-reduce 30 MiB, all-reduce "
                       "9.27 MiB"));
}

// Two buckets of one size at the end of a step are no step of their own.
TEST(FlightRecorderTest, FindsTheStepThatHoldsForMostOfTheDump) {
  std::string entries;
  for (int step = 0; step < 3; ++step) {
    for (const char* size : {"[[262144]]", "[[524288]]", "[[524288]]"}) {
      entries += (entries.empty() ? "" : ",") + entry(1, "nccl:all_reduce", size, size, "");
    }
  }
  EXPECT_THAT(
      read_dumps(dump(entries)).read,
      Contains("the job repeats 3 collectives: all-reduce 1 MiB, all-reduce 2 MiB, all-reduce 2 "
               "MiB"));
}

// Two pairs of a mesh, both called "1": 100 us and 500 us are two collectives, none of which waits for the other.
TEST(FlightRecorderTest, TellsGroupsOfOneNameApartByTheirMembers) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 4; ++rank) {
    std::string text =
        dump(entry(1, "nccl:all_reduce", "[[262144]]", "[[262144]]", rank < 2 ? "0.1" : "0.5"));
    text.replace(text.find("[0, 1]"), 6, rank < 2 ? "[0, 1]" : "[2, 3]");
    texts.push_back(text);
  }
  for (const char* members : {"\"[0, 1]\"", "[0, 1]"}) {  // as text and as a list
    texts[0].replace(texts[0].find("\"ranks\":") + 8,
                     texts[0].find("}},\"entries\"") - texts[0].find("\"ranks\":") - 8, members);
    const std::array<Source, 4> files = {Source{"0", texts[0]}, Source{"1", texts[1]},
                                         Source{"2", texts[2]}, Source{"3", texts[3]}};
    const CollectiveLog log = read_flight_recorder(files);
    EXPECT_THAT(log.samples, IsEmpty());
    EXPECT_THAT(
        log.left_out,
        Contains(HasSubstr("ranks 0,1 (\"0\") and ranks 2,3 (\"0\"): both are all-reduce over 2 "
                           "ranks and contradict each other: 1 MiB takes 100 us and 500 us")));
    EXPECT_THAT(log.read, Contains(HasSubstr("2 collectives, 2 of them seen on all their ranks")));
    EXPECT_THAT(log.read, Contains(HasSubstr("waits 0 % of its time")));
  }
}

// Pairs that are alike make one table.
TEST(FlightRecorderTest, TakesGroupsThatAgreeTogether) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 4; ++rank) {
    std::string text =
        dump(entry(1, "nccl:all_reduce", "[[262144]]", "[[262144]]", rank < 2 ? "0.1" : "0.14"));
    text.replace(text.find("[0, 1]"), 6, rank < 2 ? "[0, 1]" : "[2, 3]");
    texts.push_back(text);
  }
  const std::array<Source, 4> files = {Source{"0", texts[0]}, Source{"1", texts[1]},
                                       Source{"2", texts[2]}, Source{"3", texts[3]}};
  const CollectiveLog log = read_flight_recorder(files);
  ASSERT_EQ(log.samples.size(), 2u);
  EXPECT_EQ(log.samples[0].nodes, std::nullopt);
  EXPECT_EQ(std::get<0>(tables_of(log.samples).at(0).times).at(0).isolated, from_us(120));
}

// Two ranks of one H100, PyTorch 2.11 with NCCL 2.28.9 (h100/README.md): DDP's four buckets again and again, none timed.
TEST(FlightRecorderTest, ReadsADumpOfNccl) {
  const std::string folder = DOVETAIL_SOURCE_DIR "/tests/calibrate/logs/h100/flight-rank";
  const CollectiveLog log = read_dumps(read_file(folder + "0.json"), read_file(folder + "1.json"));
  EXPECT_EQ(log.nccl, "2.28.9");
  EXPECT_THAT(log.read,
              Contains("the job repeats 4 collectives: all-reduce 16 MiB, all-reduce 28.1 "
                       "MiB, all-reduce 28.1 MiB, all-reduce 32 MiB"));
  EXPECT_THAT(log.samples, IsEmpty());
  EXPECT_THAT(log.left_out, Contains(HasSubstr("52 entries without duration_ms")));
}

TEST(FlightRecorderTest, ReadsNumbersInQuotesAndWhatIsNone) {
  const CollectiveLog log =
      read_dumps("\xef\xbb\xbf" +
                 dump(entry(1, "nccl:all_reduce", "[[262144]]", "[[262144]]", "\"0.1\"") + "," +
                      entry(2, "nccl:all_reduce", "[[\"262144\"]]", "[[1.0]]", "NaN") + ","));
  ASSERT_EQ(log.samples.size(), 1u);
  EXPECT_EQ(log.samples[0].time, from_us(100));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("1 entry without duration_ms")));
}

TEST(FlightRecorderTest, RefusesAPickleWithTheLineThatMakesJsonOfIt) {
  EXPECT_THAT(
      error_of([] { read_dumps("\x80\x02}q"); }),
      HasSubstr("fr0.json: a Python pickle; make JSON of it, if you trust its origin: python3 "
                "-c"));
}

TEST(FlightRecorderTest, RefusesWhatIsNoDumpAndNamesMistakes) {
  EXPECT_THAT(error_of([] { read_dumps("{}"); }), HasSubstr("no \"entries\""));
  EXPECT_THAT(error_of([] { read_dumps("[1]"); }), HasSubstr("expected an object"));
  EXPECT_THAT(error_of([] { read_dumps(dump("")); }),
              HasSubstr("no collective in it that plans use"));
  const std::string far = "[[1125899906842624,1125899906842624]]";
  EXPECT_THAT(error_of([&] { read_dumps(dump(entry(1, "nccl:all_reduce", far, far, "1"))); }),
              HasSubstr("/entries/0/input_sizes/0/0: expected at most 2^50 bytes in all"));
  EXPECT_THAT(error_of([&] { read_dumps(dump(entry(1, "nccl:all_reduce", "[[-1]]", "[]", "1"))); }),
              HasSubstr("expected an integer from 0"));
}

}  // namespace
}  // namespace dovetail::imports
