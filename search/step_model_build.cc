// Reads a StepModel's data from one probe: the frame with a bucket for each gradient, lowered. So rewrites of the
// Program (micro-steps, scaling) are those of lowering, and only what a placement moves is known here.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "lower/lower.h"
#include "search/step_data.h"
#include "search/step_model.h"
#include "sim/lanes.h"

namespace dovetail::search {
namespace {

using schedule::Bucket;
using schedule::Op;
using schedule::OwedGradient;
using schedule::Phase;
using schedule::Program;
using schedule::Schedule;
using schedule::ScheduledProgram;
using schedule::SyncPoint;

// One bucket per gradient, launched when ready.
Schedule probe_of(const Schedule& frame, const std::vector<OwedGradient>& owed) {
  Schedule probe = frame;
  // Without the frame's gradients: their memory would be kept once per bucket.
  Bucket like = frame.buckets.front();
  like.gradients = std::vector<schedule::Slice>();
  probe.buckets.clear();
  probe.buckets.reserve(owed.size());
  for (const OwedGradient& gradient : owed) {
    Bucket bucket = like;
    bucket.id = BucketId{static_cast<std::int32_t>(probe.buckets.size())};
    bucket.gradients = {gradient.tensor};
    bucket.group = gradient.group;
    bucket.mode = schedule::BucketMode::View;
    bucket.stream = schedule::CommStream{};
    bucket.launch = schedule::LaunchWhenReady{};
    bucket.wait = schedule::WaitPoint::FirstUse;
    bucket.scope = schedule::WaitScope::Event;
    probe.buckets.push_back(std::move(bucket));
  }
  return probe;
}

std::optional<std::string> refusal_of(const Program& program, const Schedule& frame,
                                      const std::vector<OwedGradient>& owed) {
  if (owed.empty()) return "no gradient needs a reduction";
  if (program.stages > 1) return "a pipeline has several roles";
  if (!frame.collectives.empty()) return "collectives of the program leave the compute stream";
  if (frame.buckets.front().collective != schedule::Collective::AllReduce) {
    return "updates are sharded";
  }
  std::set<TensorId> seen;
  for (const OwedGradient& gradient : owed) {
    if (gradient.group != owed.front().group || gradient.dtype != owed.front().dtype ||
        gradient.op != owed.front().op) {
      return "gradients differ in process group, dtype or reduction";
    }
    if (!seen.insert(gradient.tensor).second) return "a gradient needs two reductions";
  }
  return std::nullopt;
}

class Builder {
 public:
  Builder(const models::Costs& costs, const Schedule& frame, ScheduledProgram probe) {
    data_.costs = costs;
    data_.frame = frame;
    data_.frame.buckets.clear();
    data_.bucket = frame.buckets.front();
    data_.bucket.gradients.clear();
    data_.program = std::move(probe);
  }

  // Nothing: `refusal` says why.
  std::optional<StepData> build(const std::vector<OwedGradient>& owed) {
    data_.group = program().group(owed.front().group);
    schedule::Transfer all_reduce;
    all_reduce.kind = schedule::Collective::AllReduce;
    data_.travel = cost_of(all_reduce, data_.group);
    if (!read_commands()) return std::nullopt;
    take_ops();
    if (!find_reducing_steps()) return std::nullopt;
    if (!take_gradients(owed)) return std::nullopt;
    data_.program.roles.front().commands.clear();
    return std::move(data_);
  }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  bool refuse(const std::string& why) {
    refusal_ = why;
    return false;
  }
  [[nodiscard]] const Program& program() const { return data_.program.program; }

  // Without its time where it has no bytes.
  [[nodiscard]] sim::TransferCost cost_of(const schedule::Transfer& transfer,
                                          const schedule::ProcessGroup& group) const {
    sim::TransferCost cost;
    if (transfer.bytes > Bytes(0)) {
      cost.time = data_.costs.collective(transfer.kind, group, transfer.bytes);
    }
    const models::CollectiveCost* known = data_.costs.find({transfer.kind, group.size()});
    if (known == nullptr || known->loads.empty()) return cost;
    cost.latency = known->time.latency();
    cost.loads = known->loads;
    return cost;
  }

