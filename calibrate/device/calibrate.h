// Measures a GPU backend into the figures that a prediction needs: kernels by shape, what the host
// pays per command, copies, collectives by size with a given number of thread blocks, and
// contention.
//
// Everything is a small plan that the backend executes: nothing here knows CUDA, so tests calibrate
// the fake backend and get its figures back. All ranks make the same calls, and get the same
// result.
//
//   kernels      the workload's ops one after the other, without communication
//   host         a decorated backend notes how long each call takes (HostTimer): issuing an op, a
//                collective, an event, a copy; an op costs the mean over the workload's own ops;
//                `launch_latency` from the end of the call to the start on an idle device;
//                `launch_gap` between two long kernels in a row
//   collectives  all-reduces of all ranks, several of one size launched together: the first is
//                isolated, all of them back to back
//   further      likewise what else plans of these ranks may ask for (wanted_series)
//   passes       the ops of rewritten forms of the workload (sums over micro-steps, sharded updates),
//                and multiplying a bucket
//   skew         how much longer a step without communication takes on its slowest rank
//   contention   the workload's forward and backward beside a queue of collectives that is as long:
//                time of the ops that ran inside the queue against their time alone, and the other
//                way round
// A step replayed as a graph costs the host nothing per command: only the gap is measured then.
//
// With one GPU the collectives are stood in for by sends to itself (module.h): same kernels, same
// thread blocks, no link. Whoever writes the file must say so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/cpu/collectives.h"
#include "calibrate/cpu/compute.h"
#include "exec/backend.h"
#include "exec/clock.h"
#include "exec/cuda/module.h"
#include "exec/exchange.h"
#include "schedule/scheduled_program.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace dovetail::calibrate {

// Groups of `ranks` that meet side by side, each rank in one of them: ranks in a row (0 1, 2 3), or
// those that are equally far apart (0 2, 1 3).
enum class Spacing { InARow, Apart };
struct ProbeGroup {
  std::int64_t ranks = 0;  // 0: one group of all
  Spacing spacing = Spacing::InARow;
};

using MakeBackend =
    std::function<std::unique_ptr<exec::Backend>(const schedule::ScheduledProgram&)>;

struct CalibrateOptions {
  exec::cuda::Issue issue = exec::cuda::Issue::Eager;
  std::int32_t max_ctas = 0;  // thread blocks per collective; 0: the library's choice
  std::int32_t steps = 10;    // of every measurement, after 2 to warm up
  Bytes smallest = kib(4);
  Bytes largest = mib(256);
  std::int64_t growth = 2;                             // from one size to the next
  Duration budget = std::chrono::seconds(15);          // for collectives by size
  Duration further_budget = std::chrono::seconds(15);  // for all further series together
  bool measures_further = true;                        // wanted_series
  Bytes further_largest = mib(64);
  Bytes head_start = mib(1024);      // of memory work, while the host enqueues a queue of transfers
  Bytes contention_bytes = mib(16);  // most, of each collective beside computing
  // Rewritten forms of the workload, whose passes are measured too.
  std::vector<schedule::ScheduledProgram> variants{};
  std::int32_t variant_steps = 6;
  std::function<std::int64_t()> now =
      exec::now_ns;  // the clock of the host's calls and of the budgets
  std::function<void(std::string_view)> progress{};  // told on rank 0; may be empty
};

struct HostCosts {
  Duration run_op{}, collective{}, event{}, copy{};
  Duration launch_latency{}, launch_gap{};
  friend bool operator==(const HostCosts&, const HostCosts&) = default;
};

struct MutualSlowdown {
  double compute = 1;  // below 1 means noise
  double collective = 1;
  std::int64_t ops = 0;          // that ran wholly beside the queue
  std::int64_t collectives = 0;  // that ran wholly beside computing
};

struct GpuCalibration {
  std::vector<OpTime> ops;
  double skew = 0;                            // ComputeTimes::skew
  std::vector<std::vector<OpTime>> variants;  // of each variant, all of its ops
  HostCosts host;
  CopyTime copies;
  CopyTime scales;                           // per byte of the buffer
  std::int64_t nodes = 1;                    // hosts
  std::vector<CollectiveTimes> collectives;  // all-reduces of all ranks
  std::vector<SeriesTimes> further;          // none with a stand-in
  MutualSlowdown contention;
};

// From the end of the call that issued an op on an idle device to the op's start: its end, less the
// call's return, less how long such an op takes in a row of them. (Its start event says nothing: an
// idle device executes it while the call is still launching.)
Duration latency_of(const exec::Timing& op, std::int64_t issued_ns, Duration in_a_row);

// What plans of these ranks may ask for besides the all-reduce of all: its halves; all-reduces and
// halves of every smaller group that divides the ranks (the replicas of a stage, of a tensor-parallel
// group), of ranks in a row as far as they fit on one host, else of ranks that are equally far apart;
// sends between two; and the all-to-alls and broadcasts of the workload's own ops. A reduce-scatter
// stands for its all-gather too. `hosts`: of every rank, equal numbers for ranks of one host.
struct WantedSeries {
  schedule::Collective kind = schedule::Collective::AllReduce;
  ProbeGroup group = {};
  std::int64_t ranks = 2;
  std::int64_t nodes = 1;
};
std::vector<WantedSeries> wanted_series(const schedule::Program& workload,
                                        const std::vector<std::int64_t>& hosts);

// Sizes that grow by a factor, in an order in which any beginning covers the whole range: both ends, the
// middle, the quarters, ... So a budget that runs out costs resolution, not range.
std::vector<Bytes> sizes_in_order(Bytes smallest, Bytes largest, std::int64_t growth = 2);

// `workload` has shapes: no timed work (InputError). Its world size is the number of ranks that the
// collectives are for.
GpuCalibration calibrate_gpu(const exec::Exchange& exchange, const MakeBackend& make_backend,
                             const schedule::Program& workload, const CalibrateOptions& options);

}  // namespace dovetail::calibrate
