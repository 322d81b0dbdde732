// How ranks find out who they are, where they run, meet, and talk: launchers' variables, cores,
// rank 0's store, sessions.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/store.h"

#include "base/error.h"
#include "exec/launch/affinity.h"
#include "exec/launch/local_ranks.h"
#include "exec/launch/session.h"
#include "exec/launch/world.h"
#include "tests/exec/own_address.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::launch {
namespace {

using namespace std::chrono_literals;
using dovetail::testing::error_of;
using ::testing::ElementsAre;
using testing::free_port;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPatience;
using testing::own_address;

Environment environment_of(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(WorldTest, ReadsTheVariablesOfEachLauncher) {
  const World mpirun = world_from(environment_of({{"OMPI_COMM_WORLD_RANK", "5"},
                                                  {"OMPI_COMM_WORLD_SIZE", "8"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                  {"PMIX_NAMESPACE", "1475805185"}}));
  EXPECT_EQ(mpirun, (World{.rank = Rank{5},
                           .size = 8,
                           .local_rank = 1,
                           .launcher = "mpirun",
                           .job = "mpirun:1475805185:"}));
  const World srun = world_from(environment_of({{"SLURM_PROCID", "2"},
                                                {"SLURM_NTASKS", "3"},
                                                {"SLURM_LOCALID", "0"},
                                                {"SLURM_JOB_ID", "77"},
                                                {"SLURM_STEP_ID", "4"}}));
  EXPECT_EQ(
      srun,
      (World{.rank = Rank{2}, .size = 3, .local_rank = 0, .launcher = "srun", .job = "srun:77:4"}));
  const World mpich = world_from(environment_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
  EXPECT_EQ(mpich.rank, Rank{1});
  EXPECT_EQ(mpich.launcher, "mpiexec");
}

// MPICH names no job; its ranks hold sockets of the proxy that made them, here this process.
TEST(WorldTest, MpichJobsOfOneHostAreToldApartByTheirProxy) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const World world = world_from(
      environment_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", std::to_string(ends[0])}}));
  const World nameless = world_from(environment_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
  EXPECT_EQ(world.job, nameless.job + std::to_string(::getpid()));
  // Ranks of other hosts have other proxies.
  const World spread = world_from(environment_of({{"PMI_RANK", "1"},
                                                  {"PMI_SIZE", "2"},
                                                  {"PMI_FD", std::to_string(ends[0])},
                                                  {"MPI_LOCALRANKID", "0"},
                                                  {"MPI_LOCALNRANKS", "1"}}));
  EXPECT_EQ(spread.job + ":", nameless.job);
  for (const int end : ends) ::close(end);
}

// `srun torchrun` sets both; only torchrun's variables count processes.
TEST(WorldTest, TorchrunInsideSrunWins) {
  const World world = world_from(environment_of({{"SLURM_PROCID", "1"},
                                                 {"SLURM_NTASKS", "2"},
                                                 {"RANK", "9"},
                                                 {"WORLD_SIZE", "16"},
                                                 {"LOCAL_RANK", "1"}}));
  EXPECT_EQ(world.rank, Rank{9});
  EXPECT_EQ(world.size, 16);
  EXPECT_EQ(world.launcher, "torchrun");
}

// srun --mpi=pmi2 sets PMI's variables as well, but none for the rank on the host.
TEST(WorldTest, SrunWithPmi2IsSrun) {
  const World world = world_from(environment_of({{"SLURM_PROCID", "5"},
                                                 {"SLURM_NTASKS", "8"},
                                                 {"SLURM_LOCALID", "1"},
                                                 {"SLURM_JOB_ID", "77"},
                                                 {"PMI_RANK", "5"},
                                                 {"PMI_SIZE", "8"}}));
  EXPECT_EQ(world.launcher, "srun");
  EXPECT_EQ(world.local_rank, 1);
}

// Within an allocation mpiexec starts a helper per host with srun, and SLURM_PROCID counts those.
TEST(WorldTest, MpiexecInsideAnAllocationIsMpiexec) {
  const World world = world_from(environment_of({{"SLURM_PROCID", "1"},
                                                 {"SLURM_NTASKS", "2"},
                                                 {"SLURM_LOCALID", "0"},
                                                 {"PMI_RANK", "5"},
                                                 {"PMI_SIZE", "8"},
                                                 {"MPI_LOCALRANKID", "1"},
                                                 {"MPI_LOCALNRANKS", "4"}}));
  EXPECT_EQ(world.launcher, "mpiexec");
  EXPECT_EQ(world.local_rank, 1);
}

TEST(WorldTest, FluxIsKnown) {
  const World world = world_from(environment_of({{"FLUX_TASK_RANK", "3"},
                                                 {"FLUX_JOB_SIZE", "4"},
                                                 {"FLUX_TASK_LOCAL_ID", "1"},
                                                 {"FLUX_JOB_ID", "f2"}}));
  EXPECT_EQ(
      world,
      (World{.rank = Rank{3}, .size = 4, .local_rank = 1, .launcher = "flux", .job = "flux:f2:"}));
}

// The number of a rank in the job is never taken for its number on the host.
TEST(WorldTest, SeveralHostsMustSayWhichRankOfTheHostThisIs) {
  EXPECT_EQ(error_of<InputError>([] {
              world_from(
                  environment_of({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}}));
            }),
            "this job spans several hosts, and MPI_LOCALRANKID does not say which of its host's "
            "ranks this is");
}

TEST(WorldTest, WithoutALauncherThereIsOneRank) {
  EXPECT_EQ(world_from(environment_of({})), World{});
  EXPECT_EQ(world_from(environment_of({{"RANK", "3"}})), World{});  // not enough to be a job
}

TEST(WorldTest, VariablesThatCannotBeTrueAreRefused) {
  EXPECT_EQ(error_of<InputError>([] {
              world_from(environment_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}));
            }),
            "PMI_RANK=2: expected less than PMI_SIZE=2");
  EXPECT_EQ(error_of<InputError>([] {
              world_from(environment_of({{"PMI_RANK", "one"}, {"PMI_SIZE", "2"}}));
            }),
            "PMI_RANK=one: expected an integer >= 0");
}

TEST(StoreAddressTest, OptionThenVariablesThenTheJobDecide) {
  const World world{
      .rank = Rank{0}, .size = 2, .local_rank = 0, .launcher = "mpirun", .job = "mpirun:7:"};
  const Environment all = environment_of(
      {{"DOVETAIL_STORE", "[fd00::2]:1234"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(store_address(world, all, "host:80"), (StoreAddress{.host = "host", .port = 80}));
  EXPECT_EQ(store_address(world, all), (StoreAddress{.host = "fd00::2", .port = 1234}));
  const Environment master = environment_of({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(store_address(world, master), (StoreAddress{.host = "node1", .port = 29500}));

  const StoreAddress derived = store_address(world, environment_of({}));
  EXPECT_EQ(derived.host, "127.0.0.1");
  EXPECT_EQ(store_address(world, environment_of({})), derived);  // all ranks derive the same
  World other = world;
  other.job = "mpirun:8:";
  EXPECT_NE(store_address(other, environment_of({})), derived);
}

TEST(StoreAddressTest, JobOverSeveralHostsMustSayWhereRank0Is) {
  const World world{
      .rank = Rank{0}, .size = 2, .local_rank = 0, .launcher = "mpirun", .job = "mpirun:7:"};
  EXPECT_EQ(error_of<InputError>([&] {
              store_address(world, environment_of({{"OMPI_MCA_orte_num_nodes", "2"}}));
            }),
            "this job spans 2 hosts: set DOVETAIL_STORE=HOST:PORT to the host of rank 0 and a free "
            "port");
}

// Open MPI 5, MPICH, Intel MPI and torchrun tell how many ranks this host has, not how many hosts.
TEST(StoreAddressTest, FewerRanksOnThisHostThanInTheJobAreSeveralHosts) {
  const std::map<std::string, const char*> local_sizes = {{"mpirun", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                                          {"mpiexec", "MPI_LOCALNRANKS"},
                                                          {"torchrun", "LOCAL_WORLD_SIZE"}};
  for (const auto& [launcher, name] : local_sizes) {
    const std::string variable = name;
    const World world{
        .rank = Rank{0}, .size = 8, .local_rank = 0, .launcher = launcher, .job = "7"};
    EXPECT_EQ(error_of<InputError>([&] {
                store_address(world, environment_of({{variable, "4"}}));
              }),
              "this job spans several hosts: set DOVETAIL_STORE=HOST:PORT to the host of rank 0 "
              "and a free port");
    EXPECT_EQ(store_address(world, environment_of({{variable, "8"}})).host, "127.0.0.1");
  }
}

TEST(HeartbeatTimeoutTest, IsTheVariableOrFiveSeconds) {
  const auto timeout = [](const char* text) {
    return heartbeat_timeout(environment_of({{"DOVETAIL_HEARTBEAT_TIMEOUT", text}}));
  };
  EXPECT_EQ(heartbeat_timeout(environment_of({})), std::chrono::seconds(5));
  EXPECT_EQ(timeout("90s"), std::chrono::seconds(90));
  EXPECT_EQ(timeout("1500ms"), std::chrono::milliseconds(1500));
  EXPECT_EQ(error_of<InputError>([&] { timeout("10ms"); }),
            "DOVETAIL_HEARTBEAT_TIMEOUT: expected at least 1s, found \"10ms\"");
  EXPECT_THAT(error_of<InputError>([&] { timeout("5"); }),
              ::testing::StartsWith("DOVETAIL_HEARTBEAT_TIMEOUT: "));
}

TEST(StoreAddressTest, MalformedAddressesAreRefused) {
  for (const char* text : {"", "host", ":80", "host:", "host:0", "host:65530", "host:8o"}) {
    EXPECT_THROW(parse_store_address(text), InputError) << text;
  }
}

// Ranks 0, 1, 2, ... take the allowed cores in turn and begin again; so rank n is where rank 0 is.
TEST(AffinityTest, RanksShareTheCoresInTurn) {
  const std::vector<std::int32_t> cores = allowed_cores();
  const auto count = static_cast<std::int32_t>(cores.size());
  for (const std::int32_t rank : {0, count - 1, count}) {
    std::jthread([&] {
      EXPECT_EQ(pin_to_core_of(rank), cores[static_cast<std::size_t>(rank % count)]);
      EXPECT_THAT(allowed_cores(), ElementsAre(cores[static_cast<std::size_t>(rank % count)]));
    }).join();
  }
  EXPECT_EQ(allowed_cores(), cores);  // only those threads were pinned
}

// Meeting -----------------------------------------------------------------------------------------

World member(std::int32_t rank, std::int32_t size, std::string job) {
  return {
      .rank = Rank{rank}, .size = size, .local_rank = rank, .launcher = "", .job = std::move(job)};
}

// Meets, and returns what went wrong.
std::string error_of_meeting(const World& world, std::uint16_t port,
                             Duration patience = kPatience) {
  return error_of<DeviceError>(
      [&] { meet(world, {.host = own_address(), .port = port}, patience); });
}

// Says hello over one link of a pair.
bool are_connected(const Descriptor& a, const Descriptor& b) {
  const Wait wait{.deadline = Clock::now() + kPatience};
  const std::byte sent{42};
  std::byte received{};
  return send_all(a, std::span(&sent, 1), wait) == IoStatus::Done &&
         receive_all(b, std::span(&received, 1), wait) == IoStatus::Done && received == sent;
}

TEST(MeetTest, EveryRankIsConnectedWithRank0) {
  const std::uint16_t port = free_port();
  std::vector<Links> links(3);
  {
    std::vector<std::jthread> ranks;
    for (std::int32_t rank = 2; rank >= 0; --rank) {  // rank 0 comes last: the others wait for it
      ranks.emplace_back([&links, port, rank] {
        links[static_cast<std::size_t>(rank)] =
            meet(member(rank, 3, "meet"), {.host = own_address(), .port = port}, kPatience);
      });
      std::this_thread::sleep_for(20ms);
    }
  }
  ASSERT_EQ(links[0].by_rank.size(), 3U);
  for (const std::size_t rank : {1, 2}) {
    ASSERT_EQ(links[rank].by_rank.size(), 1U);
    EXPECT_TRUE(are_connected(links[rank].by_rank[0].calls, links[0].by_rank[rank].calls));
    EXPECT_TRUE(are_connected(links[0].by_rank[rank].control, links[rank].by_rank[0].control));
    EXPECT_EQ(links[rank].local_address, "127.0.0.1");
  }
}

// Somebody else sits on the first port and answers every connection with his own words.
TEST(MeetTest, StrangerOnThePortIsPassedOver) {
  const std::uint16_t port = free_port();
  const std::optional<Descriptor> stranger = listen_on(own_address(), port);
  ASSERT_TRUE(stranger.has_value());
  const std::jthread answering([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Wait wait{.deadline = Clock::now() + 50ms};
      const std::optional<Descriptor> socket = accept_from(*stranger, wait);
      const std::string words(300, 'x');
      if (socket) send_all(*socket, std::as_bytes(std::span(words)), wait);
    }
  });
  std::string error_1;
  std::string error_0;
  {
    const std::jthread rank_1([&] { error_1 = error_of_meeting(member(1, 2, "a"), port); });
    error_0 = error_of_meeting(member(0, 2, "a"), port);
  }
  EXPECT_EQ(error_0, "");
  EXPECT_EQ(error_1, "");
}

// Both jobs derive the same port; each rank must end up in its own.
TEST(MeetTest, TwoJobsOnOnePortDoNotMix) {
  const std::uint16_t port = free_port();
  std::vector<std::string> errors(4, "not run");
  std::vector<Links> links(4);
  {
    std::vector<std::jthread> ranks;
    for (const std::size_t i : {0, 1, 2, 3}) {
      ranks.emplace_back([&, i] {
        const World world = member(static_cast<std::int32_t>(i % 2), 2, i < 2 ? "first" : "second");
        errors[i] = error_of<DeviceError>(
            [&] { links[i] = meet(world, {.host = own_address(), .port = port}, kPatience); });
      });
    }
  }
  EXPECT_THAT(errors, ElementsAre("", "", "", ""));
  EXPECT_TRUE(are_connected(links[0].by_rank[1].calls, links[1].by_rank[0].calls));
  EXPECT_TRUE(are_connected(links[2].by_rank[1].calls, links[3].by_rank[0].calls));
}

// Rank 0 waits until its patience is over. On a machine on which rank 1 does not come in that time
// either, both are given twice as long.
TEST(MeetTest, MissingRanksAreNamed) {
  std::string error_0;
  std::string error_1;
  for (Duration patience = 250ms; patience < kPatience / 2; patience *= 2) {
    const std::uint16_t port = free_port();
    {
      const std::jthread rank_1(
          [&] { error_1 = error_of_meeting(member(1, 4, "a"), port, 2 * patience); });
      error_0 = error_of_meeting(member(0, 4, "a"), port, patience);
    }
    if (error_0 == "rank 0: ranks 2, 3 did not come to " + own_address() + ":" +
                       std::to_string(port) + " within " + to_string(patience) &&
        error_1 == "rank 1: rank 0 ended before all ranks had come") {
      return;
    }
  }
  FAIL() << error_0 << "; " << error_1;
}

// A rank that was not answered in time closes its connections and tries again: it is no second rank
// of that number.
TEST(MeetTest, ARankThatGaveUpMayComeAgain) {
  const std::uint16_t port = free_port();
  std::vector<std::string> errors(3, "not run");
  {
    const auto come = [&](std::int32_t rank) {
      errors[static_cast<std::size_t>(rank)] = error_of_meeting(member(rank, 3, "again"), port);
    };
    const std::jthread rank_0(come, 0);
    const std::string not_waited = "rank 1: rank 0 ended before all ranks had come";
    while (error_of_meeting(member(1, 3, "again"), port, 1ms) != not_waited) {
    }
    const std::jthread rank_1(come, 1);
    const std::jthread rank_2(come, 2);
  }
  EXPECT_THAT(errors, ElementsAre("", "", ""));
}

// A name can mean a loopback address to its own host; other hosts would never get in.
TEST(MeetTest, Rank0OfANameIsReachedAtEveryAddress) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  std::string error_0 = "not run";
  std::string error_1 = "not run";
  const std::uint16_t port = free_port();
  {
    const std::jthread rank_0([&] {
      error_0 = error_of<DeviceError>(
          [&] { meet(member(0, 2, "named"), {.host = name.data(), .port = port}, kPatience); });
    });
    error_1 = error_of<DeviceError>(
        [&] { meet(member(1, 2, "named"), {.host = own_address(), .port = port}, kPatience); });
  }
  EXPECT_THAT((std::vector{error_0, error_1}), ElementsAre("", ""));
}

TEST(MeetTest, MissingRank0IsNamed) {
  const std::uint16_t port = free_port();
  EXPECT_EQ(error_of_meeting(member(1, 2, "a"), port, 200ms),
            "rank 1: rank 0 was not found at " + own_address() + ":" + std::to_string(port) +
                " and the 7 ports after it within 200 ms");
}

// Each rank took its own host for that of rank 0, since nobody named another.
TEST(MeetTest, RanksThatWereNotToldWhereRank0IsHearHowToSayIt) {
  const std::string error = error_of<DeviceError>(
      [] { meet(member(1, 2, "a"), {.host = kOwnHost, .port = free_port()}, 200ms); });
  EXPECT_THAT(error, HasSubstr("set DOVETAIL_STORE=HOST:PORT to the host of rank 0"));
}

TEST(MeetTest, RanksThatBelieveInOtherSizesAreTold) {
  const std::uint16_t port = free_port();
  std::string error_1;
  std::string error_0;
  {
    const std::jthread rank_1([&] { error_1 = error_of_meeting(member(1, 3, "a"), port); });
    error_0 = error_of_meeting(member(0, 2, "a"), port);
  }
  EXPECT_EQ(error_0, "rank 0: rank 1 believes in 3 ranks, rank 0 in 2");
  EXPECT_EQ(error_1, "rank 1: refused by rank 0: rank 1 believes in 3 ranks, rank 0 in 2");
}

// Sessions ----------------------------------------------------------------------------------------

class SessionOnRanks : public ::testing::TestWithParam<std::int32_t> {};
INSTANTIATE_TEST_SUITE_P(Session, SessionOnRanks, ::testing::Values(1, 2, 3, 4));

// Rank r says r + 1 times its letter: "a", "bb", "ccc", "dddd".
std::string words_of(std::int32_t rank) {
  return std::string(static_cast<std::size_t>(rank) + 1, static_cast<char>('a' + rank));
}

TEST_P(SessionOnRanks, GatherBringsTheBytesOfAllRanksToRank0) {
  run_local_ranks({.ranks = GetParam()}, [](Session& session) {
    const std::vector<std::string> all = session.gather(words_of(session.rank().value));
    if (session.rank() != Rank{0}) {
      EXPECT_THAT(all, IsEmpty());
      return;
    }
    ASSERT_EQ(all.size(), static_cast<std::size_t>(session.size()));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(all[rank], words_of(static_cast<std::int32_t>(rank)));
    }
  });
}

TEST_P(SessionOnRanks, AllGatherBringsThemToAll) {
  run_local_ranks({.ranks = GetParam()}, [](Session& session) {
    // An empty text and a large one: 1 MB does not fit into one packet or socket buffer.
    for (const std::size_t repeat : {0, 1, 1'000'000}) {
      const std::string mine(repeat, static_cast<char>('a' + session.rank().value));
      const std::vector<std::string> all = session.all_gather(mine);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(session.size()));
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        EXPECT_TRUE(all[rank] == std::string(repeat, static_cast<char>('a' + rank))) << rank;
      }
    }
  });
}

TEST_P(SessionOnRanks, BroadcastGivesAllTheBytesOfRank0) {
  run_local_ranks({.ranks = GetParam()}, [](Session& session) {
    EXPECT_EQ(session.broadcast(words_of(session.rank().value)), "a");
  });
}

// Every rank counts before the barrier, so after it all have counted.
TEST_P(SessionOnRanks, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<std::int32_t> arrived = 0;
  run_local_ranks({.ranks = GetParam()}, [&](Session& session) {
    for (std::int32_t round = 1; round <= 20; ++round) {
      ++arrived;
      session.barrier();
      EXPECT_GE(arrived, round * session.size());
    }
  });
}

TEST(SessionTest, RanksAtDifferentCallsAreTold) {
  const std::string error = error_of<DeviceError>([] {
    run_local_ranks({.ranks = 2}, [](Session& session) {
      if (session.rank() == Rank{0}) {
        session.barrier("the start of a step");
      } else {
        session.gather("");
      }
      session.barrier("the end");
    });
  });
  EXPECT_EQ(error, "rank 0: rank 1 is at a gather, this rank at the start of a step (a barrier)");
}

}  // namespace
}  // namespace dovetail::exec::launch
