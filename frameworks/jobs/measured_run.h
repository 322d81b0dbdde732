// What the log of a run says that was measured: how long its steps took, and what its ranks held of memory.
//
//    iteration  3/ 10 | ... elapsed time per iteration (ms): 1510.0 | throughput per GPU (TFLOP/s/GPU): 410.2 | ... global batch size: 64 | ...
//   [Rank 4] (after 2 iterations) memory (MB) | allocated: 20480.00 | max allocated: 40960.00 | reserved: ... | max reserved: 43008.00
//   [rank0]:... step: 10  loss:  6.1  memory: 47.29GiB(59.85%)  tps: 5,762  tflops: 333.72  mfu: 33.74%
//
// The first two are Megatron-LM's (training_log and report_memory of Megatron-Core 0.20, whose MB are MiB), the third is torchtitan's
// (metrics.py of 0.2.2; `memory` is what was reserved, `tps` tokens a second and GPU). Lines may begin with what a launcher puts before
// them. Of several runs in one log the last counts; where a step is there more than once its last line does.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "base/words.h"
#include "models/networks/job.h"

namespace dovetail::frameworks {

enum class LoggedBy { Megatron, Torchtitan };
constexpr auto words_of(LoggedBy) { return words("Megatron-LM", "torchtitan"); }

// A line of a step. Where only every so many steps have one it is their mean.
struct LoggedStep {
  std::int64_t iteration = 0;
  std::optional<Duration> took = std::nullopt;       // Megatron-LM
  double tokens_per_s = 0;                           // of a GPU; torchtitan
  std::optional<double> tflop_per_s = std::nullopt;  // of a GPU, as the framework counts FLOP
  std::optional<std::int64_t> global_batch = std::nullopt;  // samples
  // REQUIRES: the job is the one that ran, complete where the log says tokens.
  [[nodiscard]] Duration time(const jobs::Job& job) const;
};

// The most that the log says of a rank.
struct LoggedMemory {
  std::int64_t rank = 0;
  std::optional<Bytes> allocated = std::nullopt, reserved = std::nullopt;
};

struct MeasuredRun {
  LoggedBy by = LoggedBy::Megatron;
  std::vector<LoggedStep> steps = {};     // by iteration
  std::vector<LoggedMemory> memory = {};  // by rank
  std::size_t unread = 0;                 // lines of steps that are cut off or hold no number

  // Lines of the first steps, which compile and set up what later ones have.
  static constexpr std::size_t kWarmUp = 2;
  // Those behind them.
  [[nodiscard]] std::vector<LoggedStep> steady() const;
};

MeasuredRun measured_run(std::string_view text);

}  // namespace dovetail::frameworks
