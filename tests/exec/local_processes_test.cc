// Ranks as processes: what they are told, what is collected, and how they end.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/local_processes.h"

#include "tests/exec/own_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace dovetail::exec::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kPatience;

ProcessesOptions shell(const std::string& script, std::int32_t ranks) {
  return {.command = {"/bin/sh", "-c", script},
          .ranks = ranks,
          .deadline = kPatience,
          .grace = kPatience};
}

TEST(LocalProcessesTest, EachRankLearnsWhoItIs) {
  ProcessesOptions options = shell("echo $RANK of $WORLD_SIZE, $SHARED, $OWN; echo r$RANK >&2", 3);
  options.environment = {{"SHARED", "all"}};
  options.of_rank = [](std::int32_t rank) -> Variables {
    return {{"OWN", "own" + std::to_string(rank)}};
  };
  const ProcessesResult result = run_local_processes(options);
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, "0 of 3, all, own0\n");
  for (const char* rank : {"r0", "r1", "r2"}) EXPECT_THAT(result.errors, HasSubstr(rank));
}

TEST(LocalProcessesTest, VariablesOfAnotherLauncherAreKeptFromThem) {
  setenv("OMPI_COMM_WORLD_RANK", "7", 1);
  setenv("DOVETAIL_TEST_NOTE", "kept", 1);
  const ProcessesResult result = run_local_processes(
      shell("echo [$OMPI_COMM_WORLD_RANK] [$DOVETAIL_TEST_NOTE] ${DOVETAIL_STORE%:*}", 1));
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("DOVETAIL_TEST_NOTE");
  EXPECT_EQ(result.output, "[] [kept] 127.0.0.1\n");
}

TEST(LocalProcessesTest, ExitCodesAndSignalsAreReportedByRank) {
  const ProcessesResult result =
      run_local_processes(shell("[ $RANK = 0 ] && exit 3; kill -TERM $$", 2));
  EXPECT_THAT(result.exit_codes, ElementsAre(3, 128 + 15));
  EXPECT_TRUE(result.in_time);
  EXPECT_FALSE(result.succeeded());
}

TEST(LocalProcessesTest, MuchOutputDoesNotBlockARank) {
  // 200'000 lines of two bytes are more than a pipe holds (64 KiB).
  const ProcessesResult result = run_local_processes(shell("yes x | head -n 200000; echo end", 2));
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output.size(), 400'004u);
}

TEST(LocalProcessesTest, TheDeadlineEndsThemAll) {
  ProcessesOptions options = shell("exec sleep 300", 2);
  options.deadline = std::chrono::milliseconds(200);
  const ProcessesResult result = run_local_processes(options);
  EXPECT_FALSE(result.in_time);
  EXPECT_THAT(result.exit_codes, ElementsAre(128 + 9, 128 + 9));
}

}  // namespace
}  // namespace dovetail::exec::launch
