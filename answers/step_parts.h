// Where a predicted step goes on each stage of a job: compute, communication that nothing hides by what it is
// for, and the pipeline's bubble.
//
//   for (const StageParts& part : step_parts(program, trace)) part.exposed_of(For::TensorParallel);
//
// One rank of each role, over one step window (traces/metrics.h), by what its compute stream does:
//   compute   ops and copies
//   exposed   collectives on the compute stream, and its waits for those beside it. A wait for a message of another
//             stage counts as pp from when its sender has come
//   bubble    all else: waits for a sender that has not come, and no work
// The parts add up to the step, exactly.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/units.h"
#include "base/words.h"
#include "schedule/scheduled_program.h"
#include "sim/compile.h"
#include "sim/rounds.h"
#include "traces/intervals.h"
#include "traces/trace.h"

namespace dovetail::predict {

using dovetail::to_string;

// What communicates: gradients and parameters, or a collective of the Program.
enum class For { DataParallel, TensorParallel, ContextParallel, ExpertParallel, Pipeline, Other };
constexpr auto words_of(For) { return words("dp", "tp", "cp", "ep", "pp", "other"); }

struct StageParts {
  std::int32_t stage = 0;  // role
  Duration compute{};
  std::array<Duration, kWordCount<For>> exposed{};
  Duration bubble{};

  [[nodiscard]] Duration exposed_of(For what) const {
    return exposed[static_cast<std::size_t>(what)];
  }
  [[nodiscard]] Duration exposed_total() const;
  // Adds that of a part of a step which is taken so many times more.
  void add(const StageParts& part, std::int64_t times);
  friend bool operator==(const StageParts&, const StageParts&) = default;
};

// Of the last step of a simulated trace of the program, by stage. REQUIRES: the trace is of this program.
std::vector<StageParts> step_parts(const schedule::ScheduledProgram& program,
                                   const traces::Trace& trace);

// The same of a played graph, without a trace of it. REQUIRES: compiled of this program, two steps or more; everything outlives it.
class PlayedStep {
 public:
  PlayedStep(const schedule::ScheduledProgram& program, const sim::CompiledProgram& compiled,
             const sim::Timeline& timeline);
  PlayedStep(const PlayedStep&) = delete;
  ~PlayedStep();
  [[nodiscard]] std::vector<StageParts> parts() const;
  // Of a part of the last step, of each role its own.
  [[nodiscard]] std::vector<StageParts> parts(const std::vector<sim::Window>& windows) const;

 private:
  class Pieces;
  std::unique_ptr<Pieces> pieces_;
};

// The moments of a step's bubble on each rank of the trace; of a rank they add up to its StageParts::bubble. Empty
// without a pipeline. REQUIRES: as above, 0 <= step < trace.steps.
std::map<Rank, std::vector<traces::Interval>> bubbles(const schedule::ScheduledProgram& program,
                                                      const traces::Trace& trace,
                                                      std::int32_t step);

}  // namespace dovetail::predict
