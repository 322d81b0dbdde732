// What decisions do to a Program, one after another: factors, groups, placement, shards, gathers, the
// Program's own collectives. Each step reads its own decision and what the steps before it made.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/policies.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "schedule/id_table.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/policies/combinations.h"
#include "schedule/policies/definition.h"
#include "schedule/policies/fsdp.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/report.h"
#include "schedule/policies/scaling.h"
#include "schedule/policies/sharded.h"
#include "schedule/policies/source_first_fit.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

const std::vector<PolicyDefinition>& definitions() {
  static const std::vector<PolicyDefinition> kAll = {
#define DOVETAIL_POLICY(function) function##_policy(),
      DOVETAIL_POLICIES(DOVETAIL_POLICY)
#undef DOVETAIL_POLICY
  };
  return kAll;
}

// Sums of micro-steps cannot be reduced later than a reader within a micro-step.
std::optional<std::string> merge_refusal(const Program& program, const Merge& merge) {
  if (merge.micro_steps <= 1 || merge.sync == SyncPoint::EveryMicroStep) return std::nullopt;
  const std::vector<OwedGradient> owed = owed_gradients(program);
  const BackwardReaders readers(program, owed);
  const std::optional<TensorId> read = readers.any();
  if (!read) return std::nullopt;
  return "backward op " + program.ops[readers.first(*read)].name + " reads the reduced " +
         program.tensor(*read).name +
         " in every micro-step, but sync=" + std::string(to_string(merge.sync)) +
         " reduces only the sum of all micro-steps: use sync=every";
}

std::string stages_text(std::int32_t stages) {
  return std::to_string(stages) + (stages == 1 ? " stage" : " stages");
}

std::optional<std::string> stages_refusal(const Program& program, const Policy& policy) {
  if (!policy.decisions.stages) return std::nullopt;
  const Stages& stages = *policy.decisions.stages;
  if (program.stages != stages.stages) {
    return "the program has " + stages_text(program.stages) + ", the policy is for " +
           std::to_string(stages.stages);
  }
  return problem(PipelineShape{.kind = stages.order,
                               .stages = stages.stages,
                               .chunks = stages.chunks,
                               .micro_steps = accumulation(policy).micro_steps});
}

// Batches of so many buckets; what is left over goes as the tail says.
void launch_in_batches(Schedule& schedule, const BucketPlacement& placement) {
  if (placement.batch == 0) return;
  const auto batch = static_cast<std::size_t>(placement.batch);
  const std::size_t whole = schedule.buckets.size() / batch;
  for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
    Bucket& bucket = schedule.buckets[i];
    if (i < whole * batch || placement.tail == Tail::LastGradient) {
      bucket.launch = LaunchInBatch{static_cast<std::int32_t>(i / batch)};
    } else {
      bucket.launch = LaunchAfterBackward{};
    }
  }
}

// GM8: what travels after the last micro-step cannot be launched within it.
void launch_after_micro_steps(Schedule& schedule) {
  if (schedule.merge.micro_steps <= 1 || schedule.merge.sync != SyncPoint::AfterLastMicroStep) {
    return;
  }
  for (Bucket& bucket : schedule.buckets) bucket.launch = LaunchAfterBackward{};
}

// The Program's collectives of forward and backward, on a stream per process group behind those of the buckets: those that the policy
// asks for as soon as each can, those that the Program starts itself behind the compute before them. Sends stay: a pipeline places its own.
void place_own(const Program& program, const Policy& policy, Schedule& schedule) {
  const OwnCollectives which = policy.decisions.collectives.value_or(OwnCollectives::Inline);
  std::optional<OpId> computed;
  std::int32_t next = 0;
  const auto behind = [&](const Placement& placement) {
    const auto* comm = std::get_if<CommStream>(&placement.stream);
    if (comm != nullptr) next = std::max(next, comm->index + 1);
  };
  for (const Bucket& bucket : schedule.buckets) behind(bucket);
  for (const ParameterGather& gather : schedule.gathers) behind(gather);
  std::map<GroupId, std::int32_t> streams;
  for (const Op& op : program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work == nullptr) computed = op.id;
    if (work == nullptr || work->kind == Collective::SendRecv || !is_repeated(op)) continue;
    const bool is_asked =
        which == OwnCollectives::Async ||
        (which == OwnCollectives::Ring && work->purpose == Purpose::ContextParallel);
    if (!is_asked && !work->asynchronous) continue;
    const auto [stream, fresh] = streams.try_emplace(work->group, next);
    if (fresh) ++next;
    OpPlacement placement;
    placement.stream = CommStream{stream->second};
    placement.op = op.id;
    if (!is_asked && computed) placement.launch = LaunchAfterOp{*computed};
    schedule.collectives.push_back(placement);
  }
}

