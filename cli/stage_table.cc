// Prints the parts of a step by stage and writes them as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/stage_table.h"

#include <algorithm>
#include <string>

#include "base/json.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/text.h"

namespace dovetail::cli {

using nlohmann::ordered_json;
using predict::For;
using predict::StageParts;

std::vector<For> kinds_of(std::span<const StageParts> stages) {
  std::vector<For> kinds;
  for (const For kind : kAllOf<For>) {
    if (std::ranges::any_of(stages, [kind](const StageParts& stage) {
          return stage.exposed_of(kind) > Duration{};
        })) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

namespace {

// People read of these kinds only.
std::vector<Field<StageParts>> stage_fields(const std::vector<For>& kinds) {
  constexpr Unit kMs = Unit::Milliseconds;
  std::vector<Field<StageParts>> fields = {
      {{"stage", "stage"}, &StageParts::stage},
      {{"compute_us", "compute ms", kMs, {1}}, &StageParts::compute}};
  for (const For kind : kAllOf<For>) {
    const std::string name(to_string(kind));
    Column column{.key = "exposed_us." + name, .unit = kMs, .digits = {1}};
    if (std::ranges::find(kinds, kind) != kinds.end()) column.title = "exposed " + name;
    fields.push_back({column, [kind](const StageParts& stage) { return stage.exposed_of(kind); }});
  }
  fields.push_back({{"bubble_us", "bubble", kMs, {1}}, &StageParts::bubble});
  return fields;
}

}  // namespace

void print_stages(std::ostream& out, std::span<const StageParts> stages,
                  const std::vector<For>& kinds, const std::vector<StageColumn>& further) {
  std::vector<Field<StageParts>> fields = stage_fields(kinds);
  int spare = 0;
  for (const StageColumn& column : further) {
    fields.push_back({{.key = "", .title = column.name, .spare = ++spare},
                      [&column, stages](const StageParts& stage) {
                        return column.cells[static_cast<std::size_t>(&stage - stages.data())];
                      }});
  }
  print_table(out, table_of(fields, stages));
}

void print_bubble(std::ostream& out, std::span<const StageParts> stages, Duration step) {
  if (stages.size() < 2) return;
  const auto [least, most] = std::ranges::minmax_element(stages, {}, &StageParts::bubble);
  const auto share = [step](Duration time) {
    return fixed(100 * to_us(time) / to_us(step), 1) + " % (" + fixed(to_us(time) / 1e3, 1) +
           " ms)";
  };
  print_text(out, "bubble: " + share(least->bubble) + " of the step on stage " +
                      std::to_string(least->stage) + ", " + share(most->bubble) + " on stage " +
                      std::to_string(most->stage) +
                      ": waiting for work of other stages, which the figures above count as "
                      "communication, stall or idle");
}

ordered_json stages_json(std::span<const StageParts> stages) {
  return rows_json(table_of(stage_fields({}), stages));
}

ordered_json stage_json(const StageParts& stage) { return stages_json({&stage, 1}).front(); }

}  // namespace dovetail::cli
