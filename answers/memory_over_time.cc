// Lists what each op and gather of a rank changes, and sums the changes up at every moment at which one begins or ends.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/memory_over_time.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "schedule/gradient.h"
#include "schedule/id_table.h"
#include "traces/metrics.h"

namespace dovetail::predict {
namespace {

using schedule::Phase;
using traces::MemoryLevels;
using traces::Span;

// So many bytes more or less, evenly from one moment to another; at once where they are the same.
struct Change {
  Bytes MemoryLevels::*what;
  Instant from, to;
  double bytes = 0;

  // How much of it is there at a moment; of what changes at once then, only behind it.
  [[nodiscard]] double at(Instant moment, bool behind) const {
    if (moment > to || (behind && moment == to)) return bytes;
    if (moment <= from) return 0;
    return bytes * static_cast<double>((moment - from).count()) /
           static_cast<double>((to - from).count());
  }
};

// Ops of one micro-batch in one direction, one after another.
struct Run {
  Phase phase = Phase::Forward;
  std::int32_t micro_step = 0;
  Instant from, to;
  Duration weight{};  // of the ops that count
};

class MemoryWalk {
 public:
  MemoryWalk(const schedule::ScheduledProgram& program, const traces::Trace& trace,
             const schedule::RankProgram& role, Rank rank, std::int32_t step)
      : program_(program), role_(role), rank_(rank) {
    for (const schedule::Op& op : program.program.ops) ops_[op.id] = &op;
    for (const Span& span : traces::spans_of(trace, rank)) {
      if (span.step == step) spans_[span.command] = &span;
    }
  }

  traces::RankMemory run(const jobs::StageMemory* stage) && {
    add_gathers();
    if (stage != nullptr) add_ops(*stage);
    traces::RankMemory held{.rank = rank_, .rest = Bytes(), .levels = levels()};
    if (stage == nullptr || held.levels.empty()) return held;
    const auto most = std::ranges::max_element(held.levels, {}, &MemoryLevels::sum);
    held.rest = std::max(Bytes(), stage->total() - most->sum());
    return held;
  }

 private:
  void add_gathers() {
    std::map<BucketId, Instant> begun;
    std::optional<Instant> now;  // of the compute stream, on which buffers are released
    for (const schedule::Command& command : role_.commands) {
      const Span* const span = spans_.at(command.id);
      const schedule::Communicate* const sent = schedule::bucket_collective(command);
      if (span != nullptr && sent != nullptr && sent->kind == schedule::Collective::AllGather &&
          program_.bucket(*sent->bucket).residence == schedule::Residence::Shard) {
        begun[*sent->bucket] = span->start;
      }
      if (span != nullptr && command.stream == schedule::kComputeStream) now = span->end;
      const auto* release = std::get_if<schedule::Release>(&command.action);
      if (release == nullptr || !now || !begun.contains(release->bucket)) continue;
      const auto bytes = static_cast<double>(program_.bucket(release->bucket).size.count());
      const Instant from = begun.at(release->bucket);
      changes_.push_back({&MemoryLevels::gathered, from, from, bytes});
      changes_.push_back({&MemoryLevels::gathered, *now, *now, -bytes});
      begun.erase(release->bucket);
    }
  }

  [[nodiscard]] bool writes_gradients(const schedule::Op& op) const {
    return std::ranges::any_of(op.writes, [&](TensorId id) {
      return schedule::is_gradient(program_.program.tensor(id).kind);
    });
  }

  std::vector<Run> runs() {
    std::vector<Run> runs;
    for (const schedule::Command& command : role_.commands) {
      const auto* compute = std::get_if<schedule::RunOp>(&command.action);
      const Span* const span = compute == nullptr ? nullptr : spans_.at(command.id);
      if (span == nullptr) continue;
      const schedule::Op& op = *ops_.at(compute->op);
      if (op.phase == Phase::Optimizer) {
        updated_ = std::max(updated_.value_or(span->end), span->end);
        continue;
      }
      if (runs.empty() || runs.back().phase != op.phase ||
          runs.back().micro_step != op.micro_step) {
        runs.push_back({op.phase, op.micro_step, span->start, span->end});
      }
      runs.back().to = span->end;
      if (op.phase == Phase::Forward || writes_gradients(op)) {
        runs.back().weight += span->end - span->start;
      }
    }
    std::erase_if(runs, [](const Run& run) { return run.weight == Duration{}; });
    return runs;
  }

