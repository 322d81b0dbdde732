// dovetail compare: a predicted trace beside a measured one, command by command; or what moved between any two
// traces, by class of op and collective. As a table, as JSON, and as one Perfetto file with both.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"
#include "cli/page.h"

namespace dovetail::cli {

struct CompareOptions {
  std::string data_dir;
  std::string first;  // a predicted trace, where the second is the measurement of it
  std::string second;
  std::string perfetto;   // Chrome JSON to write; empty: none
  bool timeline = false;  // also print both as text
  DocumentOptions document;
  PageOptions page;
};

void compare(const CompareOptions& options, std::ostream& out);

}  // namespace dovetail::cli
