// Where a predicted step goes on each pipeline stage, as a table and as JSON: for jobs and for plans.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "answers/step_parts.h"

namespace dovetail::cli {

// Kinds of communication that any of these stages waits for or runs itself.
std::vector<predict::For> kinds_of(std::span<const predict::StageParts> stages);

// A line for each stage: compute, exposed of each of these kinds, bubble, in ms; then further columns, each with a cell for
// each stage.
struct StageColumn {
  std::string name;
  std::vector<std::string> cells;
};
void print_stages(std::ostream& out, std::span<const predict::StageParts> stages,
                  const std::vector<predict::For>& kinds,
                  const std::vector<StageColumn>& further = {});

// "bubble: 27.4 % of the step (1396.1 ms) on stage 0, 19.2 % to 28.2 % on all: ..."; nothing of one stage.
void print_bubble(std::ostream& out, std::span<const predict::StageParts> stages, Duration step);

nlohmann::ordered_json stage_json(const predict::StageParts& stage);
nlohmann::ordered_json stages_json(std::span<const predict::StageParts> stages);

}  // namespace dovetail::cli
