// What plan and predict share: lowering and verifying a plan, and what must be said of its steps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/steady_trace.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "sim/interval.h"
#include "sim/steady.h"
#include "traces/trace.h"

namespace dovetail::cli {

// Throws InputError "SOURCE: illegal schedule: ..." where the Schedule cannot be run.
schedule::ScheduledProgram lower_and_verify(const schedule::Program& program,
                                            const schedule::Schedule& schedule,
                                            const std::string& source);

// What the model assumes of a schedule with several communication streams.
std::vector<std::string> stream_notes(const schedule::Schedule& schedule);

// Where one step does not stand for all.
std::vector<std::string> notes_on(const sim::SteadyState& steady);

// Both figures of the step (figures.h), where the spread of costs was measured.
void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval);

// What a reader of the trace must know, into its provenance: the workload with its options, and notes.
void note_in(traces::Trace& trace, const std::string& workload,
             const std::vector<std::string>& notes);

}  // namespace dovetail::cli
