// Writes one side of a comparison or difference as JSON: where the trace comes from, and the
// figures of its median step.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "traces/compare_text.h"

namespace dovetail::traces {

using nlohmann::ordered_json;

ordered_json side_json(const Side& side) {
  const Provenance& from = side.provenance;
  const auto ratio = side.report.overlap_ratio();
  return {{"provenance",
           {{"origin", to_string(from.origin)},
            {"machine", from.machine},
            {"policy", from.policy},
            {"workload", from.workload},
            {"backend", from.backend},
            {"notes", ordered_json(from.notes)}}},
          {"steps", side.steps},
          {"median_step", side.report.step},
          {"rank", side.report.rank.value},
          {"overlap_ratio", ratio ? ordered_json(*ratio) : ordered_json(nullptr)},
          {"step_times",
           {{"min_us", to_us(side.step_times.min)},
            {"p10_us", to_us(side.step_times.p10)},
            {"median_us", to_us(side.step_times.median)},
            {"p90_us", to_us(side.step_times.p90)}}}};
}

}  // namespace dovetail::traces
