// Reads the kind of a step off its layout.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/step_kind.h"

namespace dovetail::jobs {

StepKind step_kind(const Job& job, std::int64_t node_ranks) {
  if (job.model.experts && job.layout.ep > 1) return StepKind::Experts;
  if (job.layout.tp > node_ranks) return StepKind::WideTensors;
  return job.layout.world() <= node_ranks ? StepKind::OneNode : StepKind::SeveralNodes;
}

}  // namespace dovetail::jobs
