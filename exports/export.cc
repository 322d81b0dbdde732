// The targets by their names.
//
// SPDX-License-Identifier: Apache-2.0
#include "exports/export.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json_reader.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

using Writer = Export (*)(const schedule::Plan&, const Machine&, const ExportOptions&);

struct Entry {
  Target target;
  std::string_view word;
  std::string_view framework;
  std::string_view what;
  Writer write;
};

constexpr std::array<Entry, 8> kEntries = {{
    {Target::Torch, "torch", "PyTorch DistributedDataParallel (2.13 or later)",
     "bucket_cap_mb_list, byte for byte", export_torch},
    {Target::Megatron, "megatron", "Megatron-Core (0.20)",
     "a FullParamLayout: the bucket of every parameter", export_megatron},
    {Target::DeepSpeed, "deepspeed", "DeepSpeed ZeRO 1 and 2",
     "the reduce_bucket_size that comes nearest", export_deepspeed},
    {Target::Horovod, "horovod", "Horovod", "groups of DistributedOptimizer", export_horovod},
    {Target::Xla, "xla", "JAX on XLA for GPUs", "combiner keys of gradients and costs for PGLE",
     export_xla},
    {Target::Fsdp, "fsdp", "PyTorch FSDP2", "module groups and prefetch lists", export_fsdp},
    {Target::Inductor, "inductor", "torch.compile (Inductor)",
     "a runtime table and module bucket plans", export_inductor},
    {Target::NcclTuner, "nccl-tuner", "NCCL's example tuner plugin",
     "a CSV of thread blocks with rows for all sizes", export_nccl_tuner},
}};

const Entry& entry(Target target) { return *std::ranges::find(kEntries, target, &Entry::target); }

}  // namespace

std::span<const Target> all_targets() {
  static constexpr std::array kTargets = {Target::Torch,    Target::Megatron, Target::DeepSpeed,
                                          Target::Horovod,  Target::Xla,      Target::Fsdp,
                                          Target::Inductor, Target::NcclTuner};
  return kTargets;
}

std::string_view to_string(Target target) { return entry(target).word; }
std::string_view describe(Target target) { return entry(target).what; }
std::string_view framework(Target target) { return entry(target).framework; }

std::string target_list() {
  std::string list;
  for (const Entry& candidate : kEntries) {
    list += (list.empty() ? "" : ", ") + std::string(candidate.word);
  }
  return list;
}

std::string export_command(const std::string& plan) {
  const std::string list = target_list();
  return "dovetail export " + plan + " --to torch (or " + list.substr(list.find(' ') + 1) + ")";
}

Target parse_target(std::string_view word) {
  std::vector<std::string> known;
  for (const Entry& candidate : kEntries) {
    if (candidate.word == word) return candidate.target;
    known.emplace_back(candidate.word);
  }
  const std::string near = nearest_word(word, known);
  throw InputError("--to: unknown target \"" + std::string(word) + "\"" +
                   (near.empty() ? "" : "; did you mean " + near + "?") + " (there are " +
                   target_list() + ")");
}

Export export_plan(Target target, const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options) {
  if (plan.schedule.buckets.empty()) throw InputError("export: the plan has no bucket");
  return entry(target).write(plan, machine, options);
}

}  // namespace dovetail::exports
