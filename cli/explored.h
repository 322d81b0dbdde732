// What the table, the document and the page of `explore` all say of an exploration.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/exploration.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/answer.h"
#include "search/sweep.h"

namespace dovetail::cli {

inline constexpr const char* kCutShort =
    "interrupted: the rows are those that were tried until then";

using answers::Exploration;

// In the words of the framework that the rows are for, if it has any for this one.
std::string row_words(const search::SweepRow& row);

// Of one micro-step, as rows are compared.
Duration compared_step(const search::SweepRow& row);

// Whether rows differ in what they keep, so that it is worth a column: shards do.
bool tells_memory(const search::Sweep& sweep);

// The fastest row of PyTorch DDP as it is without options, if it was tried.
const search::SweepRow* default_of_ddp(const search::Sweep& sweep);

// How far the best row is above the bound, in per cent; nothing where there is none, or where it is none of what the bound bounds.
std::optional<double> gap_percent(const search::Sweep& sweep);

// One that trains with a larger batch is not called best.
std::string word_for_best(const search::SweepRow& row);

// All that a row says: the columns of the table, and the keys of the document.
std::vector<Field<search::SweepRow>> fields_of(const Exploration& one);
// The same of the best of several explorations.
std::vector<Field<Exploration>> pair_fields();
Tone tone_of(const search::Sweep& sweep, const search::SweepRow& row);

// What to set, what that gives against what there is now, and what is left.
Answer answer_of_sweep(const Exploration& one);

}  // namespace dovetail::cli
