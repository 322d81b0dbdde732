// Measuring collectives size by size within a budget that rank 0 keeps.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/collectives.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace dovetail::exec::calibrate {
namespace {

constexpr std::int64_t kQueue = 8;
constexpr std::int64_t kFewest = 3;  // repetitions of one size
constexpr std::int64_t kMost = 25;

// For sharing out the budget; 25 from 4 B to 64 MiB by doubling.
std::int64_t sizes_of(const CollectiveOptions& options) {
  std::int64_t sizes = 0;
  for (Bytes size = options.smallest; size <= options.largest; size = size * options.growth) {
    ++sizes;
  }
  return std::max<std::int64_t>(1, sizes);
}

cpu::CollectiveCall call_on(Rig& rig, schedule::Collective kind, Bytes bytes) {
  cpu::CollectiveCall call = {.kind = kind,
                              .op = schedule::ReduceOp::Sum,
                              .data = rig.buffer(bytes),
                              .shard = {},
                              .label = "calibration"};
  if (kind != schedule::Collective::AllReduce) {
    // The shard lies behind the data.
    const auto ranks = static_cast<std::size_t>(rig.exchange().world_size);
    const std::size_t count = call.data.size();
    const std::span<float> both =
        rig.buffer(bytes + Bytes(bytes.count() / rig.exchange().world_size));
    call.data = both.first(count);
    call.shard = both.subspan(count, count / ranks);
  }
  return call;
}

// For how long the absences of this rank's core between two moments stopped its collectives.
std::int64_t silent_ns(Rig& rig, std::int64_t start_ns, std::int64_t end_ns) {
  if (rig.shield() == Duration{}) return 0;
  const traces::CoreRecord record = rig.yardstick().record(start_ns, end_ns);
  return traces::taken_within(traces::silences(record, rig.shield()), {}, record.watched).count();
}

// From the last arrival to the last completion of `count` queued calls, in nanoseconds, one sample
// per repetition, without what absences took of it.
std::vector<std::int64_t> samples(Rig& rig, const cpu::CollectiveCall& call, std::int64_t count,
                                  std::int64_t repetitions, Duration pause) {
  std::vector<std::int64_t> mine;  // start, end and silence, in turn
  for (std::int64_t i = 0; i < repetitions; ++i) {
    rig.exchange().barrier();
    std::this_thread::sleep_for(pause);
    rig.enqueue(call, count);
    const std::vector<Timing> timings = rig.drain();
    mine.push_back(timings.front().start_ns);
    mine.push_back(timings.back().end_ns);
    mine.push_back(silent_ns(rig, timings.front().start_ns, timings.back().end_ns));
  }
  const std::vector<std::vector<std::int64_t>> all = share(rig.exchange(), mine);
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < mine.size(); i += 3) {
    std::int64_t arrived = std::numeric_limits<std::int64_t>::min();
    std::int64_t done = arrived;
    std::int64_t silent = 0;
    for (const std::vector<std::int64_t>& of_rank : all) {
      arrived = std::max(arrived, of_rank[i]);
      done = std::max(done, of_rank[i + 1]);
      silent += of_rank[i + 2];
    }
    times.push_back(std::max<std::int64_t>(0, done - arrived - silent));
  }
  return times;
}

// Long queues of large messages would eat the budget and tell nothing new.
std::int64_t queue_length(Bytes bytes) {
  return std::clamp<std::int64_t>(mib(32).count() / std::max<std::int64_t>(1, bytes.count()), 2,
                                  kQueue);
}

// How often the next size can be measured when one call takes `guess`; 0: not at all.
std::int64_t repetitions(const CollectiveOptions& options, Bytes bytes, Duration guess,
                         Duration left) {
  const Duration one = guess + options.pause;
  const Duration queue = guess * queue_length(bytes) + options.pause;
  const Duration share_of_size = options.budget / sizes_of(options);
  const std::int64_t wanted =
      std::clamp<std::int64_t>(share_of_size / (one + queue), kFewest, kMost);
  return wanted * one + kFewest * queue <= left ? wanted : 0;
}

Bytes whole_shards(const CollectiveOptions& options, Bytes bytes, std::int64_t ranks) {
  if (options.kind == schedule::Collective::AllReduce) return bytes;
  const std::int64_t unit = 4 * ranks;
  return Bytes((bytes.count() + unit - 1) / unit * unit);
}

}  // namespace

std::vector<CollectiveTimes> measure_collectives(Rig& rig, const CollectiveOptions& options) {
  const std::int64_t begin = options.now();
  Duration guess = std::chrono::milliseconds(1);
  std::vector<CollectiveTimes> times;
  for (Bytes asked = options.smallest; asked <= options.largest; asked = asked * options.growth) {
    const Bytes bytes = whole_shards(options, asked, rig.exchange().world_size);
    const Duration left = options.budget - Duration(options.now() - begin);
    const std::int64_t count =
        rank_0_says(rig.exchange(), repetitions(options, bytes, guess, left));
    if (count == 0) break;
    const cpu::CollectiveCall call = call_on(rig, options.kind, bytes);
    samples(rig, call, 1, 1, options.pause);  // the first one meets cold buffers
    CollectiveTimes time;
    time.bytes = bytes;
    time.isolated = spread_of(samples(rig, call, 1, count, options.pause));
    const std::int64_t queue = queue_length(bytes);
    time.back_to_back = spread_of(samples(rig, call, queue, kFewest, options.pause)).median / queue;
    // The next size takes at most about as many times as long.
    guess = std::max(time.isolated.median, time.back_to_back) * options.growth;
    const bool same_size = !times.empty() && times.back().bytes == bytes;
    if (!same_size) times.push_back(time);
  }
  return times;
}

Duration measure_queue(Rig& rig, schedule::Collective kind, Bytes bytes, std::int64_t count,
                       std::int64_t repetitions) {
  const cpu::CollectiveCall call = call_on(rig, kind, bytes);
  const Duration pause = CollectiveOptions{}.pause;
  return spread_of(samples(rig, call, count, repetitions, pause)).median / count;
}

}  // namespace dovetail::exec::calibrate
