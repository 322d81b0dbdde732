// Reads a StepModel's data from one probe: the frame with a bucket for each gradient, taken through the passes of
// lowering up to where buckets are placed. So rewrites of the Program (micro-steps, pipelines, scaling) and messages are
// those of lowering, and only what a placement moves is known here. Where updates are sharded, a second probe that
// shards nothing shows the updates as they are before they are cut.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/attempt.h"
#include "base/error.h"
#include "base/rational.h"
#include "schedule/lower/emit.h"
#include "schedule/lower/gather.h"
#include "schedule/lower/layout.h"
#include "schedule/lower/messages.h"
#include "schedule/lower/pipeline/async.h"
#include "schedule/lower/rewrite.h"
#include "schedule/lower/rewrite/shard_work.h"
#include "schedule/lower/scale.h"
#include "schedule/lower/survey.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/sharded.h"
#include "schedule/sharding.h"
#include "schedule/transfers.h"
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
using schedule::SyncPoint;
using schedule::Travel;
using schedule::internal::Draft;
using schedule::internal::RoleDraft;

// One bucket per gradient, launched when ready.
Schedule probe_of(const Schedule& frame, const std::vector<OwedGradient>& owed,
                  Collective collective) {
  Schedule probe = frame;
  probe.gathers.clear();
  for (schedule::FrozenBlock& block : probe.frozen) {
    block.id.value += static_cast<std::int32_t>(owed.size());
  }
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
    bucket.replicas = gradient.replicas;
    bucket.collective = collective;
    if (collective == Collective::AllReduce) bucket.sums_whole = false;
    bucket.mode = schedule::BucketMode::View;
    bucket.stream = schedule::CommStream{};
    bucket.launch = schedule::LaunchWhenReady{};
    bucket.wait = schedule::WaitPoint::FirstUse;
    bucket.scope = schedule::WaitScope::Event;
    probe.buckets.push_back(std::move(bucket));
  }
  return probe;
}

std::optional<std::string> refusal_of(const std::vector<OwedGradient>& owed) {
  if (owed.empty()) return "no gradient needs a reduction";
  std::set<TensorId> seen;
  for (const OwedGradient& gradient : owed) {
    if (!seen.insert(gradient.tensor).second) return "a gradient needs two reductions";
  }
  return std::nullopt;
}

std::int32_t position(std::size_t place) { return static_cast<std::int32_t>(place); }

class Builder {
 public:
  Builder(const models::Costs& costs, const Schedule& frame, Draft probe)
      : draft_(std::move(probe)) {
    data_.costs = costs;
    data_.frame = frame;
    data_.frame.buckets.clear();
    data_.frame.gathers.clear();
    data_.bucket = frame.buckets.front();
    data_.bucket.gradients.clear();
    data_.bucket.replicas.reset();
    every_ = program().micro_steps > 1 && frame.merge.sync == SyncPoint::EveryMicroStep;
  }

  // Nothing: `refusal` says why. `whole`: the second probe's Program, where updates are sharded.
  std::optional<StepData> build(const schedule::GradientKinds& kinds,
                                const std::optional<Program>& whole) {
    if (whole) data_.sharding.emplace();
    take_roles();
    take_gradients(kinds);
    take_frozen();
    if (!take_ops() || !are_alike()) return std::nullopt;
    for (std::size_t role = 0; role < roles_.size(); ++role) take_messages(role);
    if (!find_reducing_steps()) return std::nullopt;
    if (whole && (!take_updates(*whole) || !find_readers())) return std::nullopt;
    find_repetitions();
    data_.program = std::move(draft_.out);
    for (schedule::RankProgram& role : data_.program.roles) role.commands.clear();
    return std::move(data_);
  }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  bool refuse(const std::string& why) {
    refusal_ = why;
    return false;
  }
  [[nodiscard]] const Program& program() const { return draft_.program(); }
  [[nodiscard]] std::int32_t ops() const { return static_cast<std::int32_t>(data_.ops.size()); }