// Makes the Schedule of one policy.
class Deciding {
 public:
  Deciding(const Program& program, const Policy& policy)
      : program_(program),
        decided_(policy.decisions),
        policy_(policy),
        place_(placement(policy)),
        merge_(accumulation(policy)) {}

  // Of a Program that owes this.
  PolicyResult run(const std::vector<OwedGradient>& owed, const BackwardReaders& readers) && {
    std::optional<std::string>& failure = result_.failure;
    failure = cannot_combine(policy_);
    if (!failure) failure = merge_refusal(program_, merge_);
    if (!failure) failure = stages_refusal(program_, policy_);
    if (!failure) {
      owed_ = travelling(owed, merge_);
      start();
    }
    if (failure || nothing_owed_) return std::move(result_);
    make(grouped(owed_));
    // With micro-steps the positions are those of the unmerged program, in which the order is the same.
    if (!failure) failure = late_for_a_reader(program_, owed, readers, result_.schedule);
    if (failure) {
      result_.schedule.buckets.clear();
      result_.schedule.collectives.clear();
    }
    return std::move(result_);
  }

  // With groups that somebody else chose. Searches call it often: what travels is listed where it is asked.
  PolicyResult with(const Groups& groups) && {
    if (decided_.sharding || decided_.stages) owed_ = travelling(owed_gradients(program_), merge_);
    start();
    if (!result_.failure) make(groups);
    return std::move(result_);
  }

 private:
  // What travels, and where its factors go.
  void start() {
    const ScaleDecision scaling = decided_.scaling.value_or(ScaleDecision{});
    if (scaling.rule == ScaleRule::Source && owed_.empty()) {
      nothing_owed_ = true;
      result_.report.emplace_back("no data-parallel reductions: nothing to do");
      return;
    }
    Schedule& schedule = result_.schedule;
    schedule.policy = to_string(policy_);
    if (merge_.micro_steps > 1 || decided_.stages) schedule.merge = merge_;
    if (decided_.stages) {
      schedule.pipeline = {.kind = decided_.stages->order, .alignment = decided_.stages->alignment};
    }
    find_shards();
    if (result_.failure) return;
    decide_scale(scaling);
    if (decided_.sharding) {
      result_.failure = sharding_refusal(program_, owed_, schedule.scale);
    } else if (!result_.failure) {
      result_.failure = scaling_refusal(program_, schedule.scale);
    }
  }

  void find_shards() {
    if (!decided_.sharding) return;
    if (program_.reductions.empty()) {
      result_.failure = "no gradient of the program is to be reduced";
      return;
    }
    result_.failure = schedule::find_shards(program_, decided_.sharding->replicas, owed_);
  }

  void decide_scale(const ScaleDecision& decision) {
    Scaling scaling{decision.asked.value_or(ScaleAt::Collective),
                    decision.asked ? "as asked" : "the collectives average"};
    switch (decision.rule) {
      case ScaleRule::Collectives:
        break;
      case ScaleRule::AfterAverages:
        if (!decision.asked && owes_average()) scaling.at = ScaleAt::AfterCollective;
        break;
      case ScaleRule::IntoBuckets:
        if (!decision.asked && place_.mode == BucketMode::View && owes_average())
          scaling.at = ScaleAt::BeforeCollective;
        break;
      case ScaleRule::Source:
        scaling = source_scaling(program_, decision.asked);
        break;
      case ScaleRule::Improved:
        scaling = improved_scaling(program_, decision.asked);
        break;
    }
    result_.schedule.scale = scaling.at;
    const bool is_told = decision.rule == ScaleRule::Source ||
                         decision.rule == ScaleRule::Improved || holds<ByCap>();
    if (!is_told) return;
    result_.report.push_back("scaling " + std::string(to_string(scaling.at)) + ": " +
                             scaling.reason);
  }

  [[nodiscard]] bool owes_average() const {
    return std::ranges::any_of(program_.reductions, [](const Reduction& reduction) {
      return reduction.op == ReduceOp::Average;
    });
  }

  template <class Alternative>
  [[nodiscard]] bool holds() const {
    return decided_.grouping && std::holds_alternative<Alternative>(*decided_.grouping);
  }

