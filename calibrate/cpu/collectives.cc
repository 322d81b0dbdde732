// Measures collectives size by size, alone and in a queue. Rank 0 keeps the budget of time and
// tells the others how often the next size is repeated, so that all ranks always make the same
// calls.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/collectives.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace dovetail::calibrate {
namespace {

constexpr std::int64_t kLaunchQueue = 8;
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

exec::cpu::CollectiveCall call_on(Rig& rig, schedule::Collective kind, Bytes bytes) {
  exec::cpu::CollectiveCall call = {.kind = kind,
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

Duration within(const traces::CoreRecord& record, std::int64_t begin_ns, std::int64_t start_ns,
                std::int64_t end_ns) {
  return traces::taken_within(record, Duration(start_ns - begin_ns), Duration(end_ns - begin_ns));
}

// Since `begin_ns`, when all ranks met. Collective: call it on every rank.
Preemptions preemptions_since(Rig& rig, std::int64_t begin_ns) {
  Preemptions preemptions = {
      .begin_ns = rank_0_says(rig.exchange(), begin_ns), .silences = {}, .restless = {}};
  const traces::CoreRecord mine = rig.reference_load().record(begin_ns, exec::now_ns());
  const traces::Disturbances all = testbed::share_records(rig.exchange(), mine);
  preemptions.restless = traces::restless(all);
  // Without a known shield nobody knows what a preemption took of a collective.
  if (rig.shield() == Duration{}) return preemptions;
  for (const traces::CoreRecord& record : all) {
    preemptions.silences.push_back(traces::silences(record, rig.shield()));
  }
  return preemptions;
}

// From the last arrival to the last completion of `count` queued calls, in nanoseconds, one sample per
// repetition that stands for a machine that is all there (undisturbed).
std::vector<std::int64_t> samples(Rig& rig, const exec::cpu::CollectiveCall& call,
                                  std::int64_t count, std::int64_t repetitions, Duration pause) {
  std::vector<std::int64_t> mine;  // of each repetition the first start, then all ends
  rig.exchange().barrier();
  const std::int64_t begin_ns = exec::now_ns();
  for (std::int64_t i = 0; i < repetitions; ++i) {
    rig.exchange().barrier();
    std::this_thread::sleep_for(pause);
    rig.enqueue(call, count);
    const std::vector<exec::Timing> timings = rig.drain();
    mine.push_back(timings.front().start_ns);
    for (const exec::Timing& timing : timings) mine.push_back(timing.end_ns);
  }
  const std::vector<std::vector<std::int64_t>> all = share(rig.exchange(), mine);
  const Preemptions preemptions = preemptions_since(rig, begin_ns);
  std::vector<Sample> found;
  const auto stride = static_cast<std::size_t>(count) + 1;
  for (std::size_t i = 0; i + stride <= mine.size(); i += stride) {
    Repetition repetition;
    repetition.done_ns.assign(stride - 1, std::numeric_limits<std::int64_t>::min());
    for (const std::vector<std::int64_t>& of_rank : all) {
      repetition.arrived_ns = std::max(repetition.arrived_ns, of_rank[i]);
      for (std::size_t k = 1; k < stride; ++k) {
        repetition.done_ns[k - 1] = std::max(repetition.done_ns[k - 1], of_rank[i + k]);
      }
    }
    found.push_back(sample_of(repetition, preemptions));
  }
  return undisturbed(found);
}

// Long queues of large messages would eat the budget and tell nothing new.
std::int64_t queue_length(Bytes bytes) {
  return std::clamp<std::int64_t>(mib(32).count() / std::max<std::int64_t>(1, bytes.count()), 2,
                                  kLaunchQueue);
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

Sample sample_of(const Repetition& repetition, const Preemptions& preemptions) {
  std::int64_t calm_ns = 0;
  std::int64_t calm = 0;
  std::int64_t before_ns = repetition.arrived_ns;
  for (const std::int64_t done_ns : repetition.done_ns) {
    if (within(preemptions.restless, preemptions.begin_ns, before_ns, done_ns) == Duration{}) {
      calm_ns += done_ns - before_ns;
      ++calm;
    }
    before_ns = done_ns;
  }
  const auto count = static_cast<std::int64_t>(repetition.done_ns.size());
  if (calm > 0) return {.ns = calm_ns * count / calm, .met = Met::Nothing};
  const std::int64_t took_ns = before_ns - repetition.arrived_ns;
  std::int64_t silent_ns = 0;
  for (const traces::CoreRecord& silent : preemptions.silences) {
    silent_ns += within(silent, preemptions.begin_ns, repetition.arrived_ns, before_ns).count();
  }
  return {.ns = std::max<std::int64_t>(0, took_ns - silent_ns),
          .met = silent_ns == 0 ? Met::Preemptions : Met::Silences};
}

std::vector<std::int64_t> undisturbed(std::span<const Sample> samples) {
  const auto those = [&](Met most) {
    std::vector<std::int64_t> times;
    for (const Sample& sample : samples) {
      if (sample.met <= most) times.push_back(sample.ns);
    }
    return times;
  };
  std::vector<std::int64_t> calm = those(Met::Nothing);
  if (3 * calm.size() >= samples.size()) return calm;
  std::vector<std::int64_t> heard = those(Met::Preemptions);
  if (5 * heard.size() < samples.size()) return those(Met::Silences);
  std::ranges::sort(heard);
  heard.resize((heard.size() + 4) / 5);
  return heard;
}

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
    const exec::cpu::CollectiveCall call = call_on(rig, options.kind, bytes);
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
  const exec::cpu::CollectiveCall call = call_on(rig, kind, bytes);
  const Duration pause = CollectiveOptions{}.pause;
  return spread_of(samples(rig, call, count, repetitions, pause)).median / count;
}

}  // namespace dovetail::calibrate
