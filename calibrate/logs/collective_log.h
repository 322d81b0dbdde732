// What a log of collectives says, whatever program printed it: one sample per collective that was
// timed, and what is known of the machine.
//
//   CollectiveLog log = read_nccl_tests("run.log", text);
//   std::vector<models::CollectiveSeries> tables = tables_of(log.samples);
//
// The sizes are those of models::CollectivePoint: the message of an all-reduce, the gathered result
// of an all-gather, the input of a reduce-scatter, one rank's input of an all-to-all.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/clusters/cluster.h"
#include "schedule/collective_traits.h"
#include "schedule/program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

// Whether the next collective was already queued when this one ran.
enum class Launch { Alone, Queued };

struct CollectiveSample {
  schedule::Collective collective = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  std::optional<std::int64_t> nodes{};  // absent: the log does not say it
  Bytes bytes{};
  Duration time{};
  Launch launch = Launch::Queued;
};

struct CollectiveLog {
  std::string tool;              // what wrote it, with its version where the log has it
  std::string gpu;               // as the log names it; "": it does not
  std::string nccl;              // version of the library; "": unknown
  std::string library = "NCCL";  // or RCCL, where the log says so
  bool is_model = false;         // the times are what a library expects; nobody measured them
  std::vector<CollectiveSample> samples;
  std::vector<std::string> read;      // what was found, one line each
  std::vector<std::string> left_out;  // what was not used and why, one line each
};

// ", NCCL 2.28.3", "" where the version is unknown.
std::string library_in_words(const CollectiveLog& log);

// Several files of one tool: their samples together. What differs (the GPU, a version) is told in
// `left_out`; the first one's stands.
void append(CollectiveLog& all, CollectiveLog&& next);

// One table per collective and number of ranks, sizes rising. Each size has the median of its samples;
// of ten and more also the 10th and 90th percentile. Where a size was timed alone as well as queued,
// the point has both times; else the one that there is stands for both.
std::vector<models::CollectiveSeries> tables_of(const std::vector<CollectiveSample>& samples);

// Odd points, one sentence each: a size that takes over 1.25 times as long as the next larger one (a change of protocol, or
// a disturbance: the log does not say which), and one that takes less than half of what its neighbours lead to expect, with a
// bandwidth over 1.25 times theirs.
std::vector<std::string> doubts_of(const models::CollectiveSeries& series);

// In 10^9 bytes per second as nccl-tests defines it (its doc/PERFORMANCE.md): size / time, which times
// bus_factor is the bus bandwidth. REQUIRES: time > 0.
double algorithm_bandwidth(Bytes bytes, Duration time);
using schedule::bus_factor;

}  // namespace dovetail::imports