  // What the probe does beside its buckets' collectives, and where it scales.
  bool read_commands() {
    if (data_.program.roles.size() != 1) return refuse("the step has several roles");
    std::size_t before = 0;
    std::size_t after = 0;
    for (const schedule::Command& command : data_.program.roles.front().commands) {
      const bool compute = command.stream == schedule::kComputeStream;
      if (std::holds_alternative<schedule::Copy>(command.action)) {
        return refuse("the step copies beside its buckets");
      }
      if (std::holds_alternative<schedule::Scale>(command.action)) ++(compute ? before : after);
      const auto* run = std::get_if<schedule::RunOp>(&command.action);
      if (run == nullptr) continue;
      if (!compute) return refuse("an op runs on another stream");
      if (command.transfer) {
        const schedule::Transfer& transfer = data_.program.transfer(command);
        const schedule::ProcessGroup& group = program().group(transfer.group);
        data_.own.push_back({data_.ops(), group, cost_of(transfer, group)});
      }
      data_.ids.push_back(run->op);
    }
    const std::size_t buckets = data_.program.buckets.size();
    if ((before > 0 && before < buckets) || (after > 0 && after < buckets)) {
      return refuse("only some gradients are scaled");
    }
    data_.scales_before = before > 0;
    data_.scales_after = after > 0;
    return data_.ids.size() == program().ops.size() || refuse("an op is left out");
  }

  void take_ops() {
    const sim::Lanes lanes(data_.program, data_.costs.distinct_ranks);
    data_.work.resize(lanes.ranks().size());
    for (const Op& op : program().ops) {
      const bool travels = std::holds_alternative<schedule::CollectiveWork>(op.work);
      data_.kernel.push_back(models::kernel_class(op));
      data_.issue.push_back(travels || data_.inline_host() ? 0 : data_.costs.issue(op).count());
      for (std::size_t lane = 0; lane < lanes.ranks().size(); ++lane) {
        const std::int64_t work = travels ? 0 : data_.costs.op(op, lanes.ranks()[lane]).count();
        data_.work[lane].push_back(work);
      }
      data_.alone.push_back(step::Work::fixed(data_.work.front().back() + data_.launch_gap()));
    }
  }

  [[nodiscard]] bool every_step_reduces() const {
    return program().micro_steps > 1 && data_.frame.merge.sync == SyncPoint::EveryMicroStep;
  }

  // As lower/survey.cc sees it: sums over reduced micro-steps come behind backward.
  [[nodiscard]] bool is_in_backward(const Op& op) const {
    if (op.phase == Phase::Optimizer) return false;
    if (!every_step_reduces() || !std::holds_alternative<schedule::Accumulate>(op.effect)) {
      return true;
    }
    return std::ranges::none_of(op.writes, [&](TensorId id) {
      return program().tensor(id).kind == schedule::TensorKind::MergedGradient;
    });
  }

  bool find_reducing_steps() {
    const std::int32_t last = program().micro_steps - 1;
    for (std::int32_t step = every_step_reduces() ? 0 : last; step <= last; ++step) {
      std::optional<std::int32_t> end;
      for (std::int32_t op = 0; op < data_.ops(); ++op) {
        const Op& entry = program().ops[static_cast<std::size_t>(op)];
        const bool mine = program().micro_steps == 1 || entry.micro_step == step;
        if (mine && is_in_backward(entry)) end = op;
      }
      if (!end) return refuse("there is no backward");
      ReducingStep& found = data_.reducing.emplace_back();
      found.backward_end = *end;
      if (*end + 1 < data_.ops()) found.after_backward = *end + 1;
      const bool waits =
          program().micro_steps > 1 && data_.frame.merge.sync == SyncPoint::AfterLastMicroStep;
      if (waits) found.earliest_launch = *end;
    }
    return true;
  }

