// dovetail diagnose: why a step is slow, from profiler traces of one or all of its ranks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/document.h"
#include "cli/page.h"
#include "cli/text.h"
#include "recordings/timeline/rank_set.h"

namespace dovetail::cli {

struct DiagnoseOptions {
  std::vector<std::string> files;
  std::string framework = "torch";  // whose settings to name
  std::vector<std::string> collective_patterns;
  std::string step;             // name of the annotations around steps
  std::string unprofiled_step;  // "15ms"; empty: nobody measured it
  std::string trace;            // Perfetto file to write
  Detail detail;
  DocumentOptions document;
  PageOptions page;
  std::string data_dir;  // of the shipped machines
};

// Throws InputError, with the way on where a file looks like one of another format.
imports::JobTrace load_traces(const std::vector<std::string>& files,
                              const imports::JobOptions& wanted);

void diagnose(const DiagnoseOptions& options, std::ostream& out);

}  // namespace dovetail::cli
