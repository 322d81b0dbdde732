// Takes the last two rounds that begin with a forward of the stage that ends its forwards first, and compares them stream by stream.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/rounds.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/id_table.h"

namespace dovetail::sim {
namespace {

constexpr std::int64_t kNotYet = std::numeric_limits<std::int64_t>::max();

class RoundFinder {
 public:
  RoundFinder(const schedule::ScheduledProgram& program, const CompiledProgram& compiled,
              const Timeline& timeline, std::int32_t micro_steps)
      : program_(program),
        compiled_(compiled),
        graph_(compiled.graph),
        timeline_(timeline),
        micro_steps_(micro_steps) {
    for (const schedule::Op& op : program.program.ops) ops_[op.id] = &op;
  }

  std::optional<Rounds> run() {
    if (!find_begins()) return std::nullopt;
    std::vector<std::vector<NodeId>> nodes(graph_.slots.size());
    for (NodeId node = first_node(); node < graph_.size(); ++node) {
      if (timeline_.end_of(node) <= rounds_.begin || timeline_.start_of(node) >= rounds_.end)
        continue;
      nodes[static_cast<std::size_t>(graph_.slot[static_cast<std::size_t>(node)])].push_back(node);
    }
    rounds_.host_gains = host_gains();
    rounds_.are_alike = std::ranges::all_of(
        nodes, [this](const auto& on_stream) { return serves_both(on_stream); });
    rounds_.are_equal =
        rounds_.are_alike && !rounds_.host_gains && rounds_.first() == rounds_.second() &&
        std::ranges::all_of(nodes, [this](const auto& on_stream) { return repeats(on_stream); });
    if (rounds_.are_equal)
      rounds_.own.assign(program_.roles.size(), {rounds_.between, rounds_.end});
    add_compute();
    return std::move(rounds_);
  }

 private:
  [[nodiscard]] NodeId first_node() const { return graph_.step_begin.back(); }
  [[nodiscard]] const schedule::Op* op_of(NodeId node) const {
    const CommandNode& entry = compiled_.entry_of(node);
    const auto id = schedule::op_run_by(program_.roles[static_cast<std::size_t>(entry.role)]
                                            .commands[static_cast<std::size_t>(entry.command)]);
    return id ? ops_.at(*id) : nullptr;
  }
  // What a node that runs no op does, and for which bucket.
  [[nodiscard]] std::optional<std::array<std::int32_t, 3>> service_of(NodeId node) const {
    const CommandNode& entry = compiled_.entry_of(node);
    const schedule::Action& action = program_.roles[static_cast<std::size_t>(entry.role)]
                                         .commands[static_cast<std::size_t>(entry.command)]
                                         .action;
    const auto kind = static_cast<std::int32_t>(action.index());
    const auto number = [](auto word) { return static_cast<std::int32_t>(word); };
    if (const auto* travels = std::get_if<schedule::Communicate>(&action)) {
      if (!travels->bucket) return std::nullopt;
      return std::array{kind + number(travels->kind) * 16, travels->bucket->value,
                        number(travels->part)};
    }
    if (const auto* copy = std::get_if<schedule::Copy>(&action))
      return std::array{kind, copy->bucket.value, number(copy->direction)};
    if (const auto* scale = std::get_if<schedule::Scale>(&action))
      return std::array{kind, scale->bucket.value, number(scale->part)};
    return std::nullopt;
  }
  // Whether what is done for buckets is done for the same ones in both rounds: else it belongs to the step, and to neither.
  [[nodiscard]] bool serves_both(const std::vector<NodeId>& nodes) const {
    std::array<std::vector<std::array<std::int32_t, 3>>, 2> served;
    for (const NodeId node : nodes) {
      const std::int64_t start = timeline_.start_of(node);
      const auto service = start < rounds_.begin ? std::nullopt : service_of(node);
      if (service) served[start < rounds_.between ? 0 : 1].push_back(*service);
    }
    return served[0] == served[1];
  }
  [[nodiscard]] bool computes(NodeId node) const {
    return graph_.kind[static_cast<std::size_t>(node)] == NodeKind::Compute &&
           op_of(node) != nullptr;
  }

