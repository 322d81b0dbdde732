// Walks the compute stream of one rank through a step's window.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "base/interruption.h"
#include "schedule/id_table.h"
#include "traces/metrics.h"

namespace dovetail::predict {
namespace {

using traces::Span;
using traces::SpanKind;

For purpose_of(const schedule::CollectiveWork& work) {
  switch (work.purpose) {
    case schedule::Purpose::TensorParallel:
      return For::TensorParallel;
    case schedule::Purpose::ContextParallel:
      return For::ContextParallel;
    case schedule::Purpose::ExpertParallel:
      return For::ExpertParallel;
    case schedule::Purpose::Pipeline:
    case schedule::Purpose::TiedWeights:
      return For::Pipeline;
    case schedule::Purpose::GlobalNorm:
    case schedule::Purpose::ParameterSync:
      return For::DataParallel;
    case schedule::Purpose::Reshard:
      break;
  }
  return For::Other;
}

// Of each command that communicates.
using Purposes = schedule::IdTable<CommandId, std::optional<For>>;

Purposes purposes_of(const schedule::ScheduledProgram& program) {
  schedule::IdTable<OpId, For> of_ops(For::Other);
  for (const schedule::Op& op : program.program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work != nullptr) of_ops[op.id] = purpose_of(*work);
  }
  Purposes purposes(std::nullopt);
  for (const schedule::RankProgram& role : program.roles) {
    for (const schedule::Command& command : role.commands) {
      const auto* travels = std::get_if<schedule::Communicate>(&command.action);
      if (travels == nullptr) continue;
      purposes[command.id] = travels->op ? of_ops.at(*travels->op) : For::DataParallel;
    }
  }
  return purposes;
}

class RankWalk {
 public:
  RankWalk(const traces::Trace& trace, const Purposes& purposes, Rank rank, std::int32_t step)
      : trace_(trace),
        purposes_(purposes),
        rank_(rank),
        step_(step),
        window_(step_windows(trace)[static_cast<std::size_t>(step)]) {
    for (const Span& span : traces::spans_of(trace, rank)) {
      if (span.step == step && purposes.at(span.command)) transfers_[span.command] = &span;
    }
  }

  RankWalk& run() {
    Instant at = window_.start;
    for (const Span& span : traces::spans_of(trace_, rank_, traces::kComputeStream)) {
      if (span.end <= at) continue;
      const Instant begin = std::clamp(span.start, at, window_.end);
      const Instant end = std::clamp(span.end, begin, window_.end);
      stood(at, begin);
      at = end;
      const traces::CommandInfo& command = trace_.command(span.command);
      if (traces::is_compute(command.kind)) {
        parts_.compute += end - begin;
      } else if (purposes_.at(span.command)) {
        communicated(span, begin, end);
      } else {
        waited(span, command, begin, end);
      }
    }
    stood(at, window_.end);
    return *this;
  }

  [[nodiscard]] const StageParts& parts() const { return parts_; }
  std::vector<traces::Interval> bubble() && { return traces::union_of(std::move(bubble_)); }

 private:
  void stood(Instant begin, Instant end) {
    if (begin == end) return;
    parts_.bubble += end - begin;
    bubble_.push_back({begin, end});
  }

  // From `begin` to `end` the compute stream had nothing but this transfer.
  void communicated(const Span& transfer, Instant begin, Instant end) {
    const For purpose = *purposes_.at(transfer.command);
    Instant from = begin;
    if (purpose == For::Pipeline) {
      from = std::clamp(transfer.transfer_start.value_or(transfer.start), begin, end);
      stood(begin, from);
    }
    parts_.exposed[static_cast<std::size_t>(purpose)] += end - from;
  }

  void waited(const Span& wait, const traces::CommandInfo& command, Instant begin, Instant end) {
    const bool is_own = wait.step == step_;
    const Span* const transfer = command.after && is_own ? transfers_.at(*command.after) : nullptr;
    if (transfer != nullptr) return communicated(*transfer, begin, end);
    stood(begin, end);
  }

  const traces::Trace& trace_;
  const Purposes& purposes_;
  Rank rank_;
  std::int32_t step_;
  traces::StepWindow window_;
  schedule::IdTable<CommandId, const Span*> transfers_{nullptr};  // of the step
  StageParts parts_;
  std::vector<traces::Interval> bubble_;
};

}  // namespace

Duration StageParts::exposed_total() const {
  return std::accumulate(exposed.begin(), exposed.end(), Duration{});
}

std::vector<StageParts> step_parts(const schedule::ScheduledProgram& program,
                                   const traces::Trace& trace) {
  const Purposes purposes = purposes_of(program);
  const std::int64_t ranks = program.program.world_size / program.program.stages;
  std::vector<StageParts> stages;
  for (const Rank rank : trace.ranks) {
    throw_if_interrupted();
    const auto stage = static_cast<std::int32_t>(rank.value / ranks);
    if (!stages.empty() && stages.back().stage == stage) continue;
    stages.push_back(RankWalk(trace, purposes, rank, trace.steps - 1).run().parts());
    stages.back().stage = stage;
  }
  return stages;
}

std::map<Rank, std::vector<traces::Interval>> bubbles(const schedule::ScheduledProgram& program,
                                                      const traces::Trace& trace,
                                                      std::int32_t step) {
  std::map<Rank, std::vector<traces::Interval>> all;
  if (program.program.stages == 1) return all;
  const Purposes purposes = purposes_of(program);
  for (const Rank rank : trace.ranks) {
    all[rank] = std::move(RankWalk(trace, purposes, rank, step).run()).bubble();
  }
  return all;
}

}  // namespace dovetail::predict
