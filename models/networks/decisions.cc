// From a job's keys to decisions, and from these to words.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/decisions.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/error.h"
#include "models/networks/tensors.h"
#include "schedule/policies/definition.h"

namespace dovetail::jobs {
namespace {

using schedule::BucketMode;
using schedule::BucketPlacement;
using schedule::Decisions;
using schedule::Policy;
using schedule::PolicyTerm;
using schedule::WaitPoint;

constexpr std::int64_t kMegatronBucket = 40'000'000;  // elements
constexpr std::int64_t kMegatronBucketOfRank = 1'000'000;
constexpr std::int64_t kDeepspeedBucket = 500'000'000;  // elements

// The sums of micro-batches travel, so they have the type that travels.
std::optional<schedule::Merge> merge_of(const Job& job) {
  if (job.micro_batches() == 1) return std::nullopt;
  return schedule::Merge{.micro_steps = static_cast<std::int32_t>(job.micro_batches()),
                         .dtype = job.precision.reduce};
}

// Of f32 gradients; more for many ranks where Megatron runs it.
Bytes megatron_bucket(const Job& job) {
  const bool is_megatron = job.as == RunBy::Megatron;
  const std::int64_t ranks = is_megatron ? job.layout.replicas() * job.layout.cp : 1;
  return Bytes(4 * std::max(kMegatronBucket, kMegatronBucketOfRank * ranks));
}

// Of one micro-batch after another, none.
std::vector<PolicyTerm> staged(const Job& job) {
  const Layout& l = job.layout;
  if (l.pp == 1) return {};
  PolicyTerm term = schedule::usual_term("pipeline");
  term.decisions.stages->order = l.order;
  term.decisions.stages->stages = static_cast<std::int32_t>(l.pp);
  term.decisions.stages->chunks = static_cast<std::int32_t>(l.vp);
  term.decisions.accumulation = merge_of(job).value_or(schedule::Merge{});
  return {term};
}

PolicyTerm replicated(const Job& job) {
  if (!job.overlap_gradients) return schedule::usual_term("no-overlap");
  const bool is_megatron = job.as == RunBy::Megatron;
  PolicyTerm term = schedule::usual_term(is_megatron ? "threshold" : "torch-ddp");
  auto& limits = std::get<schedule::ByLimits>(*term.decisions.grouping);
  if (is_megatron) {
    limits.cap = megatron_bucket(job);
    term.decisions.placement = BucketPlacement{.wait = WaitPoint::EndOfBackward};
  }
  if (job.bucket_bytes) limits.cap = Bytes(*job.bucket_bytes);
  return term;
}

PolicyTerm sharded(const Job& job) {
  PolicyTerm term = schedule::usual_term("sharded");
  std::get<schedule::EqualSizes>(*term.decisions.grouping).cap =
      job.bucket_bytes ? Bytes(*job.bucket_bytes) : megatron_bucket(job);
  term.decisions.sharding->gather = job.overlap_parameters ? schedule::ParameterSync::NextForward
                                                           : schedule::ParameterSync::AfterUpdate;
  term.decisions.placement->batch = 1;
  if (!job.overlap_gradients)
    term.decisions.placement->launch = schedule::LaunchRule::AfterBackward;
  return term;
}

// ZeRO-1 and 2 of DeepSpeed, whose all-reduces of whole buckets wait for each other (stage_1_and_2.py of 0.19.8).
PolicyTerm deepspeed_sharded(const Job& job) {
  PolicyTerm term = sharded(job);
  term.decisions.sharding->reduce = schedule::Collective::AllReduce;
  std::get<schedule::EqualSizes>(*term.decisions.grouping).cap = Bytes(job.bucket_bytes.value_or(
      kDeepspeedBucket * schedule::element_size(job.precision.reduce).count()));
  if (job.overlap_gradients) term.decisions.placement->wait = WaitPoint::BeforeNextBatch;
  return term;
}

PolicyTerm gathered(const Job& job) {
  PolicyTerm term = schedule::usual_term("fsdp");
  schedule::Gathers& gathers = *term.decisions.gathers;
  gathers.forward = gathers.backward = static_cast<std::int32_t>(job.prefetch);
  gathers.reshard = job.reshard ? schedule::Choice::Yes : schedule::Choice::No;
  term.decisions.placement =
      BucketPlacement{.mode = BucketMode::Copy, .wait = WaitPoint::EndOfBackward};
  // ZeRO-3 reduces buckets of many layers, whose gradients travel together here.
  if (job.as == RunBy::Deepspeed) {
    const std::int64_t size = schedule::element_size(job.precision.gradient).count();
    const std::int64_t elements = job.bucket_bytes ? *job.bucket_bytes / size : kDeepspeedBucket;
    term.decisions.placement->batch = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(elements / layer_elements(job.model), 1, job.model.layers + 2));
  }
  // PyTorch's pipelines reduce a stage's gradients together, behind its last backward (REDUCE_GRAD).
  const bool is_torch = job.as != RunBy::Deepspeed && job.as != RunBy::Megatron;
  if (is_torch && job.layout.pp > 1 && job.layout.vp == 1)
    term.decisions.placement->batch = static_cast<std::int32_t>(job.model.layers + 2);
  return term;
}

PolicyTerm data_parallel(const Job& job) {
  if (!has_copies(job)) return schedule::usual_term("no-overlap");
  if (job.zero == Zero::Nothing) return replicated(job);
  PolicyTerm term = job.zero == Zero::Parameters ? gathered(job)
                    : job.as == RunBy::Deepspeed ? deepspeed_sharded(job)
                                                 : sharded(job);
  // Whose gradients are divided has no room for whole sums, so every micro-batch reduces into the
  // shard, unless the job says otherwise; in a pipeline frameworks reduce in the last.
  if (job.zero >= Zero::Gradients && job.layout.pp == 1 && job.micro_batches() > 1) {
    term.decisions.accumulation = merge_of(job);
    if (job.sync_each) term.decisions.accumulation->sync = schedule::SyncPoint::EveryMicroStep;
  }
  return term;
}

// What any policy takes of the job besides, unless it says so itself.
Decisions common_of(const Job& job) {
  Decisions decisions;
  if (job.layout.pp == 1) decisions.accumulation = merge_of(job);
  if (has_ring(job)) decisions.collectives = schedule::OwnCollectives::Ring;
  if (job.async_tp && job.layout.tp > 1) decisions.collectives = schedule::OwnCollectives::Async;
  return decisions;
}

// The options that a job decides, as they are printed; `always`: where they are the default too.
struct Said {
  std::string_view key;
  bool always = false;
};
constexpr std::array kSaid = {Said{"kind", true},     Said{"stages", true}, Said{"chunks"},
                              Said{"cap", true},      Said{"p", true},      Said{"forward", true},
                              Said{"backward", true}, Said{"gather", true}, Said{"reshard", true},
                              Said{"overlap"},        Said{"mode"},         Said{"wait"},
                              Said{"batch"},          Said{"reduce"},       Said{"sync"},
                              Said{"k", true},        Said{"sums"},         Said{"collectives"}};

}  // namespace

