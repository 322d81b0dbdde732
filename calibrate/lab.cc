// Executes a plan and pools the samples of all ranks, so that every rank computes every figure
// from the same numbers.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/lab.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace dovetail::calibrate {

Options on_processors() {
  Options options;
  options.backend = models::BackendKind::Cpu;
  options.warmup = 1;
  options.pause = std::chrono::milliseconds(5);
  options.smallest = Bytes(4);
  options.largest = mib(64);
  options.transfer_steps = 25;
  options.queue = mib(32);
  options.head_start = kib(4);
  options.copies_largest = mib(16);
  options.contention_bytes = mib(4);
  options.contention_time = std::chrono::milliseconds(1500);
  options.longest_queue = 2000;
  options.contention_memory = mib(128);
  return options;
}

traces::CoreRecord record_since(const Lab& lab, std::int64_t begin_ns) {
  return lab.load == nullptr ? traces::CoreRecord{} : lab.load->record(begin_ns, exec::now_ns());
}

Quantiles quantiles_of(std::vector<std::int64_t> samples_ns) {
  DOVETAIL_CHECK(!samples_ns.empty()) << "no samples";
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(samples_ns.size() - 1);
    return Duration(samples_ns[static_cast<std::size_t>(std::lround(position))]);
  };
  return {.p10 = at(0.1), .median = at(0.5), .p90 = at(0.9)};
}

Bench::Bench(const Lab& lab, const schedule::ScheduledProgram& plan)
    : lab_(lab),
      plan_(plan),
      backend_(lab.make_backend(plan)),
      timer_(*backend_, {.now = lab.options.now, .pause = lab.options.pause}) {}

exec::RankResult Bench::run(std::int32_t warmup, std::int32_t steps) {
  timer_.clear();
  return exec::run(plan_, lab_.exchange.rank, timer_, {.warmup = warmup, .steps = steps});
}

std::vector<exec::Timing> timings_of(const Lab& lab, const schedule::ScheduledProgram& plan,
                                     std::int32_t steps) {
  exec::RankResult result = Bench(lab, plan).run(lab.options.warmup, steps);
  if (result.check.wrong > 0) {
    throw DeviceError("while calibrating, " + std::to_string(result.check.wrong) + " of " +
                      std::to_string(result.check.checked) +
                      " elements were wrong: " + result.check.first_wrong);
  }
  return std::move(result.timings);
}

std::vector<std::int64_t> pooled(const Lab& lab, const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& of_rank : share(lab.exchange, mine)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

Duration median_of(const Lab& lab, const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> all = pooled(lab, mine);
  return all.empty() ? Duration{} : quantiles_of(std::move(all)).median;
}

double largest(const Lab& lab, double mine) {
  std::int64_t most = 0;
  for (const auto& of_rank : share(lab.exchange, std::array<std::int64_t, 1>{std::llround(mine)})) {
    most = std::max(most, of_rank.at(0));
  }
  return static_cast<double>(most);
}

}  // namespace dovetail::calibrate
