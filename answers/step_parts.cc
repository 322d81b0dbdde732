// Walks the compute stream of one rank through a step's window.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/interruption.h"
#include "schedule/id_table.h"
#include "sim/event_table.h"
#include "traces/metrics.h"

namespace dovetail::predict {
namespace {

using traces::Span;

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

// What a rank's compute stream does for a while, beside nothing else.
struct Piece {
  enum class Kind : std::uint8_t { Compute, Communicate, Stand };
  Instant start;
  Instant end;
  CommandId command;
  Kind kind = Kind::Compute;
  For purpose = For::Other;  // of what communicates
  Instant moves_from = {};   // likewise: when its sender has come
};

// Goes through pieces in order of time; of what overlaps the first counts.
class Walk {
 public:
  explicit Walk(traces::Interval window) : window_(window), at_(window.start) {}

  void go(const Piece& piece) {
    if (piece.end <= at_) return;
    const Instant begin = std::clamp(piece.start, at_, window_.end);
    const Instant end = std::clamp(piece.end, begin, window_.end);
    stood(at_, begin);
    at_ = end;
    switch (piece.kind) {
      case Piece::Kind::Compute:
        parts_.compute += end - begin;
        return;
      case Piece::Kind::Communicate:
        return communicated(piece, begin, end);
      case Piece::Kind::Stand:
        return stood(begin, end);
    }
  }

  StageParts finish() {
    stood(std::exchange(at_, window_.end), window_.end);
    return parts_;
  }
  std::vector<traces::Interval> bubble() && { return traces::union_of(std::move(bubble_)); }

 private:
  void stood(Instant begin, Instant end) {
    if (begin == end) return;
    parts_.bubble += end - begin;
    bubble_.push_back({begin, end});
  }

  // From `begin` to `end` the compute stream had nothing but this transfer.
  void communicated(const Piece& piece, Instant begin, Instant end) {
    Instant from = begin;
    if (piece.purpose == For::Pipeline) {
      from = std::clamp(piece.moves_from, begin, end);
      stood(begin, from);
    }
    parts_.exposed[static_cast<std::size_t>(piece.purpose)] += end - from;
  }

  traces::Interval window_;
  Instant at_;  // the walk has come so far
  StageParts parts_;
  std::vector<traces::Interval> bubble_;
};

// Of a trace: of one rank, whose step gives what is waited for.
Walk walked(const traces::Trace& trace, const Purposes& purposes, Rank rank, std::int32_t step) {
  const traces::StepWindow window = step_windows(trace)[static_cast<std::size_t>(step)];
  schedule::IdTable<CommandId, const Span*> transfers(nullptr);  // of the step
  for (const Span& span : traces::spans_of(trace, rank)) {
    if (span.step == step && purposes.at(span.command)) transfers[span.command] = &span;
  }
  Walk walk({window.start, window.end});
  for (const Span& span : traces::spans_of(trace, rank, traces::kComputeStream)) {
    const traces::CommandInfo& command = trace.command(span.command);
    Piece piece{.start = span.start, .end = span.end, .command = span.command};
    if (!traces::is_compute(command.kind)) {
      const bool waits = !purposes.at(span.command);
      const bool is_own = span.step == step;
      const Span* transfer = waits ? nullptr : &span;
      if (waits && command.after && is_own) transfer = transfers.at(*command.after);
      piece.kind = transfer == nullptr ? Piece::Kind::Stand : Piece::Kind::Communicate;
      if (transfer != nullptr) {
        piece.purpose = *purposes.at(transfer->command);
        piece.moves_from = transfer->transfer_start.value_or(transfer->start);
      }
    }
    walk.go(piece);
  }
  return walk;
}

}  // namespace

Duration StageParts::exposed_total() const {
  return std::accumulate(exposed.begin(), exposed.end(), Duration{});
}

void StageParts::add(const StageParts& part, std::int64_t times) {
  compute += part.compute * times;
  bubble += part.bubble * times;
  for (std::size_t i = 0; i < exposed.size(); ++i) exposed[i] += part.exposed[i] * times;
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
    stages.push_back(walked(trace, purposes, rank, trace.steps - 1).finish());
    stages.back().stage = stage;
  }
  return stages;
}

