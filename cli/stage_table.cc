// Prints the parts of a step by stage and writes them as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/stage_table.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
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

void print_stages(std::ostream& out, std::span<const StageParts> stages,
                  const std::vector<For>& kinds, const std::vector<Column>& further) {
  const auto ms = [](Duration time) { return fixed(to_us(time) / 1e3, 1); };
  std::vector<std::string> header = {"stage", "compute ms"};
  for (const For kind : kinds) header.push_back("exposed " + std::string(to_string(kind)));
  header.emplace_back("bubble");
  for (const Column& column : further) header.push_back(column.name);
  TextTable table(std::move(header));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::vector<std::string> cells = {std::to_string(stages[i].stage), ms(stages[i].compute)};
    for (const For kind : kinds) cells.push_back(ms(stages[i].exposed_of(kind)));
    cells.push_back(ms(stages[i].bubble));
    for (const Column& column : further) cells.push_back(column.cells[i]);
    table.add(std::move(cells));
  }
  std::vector<std::string_view> spared;
  for (const Column& column : further) spared.emplace_back(column.name);
  table.spares(spared).print(out);
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

ordered_json stage_json(const StageParts& stage) {
  ordered_json exposed = ordered_json::object();
  for (const For kind : kAllOf<For>) {
    exposed[std::string(to_string(kind))] = to_us(stage.exposed_of(kind));
  }
  return {{"stage", stage.stage},
          {"compute_us", to_us(stage.compute)},
          {"exposed_us", std::move(exposed)},
          {"bubble_us", to_us(stage.bubble)}};
}

ordered_json stages_json(std::span<const StageParts> stages) {
  ordered_json list = ordered_json::array();
  for (const StageParts& stage : stages) list.push_back(stage_json(stage));
  return list;
}

}  // namespace dovetail::cli