  // The first virtual stage whose role runs out of forwards.
  [[nodiscard]] std::int32_t leading_stage() const {
    const schedule::Program& program = program_.program;
    if (program.stage_map == schedule::StageMap::V) return 0;
    std::int32_t last = 0;
    for (const schedule::Op& op : program.ops) last = std::max(last, op.stage);
    return last / program.stages * program.stages;
  }

  // When that stage begins the last micro-batch, the one a round before it, and the one before that.
  bool find_begins() {
    const std::int32_t last = program_.program.micro_steps - 1;
    if (last < 2 * micro_steps_) return false;
    const std::int32_t leads = leading_stage();
    for (NodeId node = first_node(); node < graph_.size(); ++node) {
      const schedule::Op* op = op_of(node);
      const bool is_its_own = graph_.slot_of(node).stream == schedule::kComputeStream;
      if (op == nullptr || op->phase != schedule::Phase::Forward || !is_its_own) continue;
      const auto stage = static_cast<std::size_t>(op->stage);
      if (stage >= starts_.size()) starts_.resize(stage + 1), issued_.resize(stage + 1);
      starts_[stage].resize(static_cast<std::size_t>(last) + 1, kNotYet);
      issued_[stage].resize(static_cast<std::size_t>(last) + 1, 0);
      const auto step = static_cast<std::size_t>(op->micro_step);
      if (timeline_.start_of(node) >= starts_[stage][step]) continue;
      starts_[stage][step] = timeline_.start_of(node);
      issued_[stage][step] = graph_.release_of(node);
    }
    if (static_cast<std::size_t>(leads) >= starts_.size()) return false;
    const std::vector<std::int64_t>& starts = starts_[static_cast<std::size_t>(leads)];
    if (std::ranges::find(starts, kNotYet) != starts.end() || starts.empty()) return false;
    const auto start_of = [&](std::int32_t step) { return starts[static_cast<std::size_t>(step)]; };
    rounds_ = {.begin = start_of(last - 2 * micro_steps_),
               .between = start_of(last - micro_steps_),
               .end = start_of(last)};
    find_own();
    return rounds_.begin < rounds_.between && rounds_.between < rounds_.end;
  }

  // Of each virtual stage the round behind which it begins the last micro-batch that it begins by then.
  void find_own() {
    const schedule::Program& program = program_.program;
    rounds_.own.resize(program_.roles.size());
    rounds_.quickest = kNotYet;
    rounds_.slowest = 0;
    for (std::size_t stage = 0; stage < starts_.size(); ++stage) {
      const std::vector<std::int64_t>& starts = starts_[stage];
      const auto begun = std::ranges::count_if(
          starts, [this](std::int64_t start) { return start <= rounds_.end; });
      if (begun <= micro_steps_) {
        rounds_.quickest.reset();
        rounds_.slowest.reset();
        return;
      }
      const auto at = static_cast<std::size_t>(begun) - 1;
      const Window own{starts[at - static_cast<std::size_t>(micro_steps_)], starts[at]};
      const auto role = schedule::role_of_stage(program.stage_map, program.stages,
                                                static_cast<std::int32_t>(stage));
      rounds_.own[static_cast<std::size_t>(role)] = own;
      const std::int64_t issued =
          issued_[stage][at] - issued_[stage][at - static_cast<std::size_t>(micro_steps_)];
      rounds_.quickest = std::min(*rounds_.quickest, own.length());
      rounds_.slowest = std::max({*rounds_.slowest, own.length(), issued});
      host_rounds_.push_back(issued);
    }
  }

  // Whether a host holds up something in the step and takes less for a round than everything does.
  [[nodiscard]] bool host_gains() const {
    if (graph_.release.empty()) return false;
    const bool is_as_long =
        rounds_.slowest && std::ranges::all_of(host_rounds_, [this](std::int64_t round) {
          return round == rounds_.second();
        });
    if (is_as_long) return false;
    for (NodeId node = first_node(); node < graph_.size(); ++node) {
      const std::int64_t release = graph_.release_of(node);
      if (release > 0 && timeline_.start_of(node) == release) return true;
    }
    return false;
  }