  // Without buckets, and without the updates of shards, which the placement adds.
  void take_roles() {
    std::erase_if(draft_.out.program.ops, [](const Op& op) {
      return std::holds_alternative<schedule::ShardUpdate>(op.effect);
    });
    index_ops(draft_);
    collect_debts(draft_);
    name_streams(draft_);
    lay_out(draft_);
    place_scales(draft_);
    for (std::int32_t role = 0; role < program().stages; ++role) {
      place_messages(draft_, roles_.emplace_back(survey(draft_, role)));
    }
    for (const RoleDraft& role : roles_) draft_.out.roles.push_back(emit(draft_, role));
    link_transfers(draft_.out);
    data_.meetings.resize(draft_.out.transfers.size());
    for (const schedule::RankProgram& role : draft_.out.roles) {
      for (const schedule::Command& command : role.commands) {
        if (!command.transfer) continue;
        transfer_of_[*schedule::op_run_by(command)] = *command.transfer;
        ++data_.meetings[static_cast<std::size_t>(command.transfer->value)];
      }
    }
  }

  bool take_ops() {
    const sim::Lanes lanes(draft_.out, data_.costs.distinct_ranks);
    data_.roles.resize(roles_.size());
    for (const Op& op : program().ops) {
      const std::int32_t role = program().role_of(op);
      const sim::LaneRange mine = lanes.roles()[static_cast<std::size_t>(role)];
      data_.roles[static_cast<std::size_t>(role)].ops.push_back(data_.ops.size());
      data_.ids.push_back(op.id);
      StepOp& known = data_.ops.emplace_back();
      known.role = role;
      known.kernel = models::kernel_class(op);
      const bool travels = std::holds_alternative<schedule::CollectiveWork>(op.work);
      known.issue = travels || data_.inline_host() ? 0 : data_.costs.issue(op).count();
      for (std::int32_t lane = mine.begin; lane < mine.end; ++lane) {
        const Rank rank = lanes.ranks()[static_cast<std::size_t>(lane)];
        const std::int64_t ns = travels ? 0 : data_.costs.op(op, rank).count();
        data_.work.push_back(step::Work::fixed(ns + data_.launch_gap()));
      }
      if (!travels) continue;
      const schedule::Transfer& transfer = transfer_of(op);
      known.own = static_cast<std::int32_t>(data_.own.size());
      const schedule::ProcessGroup& group = program().group(transfer.group);
      data_.own.push_back(
          {group, sim::transfer_cost(data_.costs, transfer, group), transfer.id.value});
    }
    for (const GradientKind& kind : data_.kinds) {
      const bool within = is_within(lanes, kind.role, kind.group.id) &&
                          (!kind.replicas || is_within(lanes, kind.role, kind.replicas->id));
      if (!within) return refuse("buckets join several stages");
    }
    return true;
  }

  [[nodiscard]] bool is_within(const sim::Lanes& lanes, std::int32_t role, GroupId group) const {
    const sim::LaneRange mine = lanes.roles()[static_cast<std::size_t>(role)];
    return std::ranges::all_of(
        lanes.meeting(program().group(group), role).lanes_of_node, [&](const auto& node) {
          return std::ranges::all_of(node, [&](auto lane) { return mine.contains(lane); });
        });
  }

  [[nodiscard]] const schedule::Transfer& transfer_of(const Op& op) const {
    return draft_.out.transfers[static_cast<std::size_t>(transfer_of_.at(op.id).value)];
  }

  void take_messages(std::size_t index) {
    for (Travel message : roles_[index].travels) {
      data_.ops[message.what].is_message = true;
      // Streams of pairs of stages come behind those that buckets may have.
      data_.ops[message.what].is_send = message.between_stages;
      if (message.between_stages) message.stream.value += kMostStreams;
      data_.streams = std::max(data_.streams, message.stream.value + 1);
      data_.roles[index].messages.push_back(message);
    }
  }

  bool find_reducing_steps() {
    const std::int32_t last = program().micro_steps - 1;
    for (std::int32_t step = every_ ? 0 : last; step <= last; ++step) {
      ReducingStep& found = data_.reducing.emplace_back();
      for (const RoleDraft& role : roles_) {
        const auto at = static_cast<std::size_t>(step);
        found.backward_end.push_back(position(role.backward_end[at]));
        found.after_backward.push_back(position(role.after_backward[at]));
      }
      if (!find_accesses(found, step)) return false;
    }
    return true;
  }

