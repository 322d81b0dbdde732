// The sentences of a diagnosis: everything that people read is made here, from values.
//
//   headline(diagnosis)             "host-bound: no bucket size will help; the GPU waits 163 ms of 222 ms ..."
//   advice_lines(*diagnosis.buckets)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/diagnose/diagnosis.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::diagnose {

std::string_view to_string(FindingKind kind);  // "host-bound", as in JSON
std::string_view to_string(Change change);     // "a network that takes no time"
// The same with the ways to it that the traced job has: "a host that takes no time (CUDA graphs, compiled steps)".
std::string in_words(Change change, const Diagnosis& diagnosis);

// "2 ranks of 8", "1 rank; world size unknown".
std::string ranks_in_words(const JobTrace& job);

// Why nothing can be said of a trace without GPU work, and what would help.
std::string no_work_sentence(const imports::Unrecognised& seen);

// Of the first finding, and of the others by weight.
std::string headline(const Diagnosis& diagnosis);
std::vector<std::string> sentences(const Diagnosis& diagnosis);

// What to change of FSDP2: the largest of what its own API can say, those that are gains for certain first. Of all ranks the mean,
// the least and the most of their gains. Nothing where no change would end anything.
struct ShardingAdvice {
  Change change = Change::KeepParameters;
  Gain gain;
  std::string line;  // to paste
  [[nodiscard]] bool is_told() const { return gain.low > Duration{}; }
};
std::optional<ShardingAdvice> sharding_advice(const Diagnosis& diagnosis);

// The answer in three sentences: the line to paste or why there is none; what it gives; what a change of another kind would
// give at most. Empty where there is no work to diagnose.
struct Brief {
  std::string set;          // a line to paste; empty: nothing is to be set
  std::string why_nothing;  // of nothing: "keep the buckets you have"
  std::string gives, left;
};
Brief brief(const Diagnosis& diagnosis);

// "bucket closed late", of FSDP "group closed late".
std::string in_words(Cause cause, const Diagnosis& diagnosis);

// ", bucket 3", of FSDP2 ", group layers.0"; "" where it is of none.
std::string of_which(const RankDiagnosis& rank, const ExposedCollective& collective);

// FSDP2's groups in sentences: how many, of what sizes, what is gathered when. Empty for other traces.
std::vector<std::string> sharding_lines(const Diagnosis& diagnosis);

// Whether a network that takes no time is the largest change, and would leave the host to set the pace.
bool host_would_bind(const Diagnosis& diagnosis);

// Where the host's time of a step goes: parts, what recording costs, operators, annotations, longest pauses. `unprofiled_step`: as
// somebody measured it.
std::vector<std::string> host_lines(const RankDiagnosis& rank,
                                    std::optional<Duration> unprofiled_step);

// The flat range first, since it says how much the choice matters at all; then the line to paste, or that keeping what
// there is is as good; then what the framework cannot express, with what that costs, and what the forecast does not hold.
// A line of it; one that somebody pastes stays whole.
struct AdviceLine {
  std::string text;
  bool is_pasted = false;
};
std::vector<AdviceLine> advice_lines(const BucketAdvice& advice);

}  // namespace dovetail::diagnose
