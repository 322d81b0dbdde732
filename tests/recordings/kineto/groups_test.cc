// Groups are their members: who meets whom, who waits for whom. The traces: made_trace.h.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "recordings/timeline/rank_set.h"
#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/made_trace.h"
#include "tests/recordings/kineto/traces.h"
#include "tests/support/errors.h"

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeTrace;

// Four ranks in two pairs, whose group is called "1" on all: ranks 0 and 1 share a host, ranks 2 and 3 do not. All-reduces of
// the first pair take 300 us, rank 1 comes 40 us later; those of the second take 2500.
MadeTrace of_pair(int rank) {
  MadeTrace made;
  made.rank = rank;
  made.world = 4;
  made.group_name = "1";
  made.group = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  const double own = rank < 2 ? 300 : 2500;
  const double late = rank == 1 ? 40 : 0;
  made.start_us = 1000 + late;
  made.all_reduce_us.assign(3, own + (rank == 0 ? 40 : 0));
  return made;
}

JobTrace job_of_ranks(const std::vector<MadeTrace>& ranks, const std::string& config = "") {
  std::vector<Recording> traces;
  for (const MadeTrace& made : ranks) {
    std::string text = testing::text(made);
    const std::string place = R"("backend":"nccl",)";
    if (!config.empty()) text.insert(text.find(place) + place.size(), config);
    traces.push_back(testing::read_text(text));
  }
  return make_job(std::move(traces), {});
}

using std::chrono::microseconds;

void expect_two_pairs(const JobTrace& job) {
  ASSERT_EQ(job.matched.size(), 2U * 9U);
  for (const MatchedCollective& matched : job.matched) {
    const bool first = matched.ranks.front() == 0;
    EXPECT_THAT(matched.ranks, first ? ElementsAre(0U, 1U) : ElementsAre(2U, 3U));
    EXPECT_EQ(matched.transfer, first ? microseconds(300) : microseconds(2500));
    EXPECT_EQ(matched.waiting, first ? microseconds(40) : microseconds(0));
  }
  EXPECT_EQ(job.waiting_time, microseconds(9 * 40));
}

TEST(GroupsTest, RanksThatNeverMeetAreNotCompared) {
  const JobTrace job = job_of_ranks({of_pair(0), of_pair(1), of_pair(2), of_pair(3)});
  expect_two_pairs(job);
  EXPECT_THAT(job.unknowns, IsEmpty());
}

// Steps of different jobs have no mean: what contradicts itself is named, and so is what nothing joins.
TEST(GroupsTest, FilesOfDifferentJobsAreRefused) {
  MadeTrace lone = of_pair(0);
  lone.world = 1;
  EXPECT_THAT(error_of([&] {
                job_of_ranks({of_pair(1), lone});
              }),
              HasSubstr("a job of 4 ranks, but trace.json is of 1"));
  MadeTrace beyond = of_pair(2);
  beyond.rank = 4;
  const auto without = [](MadeTrace made, const std::string& key, int value) {
    std::string text = testing::text(made);
    const std::string place = ",\"" + key + "\":" + std::to_string(value);
    text.erase(text.find(place), place.size());
    return text;
  };
  const auto job = [](const std::vector<std::string>& texts) {
    std::vector<Recording> traces;
    for (const std::string& text : texts) traces.push_back(testing::read_text(text));
    return make_job(std::move(traces), {});
  };
  EXPECT_THAT(error_of([&] {
                job({testing::text(of_pair(1)), without(beyond, "world_size", 4)});
              }),
              HasSubstr("a job of 4 ranks, but trace.json is rank 4"));
  // No world size, and no collective in common: ranks 1 and 2 are of different pairs.
  EXPECT_THAT(error_of([&] {
                job({without(of_pair(1), "world_size", 4), without(of_pair(2), "world_size", 4)});
              }),
              HasSubstr("nothing says that it is of the same job as trace.json"));
  const JobTrace pair =
      job({without(of_pair(0), "world_size", 4), without(of_pair(1), "world_size", 4)});
  EXPECT_EQ(pair.world_size(), 2);  // as their group says
}

