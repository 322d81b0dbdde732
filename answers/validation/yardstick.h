// Public measurements of training jobs, row by row as Jobs, and how far predictions are from them.
//
//   for (const Yardstick& yardstick : load_yardsticks(folder)) {
//     MemoryScore memory = score_memory(yardstick);
//     TimeScore time = score_time(yardstick, predict_step);       // predict_step: Row -> a Duration, or nothing
//     std::vector<Scaling> scaling = score_scaling(yardstick, predict_step);
//   }
//
// Where rows come from, under which licence, and what was changed of them: README.md. No constant of a
// prediction is fitted on them. Each source has a file that says what its settings mean (nanotron.cc, ...); a
// row that cannot be said as a Job is kept, with the reason.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/networks/job.h"
#include "models/networks/memory.h"

namespace dovetail::yardsticks {

// Of nearly every machine in these tables.
inline constexpr std::int64_t kNodeGpus = 8;

struct Row {
  std::string name;  // "nanotron_h100.csv:12"
  std::optional<jobs::Job> job = std::nullopt;
  std::string no_job = {};  // why there is none
  jobs::MemoryRules rules = {};
  bool can_start = true;     // its layout leaves no stage empty
  bool ran = true;           // false: it failed, for want of memory or otherwise
  std::string device = {};   // "H100 80GB"
  std::string machine = {};  // a cluster file, where it is no shipped one
  std::int64_t node_gpus = kNodeGpus;
  std::optional<Bytes> capacity = std::nullopt;  // of its memory, as PyTorch sees it
  std::optional<Bytes> memory = std::nullopt;    // measured peak
  std::optional<Duration> step = std::nullopt;   // measured
  std::string group = {};  // rows whose layouts can be ranked against each other: model and world
  // How its gradients travel, where that is its own and not what the job decides: words of policies, and whether compute waits for
  // each reduction where it is launched.
  std::string policy = {};
  bool synchronous = false;
  double products_stretch =
      1;  // how many times as long as on the shipped GPU products take on its own, measured apart from steps
  double host_stretch =
      1;  // how many times as long its host takes to issue, from a row that is not judged
  std::string scaling = {};  // rows of one benchmark and device on different numbers of GPUs
  // Why its step says nothing of others'; "" where it does. Its error is counted like any other.
  std::string own_cause = {};
};

// Which memory a source measured, of the fullest stage or of the first alone.
enum class MemoryKind { Reserved, Allocated };
enum class MemoryOf { FullestStage, FirstStage };

struct Yardstick {
  std::string name;
  MemoryKind kind = MemoryKind::Reserved;
  MemoryOf of = MemoryOf::FullestStage;
  // What is not published but the same in all rows: what the step of the first one takes more than predicted. It is added to the
  // others, and the first is not judged. Empty: nothing.
  std::string first_gives = {};
  std::vector<Row> rows = {};
};

// Each source, from its file in `folder`. Throws InputError with file and line.
Yardstick nanotron(const std::string& folder);
// The steps of nanotron once more, for what its own host took. Without rows where `folder` does not have that one.
Yardstick nanotron_own(const std::string& folder);
Yardstick torchtitan(const std::string& folder);
Yardstick kempnerforge(const std::string& folder);
Yardstick simumax(const std::string& folder);
// The steps of simumax once more, for what its own GPU took for products. Without rows where `folder` does not have those.
Yardstick simumax_own(const std::string& folder);
Yardstick duoan(const std::string& folder);
Yardstick damek(const std::string& folder);
Yardstick megatron_bridge(const std::string& folder);
Yardstick mlperf(const std::string& folder);
std::vector<Yardstick> load_yardsticks(const std::string& folder);

// Completes the job of a row (models/networks/job.h); where it is none, says so in the row.
void set_job(Row& row, jobs::Job job);

// What a row's prediction is compared with.
Bytes predicted_memory(const Yardstick& yardstick, const Row& row);
bool predicted_to_run(const Row& row);

// Errors are predicted / measured - 1, in per cent.
struct Errors {
  std::int64_t rows = 0;
  double median = 0;           // with its sign
  double median_absolute = 0;  // of the absolute values
  double p90_absolute = 0;
};

struct MemoryScore {
  std::int64_t judged = 0, right = 0;  // fits or not, where a capacity is known
  std::int64_t ran_but_refused = 0, failed_but_allowed = 0;
  Errors peak = {};  // of rows that ran
  [[nodiscard]] double right_percent() const;
};
MemoryScore score_memory(const Yardstick& yardstick);

// A predicted step, and whether its host bounds it.
struct PricedStep {
  Duration step{};
  bool host_bound = false;
};
// Nothing where a row cannot be priced.
using StepPredictor = std::function<std::optional<PricedStep>(const Row&)>;

// Kendall's tau-b over the rows of each group of at least five, and what choosing the row that is predicted to be
// the fastest costs against the one that is; both are medians over groups.
struct TimeScore {
  std::int64_t rows = 0, priced = 0;
  Errors step = {};
  std::int64_t groups = 0;
  double kendall_tau = 0;
  double regret_percent = 0, worst_regret_percent = 0;
};
TimeScore score_time(const Yardstick& yardstick, const StepPredictor& predict);

// Of two rows of one group that are predicted to differ: how often the one that is predicted to be faster was. By how
// much its predicted step is shorter, and whether both ran on one node of eight GPUs.
struct Ordering {
  bool one_node = false;
  double from_percent = 0, to_percent = 0;  // [from, to): shorter than the other's
  std::int64_t pairs = 0, right = 0;
};
// One for each range and place in which there are pairs, by place, then range.
std::vector<Ordering> score_ordering(const Yardstick& yardstick, const StepPredictor& predict);

// How the steps of one benchmark and device on at least three numbers of GPUs relate to each other. The error is
// that of the step on more GPUs over the step on fewer, predicted / measured - 1: that of the pair of rows where it
// is largest. An error that all steps share drops out.
struct Scaling {
  std::string rows;  // Row::scaling
  std::int64_t sizes = 0;
  std::int64_t fewest_gpus = 0, most_gpus = 0;
  double worst_percent = 0;  // with its sign
  std::int64_t worst_from = 0, worst_to = 0;
};
std::vector<Scaling> score_scaling(const Yardstick& yardstick, const StepPredictor& predict);

// Why rows are no jobs, and how many for each reason.
std::map<std::string, std::int64_t> without_job(const Yardstick& yardstick);

}  // namespace dovetail::yardsticks