  [[nodiscard]] Groups grouped(const std::vector<OwedGradient>& all) const {
    constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;
    const auto by = [&](const BucketRule& rule) { return group_by_limits(program_, all, rule); };
    return visit(
        decided_.grouping.value_or(OneBucket{}),  //
        [&](const EachAlone&) { return by({.limits = {1}}); },
        [&](const OneBucket&) { return by({.limits = {kNoLimit}}); },
        [&](const ByLimits& limits) {
          const Bytes first = limits.first.value_or(limits.cap);
          return by({.closes = limits.closes, .limits = {first.count(), limits.cap.count()}});
        },
        [&](const ByCap& limit) { return group_by_cap(program_, all, limit.cap); },
        [&](const EqualSizes& size) { return group_equal_sizes(program_, all, size.cap); },
        [&](const ByLayer&) { return group_by_layer(program_, all); },
        [&](const ByModules& limit) { return group_by_modules(program_, all, limit.cap); },
        [&](const FirstFit&) { return Groups{}; },  // with its places: apply_first_fit
        [&](const ByMerging&) { return without_costs(); },
        [&](const Searched&) { return without_costs(); });
  }

  [[nodiscard]] Groups without_costs() const {
    DOVETAIL_CHECK(false) << "policy " << name(policy_) << " needs costs";
    return {};
  }

  void make(const Groups& groups) {
    Schedule& schedule = result_.schedule;
    if (holds<FirstFit>()) {
      apply_first_fit(program_, policy_, owed_, result_);
    } else {
      append_buckets(schedule, groups, place_);
      place();
    }
    shard();
    if (!result_.failure && decided_.gathers) gather(groups);
    if (result_.failure) return;
    if (decided_.stages) {
      result_.report.push_back(stages_text(decided_.stages->stages) + ", " +
                               std::to_string(merge_.micro_steps) + " micro-batches in the order " +
                               std::string(to_string(decided_.stages->order)) +
                               ": no bucket spans two stages");
    }
    launch_after_micro_steps(schedule);
    place_own(program_, policy_, schedule);
  }

  // Frozen parameters owe nothing that would name their group: it is that of all gradients.
  void gather(const Groups& groups) {
    const std::vector<OwedGradient> parameters = frozen_parameters(program_, owed_.front().group);
    for (const OwedGradient& gradient : owed_) {
      if (parameters.empty() || gradient.group == owed_.front().group) continue;
      result_.failure = program_.tensor(parameters.front().tensor).name +
                        " is frozen, and gradients are reduced over " +
                        program_.group(owed_.front().group).name + " and " +
                        program_.group(gradient.group).name +
                        ": over which of them it is sharded is not known";
      return;
    }
    // Whoever searches groups of gradients leaves frozen layers as they are.
    const Groups frozen =
        groups_by_times(policy_) ? group_by_layer(program_, parameters) : grouped(parameters);
    append_frozen(result_.schedule, frozen, place_.mode);
    result_.failure = place_gathers(program_, policy_, groups, frozen, result_);
  }

  // Launch points and streams. With a cap each process group has streams of its own.
  void place() {
    Schedule& schedule = result_.schedule;
    if (place_.launch == LaunchRule::WhenReady) launch_in_batches(schedule, place_);
    const std::int32_t streams =
        decided_.gathers ? 1 : place_.streams;  // the second is the gathers'
    std::map<GroupId, std::int32_t> groups;
    std::map<std::int32_t, std::int32_t> dealt;  // of each stage
    for (Bucket& bucket : schedule.buckets) {
      const auto next = static_cast<std::int32_t>(groups.size());
      const std::int32_t group =
          holds<ByCap>() ? groups.try_emplace(bucket.group, next).first->second % place_.groups : 0;
      const std::int32_t turn = streams > 1 ? dealt[stage_of(bucket)]++ % streams : 0;
      bucket.stream = CommStream{group * streams + turn};
      if (place_.launch == LaunchRule::Inline) bucket.stream = InlineStream{};
      if (place_.launch == LaunchRule::AfterBackward) bucket.launch = LaunchAfterBackward{};
    }
    if (!holds<EqualSizes>()) return;
    const std::size_t early = place_.batch == 0 ? schedule.buckets.size()
                                                : schedule.buckets.size() /
                                                      static_cast<std::size_t>(place_.batch) *
                                                      static_cast<std::size_t>(place_.batch);
    result_.report.push_back("batches of " + std::to_string(place_.batch) + ": " +
                             std::to_string(early) + " of " +
                             counted(schedule.buckets.size(), "bucket") +
                             " launched as gradients arrive, the rest in the final sync");
  }

