// Puts beside each line that a pass said of a plan the rule that it follows, by the policy and the
// decision that the line is about.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "schedule/policies/policies.h"
#include "schedule/policies/report.h"
#include "schedule/sharding.h"

namespace dovetail::cli {
namespace {

using schedule::Bucket;
using schedule::LoweringPass;
using schedule::PassLine;
using schedule::Plan;
using schedule::ScaleAt;
using schedule::SyncPoint;
using schedule::WaitPoint;
using schedule::WaitScope;

// Whether the buckets of a plan have something in common; empty plans have not.
template <class Predicate>
bool every(const Plan& plan, const Predicate& holds) {
  return !plan.schedule.buckets.empty() && std::ranges::all_of(plan.schedule.buckets, holds);
}
template <class Predicate>
bool some(const Plan& plan, const Predicate& holds) {
  return std::ranges::any_of(plan.schedule.buckets, holds);
}

std::string pipeline_rule(const Plan& plan) {
  switch (plan.schedule.pipeline.kind) {
    case schedule::PipelineKind::Sequential:
      return plan.schedule.merge.sync == SyncPoint::EveryMicroStep
                 ? "gradients travel in every micro-batch"
                 : "gradients travel in the last micro-batch";
    case schedule::PipelineKind::OneFOneB:
      return "warm-up, forward and backward in turn, cooldown";
    case schedule::PipelineKind::Interleaved:
      return "each chunk beside its own last backward";
    case schedule::PipelineKind::ZeroBubble:
      return "gradients of weights as many backwards later as there are stages before";
    case schedule::PipelineKind::Zbv:
      return "chunks there and back, gradients of weights last in the cooldown";
  }
  return {};
}

std::string merge_rule(const Plan& plan) {
  switch (plan.schedule.merge.sync) {
    case SyncPoint::EveryMicroStep:
      return "reduced in every micro-step, then summed";
    case SyncPoint::AfterLastMicroStep:
      return "summed, then reduced after the last backward";
    case SyncPoint::LastMicroStep:
      return "summed, reduced within the last micro-step";
  }
  return {};
}

std::string scale_rule(const Plan& plan) {
  switch (plan.schedule.scale) {
    case ScaleAt::Collective:
      return "the collectives average";
    case ScaleAt::LossGradient:
      return "one degree, into the loss gradient";
    case ScaleAt::Optimizer:
      return "into the optimizer's rescale factor";
    case ScaleAt::BeforeCollective:
      return "each bucket once, before it is summed";
    case ScaleAt::AfterCollective:
      return "each bucket once, after it is summed";
  }
  return {};
}

// As the policy says; buckets that nobody's policy made speak for themselves.
std::string group_rule(const Plan& plan) {
  const std::string_view rule = schedule::groups_by(plan.schedule);
  if (!rule.empty()) return std::string(rule);
  if (is_sharded(plan.schedule)) return "buckets of one size, tensors cut at their ends";
  const auto is_single = [](const Bucket& bucket) { return bucket.gradients.size() == 1; };
  return every(plan, is_single) ? "each gradient alone" : "full once the limit is reached";
}

std::string layout_rule(const Plan& plan) {
  const auto views = [](const Bucket& bucket) { return bucket.mode == schedule::BucketMode::View; };
  if (every(plan, views)) return "members are views, nothing is copied";
  return some(plan, views) ? "views, and copies" : "gradients are copied in and out";
}

std::string launch_rule(const Plan& plan) {
  const auto is = [&](auto kind) {
    return
        [](const Bucket& bucket) { return std::holds_alternative<decltype(kind)>(bucket.launch); };
  };
  const auto is_inline = [](const Bucket& bucket) {
    return std::holds_alternative<schedule::InlineStream>(bucket.stream);
  };
  if (plan.program.stages > 1) return "beside the backwards that the order allows";
  if (every(plan, is_inline)) return "on the compute stream, after each producer";
  if (some(plan, is(schedule::LaunchInBatch{}))) {
    return "in whole batches, the rest at the end";
  }
  if (every(plan, is(schedule::LaunchAfterBackward{}))) {
    return is_sharded(plan.schedule) ? "no whole batch, so in the final sync"
                                     : "nothing overlaps backward";
  }
  return "once all members are produced";
}

std::string wait_rule(const Plan& plan) {
  const auto waits = [](WaitPoint point) {
    return [point](const Bucket& bucket) { return bucket.wait == point; };
  };
  const bool streams =
      some(plan, [](const Bucket& bucket) { return bucket.scope == WaitScope::WholeStream; });
  if (some(plan, waits(WaitPoint::BeforeNextBatch))) return "for the batch before";
  if (every(plan, waits(WaitPoint::AtLaunch))) return "for each bucket, at its launch";
  if (every(plan, waits(WaitPoint::EndOfBackward))) return "once, before the first update";
  return streams ? "for all that is launched on the stream" : "for one event per bucket";
}

std::string gather_rule(const Plan& plan) {
  if (plan.schedule.parameters == schedule::ParameterSync::EachUse) return {};
  return plan.schedule.parameters == schedule::ParameterSync::NextForward
             ? "before the first reader of the next step"
             : "once the shards are updated";
}

std::string rule_of(const Plan& plan, LoweringPass pass) {
  switch (pass) {
    case LoweringPass::Pipeline:
      return pipeline_rule(plan);
    case LoweringPass::Merge:
      return merge_rule(plan);
    case LoweringPass::Scale:
      return scale_rule(plan);
    case LoweringPass::Shard:
      return "reduce-scatter, and each rank updates its shard";
    case LoweringPass::Group:
      return group_rule(plan);
    case LoweringPass::LayOut:
      return layout_rule(plan);
    case LoweringPass::Launch:
      return launch_rule(plan);
    case LoweringPass::Wait:
      return wait_rule(plan);
    case LoweringPass::Gather:
      return gather_rule(plan);
    case LoweringPass::Messages:
    case LoweringPass::Emit:
      break;
  }
  return {};
}

}  // namespace

std::vector<std::string> describe_passes(const Plan& plan, std::span<const PassLine> report) {
  std::vector<PassLine> passes(report.begin(), report.end());
  if (std::ranges::count(passes, LoweringPass::Scale, &PassLine::pass) == 0) {
    const auto next = std::ranges::find_if(
        passes, [](const PassLine& line) { return line.pass >= LoweringPass::Shard; });
    passes.insert(next, {LoweringPass::Scale, "nothing left to do"});
  }
  auto layout = std::ranges::find(passes, LoweringPass::LayOut, &PassLine::pass);
  for (std::string& words : schedule::bucket_report(plan.program, plan.schedule)) {
    layout = passes.insert(layout, {LoweringPass::Group, std::move(words)}) + 1;
  }
  std::vector<std::string> lines;
  std::optional<LoweringPass> previous;
  for (const PassLine& line : passes) {
    std::string& text = lines.emplace_back(to_string(line));
    const std::string rule = rule_of(plan, line.pass);
    if (!rule.empty() && line.pass != previous) text += "  [" + rule + "]";
    previous = line.pass;
  }
  return lines;
}

}  // namespace dovetail::cli
