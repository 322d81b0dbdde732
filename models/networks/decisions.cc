// Writes a job's decisions in the words of policies.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/decisions.h"

namespace dovetail::jobs {
namespace {

constexpr std::int64_t kMegatronBucket = 40'000'000 * 4;  // bytes of f32 gradients

std::string data_parallel_text(const Job& job) {
  const std::string cap =
      job.bucket_bytes ? std::to_string(*job.bucket_bytes) + "B" : std::string();
  const auto cap_or = [&](const std::string& usual) { return cap.empty() ? usual : cap; };
  const std::string megatron = std::to_string(kMegatronBucket) + "B";
  // Whose gradients are divided has no room for whole sums, so every micro-batch reduces into the shard; in a pipeline
  // frameworks reduce in the last.
  const bool reduces_each =
      job.zero >= Zero::Gradients && job.layout.pp == 1 && job.micro_batches() > 1;
  const std::string sync = reduces_each ? ",sync=every" : "";
  if (!has_copies(job)) return "no-overlap";
  switch (job.zero) {
    case Zero::Nothing:
      if (!job.overlap_gradients) return "no-overlap";
      if (job.as == RunBy::Megatron) {
        return "threshold:cap=" + cap_or(megatron) + ",wait=end-of-backward";
      }
      return "torch-ddp:cap=" + cap_or("25MiB");
    case Zero::Optimizer:
    case Zero::Gradients:
      return "sharded:cap=" + cap_or(megatron) +
             ",p=1,gather=" + (job.overlap_parameters ? "next-forward" : "after-update") +
             (job.overlap_gradients ? "" : ",overlap=no") + sync;
    case Zero::Parameters:
      break;
  }
  const std::string ahead = std::to_string(job.prefetch);
  return "fsdp:forward=" + ahead + ",backward=" + ahead +
         ",reshard=" + (job.reshard ? "yes" : "no") + ",mode=copy,wait=end-of-backward" + sync;
}

// The sums of micro-batches travel, so they have the type that travels.
std::string sums_text(const Job& job) {
  if (job.precision.reduce == schedule::DType::F32) return "";
  return ",sums=" + std::string(to_string(job.precision.reduce));
}

}  // namespace

std::string stages_text(const Job& job) {
  const Layout& l = job.layout;
  if (l.pp == 1) return "";
  std::string text =
      "pipeline:kind=" + std::string(to_string(l.order)) + ",stages=" + std::to_string(l.pp);
  if (l.vp > 1) text += ",chunks=" + std::to_string(l.vp);
  return text + ",k=" + std::to_string(job.micro_batches()) + sums_text(job);
}

std::string common_options(const Job& job) {
  std::string text;
  if (job.layout.pp == 1 && job.micro_batches() > 1) {
    text = "k=" + std::to_string(job.micro_batches()) + sums_text(job);
  }
  if (job.async_tp && job.layout.tp > 1)
    text += (text.empty() ? "" : ",") + std::string("collectives=async");
  return text;
}

std::string policy_text(const Job& job) { return policy_text(job, data_parallel_text(job)); }

std::string policy_text(const Job& job, const std::string& data_parallel) {
  const std::string stages = stages_text(job);
  const std::string common = common_options(job);
  std::string text = data_parallel;
  if (!common.empty()) {
    text += (text.find(':') == std::string::npos ? ":" : ",") + common;
  }
  return stages.empty() ? text : stages + "+" + text;
}

}  // namespace dovetail::jobs