// The pieces of the last step, by role.
class PlayedStep::Pieces {
 public:
  Pieces(const schedule::ScheduledProgram& program, const sim::CompiledProgram& compiled,
         const sim::Timeline& timeline)
      : program_(program), compiled_(compiled), graph_(compiled.graph), timeline_(timeline) {
    const Purposes purposes = purposes_of(program);
    const std::int32_t last = graph_.steps() - 1;
    entries_.resize(program.roles.size());
    pieces_.resize(program.roles.size());
    for (std::size_t role = 0; role < program.roles.size(); ++role) {
      entries_[role].resize(program.roles[role].commands.size(), nullptr);
    }
    for (const sim::CommandNode& entry : compiled.command_nodes) {
      if (entry.step == last) add(entry, purposes);
    }
    for (std::size_t role = 0; role < program.roles.size(); ++role) find_before(role);
    for (const sim::WaitRecord& wait : compiled.waits) {
      if (wait.step == last && wait.stream == schedule::kComputeStream) add(wait, purposes);
    }
    for (std::vector<Piece>& pieces : pieces_) {
      std::ranges::sort(pieces, {}, [](const Piece& piece) {
        return std::tuple(piece.start, piece.end, piece.command);
      });
    }
  }

  [[nodiscard]] std::vector<sim::Window> step() const {
    return std::vector(pieces_.size(), sim::Window{end_of_step(graph_.steps() - 2),
                                                   end_of_step(graph_.steps() - 1)});
  }
  [[nodiscard]] std::vector<StageParts> parts(const std::vector<sim::Window>& windows) const {
    std::vector<StageParts> stages;
    for (std::size_t role = 0; role < pieces_.size(); ++role) {
      Walk walk({instant(windows[role].begin), instant(windows[role].end)});
      for (const Piece& piece : pieces_[role]) walk.go(piece);
      stages.push_back(walk.finish());
      stages.back().stage = static_cast<std::int32_t>(stages.size()) - 1;
    }
    return stages;
  }

