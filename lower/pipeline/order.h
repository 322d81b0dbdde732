// In which order each stage of a pipeline runs the forward and backward of its micro-batches.
//
// P roles (groups of ranks), each with v chunks of the model; virtual stage c * P + r is chunk c of
// role r, so a micro-batch visits the roles v times. One step is the forward or the backward of one
// micro-batch through one chunk. Orders for P = 2, m = 4 (F forward, B backward, digits
// micro-batches), v = 1:
//
//   Sequential  role 0  F0 B0 F1 B1 F2 B2 F3 B3
//               role 1  F0 B0 F1 B1 F2 B2 F3 B3
//   OneFOneB    role 0  F0 F1 B0 F2 B1 F3 B2 B3     warm-up: min(P - r - 1, m) forwards
//               role 1  F0 B0 F1 B1 F2 B2 F3 B3
//
// Interleaved runs P micro-batches through chunk 0, the same P through chunk 1, ...; its warm-up is
// 2 (P - r - 1) + (v - 1) P forwards, or all of them when m == P. After the warm-up, forward and
// backward take turns; then come the backwards that are left (the cooldown).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

struct PipelineShape {
  PipelineKind kind = PipelineKind::OneFOneB;
  std::int32_t stages = 1;       // P
  std::int32_t chunks = 1;       // v, per role
  std::int32_t micro_steps = 1;  // m

  // How many forwards (and as many backwards) each role runs.
  [[nodiscard]] std::int32_t steps_per_direction() const { return chunks * micro_steps; }
  [[nodiscard]] std::int32_t virtual_stages() const { return chunks * stages; }
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// Why there is no such order, in words; nothing when there is one: extents below 1, several chunks
// in a kind that has one, interleaved micro-batches that are no multiple of the stages.
std::optional<std::string> problem(const PipelineShape& shape);

struct PipelineStep {
  Phase phase = Phase::Forward;  // or Backward
  std::int32_t micro_step = 0;
  std::int32_t chunk = 0;
  friend bool operator==(const PipelineStep&, const PipelineStep&) = default;
};

// The id-th forward (or backward) that a role runs, the same on every role. Interleaved ids run
// through groups of P * v: within one, P micro-batches of one chunk, then of the next; backward
// takes the chunks from the last to the first.
PipelineStep nth_step(const PipelineShape& shape, Phase phase, std::int32_t id);

// Forwards before the role's first backward that belong to no pair of forward and backward.
std::int32_t warm_up_steps(const PipelineShape& shape, std::int32_t role);

// All steps of one role, in execution order: every micro-batch through every chunk once forward and
// once backward. REQUIRES, here and below: no problem(shape), 0 <= role < stages.
std::vector<PipelineStep> stage_order(const PipelineShape& shape, std::int32_t role);

struct RoleStep {
  std::int32_t role = 0;
  PipelineStep step;
  friend bool operator==(const RoleStep&, const RoleStep&) = default;
};

// What the step waits for on the other virtual stages: the forward of the stage before; for a
// backward the one of the stage behind. Nothing at the ends of the pipeline (the last stage's
// backward follows its own forward).
std::optional<RoleStep> step_needed(const PipelineShape& shape, const RoleStep& step);

// The steps of all roles as one serial execution: each role's are in its order, and each step
// stands after the one it needs. Found by playing the orders greedily; that the play never jams is
// a property of the generators (checked).
std::vector<RoleStep> serial_order(const PipelineShape& shape);

}  // namespace dovetail::schedule