  void add_compute() {
    rounds_.compute.resize(static_cast<std::size_t>(graph_.lanes), 0);
    for (NodeId node = first_node(); node < graph_.size(); ++node) {
      const std::int64_t start = timeline_.start_of(node);
      const Window& own = rounds_.own[static_cast<std::size_t>(compiled_.entry_of(node).role)];
      if (start < own.begin || start >= own.end || !computes(node)) continue;
      rounds_.compute[static_cast<std::size_t>(graph_.slot_of(node).lane)] +=
          graph_.work[static_cast<std::size_t>(node)].ns();
    }
  }

  // Of the nodes of one stream, in their order, those that the first round sees, and then as many that the second does.
  [[nodiscard]] bool repeats(const std::vector<NodeId>& nodes) const {
    const auto started = std::ranges::count_if(
        nodes, [this](NodeId node) { return timeline_.start_of(node) < rounds_.between; });
    const auto ended = std::ranges::count_if(
        nodes, [this](NodeId node) { return timeline_.end_of(node) <= rounds_.between; });
    if (std::ssize(nodes) - ended != started) return false;
    return std::equal(nodes.begin(), nodes.begin() + started, nodes.begin() + ended,
                      [this](NodeId before, NodeId node) { return is_again(before, node); });
  }

  [[nodiscard]] bool is_again(NodeId before, NodeId node) const {
    const auto shift = [&](const std::vector<std::int64_t>& times) {
      return times[static_cast<std::size_t>(node)] - times[static_cast<std::size_t>(before)];
    };
    if (shift(timeline_.start) != rounds_.second()) return false;
    if (shift(timeline_.end) != rounds_.second()) return false;
    if (graph_.release_of(node) - graph_.release_of(before) > rounds_.second()) return false;
    const schedule::Op* const op = op_of(node);
    const schedule::Op* const earlier = op_of(before);
    if ((op == nullptr) != (earlier == nullptr)) return false;
    const bool is_of_next_round = op == nullptr
                                      ? service_of(node) == service_of(before)
                                      : (op->micro_step == earlier->micro_step + micro_steps_ &&
                                         op->stage == earlier->stage &&
                                         op->phase == earlier->phase && schedule::is_repeated(*op));
    return is_of_next_round && is_like(before, node);
  }

  [[nodiscard]] bool is_like(NodeId a, NodeId b) const {
    const auto same = [&](const auto& list) {
      return list[static_cast<std::size_t>(a)] == list[static_cast<std::size_t>(b)];
    };
    if (!same(graph_.kind) || !same(graph_.kernel)) return false;
    if (!graph_.is_transfer(a)) return same(graph_.work);
    const step::Transfer& one = graph_.transfer(a);
    const step::Transfer& other = graph_.transfer(b);
    return one.isolated == other.isolated && one.back_to_back == other.back_to_back &&
           one.latency == other.latency && one.gpu == other.gpu && one.lanes == other.lanes;
  }

  const schedule::ScheduledProgram& program_;
  const CompiledProgram& compiled_;
  const StepGraph& graph_;
  const Timeline& timeline_;
  const std::int32_t micro_steps_;
  schedule::IdTable<OpId, const schedule::Op*> ops_{nullptr};
  // Of the forward of each virtual stage and micro-step.
  std::vector<std::vector<std::int64_t>> starts_, issued_;
  std::vector<std::int64_t> host_rounds_;  // of each virtual stage: how long its host takes for one
  Rounds rounds_;
};

}  // namespace

std::optional<Rounds> find_rounds(const schedule::ScheduledProgram& program,
                                  const CompiledProgram& compiled, const Timeline& timeline,
                                  std::int32_t micro_steps) {
  return RoundFinder(program, compiled, timeline, micro_steps).run();
}

}  // namespace dovetail::sim
