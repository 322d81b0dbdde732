// Cuts the forward ops into contiguous parts of nearly equal work (binary search on the largest
// part), and lets every other op follow the tensors that it shares with them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/assign.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/id_table.h"
#include "schedule/lower/pipeline/norms.h"

namespace dovetail::schedule {
namespace {

constexpr std::int32_t kNowhere = -1;
constexpr int kBisections = 60;  // more than a double has bits

// The slowest rank's time.
std::optional<double> measured(const Op& op) {
  const auto* timed = std::get_if<TimedWork>(&op.work);
  if (timed == nullptr || timed->by_rank.empty()) return std::nullopt;
  return static_cast<double>(std::ranges::max(timed->by_rank).count());
}

// The work of each op in one unit for all.
std::vector<double> weights(const std::vector<const Op*>& ops) {
  std::vector<double> times;
  std::vector<double> flop;
  std::vector<double> bytes;
  double total_flop = 0;
  bool all_timed = true;
  for (const Op* op : ops) {
    const std::optional<double> time = measured(*op);
    all_timed = all_timed && time.has_value();
    times.push_back(time.value_or(0));
    flop.push_back(op->flop().count());
    bytes.push_back(static_cast<double>(op->bytes().count()));
    total_flop += flop.back();
  }
  if (all_timed) return times;
  return total_flop > 0 ? flop : bytes;
}

// The part of each item when a part is closed before it would exceed `limit`, but never so late
// that a later part would stay empty; nothing when the last part exceeds it.
std::optional<std::vector<std::int32_t>> cut(const std::vector<double>& weight, std::int32_t parts,
                                             double limit) {
  std::vector<std::int32_t> part;
  double filled = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const std::int32_t current = part.empty() ? 0 : part.back();
    const auto left = static_cast<std::int32_t>(weight.size() - i);
    const bool must = !part.empty() && parts - 1 - current >= left;
    const bool full = !part.empty() && filled + weight[i] > limit;
    if (full && current + 1 == parts) return std::nullopt;
    part.push_back(must || full ? current + 1 : current);
    filled = must || full ? weight[i] : filled + weight[i];
    if (filled > limit) return std::nullopt;
  }
  return part;
}

// Contiguous parts, none empty, the largest as small as possible. REQUIRES: parts <= items.
std::vector<std::int32_t> equal_parts(const std::vector<double>& weight, std::int32_t parts) {
  double high = 0;
  for (const double one : weight) high += one;
  double low = 0;
  std::vector<std::int32_t> best = *cut(weight, parts, high);
  for (int i = 0; i < kBisections; ++i) {
    const double middle = low + (high - low) / 2;
    if (auto found = cut(weight, parts, middle)) {
      best = *std::move(found);
      high = middle;
    } else {
      low = middle;
    }
  }
  return best;
}

class StageAssigner {
 public:
  StageAssigner(Program program, StageSplit split) : program_(std::move(program)), split_(split) {}

  Rewrite run() && {
    if (auto refusal = assign_forward()) return *std::move(refusal);
    find_gradients();
    assign_backward();
    assign_optimizer();
    widen_world();
    const std::int32_t parts = split_.stages * split_.chunks;
    std::string report = "stages: forward cut into " + std::to_string(parts) + " parts for " +
                         std::to_string(split_.stages) + " stages";
    return Rewritten{.program = divide_norms(std::move(program_)), .report = std::move(report)};
  }

 private:
  [[nodiscard]] std::int32_t role_of(std::int32_t stage) const {
    return role_of_stage(split_.map, split_.stages, stage);
  }
  [[nodiscard]] bool is_parameter(TensorId id) const {
    return program_.tensor(id).kind == TensorKind::Parameter;
  }

  std::optional<Refusal> assign_forward() {
    std::vector<const Op*> forward;
    for (const Op& op : program_.ops) {
      if (op.phase == Phase::Forward) forward.push_back(&op);
    }
    const std::int32_t parts = split_.stages * split_.chunks;
    if (static_cast<std::size_t>(parts) > forward.size()) {
      return Refusal{std::to_string(forward.size()) + " forward ops cannot be split into " +
                     std::to_string(parts) + " parts"};
    }
    const std::vector<std::int32_t> part = equal_parts(weights(forward), parts);
    std::size_t next = 0;
    for (Op& op : program_.ops) {
      if (op.phase != Phase::Forward) continue;
      op.stage = part[next++];
      for (const TensorId id : op.writes) made_by_[id] = op.stage;
      for (const TensorId id : op.reads) {
        if (!is_parameter(id)) continue;
        std::int32_t& home = home_[id];
        if (home == kNowhere) home = op.stage;
        if (role_of(home) == role_of(op.stage)) continue;
        return Refusal{"parameter " + program_.tensor(id).name + " is used on pipeline stages " +
                       std::to_string(home) + " and " + std::to_string(op.stage) +
                       ": weights shared by stages are not supported"};
      }
    }
    return std::nullopt;
  }

