// reshard_program: puts into a Program the conversions that its readers need (rules R3, R4, R11 to
// R15), as ops like any other: collectives, sends and receives of purpose Reshard, and memory work.
//
//   forward  embed.forward                              writes x              x lies as S(0)
//   forward  x.S(1).all-to-all    all-to-all over ...   reads x  writes x.S(1)
//   forward  attention.forward    ...                   reads x.S(1)          needs S(1)
//   forward  residual.forward     ...                   reads x.S(1)          needs S(1): reused
//
// In the Program that goes in, tensors with a layout have their whole shape; in the one that comes
// out, the shape that one rank holds. The work of the ops is what one rank does, in both.
//
// A conversion is kept by (tensor, version, layout), where the version counts the writes so far: so
// no version is converted twice to one layout (RI5), and none is used after the tensor has been
// overwritten (RI8, RL3). It stands before its first reader and has that reader's phase; only where
// an optimizer op reads a gradient that owes no reduction, it stands behind the gradient's last
// writer, in backward (R12). A gradient that owes one is converted after it, in the optimizer
// phase. On which stream it runs is lower's decision (R14).
//
// Several meshes become the stages of a pipeline, since all ranks of a role run the same commands:
// mesh p must hold the ranks p D .. (p + 1) D - 1 in order, and all must have one shape. Anything
// else, also meshes that overlap in part (R5), is refused here; ReshardPlan (plan.h) can do it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"
#include "schedule/reshard/path.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::schedule::reshard {

// How a tensor lies before the step and after each of its writers.
struct TensorLayout {
  TensorId tensor;
  Layout layout;
  Source source = Source::Computed;
};
// How one op needs what it reads, or leaves what it writes.
struct UseLayout {
  OpId op;
  TensorId tensor;
  Layout layout;
};

struct Requirements {
  std::vector<TensorLayout> tensors;
  std::vector<UseLayout> reads;  // not listed: the op takes the tensor as it lies
  // Writes whose mesh differs from the tensor's: they are sent there. Cuts must be the same (R3).
  std::vector<UseLayout> writes;
  std::vector<OpId> as_it_lies;  // never converted for these, whatever `reads` says (R4)
};

struct ConversionCounts {
  std::int64_t made = 0;
  std::int64_t reused = 0;  // readers that found one
  std::int64_t ops = 0;     // inserted
  std::int64_t work = 0;    // of the editor (EditCounts): linear in the ops (RL7)
};

struct Resharded {
  Program program;
  std::vector<Mesh> meshes;  // of stage 0, 1, ...
  ConversionCounts counts;
  std::string report;  // one line
};

// Ops of a global norm take everything as it lies, as if listed (R4). REQUIRES: problems(program)
// is empty. Throws InputError for meshes that are no stages, layouts that are impossible for their
// tensors, writers that cut a tensor differently, ops that run on two meshes.
Resharded reshard_program(const Program& program, const Requirements& requirements,
                          const ReshardCosts& costs = {});

// Rule R15: what one rank runs. The ops of its stage and the tensors that they name; all process
// groups stay, since every rank creates all of them (R13).
Program project(const Program& program, Rank rank);

}  // namespace dovetail::schedule::reshard