 private:
  static Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }
  [[nodiscard]] const schedule::Command& command(std::int32_t role, std::int32_t index) const {
    return program_.roles[static_cast<std::size_t>(role)].commands[static_cast<std::size_t>(index)];
  }
  // The first of a role stands for all of its lanes.
  [[nodiscard]] sim::NodeId node_of(const sim::CommandNode& entry) const {
    return compiled_.on_lane(entry, compiled_.lanes_of(entry).begin);
  }
  [[nodiscard]] std::int64_t end_of_step(std::int32_t step) const {
    std::int64_t end = 0;
    for (sim::NodeId node = step < 0 ? 0 : graph_.step_begin[static_cast<std::size_t>(step)];
         step >= 0 && node < graph_.step_end(step); ++node) {
      end = std::max(end, timeline_.end_of(node));
    }
    return end;
  }

  void add(const sim::CommandNode& entry, const Purposes& purposes) {
    const sim::NodeKind kind = compiled_.kind_of(entry);
    const auto role = static_cast<std::size_t>(entry.role);
    const sim::NodeId node = node_of(entry);
    const std::int64_t start = timeline_.start_of(node);
    const std::int64_t end = timeline_.end_of(node);
    const CommandId id = command(entry.role, entry.command).id;
    if (kind == sim::NodeKind::Transfer) {
      entries_[role][static_cast<std::size_t>(entry.command)] = &entry;
      if (entry.stream != schedule::kComputeStream) return;
      pieces_[role].push_back({.start = instant(arrival(entry, node)),
                               .end = instant(end),
                               .command = id,
                               .kind = Piece::Kind::Communicate,
                               .purpose = *purposes.at(id),
                               .moves_from = instant(start)});
      return;
    }
    const bool shows = kind != sim::NodeKind::WakeUp && kind != sim::NodeKind::Call;
    if (entry.stream != schedule::kComputeStream || !shows) return;
    // The gap before a kernel is idle time.
    const std::int64_t begin = start + graph_.launch_gap <= end ? start + graph_.launch_gap : start;
    pieces_[role].push_back({.start = instant(begin), .end = instant(end), .command = id});
  }

  // When the stream reached the collective.
  [[nodiscard]] std::int64_t arrival(const sim::CommandNode& entry, sim::NodeId node) const {
    const std::int32_t lane = compiled_.lanes_of(entry).begin;
    std::int64_t time = entry.issued;
    for (const sim::NodeId from : graph_.predecessors_of(node)) {
      if (graph_.takes_part(from, lane)) time = std::max(time, timeline_.end_of(from));
    }
    return std::min(time, timeline_.start_of(node));
  }

  // What each event of the role follows on its stream: the last command that does something.
  void find_before(std::size_t role) {
    sim::EventTable<std::int32_t>& before = before_.emplace_back(program_.roles[role]);
    std::vector<std::int32_t> last(program_.streams.size(), -1);
    const std::vector<schedule::Command>& commands = program_.roles[role].commands;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      std::int32_t& latest = last[static_cast<std::size_t>(commands[i].stream.value)];
      const schedule::Action& action = commands[i].action;
      if (const auto* record = std::get_if<schedule::RecordEvent>(&action)) {
        before[record->event] = latest;
      } else if (!std::holds_alternative<schedule::WaitEvent>(action) &&
                 !std::holds_alternative<schedule::Release>(action)) {
        latest = static_cast<std::int32_t>(i);
      }
    }
  }

  void add(const sim::WaitRecord& wait, const Purposes& purposes) {
    const auto role = static_cast<std::size_t>(wait.role);
    const std::int32_t lane = compiled_.roles[role].begin;
    const auto latest = [&](sim::EntryRange entries) {
      std::int64_t time = 0;
      for (const std::int32_t entry : compiled_.entries(entries)) {
        time = std::max(time, timeline_.end_of(compiled_.on_lane(entry, lane)));
      }
      return time;
    };
    const std::int64_t from = latest(wait.stream_before);
    const std::int64_t until = wait.wake_up
                                   ? timeline_.end_of(compiled_.on_lane(*wait.wake_up, lane))
                                   : latest(wait.event);
    if (until <= from) return;
    const schedule::Command& waits = command(wait.role, wait.command);
    Piece piece{.start = instant(from),
                .end = instant(until),
                .command = waits.id,
                .kind = Piece::Kind::Stand};
    const std::int32_t before = before_[role][std::get<schedule::WaitEvent>(waits.action).event];
    const sim::CommandNode* const transfer =
        before < 0 ? nullptr : entries_[role][static_cast<std::size_t>(before)];
    if (transfer != nullptr) {
      piece.kind = Piece::Kind::Communicate;
      piece.purpose = *purposes.at(command(wait.role, before).id);
      piece.moves_from = instant(timeline_.start_of(node_of(*transfer)));
    }
    pieces_[role].push_back(piece);
  }

  const schedule::ScheduledProgram& program_;
  const sim::CompiledProgram& compiled_;
  const sim::StepGraph& graph_;
  const sim::Timeline& timeline_;
  std::vector<std::vector<const sim::CommandNode*>> entries_;  // [role][command]: what communicates
  std::vector<sim::EventTable<std::int32_t>> before_;          // [role]
  std::vector<std::vector<Piece>> pieces_;                     // [role]
};

PlayedStep::PlayedStep(const schedule::ScheduledProgram& program,
                       const sim::CompiledProgram& compiled, const sim::Timeline& timeline)
    : pieces_(std::make_unique<Pieces>(program, compiled, timeline)) {}
PlayedStep::~PlayedStep() = default;

std::vector<StageParts> PlayedStep::parts() const { return pieces_->parts(pieces_->step()); }

std::vector<StageParts> PlayedStep::parts(const std::vector<sim::Window>& windows) const {
  return pieces_->parts(windows);
}

std::map<Rank, std::vector<traces::Interval>> bubbles(const schedule::ScheduledProgram& program,
                                                      const traces::Trace& trace,
                                                      std::int32_t step) {
  std::map<Rank, std::vector<traces::Interval>> all;
  if (program.program.stages == 1) return all;
  const Purposes purposes = purposes_of(program);
  for (const Rank rank : trace.ranks) {
    Walk walk = walked(trace, purposes, rank, step);
    static_cast<void>(walk.finish());
    all[rank] = std::move(walk).bubble();
  }
  return all;
}

}  // namespace dovetail::predict
