// Executes a plan and pools the samples of all ranks, so that every rank computes every figure
// from the same numbers.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/device/lab.h"

#include "base/error.h"

#include <memory>
#include <string>
#include <utility>

namespace dovetail::calibrate {

std::vector<exec::Timing> timings_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
  exec::RankResult result =
      run(plan, lab.exchange.rank, *backend, {.warmup = kWarmup, .steps = lab.options.steps});
  if (result.check.wrong > 0) {
    throw DeviceError("while calibrating, " + std::to_string(result.check.wrong) + " of " +
                      std::to_string(result.check.checked) +
                      " elements were wrong: " + result.check.first_wrong);
  }
  return std::move(result.timings);
}

std::vector<exec::Timing> run_timed(const Lab& lab, const schedule::ScheduledProgram& plan,
                                    HostTimer& timer, std::int32_t steps) {
  run(plan, lab.exchange.rank, timer, {.warmup = kWarmup, .steps = 1});
  timer.clear();
  return run(plan, lab.exchange.rank, timer, {.warmup = 0, .steps = steps}).timings;
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
  return all.empty() ? Duration{} : spread_of(std::move(all)).median;
}

Duration mean_of_calls(const Lab& lab, const std::vector<std::int64_t>& samples_ns,
                       std::size_t calls) {
  if (calls == 0) return {};
  std::int64_t sum = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<std::int64_t> of_call;
    for (std::size_t i = call; i < samples_ns.size(); i += calls) of_call.push_back(samples_ns[i]);
    if (!of_call.empty()) sum += spread_of(std::move(of_call)).median.count();
  }
  return median_of(lab, {sum / static_cast<std::int64_t>(calls)});
}

}  // namespace dovetail::calibrate
