// The three lines that a report begins with: what to set, what that gives, what is left. Before them stands what decides and was
// not modelled, of a job in a framework's words.
//
//   assumed: --mtp-num-layers 1: multi-token prediction is not modelled
//   set:   DistributedDataParallel(model, bucket_cap_mb=8)
//   gives: 48.7 ms a step (46.1 to 52.0) against 49.1 ms now (PyTorch DDP's default): 0.9 % less
//   left:  at most 0.1 %: no schedule of whole gradients is faster than 48.6 ms
//
// Figures have three significant digits, which is more than a prediction is good for; documents have them all.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "answers/page/report.h"
#include "answers/step_range.h"
#include "base/units.h"
#include "cli/text.h"
#include "models/networks/job.h"
#include "sim/interval.h"

namespace dovetail::cli {

struct Answer {
  std::vector<jobs::Assumed> assumed = {};  // of a job's file, which is said first
  std::vector<std::string> set;             // lines to paste, which stay whole
  std::string nothing = "nothing";          // what stands where there is no line, then why:
  std::string why_nothing = {};             // "it is what DDP does by itself"
  std::string gives;
  std::string left;
  Tone tone = Tone::Good;  // of what is to be set, or not
};

// The first few of what was assumed, the rest with `detail`.
void print_assumed(std::ostream& out, const std::vector<jobs::Assumed>& assumed,
                   const Detail& detail);
// That, and the three lines.
void print_answer(std::ostream& out, const Answer& answer, const Detail& detail = {});
// Without what print_answer says.
std::vector<std::string> notes_beside(const Answer& answer, std::vector<std::string> notes);

// The same for a page. What is nothing is said in the words of the line.
report::Answer answer_on_page(const Answer& answer);

// For documents: {"set": [], "why_nothing": "it is what DDP does by itself", "left": "at most 0.1 %: ..."}.
nlohmann::ordered_json answer_json(const Answer& answer);

// [{"option": "--mtp-num-layers", "value": "1", "counted": "multi-token prediction is not modelled"}].
nlohmann::ordered_json assumed_json(const std::vector<jobs::Assumed>& assumed);

// " (46.1 to 52 ms)": nine of ten steps by public errors, else eight of ten draws from what was measured; "" where neither
// is known.
std::string spread_text(const std::optional<predict::StepRange>& range,
                        const std::optional<sim::StepInterval>& interval);

// "0.9 % less", "2.1 % more", "the same" where they do not differ in a tenth of a per cent.
std::string change_text(Duration step, Duration than);

// "at most 0.1 %": how much less than `step` the bound is.
std::string at_most_text(Duration step, Duration bound);

}  // namespace dovetail::cli