TEST(GroupsTest, AWorldSizeThatNobodySaysIsUnknown) {
  const std::string kernel =
      R"([{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"pid":0,"tid":7}])";
  const JobTrace job = testing::job_of(kernel);
  EXPECT_EQ(job.world_size(), std::nullopt);
  EXPECT_THAT(job.unknowns, Contains(HasSubstr("no file says its world size")));
}

// A rank whose GPU work is not in its file is none of the others' mean.
TEST(GroupsTest, ARankWithoutReadableWorkIsLeftOut) {
  std::vector<Recording> traces;
  traces.push_back(testing::read_text(testing::text(of_pair(0))));
  traces.push_back(testing::read_text(
      R"({"distributedInfo":{"rank":1,"world_size":4},"traceEvents":[
          {"ph":"X","cat":"cpu_op","name":"aten::add","ts":1,"dur":1,"pid":0,"tid":7}]})"));
  const JobTrace job = make_job(std::move(traces), {});
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_THAT(job.unknowns, Contains(HasSubstr("what rank 1 did")));
}

// Without the ranks in each event: those of pg_config, by the group's name, in each rank's own file.
TEST(GroupsTest, MembersAreThoseOfTheConfigurationWhereEventsDoNotTellThem) {
  std::vector<Recording> traces;
  for (int rank = 0; rank < 4; ++rank) {
    MadeTrace made = of_pair(rank);
    made.tells_ranks = false;
    std::string text = testing::text(made);
    const std::string place = R"("backend":"nccl",)";
    text.insert(text.find(place) + place.size(),
                R"("pg_config":[{"pg_name":"0","ranks":"[0, 1, 2, 3]"},{"pg_name":"1","ranks":)" +
                    std::string(rank < 2 ? "[1, 0]" : "[2, 3]") + "}],");
    traces.push_back(testing::read_text(text));
  }
  expect_two_pairs(make_job(std::move(traces), {}));
}

// Neither is known: nobody can say who meets whom, and nobody is called late.
TEST(GroupsTest, GroupsOfOneNameWithoutMembersAreNotMatched) {
  std::vector<MadeTrace> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(of_pair(rank));
    ranks.back().tells_ranks = false;
  }
  const JobTrace job = job_of_ranks(ranks);
  EXPECT_THAT(job.matched, IsEmpty());
  EXPECT_THAT(job.unknowns, Contains(HasSubstr("who meets in groups called \"1\"")));
  EXPECT_EQ(job.waiting_time, Duration{});
}

// Rank 1's file is not given: ranks 2 and 3 still meet, and rank 0 stands alone.
TEST(GroupsTest, OfAGroupTheGivenRanksAreCompared) {
  const JobTrace job = job_of_ranks({of_pair(0), of_pair(2), of_pair(3)});
  ASSERT_EQ(job.matched.size(), 9U);
  EXPECT_THAT(job.matched.front().ranks, ElementsAre(1U, 2U));
  EXPECT_THAT(job.unknowns, IsEmpty());
}

// PyTorch cuts long lists: then the name is the group.
TEST(GroupsTest, AListThatIsCutIsNoList) {
  std::vector<Recording> traces;
  for (int rank = 0; rank < 2; ++rank) {
    std::string text = testing::text({.rank = rank, .world = 8});
    const std::string all = "[0, 1, 2, 3, 4, 5, 6, 7]";
    for (std::size_t at = text.find(all); at != std::string::npos; at = text.find(all)) {
      text.replace(at, all.size(), "[0, 1, ...]");
    }
    traces.push_back(testing::read_text(text));
  }
  const JobTrace job = make_job(std::move(traces), {});
  EXPECT_THAT(job.ranks[0].line.collectives[0].members, IsEmpty());
  EXPECT_EQ(job.matched.size(), 9U);
}

// The clock of rank 1 is two seconds ahead, that of rank 3 as much behind; each pair has its own time.
TEST(GroupsTest, ClocksAreAlignedAlongRanksThatMeet) {
  std::vector<MadeTrace> ranks = {of_pair(0), of_pair(1), of_pair(2), of_pair(3)};
  ranks[1].start_us += 2e6;
  ranks[3].start_us += 5e6;
  expect_two_pairs(job_of_ranks(ranks));
}

