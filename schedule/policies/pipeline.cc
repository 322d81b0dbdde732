// The policy for pipelines: buckets as source-improved makes them, none over two stages, and the
// order of the micro-batches.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {
namespace {

using typed::Typed;

std::vector<PolicyOption> pipeline_options() {
  return {
      {"kind", Decision::Stages,
       [](Decisions& decisions, const Typed& typed) {
         decisions.stages->order = typed::word<PipelineKind>(typed);
       },
       [](const Decisions& decisions) { return std::string(to_string(decisions.stages->order)); },
       true},
      {"stages", Decision::Stages,
       [](Decisions& decisions, const Typed& typed) {
         decisions.stages->stages = typed::small_number(typed, 1 << 10);
       },
       [](const Decisions& decisions) { return std::to_string(decisions.stages->stages); }, true},
      {"chunks", Decision::Stages,
       [](Decisions& decisions, const Typed& typed) {
         decisions.stages->chunks = typed::small_number(typed, 1 << 10);
       },
       [](const Decisions& decisions) { return std::to_string(decisions.stages->chunks); }},
      {"align", Decision::Stages,
       [](Decisions& decisions, const Typed& typed) {
         decisions.stages->alignment = typed::word<LaunchAlignment>(typed);
       },
       [](const Decisions& decisions) {
         return std::string(to_string(decisions.stages->alignment));
       }}};
}

void check_stages(Decisions& decisions, const TypedOptions& typed) {
  const auto fail = [&](const std::string& message) { typed::fail(typed.text, message); };
  const Stages& stages = *decisions.stages;
  if (stages.stages < 2) fail("stages= must be at least 2: one stage is no pipeline");
  const bool interleaved = stages.order == PipelineKind::Interleaved;
  if (interleaved && stages.chunks < 2) {
    fail("kind=interleaved needs chunks= of at least 2: it interleaves them");
  }
  if (stages.order == PipelineKind::Zbv && stages.chunks != 2) {
    fail("kind=zbv needs chunks=2: each stage has one on the way there and one on the way back");
  }
  if (!interleaved && !splits_backward(stages.order) && stages.chunks > 1) {
    fail(
        "chunks= needs kind=interleaved, zero-bubble or zbv: the other orders have one part per "
        "stage");
  }
  if (!interleaved && stages.alignment == LaunchAlignment::AcrossStages) {
    fail("align=across-stages needs kind=interleaved");
  }
}

}  // namespace

PolicyDefinition pipeline_policy() {
  return {.name = "pipeline",
          .purpose = "stages, micro-batches in order, buckets within each stage",
          .sizes = {options::cap()},
          .others = pipeline_options(),
          .decide =
              [](Decisions& decisions) {
                decisions.stages = Stages{};
                decisions.accumulation = Merge{.micro_steps = 4};
                decisions.grouping = ByCap{};
                decisions.scaling = ScaleDecision{.rule = ScaleRule::Improved};
              },
          .grouping = Firmness::Default,
          .complete = check_stages,
          .groups_by = "one open bucket per process group and dtype, capped in bytes"};
}

}  // namespace dovetail::schedule
