// dovetail show WHAT: things as text, or as JSON.
//
//   workloads, clusters, policies      what there is to choose from
//   schemas, dovetail.plan/1           formats of files; the fields of one, as JSON its JSON Schema
//   a100x8, resnet50, torch-ddp        one of them: a machine's facts, a model's layers, a policy's options
//   FILE                               a plan, a cluster, a trace, a workload: what it holds
//   program, schedule, commands        of --plan, or of --workload with --policy
//
// A plan file shows its buckets, why each was closed, and what each pass of lowering did:
//
//   schedule source-first-fit:elements=50331648  scale loss-gradient
//     bucket 0  31.2 KiB  8 gradients  all-reduce over dp on comm0  ...  closed by end
//   8 all-reduces fused into 1: 31.2 KiB, padding 0 B, 0 single gradients apart
//   buckets closed by end 1
//   passes
//     lay out: 8 gradients in 1 bucket, 31.2 KiB, padding 0 B
//     ...
//
// As JSON a machine is a cluster file, a model or program a program file, a plan or schedule a plan file, a
// trace a trace file; lists and policies are rows (dovetail.list/1).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "cli/document.h"

namespace dovetail::cli {

struct ShowOptions {
  std::string what;      // as above
  std::string plan;      // schedule, commands and program take a plan ...
  std::string workload;  // ... or a workload with a policy
  std::string policy;    // empty: torch-ddp
  std::string data_dir;
  std::optional<std::int64_t> world;
  DocumentOptions document;
};

void show(const ShowOptions& options, std::ostream& out);

}  // namespace dovetail::cli
