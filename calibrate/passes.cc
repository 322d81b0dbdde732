// Collects samples of passes over memory from steps that were timed, and fits the line of each
// kind.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/passes.h"
#include "frameworks/framework.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <variant>

#include "lower/lower.h"
#include "models/kernel_table.h"
#include "policies/policies.h"

namespace dovetail::calibrate {

std::vector<schedule::ScheduledProgram> pass_variants(const schedule::Program& program) {
  std::vector<schedule::ScheduledProgram> variants;
  for (const char* policy : {"gradient-merge:k=2", "sharded:cap=1MiB", "sharded:cap=25MiB"}) {
    const schedule::PolicyResult decided =
        schedule::apply_policy(program, frameworks::parse_policy(policy));
    if (decided.failure) continue;
    variants.push_back(schedule::lower(program, decided.schedule).program);
  }
  return variants;
}

std::map<models::PassKind, models::PassModel> passes_of(
    const models::Cluster& cluster, std::span<const schedule::ScheduledProgram> variants,
    std::span<const std::vector<OpTime>> times, const CopyTime& scales) {
  const models::KernelTable kernels(cluster.kernels, cluster.unit_kernel);
  std::vector<models::PassSample> samples;
  for (std::size_t i = 0; i < times.size(); ++i) {
    for (const OpTime& timed : times[i]) {
      const schedule::Op& op = variants[i].program.op(timed.op);
      const std::optional<models::PassKind> kind = models::pass_of(op);
      if (!kind) continue;
      const bool products = std::holds_alternative<schedule::GemmWork>(op.work);
      const Duration kernel = products ? kernels.time(op).value_or(Duration{}) : Duration{};
      samples.push_back(
          {.kind = *kind, .traffic = models::traffic_of(op), .time = timed.time.median - kernel});
    }
  }
  std::map<models::PassKind, models::PassModel> passes = models::fit_passes(samples);
  if (scales.fixed > Duration{} || scales.ns_per_byte > 0) {
    passes[models::PassKind::Scale] = {.fixed = scales.fixed,
                                       .ns_per_byte = scales.ns_per_byte / 2};
  }
  return passes;
}

}  // namespace dovetail::calibrate
