// In which order each stage of a pipeline runs the forward and backward of its micro-batches.
//
// P roles (groups of ranks), each with v chunks of the model, so a micro-batch visits the roles v times:
// virtual stages c P .. (c + 1) P - 1 are chunk c, on roles as StageMap says. One step is the forward or
// the backward of one micro-batch through one chunk. Orders for P = 2, m = 4 (F forward, B backward,
// digits micro-batches), v = 1:
//
//   Sequential  role 0  F0 B0 F1 B1 F2 B2 F3 B3
//               role 1  F0 B0 F1 B1 F2 B2 F3 B3
//   OneFOneB    role 0  F0 F1 B0 F2 B1 F3 B2 B3     warm-up: min(P - r - 1, m) forwards
//               role 1  F0 B0 F1 B1 F2 B2 F3 B3
//   ZeroBubble  role 0  F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3     weights r backwards behind their B
//               role 1  F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3
//
// Interleaved runs P micro-batches through chunk 0, the same P through chunk 1, ...; its warm-up is
// 2 (P - r - 1) + (v - 1) P forwards, or all of them when m == P. After the warm-up, forward and
// backward take turns; then come the backwards that are left (the cooldown).
//
// ZeroBubble and Zbv divide backward (arXiv 2401.10241): B is what the stage before waits for, W the gradients of weights,
// which nobody but the update does. ZeroBubble with chunks warms up with P - r - 1 + (v - 1) P forwards. Zbv is that of
// the paper's section 6, for equal F, B and W: warm-up of 2 P forwards, one F B W of each chunk in turn, and in the cooldown
// B before the W that are left. Both, and the order of Interleaved, as torch.distributed.pipelining 2.14 has them.
//
// In flight on a role (forward begun, weights not done), of 1/v of the model each: ZeroBubble with one chunk P, as
// many as role 0 of OneFOneB; Zbv 2 P.
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

// Weights: of an order that splits backward, which then is no more than the gradients of a stage's input.
enum class Pass { Forward, Backward, Weights };

struct PipelineShape {
  PipelineKind kind = PipelineKind::OneFOneB;
  std::int32_t stages = 1;       // P
  std::int32_t chunks = 1;       // v, per role
  std::int32_t micro_steps = 1;  // m

  // How many forwards (and as many backwards) each role runs.
  [[nodiscard]] std::int32_t steps_per_direction() const { return chunks * micro_steps; }
  [[nodiscard]] std::int32_t virtual_stages() const { return chunks * stages; }
  [[nodiscard]] std::int32_t role_of(std::int32_t stage) const {
    return role_of_stage(stage_map_of(kind), stages, stage);
  }
  // The virtual stage that is this chunk of the role: the map's own inverse.
  [[nodiscard]] std::int32_t stage_of(std::int32_t role, std::int32_t chunk) const {
    return chunk * stages + role_of(chunk * stages + role);
  }
  // The pass that completes a chunk's gradients.
  [[nodiscard]] Pass last_pass() const {
    return splits_backward(kind) ? Pass::Weights : Pass::Backward;
  }
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// Why there is no such order, in words; nothing when there is one: extents below 1, chunks that the kind does not
// have, interleaved micro-batches that are no multiple of the stages.
std::optional<std::string> problem(const PipelineShape& shape);

struct PipelineStep {
  Pass pass = Pass::Forward;
  std::int32_t micro_step = 0;
  std::int32_t chunk = 0;
  friend bool operator==(const PipelineStep&, const PipelineStep&) = default;
};

// The id-th forward (or backward, or weights) that a role runs, the same on every role. Interleaved ids run
// through groups of P * v: within one, P micro-batches of one chunk, then of the next; backward
// takes the chunks from the last to the first. REQUIRES: not Zbv, whose roles differ.
PipelineStep nth_step(const PipelineShape& shape, Pass pass, std::int32_t id);

// Forwards before the role's first backward that belong to no pair of forward and backward. REQUIRES: not Zbv.
std::int32_t warm_up_steps(const PipelineShape& shape, std::int32_t role);

// All steps of one role, in execution order: every micro-batch through every chunk once forward and
// once backward, in one pass or two. REQUIRES, here and below: no problem(shape), 0 <= role < stages.
std::vector<PipelineStep> stage_order(const PipelineShape& shape, std::int32_t role);

// The most chunks whose activations the role holds at once: forward begun, the last pass of backward not ended.
std::int32_t most_in_flight(const PipelineShape& shape, std::int32_t role);

struct RoleStep {
  std::int32_t role = 0;
  PipelineStep step;
  friend bool operator==(const RoleStep&, const RoleStep&) = default;
};

// What the step waits for on the other virtual stages: the forward of the stage before; for a
// backward the one of the stage behind. Nothing at the ends of the pipeline (the last stage's
// backward follows its own forward), and nothing for weights, which follow their own backward.
std::optional<RoleStep> step_needed(const PipelineShape& shape, const RoleStep& step);

// The steps of all roles as one serial execution: each role's are in its order, and each step
// stands after the one it needs. Found by playing the orders greedily; that the play never jams is
// a property of the generators (checked).
std::vector<RoleStep> serial_order(const PipelineShape& shape);

}  // namespace dovetail::schedule
