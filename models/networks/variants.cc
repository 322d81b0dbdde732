// Tries options in turn and keeps the jobs that hold together.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/variants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/attempt.h"
#include "models/networks/text.h"

namespace dovetail::jobs {

namespace {

// "21/20/20/19": the last stage, which has the output layer besides, gets so many layers fewer; the others share the rest.
std::string balanced_layers(const Job& job) {
  const Model& m = job.model;
  const double all = forward_flop_per_token(m, job.batch.sequence, true);
  const double head = 2 * static_cast<double>(m.vocabulary) * static_cast<double>(m.width);
  const auto layers = static_cast<double>(m.layers);
  const double head_in_layers = head / ((all - head) / layers);
  const auto stages = job.layout.pp;
  const double share = (layers + head_in_layers) / static_cast<double>(stages);
  const std::int64_t last = std::max<std::int64_t>(0, std::llround(share - head_in_layers));
  const std::int64_t rest = m.layers - last;
  std::string text;
  for (std::int64_t i = 0; i + 1 < stages; ++i) {
    const std::int64_t more = i < rest % (stages - 1) ? 1 : 0;
    text += std::to_string(rest / (stages - 1) + more) + "/";
  }
  return text + std::to_string(last);
}

}  // namespace

std::optional<Job> with_options(const Job& job, const std::string& options) {
  Job other = job;
  const auto changed = attempt([&] {
    set_options(other, options, "a change of the job");
    complete(other, "a change of the job");
  });
  return !changed || other == job ? std::nullopt : std::optional(std::move(other));
}

std::vector<Variant> variants(const Job& job) {
  std::vector<Variant> found;
  const auto add = [&](const std::string& options) {
    if (auto other = with_options(job, options)) found.push_back({options, *std::move(other)});
  };
  for (const Recompute kind : kAllOf<Recompute>) {
    if (kind == Recompute::Selective && job.flash) continue;       // what the kernel does by itself
    if (kind == Recompute::Op && job.as != RunBy::Fsdp) continue;  // torchtitan's
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
  if (job.layout.pp > 1 && !splits_backward(job.layout.order)) {
    add("schedule=zero-bubble");
    add("schedule=zbv,vp=2");
  }
  if (job.layout.pp > 1 && job.layout.vp == 1) {
    if (job.layout.layers.empty()) add("vp=2");
    const std::string layers = "layers=" + balanced_layers(job);
    const std::optional<Job> balanced = with_options(job, layers);
    if (balanced && in_effect(*balanced) != in_effect(job)) add(layers);
  }
  if (job.model.experts) {
    add("ep=" + std::to_string(2 * job.layout.ep));
    if (job.layout.ep % 2 == 0) add("ep=" + std::to_string(job.layout.ep / 2));
  }
  add("mbs=" + std::to_string(2 * job.batch.micro));
  if (job.batch.micro % 2 == 0) add("mbs=" + std::to_string(job.batch.micro / 2));
  if (job.layout.tp > 1) add(job.async_tp ? "async_tp=no" : "async_tp=yes");
  return found;
}

std::vector<Variant> layouts(const Job& job, std::int64_t world, std::int64_t node) {
  std::vector<Variant> found;
  Job plain = job;
  plain.layout =
      Layout{.sp = job.layout.sp, .cp = job.layout.cp, .ep = job.layout.ep, .etp = job.layout.etp};
  plain.zero = Zero::Nothing;
  const std::int64_t experts = job.model.experts ? job.model.experts->count : 1;
  for (std::int64_t tp = 1; tp <= node; tp *= 2) {
    for (std::int64_t pp = 1; pp <= world / tp; pp *= 2) {
      if (world % (tp * pp * plain.layout.cp) != 0) continue;
      const std::int64_t left = world / (tp * pp * plain.layout.cp);
      const std::string replicas = std::to_string(left);
      const std::string degrees = "tp=" + std::to_string(tp) + ",pp=" + std::to_string(pp);
      const auto add_one = [&](const std::string& options) {
        if (auto other = with_options(plain, options))
          found.push_back({options, *std::move(other)});
      };
      // Experts where the job has them, and where nobody said, as far apart as a node goes.
      const std::int64_t apart = std::bit_floor(
          static_cast<std::uint64_t>(std::min({experts, node, left * tp * plain.layout.cp})));
      const auto add = [&](const std::string& options) {
        add_one(options);
        if (plain.layout.ep == 1 && apart > 1) add_one(options + ",ep=" + std::to_string(apart));
      };
      if (left == 1) {
        add(degrees);
        continue;
      }
      add(degrees + ",dp=" + replicas + ",zero=1");
      add(degrees + ",dp_shard=" + replicas + (pp > 1 ? ",reshard=no" : ""));
    }
  }
  return found;
}

}  // namespace dovetail::jobs
