// A diagnosis for machines, schema "dovetail.diagnosis/1".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/table.h"
#include "cli/answer.h"
#include "cli/trace_bandwidth.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/timeline/rank_set.h"

namespace dovetail::cli {

// What to set, what that gives and what is left. Nothing where there is no work to diagnose.
std::optional<Answer> answer_of_diagnosis(const diagnose::Diagnosis& diagnosis);

std::string diagnosis_json(const imports::JobTrace& job, const diagnose::Diagnosis& diagnosis,
                           const std::vector<BusRow>& bus);

// Its findings: the rows that CSV has.
Table finding_table(const diagnose::Diagnosis& diagnosis);

}  // namespace dovetail::cli
