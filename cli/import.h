// dovetail import: other programs' files to cluster and workload files. One subcommand per format.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::cli {

// Formats that hold collectives by size; the result is a cluster file.
enum class CollectiveFormat { NcclTests, NcclInspector, FlightRecorder, NcclLog };

struct ImportCollectivesOptions {
  CollectiveFormat format = CollectiveFormat::NcclTests;
  std::vector<std::string> files;
  std::string output;                      // cluster file; empty: only print; "-": standard output
  bool json = false;                       // likewise
  std::string over;                        // cluster to merge over; empty: a new one
  std::string name;                        // of the new cluster
  std::string gpu;                         // for its compute section
  std::string collective;                  // of nccl-tests' logs that do not say it
  std::optional<std::int64_t> ranks;       // likewise
  bool out_of_place = false;               // of nccl-tests
  std::optional<std::int64_t> node_ranks;  // ranks on each node: links are fitted, too
  std::string data_dir;
};

// Prints what was read, what was left out and the tables, and writes the cluster file.
void import_collectives(const ImportCollectivesOptions& options, std::ostream& out);

// Formats that hold whole steps; the result is a workload file.
enum class StepFormat { HorovodTimeline, Chakra, Nsys };

struct ImportStepOptions {
  StepFormat format = StepFormat::HorovodTimeline;
  std::string file;
  std::string output;                 // workload file; empty: only print; "-": standard output
  bool json = false;                  // likewise
  std::optional<std::int64_t> ranks;  // of files that do not say it
  std::string step;                   // nsys: name of the NVTX range around a step
  std::optional<std::int64_t> pid;    // nsys: process to read
  std::vector<std::string> bytes;     // nsys: sizes of the all-reduces of a step
};

// Prints what was read and left out, and writes the workload file.
void import_step(const ImportStepOptions& options, std::ostream& out);

struct ImportHloOptions {
  std::string file;
  std::string output;  // workload file; empty: only print; "-": standard output
  bool json = false;   // likewise
};

// Prints the collectives of a compiled step and what became of them, and writes it as a workload file. import_hlo.cc.
void import_hlo(const ImportHloOptions& options, std::ostream& out);

// Of files that were refused as ones of `format`: what they look like and the way on, where that can be told, come first.
[[noreturn]] void refuse_as(const std::string& error, const std::vector<std::string>& files,
                            std::string_view format);

}  // namespace dovetail::cli
