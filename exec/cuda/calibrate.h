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
//   collectives  several of one size, launched together: the first is isolated, all of them back to
//                back
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
#include "exec/backend.h"
#include "exec/calibrate/collectives.h"
#include "exec/calibrate/compute.h"
#include "exec/cuda/module.h"
#include "exec/exchange.h"
#include "schedule/scheduled_program.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace dovetail::exec::cuda {

using MakeBackend = std::function<std::unique_ptr<Backend>(const schedule::ScheduledProgram&)>;

struct CalibrateOptions {
  Issue issue = Issue::Eager;
  std::int32_t max_ctas = 0;  // thread blocks per collective; 0: the library's choice
  std::int32_t steps = 10;    // of every measurement, after 2 to warm up
  Bytes smallest = kib(4);
  Bytes largest = mib(256);
  Duration budget = std::chrono::seconds(15);        // for collectives by size
  Bytes contention_bytes = mib(16);                  // most, of each collective beside computing
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
  std::vector<calibrate::OpTime> ops;
  HostCosts host;
  calibrate::CopyTime copies;
  std::vector<calibrate::CollectiveTimes> collectives;
  MutualSlowdown contention;
};

// From the end of the call that issued an op on an idle device to the op's start: its end, less the
// call's return, less how long such an op takes in a row of them. (Its start event says nothing: an
// idle device executes it while the call is still launching.)
Duration latency_of(const Timing& op, std::int64_t issued_ns, Duration in_a_row);

// Sizes that double, in an order in which any beginning covers the whole range: both ends, the
// middle, the quarters, ... So a budget that runs out costs resolution, not range.
std::vector<Bytes> sizes_in_order(Bytes smallest, Bytes largest);

// `workload` has shapes: no timed work (InputError). Its world size is the number of ranks that the
// collectives are for.
GpuCalibration calibrate_gpu(const Exchange& exchange, const MakeBackend& make_backend,
                             const schedule::Program& workload, const CalibrateOptions& options);

}  // namespace dovetail::exec::cuda
