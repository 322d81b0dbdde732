// Estimates how long a run will take, shows how far it is, and lets Ctrl-C end it after the round
// under way.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_watch.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <variant>

#include "cli/progress.h"
#include "cli/signals.h"

namespace dovetail::cli {
namespace {

constexpr double kFlopPerSecond = 20e9;  // of a core, products of single precision

// Of all ranks together, in seconds of one core.
double core_seconds(const schedule::Program& program) {
  double seconds = 0;
  for (const schedule::Op& op : program.ops) {
    seconds += op.flop().count() / kFlopPerSecond * static_cast<double>(program.world_size);
    const auto* timed = std::get_if<schedule::TimedWork>(&op.work);
    if (timed == nullptr) continue;
    const double ranks = timed->by_rank.size() == 1 ? static_cast<double>(program.world_size) : 1.0;
    for (const Duration time : timed->by_rank) seconds += to_us(time) / 1e6 * ranks;
  }
  return seconds;
}

}  // namespace

Duration expected_time(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                       std::int64_t cores) {
  if (!options.job.ranks || options.backend.backend != "cpu") return {};
  double seconds = 0;
  for (const Loaded& one : loaded) seconds += core_seconds(one.program.program);
  const bool is_timed = !options.time.empty();  // how often is not known: one round
  const double steps = (options.warmup + options.steps) * (is_timed ? 1.0 : options.rounds);
  const auto busy = static_cast<double>(std::clamp<std::int64_t>(*options.job.ranks, 1, cores));
  return from_ns(seconds * steps / busy * 1e9);
}

void announce(const RunCommandOptions& options, Duration expected, Bytes held) {
  require_patience("run", expected, options.yes);
  if (expected < std::chrono::minutes(1) || !shows_progress()) return;
  std::fprintf(stderr,
               "run: about %s of compute (roughly: 20 GFLOP/s a core), %s of memory at least\n",
               about(expected).c_str(), to_string(held).c_str());
}

exec::GoOn watched(exec::GoOn decide, const RunCommandOptions& options, Rank rank) {
  if (rank != Rank{0}) {  // its answer is the one that counts
    return [](const std::vector<std::vector<Duration>>&) { return true; };
  }
  const auto progress =
      std::make_shared<Progress>("run", "round", std::int64_t{options.rounds}, options.yes);
  const bool counts = decide == nullptr;
  const std::int64_t rounds = options.rounds;
  return [=, decide = std::move(decide)](const std::vector<std::vector<Duration>>& steps) {
    if (!counts) return decide(steps) && !AsksBeforeEnding::is_asked();
    const bool more = progress->done() && progress->items() < rounds;
    if (more) progress->begin("round " + std::to_string(progress->items() + 1));
    return more;
  };
}

}  // namespace dovetail::cli
