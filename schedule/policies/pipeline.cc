// The grouping of source-improved, and the order of the micro-batches.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/pipeline.h"

#include <optional>
#include <string>

#include "schedule/pipeline/order.h"
#include "schedule/policies/scaling.h"
#include "schedule/policies/source_improved.h"

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
                     std::to_string(spec.stages) + " (AS2)";
    return result;
  }
  const PipelineShape shape{.kind = spec.order,
                            .stages = spec.stages,
                            .chunks = spec.chunks,
                            .micro_steps = spec.merge.micro_steps};
  if (std::optional<std::string> reason = problem(shape)) {
    result.failure = *reason + " (AS9)";
    return result;
  }
  result = source_improved(program, spec);
  if (result.failure) return result;
  result.schedule.merge = spec.merge;
  result.schedule.pipeline = {.kind = spec.order, .alignment = spec.alignment};
  result.report.push_back(stages_text(spec.stages) + ", " + std::to_string(spec.merge.micro_steps) +
                          " micro-batches in the order " + std::string(to_string(spec.order)) +
                          " (AS2): " + "no bucket spans two stages");
  return result;
}

}  // namespace dovetail::schedule
