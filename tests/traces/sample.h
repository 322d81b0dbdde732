// Small traces for tests: a builder, and one step of training as predicted and as measured.
//
// The predicted step (columns of 5 us), the example of the house:
//   s0 FFBBBBBBOwOwwO
//   s1 ....000111222
// Forward 0..10, three backward ops of 10 us, each with a bucket that takes 15 us; updates of 5 us.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "traces/trace.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dovetail::traces::sample {

inline Duration us(std::int64_t n) { return Duration(1000 * n); }
inline Instant at(std::int64_t n) { return Instant(us(n)); }

// Where and when a span of a command ran, in microseconds.
struct Ran {
  std::int32_t command = 0;
  std::int32_t rank = 0;
  std::int32_t stream = 0;
  std::int32_t step = 0;
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t transfer = -1;  // below 0: unknown (an optional here trips gcc 12 under asan)
};

class Builder {
 public:
  Builder() { trace_.streams = {{StreamId{0}, "compute"}, {StreamId{1}, "comm0"}}; }

  Builder& compute(std::int32_t id, SpanPhase phase, std::string name) {
    return add({CommandId{id}, SpanKind::Compute, phase, std::move(name), std::nullopt, Bytes(0)});
  }
  // A collective, copy, wait or enqueue of a bucket.
  Builder& bucket(std::int32_t id, SpanKind kind, std::int32_t bucket, Bytes bytes = Bytes(0)) {
    std::string name = kind == SpanKind::Collective ? "all-reduce" : std::string(to_string(kind));
    name += " bucket " + std::to_string(bucket);
    return add({CommandId{id}, kind, SpanPhase::Communication, name, BucketId{bucket}, bytes});
  }
  // What the command added last follows, and what travels in it.
  Builder& after(std::int32_t command) {
    trace_.commands.back().after = CommandId{command};
    return *this;
  }
  Builder& carries(std::vector<CarriedTensor> tensors) {
    CommandInfo& info = trace_.commands.back();
    info.bus_bytes = info.bytes;
    info.tensors = std::move(tensors);
    return *this;
  }
  Builder& ran(const Ran& ran) {
    Span span{CommandId{ran.command}, Rank{ran.rank}, StreamId{ran.stream}, ran.step,
              at(ran.from),           at(ran.to),     std::nullopt};
    if (ran.transfer >= 0) span.transfer_start = at(ran.transfer);
    trace_.spans.push_back(span);
    return *this;
  }
  Trace build() {
    Trace trace = trace_;
    std::ranges::sort(trace.commands, {}, &CommandInfo::id);
    std::ranges::stable_sort(trace.spans, {}, [](const Span& span) {
      return std::tuple(span.rank, span.stream, span.start);
    });
    trace.ranks.clear();
    for (const Span& span : trace.spans) {
      if (trace.ranks.empty() || trace.ranks.back() != span.rank) trace.ranks.push_back(span.rank);
      trace.steps = std::max(trace.steps, span.step + 1);
      trace.world_size = std::max<std::int64_t>(trace.world_size, span.rank.value + 1);
    }
    return trace;
  }
  Trace& trace() { return trace_; }

 private:
  Builder& add(CommandInfo info) {
    trace_.commands.push_back(std::move(info));
    return *this;
  }
  Trace trace_;
};

// Commands 0 forward; 1 2 3 backward; 4 5 6 collectives; 7 8 9 updates; 10 11 waits of buckets
// 1, 2.
inline Builder step_commands() {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "forward");
  for (const int i : {0, 1, 2}) {
    builder.compute(1 + i, SpanPhase::Backward, "layer" + std::to_string(2 - i) + ".backward");
    builder.bucket(4 + i, SpanKind::Collective, i, mib(i + 1));
    builder.carries({{"layer" + std::to_string(2 - i) + ".grad", mib(i + 1), CommandId{1 + i}}});
    builder.compute(7 + i, SpanPhase::Optimizer, "layer" + std::to_string(2 - i) + ".update");
  }
  builder.bucket(10, SpanKind::Wait, 1).after(5).bucket(11, SpanKind::Wait, 2).after(6);
  return builder;
}

inline Trace predicted() {
  Builder builder = step_commands();
  builder.trace().provenance = {Origin::Simulated, "two-laptops", "torch-ddp:cap=3MiB",
                                "three-layers",    "sim",         {}};
  builder.trace().world_size = 2;
  builder.ran({.command = 0, .from = 0, .to = 10});
  for (const int i : {0, 1, 2}) {
    builder.ran({.command = 1 + i, .from = 10 + 10 * i, .to = 20 + 10 * i});
    const int start = 20 + 15 * i;
    builder.ran(
        {.command = 4 + i, .stream = 1, .from = start, .to = start + 15, .transfer = start});
  }
  builder.ran({.command = 7, .from = 40, .to = 45}).ran({.command = 8, .from = 50, .to = 55});
  builder.ran({.command = 9, .from = 65, .to = 70});
  builder.ran({.command = 10, .from = 45, .to = 50}).ran({.command = 11, .from = 55, .to = 65});
  return builder.build();
}

// Two ranks, three steps. The second backward op of rank 1 takes 20, 4 or 10 us longer than
// predicted, its last update 1 us longer, so rank 0 waits in bucket 1's collective. Step times 86,
// 71, 76 us. Step 2:
//   r0 s0 FFBBBBBBOwwOwwO     r1 s0 FFBBBBBBBBOOwwO.   (the last update of rank 1: 70..76)
//   r0 s1 ....0001111222      r1 s1 ....000.111222
inline Trace measured() {
  Builder builder = step_commands();
  builder.trace().provenance = {Origin::Measured, "two-laptops", "torch-ddp:cap=3MiB",
                                "three-layers",   "cpu/ring",    {{"date", "2025-01-31"}}};
  constexpr std::array kDelays = {20, 4, 10};
  for (const int step : {0, 1, 2}) {
    const int delay = kDelays[static_cast<std::size_t>(step)];
    const int origin = 100 * step;
    const int second = std::max(35, 30 + delay);          // bucket 1 moves from here
    const int third = std::max(second + 15, 40 + delay);  // bucket 2 from here
    for (const int rank : {0, 1}) {
      const auto ran = [&](int command, int from, int to) {
        if (to > from) {
          builder.ran({.command = command,
                       .rank = rank,
                       .step = step,
                       .from = origin + from,
                       .to = origin + to});
        }
      };
      const auto moved = [&](int command, int from, int transfer) {
        builder.ran({.command = command,
                     .rank = rank,
                     .stream = 1,
                     .step = step,
                     .from = origin + from,
                     .to = origin + transfer + 15,
                     .transfer = origin + transfer});
      };
      const int late = rank == 1 ? delay : 0;
      ran(0, 0, 10);
      ran(1, 10, 20);
      ran(2, 20, 30 + late);
      ran(3, 30 + late, 40 + late);
      ran(7, 40 + late, 45 + late);
      ran(10, 45 + late, second + 15);
      const int update = std::max(45 + late, second + 15);
      ran(8, update, update + 5);
      ran(11, update + 5, third + 15);
      ran(9, third + 15, third + 20 + rank);
      moved(4, 20, 20);
      moved(5, std::max(35, 30 + late), second);
      moved(6, std::max(second + 15, 40 + late), third);
    }
  }
  return builder.build();
}

}  // namespace dovetail::traces::sample
