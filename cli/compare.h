// dovetail compare: a predicted trace beside a measured one, as a table, as JSON, and as one
// Perfetto file with both.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"
#include "cli/page.h"

namespace dovetail::cli {

struct CompareOptions {
  std::string predicted;
  std::string measured;
  std::string perfetto;   // Chrome JSON to write; empty: none
  bool timeline = false;  // also print both as text
  DocumentOptions document;
  PageOptions page;
};

void compare(const CompareOptions& options, std::ostream& out);

}  // namespace dovetail::cli
