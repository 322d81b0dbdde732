// A plan in the words of the framework that shall run it, and what is lost on the way.
//
//   Export result = export_plan(Target::Torch, plan, machine);
//   result.text      the file to load or to paste: Python, JSON or CSV
//   result.losses    "waits at the end of backward: +1.4 %", in the order in which they are given up
//
// No framework can do all that a Schedule can say. Each writer therefore first turns the plan into the
// Schedule that its framework really runs: step by step, one thing given up at a time. Every step is
// simulated on the plan's machine, so each loss is a difference of two predicted step times, and the
// last one is what the framework is predicted to take. A step can also be faster than the one before
// (all-reduce instead of reduce-scatter and gather, say): then its loss is negative, and said as such.
//
//   target       what is written                                           source of the rules
//   torch        bucket_cap_mb_list of DistributedDataParallel (>= 2.13)   torch 2.14 nn/parallel/distributed.py
//   megatron     FullParamLayout of Megatron-Core 0.20                     core/optimizer/param_layout.py
//   deepspeed    reduce_bucket_size of ZeRO 1 and 2                        runtime/zero/stage_1_and_2.py
//   horovod      groups= of DistributedOptimizer                           horovod/torch/optimizer.py
//   xla          combiner_key per gradient, costs for PGLE                 xla gpu_hlo_schedule.cc
//   fsdp         module groups of fully_shard, prefetch lists              torch 2.14 distributed/fsdp
//   inductor     runtime table, module plans                               torch 2.14 _inductor/fx_passes
//   nccl-tuner   CSV of NCCL's example tuner, rows for all sizes           nccl 2.30 ext-tuner/example
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "schedule/plan_json.h"
#include "schedule/schedule.h"

namespace dovetail::exports {

enum class Target { Torch, Megatron, DeepSpeed, Horovod, Xla, Fsdp, Inductor, NcclTuner };

std::span<const Target> all_targets();
std::string target_list();                  // "torch, megatron, ..."
std::string_view to_string(Target target);  // as typed: "nccl-tuner"
std::string_view describe(Target target);   // what is written, one line
std::string_view framework(Target target);  // "PyTorch DistributedDataParallel (2.13 or later)"
// "dovetail export PLAN --to torch (or megatron, ...)": what to do next with a plan.
std::string export_command(const std::string& plan);
Target parse_target(std::string_view word);  // throws InputError with the nearest word

// What predicts: steps of Schedules of the plan's Program, and single collectives on an idle link.
struct Machine {
  std::string name;
  std::function<Duration(const schedule::Schedule&)> step;
  std::function<Duration(schedule::Collective, const schedule::ProcessGroup&, Bytes)> collective;
};

// Something of the plan that the target cannot express.
struct Loss {
  std::string what;
  Duration more{};  // of predicted step time, against the Schedule before it was given up
};

struct Export {
  std::string text;
  schedule::Schedule schedule;  // as the framework runs it
  Duration planned{};           // predicted step of the plan
  Duration as_run{};            // predicted step of `schedule`: planned + all losses
  std::vector<Loss> losses;
  std::vector<std::string> notes;  // what no simulation shows, and how to use the file
  std::string paste;               // the lines that use the file; "FILE" stands for its name
};

struct ExportOptions {
  std::string version;  // of dovetail, for the first lines of the text
  std::string plan;     // the plan's file, likewise
};

// Throws InputError where the target cannot run the plan at all, with the reason.
Export export_plan(Target target, const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options);

// "+1.4 %" of the planned step; "+0.0 %" below half a thousandth.
std::string loss_percent(const Export& result, Duration more);

}  // namespace dovetail::exports
