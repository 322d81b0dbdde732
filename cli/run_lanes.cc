// Lists what takes turns in a run, makes a backend for each, and takes the plans out of what was measured.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_lanes.h"

#include "traces/metrics.h"

namespace dovetail::cli {

RunLanes lanes_of(const std::vector<Loaded>& loaded, bool two_events, const Programs& probes) {
  RunLanes lanes;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    lanes.push_back({LaneRole::Plan, i, &loaded[i].program});
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i].alone) lanes.push_back({LaneRole::Alone, i, &*loaded[i].alone});
  }
  for (std::size_t i = 0; two_events && i < loaded.size(); ++i) {
    lanes.push_back({LaneRole::TwoEvents, i, &loaded[i].program});
  }
  for (std::size_t i = 0; i < probes.size(); ++i) {
    lanes.push_back({LaneRole::Probe, i, probes[i]});
  }
  return lanes;
}

Backends cpu_backends(const RunLanes& lanes, const exec::cpu::Ports& ports) {
  Backends backends;
  for (const RunLane& lane : lanes) {
    backends.push_back(std::make_unique<exec::cpu::CpuBackend>(*lane.program, ports));
  }
  return backends;
}

Backends cuda_backends(const RunLanes& lanes, const CudaJob& cuda,
                       const exec::cuda::BackendOptions& options) {
  Backends backends;
  for (const RunLane& lane : lanes) {
    exec::cuda::BackendOptions own = options;
    if (lane.role == LaneRole::TwoEvents) own.events = exec::cuda::StepEvents::TwoPerStep;
    backends.push_back(cuda.module->make_backend(*lane.program, own));
  }
  return backends;
}

void split_off_companions(const RunLanes& lanes, Result& result) {
  std::vector<traces::Trace>& all = result.measured.traces;  // of rank 0 only
  std::size_t plans = 0;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const RunLane& lane = lanes[i];
    if (lane.role == LaneRole::Plan) ++plans;
    if (all.empty()) continue;
    if (lane.role == LaneRole::Alone) {
      result.plans[lane.of].exposed = traces::exposed_of(all[lane.of], all[i]);
    } else if (lane.role == LaneRole::TwoEvents) {
      result.plans[lane.of].two_events = traces::spread(traces::step_times(all[i]));
    }
  }
  if (all.size() > plans) all.resize(plans);
  result.measured.checks.resize(plans);  // what was not reduced is not what the check expects
}

void note_cuda(const CudaJob& cuda, const Backends& backends, std::int32_t device, Result& result) {
  for (std::size_t i = 0; i < result.measured.traces.size(); ++i) {
    auto& notes = result.measured.traces[i].provenance.notes;
    notes.merge(notes_of(cuda, device));
    notes.merge(cuda.module->notes(*backends[i]));
  }
}

}  // namespace dovetail::cli
