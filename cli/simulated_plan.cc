// Lowering one plan, and notes.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/simulated_plan.h"

#include <set>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "cli/text.h"
#include "lower/lower.h"
#include "verify/verify.h"

namespace dovetail::cli {

schedule::ScheduledProgram lower_and_verify(const schedule::Program& program,
                                            const schedule::Schedule& schedule,
                                            const std::string& source) {
  schedule::Lowered lowered = schedule::lower(program, schedule);
  for (const schedule::Problem& problem :
       schedule::verify(program, lowered.program, schedule.merge)) {
    throw InputError(source + ": illegal schedule: " + problem.message);
  }
  return std::move(lowered.program);
}

std::vector<std::string> stream_notes(const schedule::Schedule& schedule) {
  std::set<std::int32_t> streams;
  const auto count = [&](const schedule::Placement& placement) {
    const auto* comm = std::get_if<schedule::CommStream>(&placement.stream);
    if (comm != nullptr) streams.insert(comm->index);
  };
  for (const schedule::Bucket& bucket : schedule.buckets) count(bucket);
  for (const schedule::OpPlacement& placement : schedule.collectives) count(placement);
  if (streams.size() < 2) return {};
  return {std::to_string(streams.size()) +
          " communication streams share the link: latencies pass side by side, bytes do not"};
}

std::vector<std::string> notes_on(const sim::SteadyState& steady) {
  if (steady.cycle == 1) return {};
  const std::string mean = fixed(to_us(Duration(steady.summary.step_ns)) / 1e3, 3) + " ms";
  if (steady.cycle == 0) {
    return {"no steady state within " + std::to_string(steady.steps) +
            " steps: the later half takes " + mean + " a step on average"};
  }
  return {"steps take turns in cycles of " + std::to_string(steady.cycle) + ": " + mean +
          " on average; one of them follows"};
}

void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval) {
  if (!interval) return;
  const auto ms = [](Duration time) { return fixed(to_us(time) / 1e3, 3) + " ms"; };
  out << "  p10 of the step " << ms(interval->p10) << ", median " << ms(interval->median)
      << ", p90 " << ms(interval->p90) << ": of " << counted(std::int64_t{interval->draws}, "draw")
      << " from the spread of measured kernels and collectives\n";
}

void note_in(traces::Trace& trace, const std::string& workload,
             const std::vector<std::string>& notes) {
  if (!workload.empty()) trace.provenance.workload = workload;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    trace.provenance.notes["note " + std::to_string(i + 1)] = notes[i];
  }
}

}  // namespace dovetail::cli