Policy policy_of(const Job& job) {
  std::vector<PolicyTerm> terms = staged(job);
  terms.push_back(data_parallel(job));
  Decisions& decisions = terms.back().decisions;
  const Decisions common = common_of(job);
  if (!decisions.accumulation) decisions.accumulation = common.accumulation;
  decisions.collectives = common.collectives;
  return schedule::join(terms);
}

Policy policy_of(const Job& job, std::string_view given,
                 std::span<const schedule::Preset> presets) {
  Policy alone = schedule::parse_policy(given, presets);
  if (alone.decisions.stages) return alone;
  const std::int64_t count = job.micro_batches();
  if (alone.decisions.accumulation && alone.decisions.accumulation->micro_steps != count) {
    throw InputError("policy " + std::string(given) + ": the job has " + std::to_string(count) +
                     " micro-batches by gbs= and mbs=, not k=" +
                     std::to_string(alone.decisions.accumulation->micro_steps));
  }
  Policy policy = schedule::parse_policy(given, presets, staged(job));
  const auto take = [&policy](schedule::Decision part, auto& to, const auto& from) {
    std::int8_t& by = policy.decided_by[static_cast<std::size_t>(part)];
    if (by >= 0 || !from) return;
    to = from;
    by = static_cast<std::int8_t>(policy.terms.size() - 1);
  };
  const Decisions common = common_of(job);
  std::optional<schedule::Merge>& merge = policy.decisions.accumulation;
  take(schedule::Decision::Accumulation, merge, common.accumulation);
  take(schedule::Decision::OwnCollectives, policy.decisions.collectives, common.collectives);
  // What is typed may say k= again, as what is printed does; the job's precision says the type.
  if (merge && merge->micro_steps > 1) merge->dtype = job.precision.reduce;
  return policy;
}

std::string policy_text(const Job& job) {
  const Policy policy = policy_of(job);
  std::string text;
  for (std::size_t i = 0; i < policy.terms.size(); ++i) {
    const schedule::PolicyDefinition& term = *schedule::find_definition(policy.terms[i]);
    const Decisions usual = schedule::usual_term(policy.terms[i]).decisions;
    std::string options;
    for (const Said& said : kSaid) {
      const auto option = schedule::option_of(term, said.key);
      if (!option) continue;
      if (policy.decided_by[static_cast<std::size_t>(option->part)] != static_cast<int>(i))
        continue;
      std::string value = option->print(policy.decisions);
      if (value.empty() || (!said.always && value == option->print(usual))) continue;
      // In bytes, but PyTorch's own.
      if (said.key == "cap" && (job.bucket_bytes || policy.terms[i] != "torch-ddp")) {
        value = std::to_string(bucket_size(policy)->count()) + "B";
      }
      options += (options.empty() ? ":" : ",") + std::string(said.key) + "=" + value;
    }
    text += (text.empty() ? "" : "+") + policy.terms[i] + options;
  }
  return text;
}

}  // namespace dovetail::jobs
