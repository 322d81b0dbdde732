// Gathering of results: timings to rank 0, check counts to everybody.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/measure.h"

#include "base/error.h"
#include "exec/device_work.h"
#include "exec/measured_trace.h"
#include "exec/plan_hash.h"

#include <cstring>
#include <string>
#include <type_traits>

namespace dovetail::exec {
namespace {

// Ranks run the same executable on the same kind of machine, so a Timing may travel as it is.
static_assert(std::is_trivially_copyable_v<Timing>);

std::vector<std::vector<Timing>> gather_timings(const Exchange& exchange,
                                                const std::vector<Timing>& mine) {
  std::string bytes(mine.size() * sizeof(Timing), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<Timing>> by_rank;
  for (const std::string& from : exchange.gather(bytes)) {
    std::vector<Timing> timings(from.size() / sizeof(Timing));
    if (!timings.empty()) std::memcpy(timings.data(), from.data(), timings.size() * sizeof(Timing));
    by_rank.push_back(std::move(timings));
  }
  return by_rank;
}

std::vector<std::vector<DeviceWork>> gather_device_work(const Exchange& exchange,
                                                        const std::vector<DeviceWork>& mine) {
  std::vector<std::vector<DeviceWork>> by_rank;
  for (const std::string& from : exchange.gather(encode(mine))) {
    by_rank.push_back(decode_device_work(from));
  }
  return by_rank;
}

CheckResult sum_over_ranks(const Exchange& exchange, const CheckResult& mine) {
  CheckResult sum;
  for (const std::vector<std::int64_t>& counts :
       share(exchange, std::vector{mine.checked, mine.wrong})) {
    sum.checked += counts.at(0);
    sum.wrong += counts.at(1);
  }
  std::string first;
  for (const std::string& text : exchange.gather(mine.first_wrong)) {
    if (first.empty()) first = text;
  }
  sum.first_wrong = exchange.broadcast(first);
  return sum;
}

}  // namespace

Measured measure(const Exchange& exchange, std::span<const Lane> lanes, const RunOptions& options,
                 const traces::Provenance& provenance) {
  for (const Lane& lane : lanes) require_same_plan(exchange, *lane.plan);
  const std::vector<RankResult> mine = run_interleaved(lanes, exchange.rank, options);
  Measured measured;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::vector<std::vector<Timing>> by_rank = gather_timings(exchange, mine[i].timings);
    const std::vector<std::vector<DeviceWork>> works =
        gather_device_work(exchange, mine[i].device_work);
    if (exchange.rank == Rank{0}) {
      measured.traces.push_back(measured_trace(*lanes[i].plan, by_rank, provenance));
      add_device_work(*lanes[i].plan, works, origin_ns(by_rank), measured.traces.back());
    }
    measured.checks.push_back(sum_over_ranks(exchange, mine[i].check));
  }
  return measured;
}

}  // namespace dovetail::exec
