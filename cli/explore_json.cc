// Writes a sweep's rows, bound and answer as JSON, and those of several sweeps beside each other.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_json.h"

#include <optional>
#include <utility>

#include "base/json.h"
#include "schedule/data_parallel.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using search::Sweep;
using search::SweepRow;

// What there is now, and, of a step that was recorded on this machine, the gain of the best row against it.
ordered_json now_json(const Exploration& one) {
  if (!one.now) return nullptr;
  const SweepRow& row = one.sweep.rows[*one.now];
  ordered_json object = {{"step_us", to_us(compared_step(row))},
                         {"in_words", row_words(row)},
                         {"is_recorded", row.is_recorded}};
  object["recorded_step_us"] = one.recorded ? ordered_json(to_us(one.recorded->step)) : nullptr;
  object["gain"] = nullptr;
  if (const std::optional<search::RecordedAnswer>& answer = one.answer) {
    object["gain"] = {{"gain_us", to_us(answer->gain.middle)},
                      {"gain_low_us", to_us(answer->gain.low)},
                      {"gain_high_us", to_us(answer->gain.high)},
                      {"is_told", answer->is_told()}};
  }
  return object;
}

}  // namespace

std::string sweep_json(const Exploration& one) {
  const Sweep& sweep = one.sweep;
  const schedule::Program& program = one.planner.program();
  ordered_json rows = rows_json(table_of(fields_of(one), sweep.rows));
  ordered_json best = rows[sweep.best];
  best.erase("alike");
  ordered_json bound_us = nullptr;
  if (sweep.lower_bound) bound_us = to_us(*sweep.lower_bound);
  std::vector<std::string> notes = one.all_notes();
  if (!sweep.bound_problem.empty()) notes.push_back(sweep.bound_problem);
  if (sweep.interrupted) notes.emplace_back(kCutShort);
  const schedule::ReducedGradients reduced = schedule::reduced_gradients(program);
  const ordered_json result = {
      {"schema", "dovetail.explore/1"},
      {"kind", "explore"},
      {"origin", "simulated"},
      {"workload", one.given.workload},
      {"cluster", one.summary.cluster},
      {"world_size", program.world_size},
      {"gradients", reduced.count},
      {"gradient_bytes", reduced.bytes.count()},
      {"framework", std::string(sweep.framework->id)},
      {"notes", std::move(notes)},
      {"rows", std::move(rows)},
      {"best", std::move(best)},
      {"now", now_json(one)},
      {"lower_bound_us", bound_us},
      {"gap_percent", sweep.lower_bound ? ordered_json(100 * sweep.gap) : nullptr},
      {"answer", answer_json(answer_of_sweep(one))},
      {"simulated", sweep.simulated},
      {"left_out", sweep.left_out}};
  return result.dump(1) + "\n";
}

std::string sweeps_json(const std::vector<Exploration>& all) {
  ordered_json explorations = ordered_json::array();
  for (const Exploration& one : all) {
    explorations.push_back(ordered_json::parse(sweep_json(one)));
  }
  const ordered_json document = {{"schema", "dovetail.explorations/1"},
                                 {"kind", "explorations"},
                                 {"origin", "simulated"},
                                 {"rows", rows_json(table_of(pair_fields(), all))},
                                 {"explorations", std::move(explorations)}};
  return document.dump(1) + "\n";
}

}  // namespace dovetail::cli