// A first step that one rank has to leave out is left out on both.
TEST(GroupsTest, StepsAreThoseThatAllRanksHave) {
  std::vector<MadeTrace> ranks = {of_pair(2), of_pair(3)};
  ranks[1].older_us = 30000;
  const JobTrace job = job_of_ranks(ranks);
  for (const RankTrace& rank : job.ranks) {
    ASSERT_EQ(rank.line.steps.size(), 2U);
    EXPECT_EQ(rank.line.steps[0].name, "ProfilerStep#4");
  }
  EXPECT_EQ(job.matched.size(), 6U);
}

// --- one run ---------------------------------------------------------------------------------------------------

// Steps of 10 ms with three all-reduces of the given elements, in the middle and at the end.
struct Run {
  std::string base_ns = "1790857026000000000";
  int first_step = 3;
  std::vector<int> elements = {1 << 20, 1 << 20, 1 << 18};
  std::vector<double> begins = {1000, 11'000, 21'000};  // of steps
};

Recording rank_of(const Run& run, int rank) {
  testing::MadeEvents events;
  events.rank = rank;
  events.world = 2;
  events.base_ns = run.base_ns;
  for (std::size_t n = 0; n < run.begins.size(); ++n) {
    double at = run.begins[n];
    events.step(run.first_step + static_cast<int>(n), at, 9900);
    for (const int elements : run.elements) {
      events.kernel("gemm", 7, at + 50, 1500, events.launch(1, at + 10));
      events.kernel("ncclDevKernel_AllReduce_Sum_f32", 20, at + 1551, 1000,
                    events.launch(1, at + 20),
                    R"("Collective name":"allreduce","dtype":"Float","Group size":2,)"
                    R"("Process Group Name":"0","Process Group Ranks":"[0, 1]","In msg nelems":)" +
                        std::to_string(elements));
      at += 2600;
    }
  }
  return testing::read_text(events.text());
}

std::string refusal_of(const Run& one, const Run& other) {
  std::vector<Recording> traces;
  traces.push_back(rank_of(one, 0));
  traces.push_back(rank_of(other, 1));
  return error_of([&] { make_job(std::move(traces), {}); });
}

TEST(OneRunTest, FilesOfOneRunAreTaken) {
  std::vector<Recording> traces;
  traces.push_back(rank_of({}, 0));
  traces.push_back(rank_of({.begins = {1200, 11'100, 21'050}}, 1));
  EXPECT_EQ(make_job(std::move(traces), {}).matched.size(), 9U);
}

TEST(OneRunTest, FilesOfDifferentRunsAreRefusedWithWhatDiffers) {
  // A day later; two numbered windows; another model or another bucket size; steps that drift apart.
  EXPECT_THAT(refusal_of({}, {.base_ns = "1790943426000000000"}),
              HasSubstr("begin 24 hours apart"));
  EXPECT_THAT(refusal_of({}, {.first_step = 13}),
              HasSubstr("rank 0 has steps 3 to 5, rank 1 has steps 13 to 15"));
  EXPECT_THAT(refusal_of({}, {.elements = {1 << 21, 1 << 21, 1 << 21}}),
              HasSubstr("all-reduces of one group differ in size (rank 0 has 3 a step, the largest "
                        "4 MiB; rank 1 has 3 a step, the largest 8 MiB)"));
  EXPECT_THAT(refusal_of({}, {.elements = {1 << 22}}), HasSubstr("differ in size"));
  EXPECT_THAT(refusal_of({}, {.begins = {1000, 21'000, 41'000}}),
              HasSubstr("apart with their clocks put together"));
}

// Clocks that count from when a machine started may differ by days; an all-reduce that one rank lost is no other run.
TEST(OneRunTest, WhatMayDifferWithinARunDoes) {
  EXPECT_EQ(refusal_of({.base_ns = "1000000000000"}, {.base_ns = "900000000000000"}), "");
  EXPECT_EQ(refusal_of({}, {.elements = {1 << 20, 1 << 20}}), "");
}

}  // namespace
}  // namespace dovetail::imports
