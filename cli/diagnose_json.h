// A diagnosis for machines, schema "dovetail.diagnosis/1".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/table.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/kineto/rank_set.h"

namespace dovetail::cli {

std::string diagnosis_json(const imports::JobTrace& job, const diagnose::Diagnosis& diagnosis);

// Its findings: the rows that CSV has.
Table finding_table(const diagnose::Diagnosis& diagnosis);

}  // namespace dovetail::cli
