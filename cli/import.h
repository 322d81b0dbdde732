// dovetail import: other programs' files to cluster and workload files. One subcommand per format, one function per product.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "recordings/formats.h"
#include "recordings/hlo/hlo.h"

namespace dovetail::cli {

// Of formats that hold collectives by size; the result is a cluster file.
struct ImportClusterOptions {
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
// REQUIRES here and below: a format of that product.
void import_cluster(imports::Format format, const ImportClusterOptions& options, std::ostream& out);

// Of formats that hold a step; the result is a workload file.
struct ImportWorkloadOptions {
  std::string file;
  std::string output;                 // workload file; empty: only print; "-": standard output
  bool json = false;                  // likewise
  std::optional<std::int64_t> ranks;  // of files that do not say it
  std::string step;                   // nsys: name of the NVTX range around a step
  std::optional<std::int64_t> pid;    // nsys: process to read
  std::vector<std::string> bytes;     // nsys: sizes of the all-reduces of a step
};

// Prints what was read and left out, and writes the workload file.
void import_workload(imports::Format format, const ImportWorkloadOptions& options,
                     std::ostream& out);

// The collectives of a module as XLA combined them, and what became of them. import_hlo.cc.
void print_hlo_collectives(std::ostream& out, const std::vector<imports::HloCollective>& all);

// Of formats that hold everything a profiler recorded, one file or one of each rank; the result is a workload file.
struct ImportRecordingOptions {
  std::vector<std::string> files;
  std::vector<std::string> collective_patterns;
  std::string step;        // name of the annotations around steps
  std::string output;      // workload file
  std::string name;        // of the workload; empty: the output's, without its ending
  std::string parameters;  // file with the names of parameters
  bool json = false;       // the figures as JSON
  std::string data_dir;    // of the shipped machines
};

// Prints figures and buckets of the steps, and writes the workload file. import_recording.cc.
void import_recording(const ImportRecordingOptions& options, std::ostream& out);

// Of files that were refused as ones of `format`: what they look like and the way on, where that can be told, come first.
[[noreturn]] void refuse_as(const std::string& error, const std::vector<std::string>& files,
                            imports::Format format);

}  // namespace dovetail::cli
