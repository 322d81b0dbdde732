// Reads a StepModel's data from one probe: the frame with a bucket for each gradient, lowered. So rewrites of the
// Program (micro-steps, scaling) are those of lowering, and only what a placement moves is known here. Where updates are
// sharded, a second probe that shards nothing shows the updates as they are before they are cut.
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
#include "base/rational.h"
#include "lower/lower.h"
#include "lower/rewrite/shard_work.h"
#include "search/step_data.h"
#include "search/step_model.h"
#include "sim/lanes.h"

namespace dovetail::search {
namespace {

using schedule::Bucket;
using schedule::Collective;
using schedule::Op;
using schedule::OwedGradient;
using schedule::Phase;
using schedule::Program;
using schedule::Schedule;
using schedule::ScheduledProgram;
using schedule::SyncPoint;

// One bucket per gradient, launched when ready.
Schedule probe_of(const Schedule& frame, const std::vector<OwedGradient>& owed,
                  Collective collective) {
  Schedule probe = frame;
  probe.gathers.clear();
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
    bucket.collective = collective;
    bucket.mode = schedule::BucketMode::View;
    bucket.stream = schedule::CommStream{};
    bucket.launch = schedule::LaunchWhenReady{};
    bucket.wait = schedule::WaitPoint::FirstUse;
    bucket.scope = schedule::WaitScope::Event;
    probe.buckets.push_back(std::move(bucket));
  }
  return probe;
}

std::optional<std::string> refusal_of(const Program& program, const models::Costs& costs,
                                      const Schedule& frame,
                                      const std::vector<OwedGradient>& owed) {
  if (owed.empty()) return "no gradient needs a reduction";
  if (program.stages > 1) return "a pipeline has several roles";
  if (!frame.collectives.empty()) return "collectives of the program leave the compute stream";
  if (frame.buckets.front().replicas) return "shards have replicas";
  const auto is_of_bucket = [](const models::MeasuredKernel& kernel) {
    return kernel.op.starts_with("bucket");
  };
  if (std::ranges::any_of(costs.ops.model().kernels.kernels(), is_of_bucket)) {
    return "the updates of some buckets are measured one by one";
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
    data_.frame.gathers.clear();
    data_.bucket = frame.buckets.front();
    data_.bucket.gradients.clear();
    data_.program = std::move(probe);
  }

  // Nothing: `refusal` says why. `whole`: the second probe's Program, where updates are sharded.
  std::optional<StepData> build(const std::vector<OwedGradient>& owed,
                                const std::optional<Program>& whole) {
    data_.group = program().group(owed.front().group);
    data_.travel = cost_of(data_.bucket.collective, Bytes(0), data_.group);
    if (whole) {
      data_.sharding.emplace();
      data_.gather = cost_of(Collective::AllGather, Bytes(0), data_.group);
    }
    if (!read_commands(owed.size())) return std::nullopt;
    take_ops();
    if (!find_reducing_steps()) return std::nullopt;
    if (!take_gradients(owed)) return std::nullopt;
    if (whole && (!take_updates(*whole) || !find_readers())) return std::nullopt;
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
  [[nodiscard]] std::int32_t ops() const { return static_cast<std::int32_t>(data_.ops.size()); }

  // Without its time where it has no bytes.
  [[nodiscard]] sim::TransferCost cost_of(Collective kind, Bytes bytes,
                                          const schedule::ProcessGroup& group) const {
    sim::TransferCost cost;
    if (bytes > Bytes(0)) cost.time = data_.costs.collective(kind, group, bytes);
    const models::CollectiveCost* known = data_.costs.find({kind, group.size()});
    if (known == nullptr || known->loads.empty()) return cost;
    cost.latency = known->time.latency();
    cost.loads = known->loads;
    return cost;
  }

  // What the probe does beside its buckets' collectives and the updates and gathers of its shards, and where it scales.
  bool read_commands(std::size_t buckets) {
    if (data_.program.roles.size() != 1) return refuse("the step has several roles");
    std::erase_if(data_.program.program.ops, [](const Op& op) {
      return std::holds_alternative<schedule::ShardUpdate>(op.effect);
    });
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t next = 0;  // of the ops
    for (const schedule::Command& command : data_.program.roles.front().commands) {
      const bool compute = command.stream == schedule::kComputeStream;
      if (std::holds_alternative<schedule::Copy>(command.action) && !data_.sharding) {
        return refuse("the step copies beside its buckets");
      }
      if (std::holds_alternative<schedule::Scale>(command.action)) ++(compute ? before : after);
      const auto* run = std::get_if<schedule::RunOp>(&command.action);
      if (run == nullptr) continue;
      if (!compute) return refuse("an op runs on another stream");
      if (next == program().ops.size() || program().ops[next].id != run->op) continue;
      StepOp& op = data_.ops.emplace_back();
      ++next;
      if (!command.transfer) continue;
      const schedule::Transfer& transfer = data_.program.transfer(command);
      const schedule::ProcessGroup& group = program().group(transfer.group);
      op.own = static_cast<std::int32_t>(data_.own.size());
      data_.own.push_back({group, cost_of(transfer.kind, transfer.bytes, group)});
    }
    if ((before > 0 && before < buckets) || (after > 0 && after < buckets)) {
      return refuse("only some gradients are scaled");
    }
    data_.scales_before = before > 0;
    data_.scales_after = after > 0;
    return next == program().ops.size() || refuse("an op is left out");
  }

  void take_ops() {
    const sim::Lanes lanes(data_.program, data_.costs.distinct_ranks);
    for (std::size_t i = 0; i < data_.ops.size(); ++i) {
      const Op& op = program().ops[i];
      StepOp& known = data_.ops[i];
      data_.ids.push_back(op.id);
      known.kernel = models::kernel_class(op);
      const bool travels = std::holds_alternative<schedule::CollectiveWork>(op.work);
      known.issue = travels || data_.inline_host() ? 0 : data_.costs.issue(op).count();
      for (const Rank rank : lanes.ranks()) {
        data_.work.push_back(travels ? 0 : data_.costs.op(op, rank).count());
      }
      const std::int64_t first = data_.work[i * lanes.ranks().size()];
      known.alone = step::Work::fixed(first + data_.launch_gap());
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
      for (std::int32_t op = 0; op < ops(); ++op) {
        const Op& entry = program().ops[static_cast<std::size_t>(op)];
        const bool mine = program().micro_steps == 1 || entry.micro_step == step;
        if (mine && is_in_backward(entry)) end = op;
      }
      if (!end) return refuse("there is no backward");
      ReducingStep& found = data_.reducing.emplace_back();
      found.backward_end = *end;
      if (*end + 1 < ops() || data_.sharding) found.after_backward = *end + 1;
      const bool waits =
          program().micro_steps > 1 && data_.frame.merge.sync == SyncPoint::AfterLastMicroStep;
      if (waits) found.earliest_launch = *end;
    }
    return true;
  }

  bool take_gradients(const std::vector<OwedGradient>& owed) {
    for (const OwedGradient& gradient : owed) {
      const std::int32_t self = data_.count();
      const TensorId tensor =
          data_.program.buckets[static_cast<std::size_t>(self)].members.front().tensor;
      data_.position[gradient.tensor] = self;
      travels_[tensor] = self;
      data_.gradients.push_back(gradient.tensor);
      data_.bytes.push_back(program().tensor(tensor).bytes().count());
    }
    for (std::size_t step = 0; step < data_.reducing.size(); ++step) {
      if (!find_accesses(step)) return false;
    }
    data_.element = schedule::element_size(data_.program.buckets.front().dtype).count();
    data_.spacing = std::lcm(data_.bucket.align_to.count(), data_.element);
    data_.bytes_sum.push_back(0);
    data_.spaced_sum.push_back(0);
    for (const std::int64_t bytes : data_.bytes) {
      data_.bytes_sum.push_back(data_.bytes_sum.back() + bytes);
      data_.spaced_sum.push_back(data_.spaced_sum.back() + data_.spaced(bytes));
    }
    return true;
  }

  // Who writes each gradient last in this micro-step, and who touches it first behind its backward.
  bool find_accesses(std::size_t index) {
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
        if (travels_.at(id) >= 0) step.ready[static_cast<std::size_t>(travels_.at(id))] = op;
      }
    }
    for (std::int32_t op = 0; op < ops(); ++op) {
      const auto touch = [&](TensorId id) {
        const std::int32_t gradient = travels_.at(id);
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

  // The updates that are cut, from a Program in which they are not.
  bool take_updates(const Program& whole) {
    Sharding& sharding = *data_.sharding;
    schedule::IdTable<OpId, std::int32_t> place{-1};  // of the ops that stay
    for (std::int32_t op = 0; op < ops(); ++op) place[data_.ids[static_cast<std::size_t>(op)]] = op;
    schedule::IdTable<OpId, char> is_whole{0};
    for (const Op& op : whole.ops) is_whole[op.id] = 1;
    sharding.update_of.assign(data_.gradients.size(), -1);
    std::int32_t next = 0;
    schedule::WorkSum sum;  // of all together: can parts of them be added up?
    std::optional<Rational> rescale;
    for (const Op& op : whole.ops) {
      if (place.at(op.id) >= 0) {
        next = place.at(op.id) + 1;
        // Behind it may stand what sharding adds: the sum of its norm.
        while (next < ops() && is_whole.at(data_.ids[static_cast<std::size_t>(next)]) == 0) ++next;
        continue;
      }
      const auto* effect = std::get_if<schedule::Update>(&op.effect);
      if (effect == nullptr) return refuse("an op is left out");
      if (sharding.updates.empty()) rescale = effect->rescale;
      if (rescale != effect->rescale || !sum.add(op.work, {}))
        return refuse("updates differ in kind");
      CutUpdate update{.op = op, .before_op = next};
      std::vector<TensorId> parameters = op.writes;
      std::erase_if(parameters, [&](TensorId id) {
        return whole.tensor(id).kind != schedule::TensorKind::Parameter;
      });
      std::size_t parameter =
          0;  // the i-th that it writes belongs to the i-th gradient that it reads
      for (const TensorId id : op.reads) {
        const std::int32_t gradient = travels_.at(id);
        if (gradient < 0) continue;
        const auto g = static_cast<std::size_t>(gradient);
        sharding.update_of[g] = static_cast<std::int32_t>(sharding.updates.size());
        update.elements += data_.bytes[g] / data_.element;
        gradient_of_[parameters.at(parameter++)] = gradient;
      }
      update.op.reads.clear();
      update.op.writes.clear();
      sharding.updates.push_back(std::move(update));
    }
    return sharding.updates.front().before_op > data_.reducing.back().backward_end ||
           refuse("updates stand within backward");
  }

  // Who reads the parameter of each gradient, and in which phase of which micro-step.
  bool find_readers() {
    Sharding& sharding = *data_.sharding;
    sharding.first_reader.assign(data_.gradients.size(), kBehindAllOps);
    if (data_.frame.parameters == schedule::ParameterSync::EachUse) {
      sharding.steps.resize(static_cast<std::size_t>(program().micro_steps));
    }
    for (GatheringStep& step : sharding.steps) {
      step.forward.resize(data_.gradients.size());
      step.backward.resize(data_.gradients.size());
    }
    for (std::int32_t i = 0; i < ops(); ++i) {
      const Op& op = program().ops[static_cast<std::size_t>(i)];
      GatheringStep* step = nullptr;
      if (op.phase != Phase::Optimizer && !sharding.steps.empty()) {
        const bool one = program().micro_steps == 1;
        step = &sharding.steps[one ? 0 : static_cast<std::size_t>(op.micro_step)];
        if (step->ops.empty() && step != &sharding.steps.front()) step->begin = i;
        step->ops.push_back(i);
      }
      for (const auto* list : {&op.reads, &op.writes}) {
        for (const TensorId id : *list) {
          const std::int32_t gradient = gradient_of_.at(id);
          if (gradient < 0) continue;
          const auto g = static_cast<std::size_t>(gradient);
          if (i >= sharding.updates.front().before_op)
            return refuse("parameters are used behind their updates");
          sharding.first_reader[g] = std::min(sharding.first_reader[g], i);
          if (step == nullptr || list != &op.reads) continue;
          (op.phase == Phase::Forward ? step->forward : step->backward)[g].join({i, i});
        }
      }
    }
    return true;
  }

  StepData data_;
  schedule::IdTable<TensorId, std::int32_t> travels_{-1};      // of what travels: its gradient
  schedule::IdTable<TensorId, std::int32_t> gradient_of_{-1};  // of a parameter
  std::string refusal_;
};

}  // namespace

StepModel::Made StepModel::make(const Program& program, const models::Costs& costs,
                                const Schedule& frame) {
  DOVETAIL_CHECK(!frame.buckets.empty()) << "a frame without a bucket";
  const std::vector<OwedGradient> owed = schedule::owed_gradients(program);
  if (auto refusal = refusal_of(program, costs, frame, owed))
    return {.refusal = *std::move(refusal)};
  const Collective collective = frame.buckets.front().collective;
  std::optional<schedule::Lowered> probe;
  std::optional<Program> whole;
  try {
    probe = schedule::lower(program, probe_of(frame, owed, collective));
    if (collective == Collective::ReduceScatter) {
      Schedule unsharded = probe_of(frame, owed, Collective::AllReduce);
      unsharded.parameters = schedule::ParameterSync::AfterUpdate;
      whole = schedule::lower(program, unsharded).program.program;
    }
  } catch (const InputError& error) {
    return {.refusal = error.what()};
  }
  Builder builder(costs, frame, std::move(probe->program));
  std::optional<StepData> data = builder.build(owed, whole);
  if (!data) return {.refusal = builder.refusal()};
  return {.model = StepModel(std::make_shared<const StepData>(*std::move(data)))};
}

}  // namespace dovetail::search
