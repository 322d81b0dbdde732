// Tries options in turn and keeps the jobs that hold together.
//
// SPDX-License-Identifier: Apache-2.0
#include "jobs/variants.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "jobs/text.h"

namespace dovetail::jobs {
namespace {

// The job with these options; nothing where it does not hold together, or nothing changes.
std::optional<Variant> with_options(const Job& job, const std::string& options) {
  Variant variant{.change = options, .job = job};
  try {
    set_options(variant.job, options, "variant");
    complete(variant.job, "variant");
  } catch (const InputError&) {
    return std::nullopt;
  }
  if (variant.job == job) return std::nullopt;
  return variant;
}

}  // namespace

std::vector<Variant> variants(const Job& job) {
  std::vector<Variant> found;
  const auto add = [&](const std::string& options) {
    if (auto variant = with_options(job, options)) found.push_back(*std::move(variant));
  };
  for (const Recompute kind : kAllOf<Recompute>) {
    if (kind == Recompute::Selective && job.flash) continue;  // what the kernel does by itself
    if (kind != job.recompute) add("recompute=" + std::string(to_string(kind)));
  }
  if (job.layout.replicas() * job.layout.cp > 1) {
    if (job.zero == Zero::Nothing) add("zero=1");
    if (job.zero == Zero::Optimizer || job.zero == Zero::Gradients) {
      add("zero=0");
      add("overlap_grads=no,overlap_params=no");
    }
    if (job.zero == Zero::Parameters) {
      add(job.reshard ? "reshard=no" : "reshard=yes");
      add("prefetch=" + std::to_string(job.prefetch + 1));
    }
  }
  if (job.layout.pp > 1 && job.layout.vp == 1) add("vp=2");
  if (job.layout.tp > 1) add(job.async_tp ? "async_tp=no" : "async_tp=yes");
  return found;
}

std::vector<Variant> layouts(const Job& job, std::int64_t world, std::int64_t node) {
  std::vector<Variant> found;
  Job plain = job;
  plain.layout =
      Layout{.sp = job.layout.sp, .cp = job.layout.cp, .ep = job.layout.ep, .etp = job.layout.etp};
  plain.zero = Zero::Nothing;
  for (std::int64_t tp = 1; tp <= node; tp *= 2) {
    for (std::int64_t pp = 1; pp <= world / tp; pp *= 2) {
      if (world % (tp * pp * plain.layout.cp) != 0) continue;
      const std::string replicas = std::to_string(world / (tp * pp * plain.layout.cp));
      const std::string degrees = "tp=" + std::to_string(tp) + ",pp=" + std::to_string(pp);
      for (const std::string& rest : {",dp=" + replicas + ",zero=1",
                                      ",dp_shard=" + replicas + (pp > 1 ? ",reshard=no" : "")}) {
        if (auto variant = with_options(plain, degrees + rest))
          found.push_back(*std::move(variant));
      }
    }
  }
  return found;
}

}  // namespace dovetail::jobs