  bool take_gradients(const std::vector<OwedGradient>& owed) {
    schedule::IdTable<TensorId, std::int32_t> travels{-1};  // of what travels: its gradient
    for (const OwedGradient& gradient : owed) {
      const std::int32_t self = data_.count();
      const TensorId tensor =
          data_.program.buckets[static_cast<std::size_t>(self)].members.front().tensor;
      data_.position[gradient.tensor] = self;
      travels[tensor] = self;
      data_.gradients.push_back(gradient.tensor);
      data_.bytes.push_back(program().tensor(tensor).bytes().count());
    }
    for (std::size_t step = 0; step < data_.reducing.size(); ++step) {
      if (!find_accesses(step, travels)) return false;
    }
    const std::int64_t element =
        schedule::element_size(data_.program.buckets.front().dtype).count();
    const std::int64_t spacing = std::lcm(data_.bucket.align_to.count(), element);
    data_.bytes_sum.push_back(0);
    data_.spaced_sum.push_back(0);
    for (const std::int64_t bytes : data_.bytes) {
      data_.bytes_sum.push_back(data_.bytes_sum.back() + bytes);
      data_.spaced_sum.push_back(data_.spaced_sum.back() +
                                 (bytes + spacing - 1) / spacing * spacing);
    }
    return true;
  }

  // Who writes each gradient last in this micro-step, and who touches it first behind its backward.
  bool find_accesses(std::size_t index, const schedule::IdTable<TensorId, std::int32_t>& travels) {
    ReducingStep& step = data_.reducing[index];
    const std::int32_t number =
        every_step_reduces() ? static_cast<std::int32_t>(index) : program().micro_steps - 1;
    step.ready.assign(data_.gradients.size(), -1);
    step.first_use.assign(data_.gradients.size(), kBehindAllOps);
    for (std::int32_t op = 0; op <= step.backward_end; ++op) {
      const Op& entry = program().ops[static_cast<std::size_t>(op)];
      if (entry.phase == Phase::Optimizer) continue;
      if (every_step_reduces() && entry.micro_step != number) continue;
      for (const TensorId id : entry.writes) {
        if (travels.at(id) >= 0) step.ready[static_cast<std::size_t>(travels.at(id))] = op;
      }
    }
    for (std::int32_t op = 0; op < data_.ops(); ++op) {
      const auto touch = [&](TensorId id) {
        const std::int32_t gradient = travels.at(id);
        if (gradient < 0 || op <= step.ready[static_cast<std::size_t>(gradient)]) return true;
        std::int32_t& first = step.first_use[static_cast<std::size_t>(gradient)];
        first = std::min(first, op);
        return op > step.backward_end;
      };
      const Op& entry = program().ops[static_cast<std::size_t>(op)];
      if (!std::ranges::all_of(entry.reads, touch) || !std::ranges::all_of(entry.writes, touch)) {
        return refuse("backward reads reduced gradients");
      }
    }
    if (std::ranges::count(step.ready, -1) > 0) return refuse("a gradient is never written");
    return std::ranges::is_sorted(step.ready) || refuse("gradients are not in ready order");
  }

  StepData data_;
  std::string refusal_;
};

}  // namespace

StepModel::Made StepModel::make(const Program& program, const models::Costs& costs,
                                const Schedule& frame) {
  DOVETAIL_CHECK(!frame.buckets.empty()) << "a frame without a bucket";
  const std::vector<OwedGradient> owed = schedule::owed_gradients(program);
  if (auto refusal = refusal_of(program, frame, owed)) return {.refusal = *std::move(refusal)};
  std::optional<schedule::Lowered> probe;
  try {
    probe = schedule::lower(program, probe_of(frame, owed));
  } catch (const InputError& error) {
    return {.refusal = error.what()};
  }
  Builder builder(costs, frame, std::move(probe->program));
  std::optional<StepData> data = builder.build(owed);
  if (!data) return {.refusal = builder.refusal()};
  return {.model = StepModel(std::make_shared<const StepData>(*std::move(data)))};
}

}  // namespace dovetail::search
