// The grouping of source-improved, and the order of the micro-batches.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/pipeline.h"

#include <optional>
#include <string>

#include "lower/pipeline/order.h"
#include "policies/definition.h"
#include "policies/scaling.h"
#include "policies/source_improved.h"

namespace dovetail::schedule {
namespace {

std::string stages_text(std::int32_t stages) {
  return std::to_string(stages) + (stages == 1 ? " stage" : " stages");
}

}  // namespace

PolicyResult pipeline(const Program& program, const PolicySpec& spec) {
  PolicyResult result;
  if (program.stages != spec.stages) {
    result.failure = "the program has " + stages_text(program.stages) + ", the policy is for " +
                     std::to_string(spec.stages);
    return result;
  }
  const PipelineShape shape{.kind = spec.order,
                            .stages = spec.stages,
                            .chunks = spec.chunks,
                            .micro_steps = spec.merge.micro_steps};
  if (std::optional<std::string> reason = problem(shape)) {
    result.failure = *reason;
    return result;
  }
  result = source_improved(program, spec);
  if (result.failure) return result;
  result.schedule.merge = spec.merge;
  result.schedule.pipeline = {.kind = spec.order, .alignment = spec.alignment};
  result.report.push_back(stages_text(spec.stages) + ", " + std::to_string(spec.merge.micro_steps) +
                          " micro-batches in the order " + std::string(to_string(spec.order)) +
                          ": no bucket spans two stages");
  return result;
}

namespace {

void check(PolicySpec& spec, const TypedOptions& typed) {
  const auto fail = [&](const std::string& message) { typed::fail(typed.text, message); };
  if (spec.stages < 2) fail("stages= must be at least 2: one stage is no pipeline");
  const bool interleaved = spec.order == PipelineKind::Interleaved;
  if (interleaved && spec.chunks < 2) {
    fail("kind=interleaved needs chunks= of at least 2: it interleaves them");
  }
  if (!interleaved && spec.chunks > 1) {
    fail("chunks= needs kind=interleaved: the other orders have one part per stage");
  }
  if (!interleaved && spec.alignment == LaunchAlignment::AcrossStages) {
    fail("align=across-stages needs kind=interleaved");
  }
  if (spec.order != PipelineKind::Sequential && spec.merge.sync == SyncPoint::EveryMicroStep) {
    fail(
        "sync=every: in a pipeline gradients travel in the last micro-batch only; use "
        "sync=last");
  }
}

std::vector<PolicyOption> pipeline_options() {
  using typed::Typed;
  return {{"kind",
           [](PolicySpec& spec, const Typed& typed) {
             spec.order =
                 typed::word(typed, std::array{PipelineKind::Sequential, PipelineKind::OneFOneB,
                                               PipelineKind::Interleaved});
           },
           [](const PolicySpec& spec) { return std::string(to_string(spec.order)); }, true},
          {"stages",
           [](PolicySpec& spec, const Typed& typed) {
             spec.stages = typed::small_number(typed, 1 << 10);
           },
           [](const PolicySpec& spec) { return std::to_string(spec.stages); }, true},
          {"chunks",
           [](PolicySpec& spec, const Typed& typed) {
             spec.chunks = typed::small_number(typed, 1 << 10);
           },
           [](const PolicySpec& spec) { return std::to_string(spec.chunks); }},
          {"align",
           [](PolicySpec& spec, const Typed& typed) {
             spec.alignment = typed::word(
                 typed, std::array{LaunchAlignment::PerStage, LaunchAlignment::AcrossStages});
           },
           [](const PolicySpec& spec) { return std::string(to_string(spec.alignment)); }}};
}

}  // namespace

PolicyDefinition pipeline_policy() {
  return {.name = "pipeline",
          .purpose = "stages, micro-batches in order, buckets within each stage",
          .sizes = {options::cap()},
          .others = pipeline_options(),
          .set_defaults =
              [](PolicySpec& spec) {
                spec.merge.micro_steps = 4;
                spec.stages = 2;
              },
          .complete = check,
          .apply = pipeline,
          .groups_by = "one open bucket per process group and dtype, capped in bytes"};
}

}  // namespace dovetail::schedule
