// Decides in which order the plans of a run, and the probes between them, take their turns within
// a round.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_lanes.h"

#include "traces/metrics.h"

namespace dovetail::cli {

Programs programs_of(const std::vector<Loaded>& loaded, bool two_events, const Programs& between) {
  Programs programs;
  for (const Loaded& one : loaded) programs.push_back(&one.program);
  for (const Loaded& one : loaded) {
    if (one.alone) programs.push_back(&*one.alone);
  }
  for (std::size_t i = 0; two_events && i < loaded.size(); ++i) programs.push_back(programs[i]);
  programs.insert(programs.end(), between.begin(), between.end());
  return programs;
}

Backends cpu_backends(const Programs& programs, const exec::cpu::Ports& ports) {
  Backends backends;
  for (const schedule::ScheduledProgram* program : programs) {
    backends.push_back(std::make_unique<exec::cpu::CpuBackend>(*program, ports));
  }
  return backends;
}

Backends cuda_backends(const Programs& programs, const CudaJob& cuda,
                       exec::cuda::BackendOptions options, std::size_t two_events) {
  Backends backends;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i + two_events == programs.size()) options.events = exec::cuda::StepEvents::TwoPerStep;
    backends.push_back(cuda.module->make_backend(*programs[i], options));
  }
  return backends;
}

void split_off_companions(const std::vector<Loaded>& loaded, bool two_events, Result& result) {
  std::vector<traces::Trace>& all = result.measured.traces;
  const std::size_t plans = loaded.size();
  for (std::size_t i = 0; i < plans && !all.empty(); ++i) {
    if (loaded[i].alone) result.exposed.push_back(traces::exposed_of(all[i], all[plans + i]));
  }
  for (std::size_t i = 0; two_events && i < plans && !all.empty(); ++i) {
    result.two_events.push_back(traces::spread(traces::step_times(all[all.size() - plans + i])));
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
