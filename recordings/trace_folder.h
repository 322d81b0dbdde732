// Which files of a folder are profiler traces of one run.
//
//   find_traces({"profile_traces"}).files     profile_traces/iteration_20/rank0_trace.json, ...
//
// Of a folder its *.json, *.json.gz and *.sqlite that begin as traces do; others (summaries, configurations) are left out and named. Where it has
// none, those of its folders, two levels down (a folder a rank; plugins/profile/TIME of TensorBoard): of folders that differ in a number
// behind one word (iteration_10, iteration_20) the last alone, since they are different windows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace dovetail::imports {

struct TraceFiles {
  std::vector<std::string> files;  // in the order given; of a folder by name
  std::vector<std::string> notes;  // what was left out, one line each
};

// Files stand for themselves, whatever is in them. Throws InputError for a folder without traces.
TraceFiles find_traces(const std::vector<std::string>& given);

}  // namespace dovetail::imports