  // Those of one kind follow each other.
  void take_gradients(const schedule::GradientKinds& kinds) {
    data_.bytes_sum.push_back(0);
    data_.spaced_sum.push_back(0);
    for (const OwedGradient& gradient : kinds.gradients) {
      const auto g = data_.gradients.size();
      const auto kind = std::ranges::upper_bound(kinds.ends, g) - kinds.ends.begin();
      if (std::cmp_equal(kind, data_.kinds.size())) data_.kinds.push_back(kind_of(gradient, g));
      const TensorId tensor = draft_.travels.at(gradient.tensor);
      data_.position[gradient.tensor] = static_cast<std::int32_t>(g);
      travels_[tensor] = static_cast<std::int32_t>(g);
      data_.gradients.push_back(gradient.tensor);
      data_.kind_of.push_back(static_cast<std::int32_t>(kind));
      data_.bytes.push_back(program().tensor(tensor).bytes().count());
      data_.bytes_sum.push_back(data_.bytes_sum.back() + data_.bytes.back());
      data_.spaced_sum.push_back(data_.spaced_sum.back() +
                                 data_.kinds.back().spaced(data_.bytes.back()));
    }
  }

  // As more gradients of kinds of their own.
  void take_frozen() {
    lay_out_parameters(draft_, {});
    for (const schedule::internal::GatherPlan& plan : draft_.gathers) {
      const schedule::BucketLayout& layout = draft_.out.bucket(plan.parameters);
      const std::int64_t element = schedule::element_size(layout.dtype).count();
      for (const schedule::BucketMember& member : layout.members) {
        gradient_of_[member.tensor] = static_cast<std::int32_t>(data_.bytes.size());
      }
      data_.kind_of.push_back(static_cast<std::int32_t>(data_.kinds.size()));
      data_.kinds.push_back({.role = plan.role,
                             .group = program().group(plan.group),
                             .element = element,
                             .parameter = element,
                             .is_frozen = true});
      data_.bytes.push_back(layout.payload.count());
    }
  }

  // `g`: of its bucket.
  [[nodiscard]] GradientKind kind_of(const OwedGradient& gradient, std::size_t g) const {
    const schedule::internal::BucketPlan& plan = draft_.buckets[g];
    GradientKind kind{.role = plan.role, .group = program().group(gradient.group)};
    if (gradient.replicas) kind.replicas = program().group(*gradient.replicas);
    kind.element = schedule::element_size(draft_.out.buckets[g].dtype).count();
    if (gradient.parameter) kind.parameter = schedule::element_size(*gradient.parameter).count();
    kind.spacing = std::lcm(data_.bucket.align_to.count(), kind.element);
    kind.scales_before = plan.before.has_value();
    kind.scales_after = plan.afterwards.has_value();
    return kind;
  }

  bool are_alike() {
    for (std::int32_t g = 0; g < data_.count(); ++g) {
      const schedule::internal::BucketPlan& plan = draft_.buckets[static_cast<std::size_t>(g)];
      if (plan.before.has_value() != data_.kind(g).scales_before ||
          plan.afterwards.has_value() != data_.kind(g).scales_after) {
        return refuse("only some gradients are scaled");
      }
    }
    return true;
  }

  // Who writes each gradient last in this micro-step, and who touches it first behind its backward.
  bool find_accesses(ReducingStep& step, std::int32_t micro_step) {
    const bool after_last =
        program().micro_steps > 1 && data_.frame.merge.sync == SyncPoint::AfterLastMicroStep;
    for (std::size_t g = 0; g < data_.gradients.size(); ++g) {
      const auto r = static_cast<std::size_t>(data_.kind(static_cast<std::int32_t>(g)).role);
      const RoleDraft& role = roles_[r];
      const TensorId tensor = draft_.travels.at(data_.gradients[g]);
      const std::size_t ready = ready_after(draft_, role, tensor, micro_step);
      std::int32_t k = role.first_access.at(tensor);
      while (k >= 0 && role.accesses[static_cast<std::size_t>(k)].op <= ready) {
        k = role.accesses[static_cast<std::size_t>(k)].next;
      }
      const std::int32_t use =
          k < 0 ? kBehindAllOps : position(role.accesses[static_cast<std::size_t>(k)].op);
      if (use <= step.backward_end[r]) return refuse("backward reads reduced gradients");
      step.ready.push_back(position(ready));
      step.first_use.push_back(use);
      step.earliest_launch.push_back(after_last ? step.backward_end[r] : allowed(ready, role));
      step.is_held = step.is_held || step.earliest_launch.back() > 0;
    }
    for (std::size_t g = 1; g < step.ready.size(); ++g) {
      step.is_rising = step.is_rising && (data_.kind_of[g] != data_.kind_of[g - 1] ||
                                          step.ready[g] >= step.ready[g - 1]);
    }
    return true;
  }

