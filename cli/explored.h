// One sweep of `explore`, with what its table, its document and its page all say of it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/answer.h"
#include "cli/step_words.h"
#include "schedule/plan_json.h"
#include "search/planner.h"
#include "search/sweep.h"

namespace dovetail::cli {

inline constexpr const char* kCutShort =
    "interrupted: the rows are those that were tried until then";

// What the rows are of, and what they assume, one line each.
struct About {
  schedule::PlanSummary summary;
  std::vector<std::string> notes;
  std::vector<std::string> sharding_notes = {};       // besides, where a row shards updates
  std::optional<predict::HostBound> host_bound = {};  // of the best row
  std::vector<bool> alike =
      {};  // rows that cannot be told from the best; empty of a machine that was measured
  std::string spread = {};             // of the best row's step, in words
  std::optional<Bytes> capacity = {};  // of a device

  [[nodiscard]] std::vector<std::string> all_notes() const {
    std::vector<std::string> all = with_host_bound(host_bound, notes);
    all.insert(all.end(), sharding_notes.begin(), sharding_notes.end());
    return all;
  }
};

// One workload on one machine.
struct Explored {
  predict::InputOptions given;
  About about;
  search::Planner planner;
  search::Sweep sweep;
};

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
std::vector<Field<search::SweepRow>> fields_of(const Explored& one);
Tone tone_of(const search::Sweep& sweep, const search::SweepRow& row);

// What to set, what that gives against what there is now, and what is left.
Answer answer_of_sweep(const Explored& one);

}  // namespace dovetail::cli
