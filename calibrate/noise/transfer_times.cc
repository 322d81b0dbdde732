// Joins what all ranks measured of each collective, sample by sample, and sorts out the samples
// that a preemption of some rank disturbed.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/transfer_times.h"

#include "base/error.h"
#include "exec/run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <variant>

namespace dovetail::testbed {
namespace {

// Where a preemption begins and ends is not known better than this.
constexpr Duration kMargin = std::chrono::microseconds(500);

// Command, start, end and whether a preemption touched it, in turn.
constexpr std::size_t kNumbers = 4;

// With the streams on which they run: a backend also notes when they were issued, on another one.
using Commands = std::map<CommandId, StreamId>;

template <class Which>
Commands commands_that(const schedule::ScheduledProgram& plan, Rank rank, Which which) {
  Commands commands;
  for (const schedule::Command& command : exec::role_of(plan, rank).commands) {
    if (which(command)) commands[command.id] = command.stream;
  }
  return commands;
}

bool touches_collective(const Watched& mine, const traces::CoreRecord& silences, Duration start,
                        Duration end) {
  return traces::taken_within(mine.record, start, std::min(end, start + kMargin)) > Duration{} ||
         traces::taken_within(mine.record, std::max(start, end - kMargin), end) > Duration{} ||
         traces::taken_within(silences, start, end) > Duration{};
}

// The timings of these commands as numbers for the other ranks.
template <class Touches>
std::vector<std::int64_t> numbers_of(const Watched& mine, const Commands& commands,
                                     const Touches& touches) {
  std::vector<std::int64_t> numbers;
  for (const exec::Timing& timing : mine.timings) {
    const auto command = commands.find(timing.command);
    if (command == commands.end() || command->second != timing.stream) continue;
    const Duration start(timing.start_ns - mine.begin_ns);
    const Duration end(timing.end_ns - mine.begin_ns);
    numbers.insert(numbers.end(), {timing.command.value, timing.start_ns, timing.end_ns,
                                   touches(start, end) ? 1 : 0});
  }
  return numbers;
}

}  // namespace

TransferTimes collective_times(const exec::Exchange& exchange,
                               const schedule::ScheduledProgram& plan, const Watched& mine) {
  const auto commands = commands_that(plan, exchange.rank, [](const schedule::Command& command) {
    return schedule::bucket_collective(command) != nullptr;
  });
  const traces::CoreRecord silences = traces::silences(mine.record, mine.shield);
  const auto touches = [&](Duration start, Duration end) {
    return touches_collective(mine, silences, start, end);
  };
  const std::vector<std::vector<std::int64_t>> all =
      share(exchange, numbers_of(mine, commands, touches));
  TransferTimes times;
  for (std::size_t i = 0; i + kNumbers <= all.front().size(); i += kNumbers) {
    std::int64_t arrived = std::numeric_limits<std::int64_t>::min();
    std::int64_t done = arrived;
    bool touched = false;
    for (const std::vector<std::int64_t>& of_rank : all) {
      DOVETAIL_CHECK(of_rank.at(i) == all.front()[i]) << "ranks in different orders";
      arrived = std::max(arrived, of_rank.at(i + 1));
      done = std::max(done, of_rank.at(i + 2));
      touched = touched || of_rank.at(i + 3) == 1;
    }
    if (touched || done <= arrived) continue;
    times[CommandId{static_cast<std::int32_t>(all.front()[i])}].emplace_back(done - arrived);
  }
  return times;
}

TransferTimes copy_times(const exec::Exchange& exchange, const schedule::ScheduledProgram& plan,
                         const Watched& mine) {
  const auto commands = commands_that(plan, exchange.rank, [](const schedule::Command& command) {
    return std::holds_alternative<schedule::Copy>(command.action);
  });
  const auto touches = [&](Duration start, Duration end) {
    return traces::taken_within(mine.record, start, end) > Duration{};
  };
  TransferTimes times;
  for (const std::vector<std::int64_t>& of_rank :
       share(exchange, numbers_of(mine, commands, touches))) {
    for (std::size_t i = 0; i + kNumbers <= of_rank.size(); i += kNumbers) {
      if (of_rank[i + 3] == 1) continue;
      times[CommandId{static_cast<std::int32_t>(of_rank[i])}].emplace_back(of_rank[i + 2] -
                                                                           of_rank[i + 1]);
    }
  }
  return times;
}

}  // namespace dovetail::testbed