  // When a pipeline lets the gradients of a stage travel (schedule/lower/launch.cc).
  std::int32_t allowed(std::size_t ready, const RoleDraft& role) {
    if (program().stages == 1) return 0;
    const std::int32_t stage = program().ops[ready].stage;
    const auto [known, fresh] = allowed_.try_emplace(stage, 0);
    if (!fresh) return known->second;
    if (const auto op = schedule::earliest_launch(program(), draft_.schedule, stage)) {
      known->second = position(position_of(draft_, role, "probe", *op, program().micro_steps - 1));
    }
    return known->second;
  }

  // The updates that are cut, from a Program in which they are not.
  bool take_updates(const Program& whole) {
    Sharding& sharding = *data_.sharding;
    schedule::IdTable<OpId, std::int32_t> place{-1};  // of the ops that stay
    for (std::int32_t op = 0; op < ops(); ++op) place[data_.ids[static_cast<std::size_t>(op)]] = op;
    schedule::IdTable<OpId, char> is_whole{0};
    for (const Op& op : whole.ops) is_whole[op.id] = 1;
    if (every_) {  // the updates read the sums
      for (const schedule::Tensor& tensor : whole.tensors) {
        if (tensor.merges) travels_[tensor.id] = travels_.at(*tensor.merges);
      }
    }
    sharding.update_of.assign(data_.gradients.size(), -1);
    std::int32_t next = 0;
    // Of all together, by kind: can parts of them be added up?
    std::vector<schedule::WorkSum> sums(data_.kinds.size());
    std::vector<std::optional<std::optional<Rational>>> rescales(data_.kinds.size());
    for (const Op& op : whole.ops) {
      if (place.at(op.id) >= 0) {
        next = place.at(op.id) + 1;
        // Behind it may stand what sharding adds: the sum of its norm.
        while (next < ops() && is_whole.at(data_.ids[static_cast<std::size_t>(next)]) == 0) ++next;
        continue;
      }
      const auto* effect = std::get_if<schedule::Update>(&op.effect);
      if (effect == nullptr) return refuse("an op is left out");
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
        update.elements += data_.bytes[g] / data_.kind(gradient).element;
        gradient_of_[parameters.at(parameter++)] = gradient;
        const auto kind = static_cast<std::size_t>(data_.kind_of[g]);
        auto& rescale = rescales[kind];
        if (!rescale) rescale = effect->rescale;
        if (*rescale != effect->rescale || !sums[kind].add(op.work, {}))
          return refuse("updates differ in kind");
      }
      update.op.reads.clear();
      update.op.writes.clear();
      sharding.updates.push_back(std::move(update));
    }
    std::set<std::string> measured;
    for (const models::MeasuredKernel& kernel : data_.costs.ops.model().kernels.kernels()) {
      measured.insert(kernel.op);
    }
    for (std::int32_t g = 0; g < data_.count(); ++g) {
      data_.names_updates =
          data_.names_updates || measured.contains(schedule::shard_update_name(BucketId{g}));
    }
    return sharding.updates.front().before_op >
               std::ranges::max(data_.reducing.back().backward_end) ||
           refuse("updates stand within backward");
  }

  // Who reads the parameter of each gradient, and in which phase of which micro-step.
  bool find_readers() {
    Sharding& sharding = *data_.sharding;
    const std::size_t all = data_.bytes.size();  // with frozen blocks
    sharding.first_reader.assign(all, kBehindAllOps);
    if (data_.frame.parameters == schedule::ParameterSync::EachUse) {
      sharding.steps.resize(static_cast<std::size_t>(program().micro_steps));
    }
    for (GatheringStep& step : sharding.steps) {
      step.begin.assign(roles_.size(), 0);
      step.forward.resize(all);
      step.backward.resize(all);
    }
    for (std::int32_t i = 0; i < ops(); ++i) {
      const Op& op = program().ops[static_cast<std::size_t>(i)];
      GatheringStep* step = nullptr;
      if (op.phase != Phase::Optimizer && !sharding.steps.empty()) {
        const bool one = program().micro_steps == 1;
        step = &sharding.steps[one ? 0 : static_cast<std::size_t>(op.micro_step)];
        std::int32_t& begin = step->begin[static_cast<std::size_t>(program().role_of(op))];
        if (begin == 0 && step != &sharding.steps.front()) begin = i;
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

  // Launches and gathers are placed by ops of the last micro-step (schedule/lower/{launch,gather}.cc). Optimizer, sums of tied
  // weights and sends are not repeated.
  void find_repetitions() {
    const std::int32_t last = program().micro_steps - 1;
    if (data_.reducing.size() == 1 && !data_.gathers_each_use()) return;
    data_.repetitions.resize(static_cast<std::size_t>(last));
    for (std::size_t i = 0; i < data_.ops.size(); ++i) {
      const Op& op = program().ops[i];
      const RoleDraft& role = roles_[static_cast<std::size_t>(data_.ops[i].role)];
      // Sums over micro-steps that each reduces stand behind its backward.
      const bool is_repeated = schedule::is_repeated(op) && !data_.ops[i].is_send &&
                               op.micro_step == last && !(every_ && i > role.backward_end.back());
      data_.repeated.push_back(is_repeated && last > 0
                                   ? static_cast<std::int32_t>(data_.repetitions.front().size())
                                   : -1);
      for (std::int32_t step = 0; is_repeated && step < last; ++step) {
        data_.repetitions[static_cast<std::size_t>(step)].push_back(
            position(position_of(draft_, role, "probe", op.id, step)));
      }
    }
  }

  Draft draft_;
  bool every_ = false;
  std::vector<RoleDraft> roles_;
  schedule::IdTable<OpId, TransferId> transfer_of_{TransferId{-1}};
  std::map<std::int32_t, std::int32_t> allowed_;  // by virtual stage
  StepData data_;
  schedule::IdTable<TensorId, std::int32_t> travels_{-1};      // of what travels: its gradient
  schedule::IdTable<TensorId, std::int32_t> gradient_of_{-1};  // of a parameter
  std::string refusal_;
};

}  // namespace

StepModel::Made StepModel::make(const Program& program, const models::Costs& costs,
                                const Schedule& frame) {
  DOVETAIL_CHECK(!frame.buckets.empty()) << "a frame without a bucket";
  std::vector<OwedGradient> owed =
      schedule::travelling(schedule::owed_gradients(program), frame.merge);
  const Collective collective = frame.buckets.front().collective;
  if (collective == Collective::ReduceScatter) {
    const std::optional<GroupId> replicas = frame.buckets.front().replicas;
    auto refusal =
        schedule::find_shards(program, replicas ? program.group(*replicas).name : "", owed);
    if (refusal) return {.refusal = *std::move(refusal)};
  }
  if (auto refusal = refusal_of(owed)) return {.refusal = *std::move(refusal)};
  const schedule::GradientKinds kinds = schedule::kinds_of(program, owed);
  const Schedule probe = probe_of(frame, kinds.gradients, collective);
  Schedule unsharded = probe_of(frame, kinds.gradients, Collective::AllReduce);
  unsharded.parameters = schedule::ParameterSync::AfterUpdate;
  unsharded.frozen.clear();
  std::optional<Program> whole;
  std::vector<schedule::ShardedBucket> shards;
  auto made = attempt([&]() -> StepModel::Made {
    Builder builder(costs, frame, schedule::internal::rewrite(program, probe, shards));
    if (collective == Collective::ReduceScatter) {
      whole = schedule::internal::rewrite(program, unsharded, shards).out.program;
    }
    std::optional<StepData> data = builder.build(kinds, whole);
    if (!data) return {.refusal = builder.refusal()};
    return {.model = StepModel(std::make_shared<const StepData>(*std::move(data)))};
  });
  if (!made) return {.refusal = std::move(made.error)};
  return *std::move(made.value);
}

}  // namespace dovetail::search
