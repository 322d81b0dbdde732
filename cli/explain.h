// dovetail explain: why a plan takes as long as it does, what each border of its buckets is worth, what would help, what
// was tried, and what is left; as text and as JSON (dovetail.explain/1).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>

#include "cli/document.h"
#include "cli/text.h"
#include "models/costs/what_if.h"

namespace dovetail::cli {

struct ExplainOptions {
  std::string plan;
  std::string cluster;     // empty: the plan's own
  models::WhatIf what_if;  // of the machine
  std::string data_dir;
  Detail detail;
  DocumentOptions document;
};

void explain(const ExplainOptions& options, std::ostream& out);

}  // namespace dovetail::cli