  void add_ops(const jobs::StageMemory& stage) {
    const std::vector<Run> all = runs();
    std::map<std::pair<Phase, std::int32_t>, Duration> whole;  // of each micro-batch
    for (const Run& run : all) whole[{run.phase, run.micro_step}] += run.weight;
    const auto kept = static_cast<double>(stage.kept.count());
    const auto sums = static_cast<double>(stage.sums.count());
    const auto first = std::ranges::find(all, Phase::Backward, &Run::phase);
    for (const Run& run : all) {
      if (!whole.contains({Phase::Backward, run.micro_step})) continue;  // nothing lets go of it
      const double share = static_cast<double>(run.weight.count()) /
                           static_cast<double>(whole[{run.phase, run.micro_step}].count());
      const bool is_backward = run.phase == Phase::Backward;
      changes_.push_back(
          {&MemoryLevels::activations, run.from, run.to, (is_backward ? -share : share) * kept});
      if (is_backward && run.micro_step == first->micro_step) {
        changes_.push_back({&MemoryLevels::gradients, run.from, run.to, share * sums});
      }
    }
    if (first != all.end() && updated_) {
      changes_.push_back({&MemoryLevels::gradients, *updated_, *updated_, -sums});
    }
  }

  [[nodiscard]] MemoryLevels level(Instant moment, bool behind) const {
    double activations = 0;
    double gradients = 0;
    double gathered = 0;
    for (const Change& change : changes_) {
      double& sum = change.what == &MemoryLevels::activations ? activations
                    : change.what == &MemoryLevels::gradients ? gradients
                                                              : gathered;
      sum += change.at(moment, behind);
    }
    const auto rounded = [](double bytes) { return Bytes(std::max(0LL, std::llround(bytes))); };
    return {moment, rounded(activations), rounded(gradients), rounded(gathered)};
  }

  [[nodiscard]] std::vector<MemoryLevels> levels() const {
    std::set<Instant> moments;
    for (const Change& change : changes_) moments.insert({change.from, change.to});
    std::vector<MemoryLevels> found;
    for (const Instant moment : moments) {
      found.push_back(level(moment, false));
      const MemoryLevels behind = level(moment, true);
      if (behind != found.back()) found.push_back(behind);
    }
    return found;
  }

  const schedule::ScheduledProgram& program_;
  const schedule::RankProgram& role_;
  Rank rank_;
  schedule::IdTable<OpId, const schedule::Op*> ops_{nullptr};
  schedule::IdTable<CommandId, const Span*> spans_{nullptr};
  std::optional<Instant> updated_;  // when the last update has ended
  std::vector<Change> changes_;
};

}  // namespace

std::vector<traces::RankMemory> memory_over_time(const schedule::ScheduledProgram& program,
                                                 const traces::Trace& trace, const MemoryOf& of) {
  std::vector<traces::RankMemory> all;
  for (const Rank rank : trace.ranks) {
    const auto role = std::ranges::find_if(program.roles, [&](const schedule::RankProgram& each) {
      return std::ranges::find(each.ranks, rank) != each.ranks.end();
    });
    if (role == program.roles.end()) continue;
    const auto stage = static_cast<std::size_t>(role - program.roles.begin());
    const jobs::StageMemory* memory = stage < of.stages.size() ? &of.stages[stage] : nullptr;
    traces::RankMemory held = MemoryWalk(program, trace, *role, rank, of.step).run(memory);
    if (!held.levels.empty()) all.push_back(std::move(held));
  }
  return all;
}

}  // namespace dovetail::predict