  // The home of a gradient: that of the parameter which an optimizer op updates with it alone.
  void find_gradients() {
    for (const Op& op : program_.ops) {
      if (op.phase != Phase::Optimizer) continue;
      std::vector<TensorId> gradients;
      for (const TensorId id : op.reads) {
        if (program_.tensor(id).kind == TensorKind::Gradient) gradients.push_back(id);
      }
      if (gradients.size() != 1) continue;
      for (const TensorId id : op.writes) {
        if (is_parameter(id) && home_.at(id) != kNowhere) home_[gradients.front()] = home_.at(id);
      }
    }
  }

  // Backward mirrors forward: an op without a parameter stands on no earlier stage than any op
  // behind it, nor than what it reads of forward.
  void assign_backward() {
    std::int32_t behind = 0;
    for (auto op = program_.ops.rbegin(); op != program_.ops.rend(); ++op) {
      if (op->phase != Phase::Backward) continue;
      const std::int32_t anchor = anchor_of(*op);
      std::int32_t own = anchor == kNowhere ? 0 : anchor;
      if (anchor == kNowhere) {
        for (const TensorId id : op->reads) own = std::max(own, made_by_.at(id));
      }
      behind = std::max(behind, own);
      op->stage = anchor == kNowhere ? behind : anchor;
      for (const TensorId id : op->writes) {
        if (program_.tensor(id).kind == TensorKind::Gradient && home_.at(id) == kNowhere) {
          home_[id] = op->stage;
        }
      }
    }
  }

  // Where the parameter lives whose gradient the op makes, or which it reads.
  [[nodiscard]] std::int32_t anchor_of(const Op& op) const {
    for (const TensorId id : op.writes) {
      if (home_.at(id) != kNowhere) return home_.at(id);
    }
    for (const TensorId id : op.reads) {
      if (is_parameter(id) && home_.at(id) != kNowhere) return home_.at(id);
    }
    return kNowhere;
  }

  void assign_optimizer() {
    for (Op& op : program_.ops) {
      if (op.phase != Phase::Optimizer) continue;
      std::int32_t stage = kNowhere;
      for (const auto* list : {&op.writes, &op.reads}) {
        for (const TensorId id : *list) {
          if (stage == kNowhere) stage = home_.at(id);
        }
      }
      op.stage = std::max(stage, 0);
      for (const TensorId id : op.writes) home_[id] = op.stage;
    }
  }

  void widen_world() {
    const std::int64_t ranks = program_.world_size;
    for (ProcessGroup& group : program_.groups) {
      group.instance_size = group.size();
      const std::vector<Rank> one = group.ranks;
      for (std::int32_t stage = 1; stage < split_.stages; ++stage) {
        for (const Rank rank : one) {
          group.ranks.push_back(Rank{static_cast<std::int32_t>(stage * ranks + rank.value)});
        }
      }
    }
    for (Op& op : program_.ops) {
      auto* timed = std::get_if<TimedWork>(&op.work);
      if (timed == nullptr || timed->by_rank.size() < 2) continue;
      const std::vector<Duration> one = timed->by_rank;
      for (std::int32_t stage = 1; stage < split_.stages; ++stage) {
        timed->by_rank.insert(timed->by_rank.end(), one.begin(), one.end());
      }
    }
    program_.world_size = ranks * split_.stages;
    program_.stages = split_.stages;
    program_.stage_map = split_.map;
  }

  Program program_;
  StageSplit split_;
  IdTable<TensorId, std::int32_t> home_{kNowhere};     // of parameters and gradients
  IdTable<TensorId, std::int32_t> made_by_{kNowhere};  // the forward stage that writes it
};

}  // namespace

StageSplit split_of(const Program& program) {
  std::int32_t last = 0;
  for (const Op& op : program.ops) last = std::max(last, op.stage);
  return {.stages = program.stages, .chunks = last / program.stages + 1, .map = program.stage_map};
}

Rewrite assign_stages(Program program, StageSplit split) {
  if (split.stages < 1 || split.chunks < 1) {
    return Refusal{std::to_string(split.stages) + " stages of " + std::to_string(split.chunks) +
                   " chunks: each must be at least 1"};
  }
  if (program.stages > 1 || program.micro_steps > 1) {
    return Refusal{"the program has pipeline stages or micro-steps already"};
  }
  return StageAssigner(std::move(program), split).run();
}

}  // namespace dovetail::schedule