  [[nodiscard]] std::int32_t stage_of(const Bucket& bucket) const {
    if (program_.stages == 1) return 0;
    for (const OwedGradient& gradient : owed_) {
      if (gradient.tensor != bucket.gradients.front().tensor) continue;
      return program_.role_of(program_.ops[gradient.producer_index]);
    }
    return 0;
  }

  void shard() {
    if (!decided_.sharding) return;
    Schedule& schedule = result_.schedule;
    schedule.parameters = decided_.gathers ? ParameterSync::EachUse : decided_.sharding->gather;
    if (decided_.gathers) schedule.gather_limit = decided_.gathers->limit;
    IdTable<TensorId, std::optional<GroupId>> replicas;
    for (const OwedGradient& gradient : owed_) replicas[gradient.tensor] = gradient.replicas;
    for (Bucket& bucket : schedule.buckets) {
      bucket.collective = Collective::ReduceScatter;
      bucket.sums_whole = decided_.sharding->reduce == Collective::AllReduce;
      bucket.replicas = replicas.at(bucket.gradients.front().tensor);
    }
    result_.failure = cut_refusal(program_, schedule);
  }

  const Program& program_;
  const Decisions& decided_;
  const Policy& policy_;
  const BucketPlacement place_;
  const Merge merge_;
  std::vector<OwedGradient> owed_;  // what travels; of two reductions the first
  bool nothing_owed_ = false;
  PolicyResult result_;
};

}  // namespace

std::span<const PolicyDefinition> all_policies() { return definitions(); }

const PolicyDefinition* find_definition(std::string_view name) {
  const auto found = std::ranges::find(definitions(), name, &PolicyDefinition::name);
  return found == definitions().end() ? nullptr : &*found;
}

Merge accumulation(const Policy& policy) { return policy.decisions.accumulation.value_or(Merge{}); }

BucketPlacement placement(const Policy& policy) {
  return policy.decisions.placement.value_or(BucketPlacement{});
}

bool groups_by_times(const Policy& policy) {
  return is_searched(policy) || (policy.decisions.grouping &&
                                 std::holds_alternative<ByMerging>(*policy.decisions.grouping));
}

bool needs_costs(const Policy& policy) {
  return groups_by_times(policy) || placement(policy).max_ctas == kSearchedCtas;
}

Policy with_ctas(const Policy& policy, std::int32_t ctas) {
  BucketPlacement place = placement(policy);
  place.max_ctas = ctas;
  return placed(policy, place);
}

StageSplit split_of(const Policy& policy) {
  if (!policy.decisions.stages) return {};
  const Stages& stages = *policy.decisions.stages;
  return {.stages = stages.stages, .chunks = stages.chunks, .map = stage_map_of(stages.order)};
}

Policy placed(Policy policy, const BucketPlacement& placement) {
  policy.decisions.placement = placement;
  if (placement == BucketPlacement{}) policy.decisions.placement.reset();
  return policy;
}

std::optional<Bytes> bucket_size(const Policy& policy) {
  using Size = std::optional<Bytes>;
  if (!policy.decisions.grouping) return std::nullopt;
  return visit(*policy.decisions.grouping, [](const auto& grouping) -> Size {
    if constexpr (requires { grouping.cap; }) return grouping.cap;
    return std::nullopt;
  });
}

Policy with_bucket_size(Policy policy, Bytes size) {
  visit(*policy.decisions.grouping, [&](auto& grouping) {
    if constexpr (requires { grouping.cap; }) grouping.cap = size;
  });
  return policy;
}

PolicyResult decide(const Program& program, const Policy& policy,
                    const std::vector<OwedGradient>& owed, const BackwardReaders& readers) {
  return Deciding(program, policy).run(owed, readers);
}

namespace {

PolicyResult decided(const Program& program, const Policy& policy) {
  const std::vector<OwedGradient> owed = owed_gradients(program);
  return decide(program, policy, owed, BackwardReaders(program, owed));
}

}  // namespace

PolicyResult apply_policy(const Program& program, const Policy& policy) {
  PolicyResult result = decided(program, policy);
  if (result.failure) return result;
  std::ranges::move(bucket_report(program, result.schedule), std::back_inserter(result.report));
  return result;
}

Schedule make_schedule(const Program& program, const Policy& policy) {
  PolicyResult result = decided(program, policy);
  if (result.failure) throw InputError("policy " + to_string(policy) + ": " + *result.failure);
  return std::move(result.schedule);
}

