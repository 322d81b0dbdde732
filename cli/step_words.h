// What plan and predict say of a step beside its time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "answers/prediction.h"
#include "answers/step_range.h"
#include "sim/interval.h"

namespace dovetail::cli {

// How far the step strays, where the spread of costs was measured; else nothing.
//
//   p10 of the step 482.690 ms, median 484.710 ms, p90 487.630 ms: of 200 draws from the spread of ...
void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval);

// Where it may lie, where that is known of public steps; else nothing.
//
//   p5 of the step 480.100 ms, p50 530.000 ms, p95 700.200 ms: by how far public steps lay from their predictions
void print_range(std::ostream& out, const std::optional<predict::StepRange>& range);

// {"p5_us": ..., "p50_us": ..., "p95_us": ...}, null for nothing.
nlohmann::ordered_json range_json(const std::optional<predict::StepRange>& range);

// The first line behind a header where a step is host-bound (predict::host_bound); else nothing.
void print_host_bound(std::ostream& out, const std::optional<predict::HostBound>& bound);

// What is left then, of an answer, and what makes a host quicker.
std::string rest_of_host_bound(const predict::HostBound& bound);

// All that must be known, for documents and pages: host-bound first.
std::vector<std::string> with_host_bound(const std::optional<predict::HostBound>& bound,
                                         std::vector<std::string> notes);

}  // namespace dovetail::cli
