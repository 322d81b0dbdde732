// dovetail import: other programs' files to cluster and workload files. One subcommand per format; this
// file holds those whose result is a cluster file.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace dovetail::cli {

// Formats that hold collectives by size.
enum class CollectiveFormat { NcclTests };

struct ImportCollectivesOptions {
  CollectiveFormat format = CollectiveFormat::NcclTests;
  std::vector<std::string> files;
  std::string output;                 // cluster file; empty: only print
  std::string over;                   // cluster to merge over; empty: a new one
  std::string name;                   // of the new cluster
  std::string gpu;                    // for its compute section
  std::string collective;             // of logs that do not say it
  std::optional<std::int64_t> ranks;  // likewise
  bool out_of_place = false;
  std::string data_dir;
};

// Prints what was read, what was left out and the tables, and writes the cluster file.
void import_collectives(const ImportCollectivesOptions& options, std::ostream& out);

}  // namespace dovetail::cli