GradientKinds kinds_of(const Program& program, const Policy& policy) {
  std::vector<OwedGradient> owed = travelling(owed_gradients(program), accumulation(policy));
  if (const auto& sharding = policy.decisions.sharding) {
    const std::optional<std::string> refusal = find_shards(program, sharding->replicas, owed);
    DOVETAIL_CHECK(!refusal) << *refusal;
  }
  return kinds_of(program, owed);
}

GradientKinds kinds_of(const Program& program, const std::vector<OwedGradient>& owed) {
  std::vector<BucketKey> kinds;       // in the order of their first gradients
  std::vector<std::size_t> kind, at;  // of each gradient; and its number among those of its kind
  std::vector<std::size_t> size;      // of each kind
  for (const OwedGradient& gradient : owed) {
    const BucketKey key = key_of(program, gradient);
    const auto known = static_cast<std::size_t>(std::ranges::find(kinds, key) - kinds.begin());
    if (known == kinds.size()) {
      kinds.push_back(key);
      size.push_back(0);
    }
    kind.push_back(known);
    at.push_back(size[known]++);
  }
  GradientKinds result{.gradients = std::vector<OwedGradient>(owed.size()), .ends = {}, .runs = {}};
  for (const std::size_t count : size) {
    result.ends.push_back(count + (result.ends.empty() ? 0 : result.ends.back()));
  }
  for (std::size_t i = 0; i < owed.size(); ++i) {
    const std::size_t place = result.ends[kind[i]] - size[kind[i]] + at[i];
    result.gradients[place] = owed[i];
    if (i == 0 || kind[i] != kind[i - 1]) result.runs.push_back({place, place});
    ++result.runs.back().end;
  }
  return result;
}

std::vector<std::size_t> borders_of(const Program& program, const GradientKinds& kinds,
                                    const Policy& policy, BlockUnit unit) {
  const IdTable<TensorId, TensorId> parameter = parameters_of(program);
  const auto unit_of = [&](std::size_t i) {
    const TensorId gradient = kinds.gradients[i].tensor;
    const TensorId updated = parameter.at(gradient);
    const std::string_view name = program.tensor(updated.value < 0 ? gradient : updated).name;
    return unit == BlockUnit::Layer ? layer_of(name) : name.substr(0, name.rfind('.'));
  };
  std::vector<std::size_t> borders;
  for (std::size_t end = 1; end <= kinds.gradients.size(); ++end) {
    const bool ends_kind = std::ranges::binary_search(kinds.ends, end);
    if (ends_kind || !policy.decisions.gathers || unit_of(end - 1) != unit_of(end)) {
      borders.push_back(end);
    }
  }
  return borders;
}

PolicyResult try_partition(const Program& program, std::span<const std::size_t> ends,
                           const Policy& policy) {
  const std::vector<OwedGradient> gradients = kinds_of(program, policy).gradients;
  DOVETAIL_CHECK(!ends.empty() && ends.back() == gradients.size())
      << "ends do not cover the gradients";
  Groups groups;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    DOVETAIL_CHECK(end > begin) << "bucket ends must rise";
    GradientGroup group;
    group.members.assign(gradients.begin() + static_cast<std::ptrdiff_t>(begin),
                         gradients.begin() + static_cast<std::ptrdiff_t>(end));
    for (const OwedGradient& gradient : group.members) {
      if (key_of(program, gradient) == key_of(program, group.members.front())) continue;
      throw InputError("bucket " + std::to_string(groups.size()) +
                       " would mix process groups, dtypes, reductions or stages: " +
                       program.tensor(group.members.front().tensor).name + " and " +
                       program.tensor(gradient.tensor).name);
    }
    groups.push_back(std::move(group));
    begin = end;
  }
  std::ranges::stable_sort(
      groups, {}, [](const GradientGroup& group) { return group.members.back().producer_index; });
  return decide_groups(program, groups, policy);
}

PolicyResult decide_groups(const Program& program, const Groups& groups, const Policy& policy) {
  return Deciding(program, policy).with(groups);
}

Schedule partition(const Program& program, std::span<const std::size_t> ends,
                   const Policy& policy) {
  PolicyResult result = try_partition(program, ends, policy);
  if (result.failure) throw InputError("policy " + to_string(policy) + ": " + *result.failure);
  return std::move(result.schedule);
}

}  // namespace dovetail::schedule
