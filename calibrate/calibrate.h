// Everything about a machine that a prediction needs, measured in one go on all ranks, on any backend.
//
//   const Lab lab{.exchange = ..., .make_backend = ..., .options = ..., .ranks = 8};
//   Calibration found = calibrate(lab, workload);
//   found.cluster                                        // but for its name, origin, date, notes
//
// Everything is a small plan that the backend executes, so tests calibrate the fake backend and get its figures
// back. What is measured becomes the types of models as it comes from its samples. All ranks make the same calls, and
// get the same result.
//
//   ops.h          the workload's ops one after the other, without communication; passes of its rewritten forms
//   host.h         what issuing commands costs
//   transfers.h    copies; all-reduces of all ranks by size; what else plans of these ranks may ask for
//   contention.h   the workload beside a queue of collectives
//   quality.h      how far all of it may be trusted
//
// With one GPU the collectives are stood in for by sends to itself: same kernels, same thread blocks, no link.
// Whoever writes the file must say so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/lab.h"
#include "models/clusters/cluster.h"
#include "schedule/program.h"
#include "traces/disturbances.h"

#include <string>
#include <vector>

namespace dovetail::calibrate {

// What the reference load says about one step of a calibration: of the rank that was disturbed most.
struct DisturbedStep {
  std::string name;
  double taken = 0;  // share of its core
};

struct Calibration {
  models::Cluster cluster;
  // Where the cores are watched (Lab::load).
  std::vector<DisturbedStep> steps = {};
  traces::Disturbances disturbances = {};  // of all of it, by rank
};

// `workload` has shapes: no timed work (InputError). Its world size is the number of ranks that the
// collectives are for. Of a pipeline every rank measures the ops of all stages.
Calibration calibrate(const Lab& lab, const schedule::Program& workload);

}  // namespace dovetail::calibrate
