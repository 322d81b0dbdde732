// What a pass that rewrites Programs returns: the new Program and words for the report, or a
// reason in words why the pass cannot be applied (P1: refusal is a result, not an exception).
//
// A refused pass changed nothing (PI11). lower turns a refusal into an InputError that names the
// Schedule; policies ask beforehand and decide otherwise.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <string>
#include <variant>

namespace dovetail::schedule {

struct Refusal {
  std::string reason;  // one sentence without a full stop
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

struct Rewritten {
  Program program;
  std::string report;  // words on one line; empty: there was nothing to do
};

using Rewrite = std::variant<Rewritten, Refusal>;

}  // namespace dovetail::schedule
