// The search over policies: many of them, some at every bucket size, on one workload and machine, for one framework.
//
//   const Framework& torch = frameworks::framework("torch");
//   SweepOptions options{.framework = &torch, .policies = comparable_policies(torch, program),
//                        .thresholds = log_range(mib(1), mib(64), 17)};
//   Sweep sweep = run_sweep(planner, options);
//   sweep.rows[sweep.best].candidate; sweep.rows[sweep.best].said->paste; sweep.lower_bound;
//
// A row that the framework has words for is what the framework makes of the policy (its copies, waits and groups), and
// only such a row can be best: what is printed as best can be set there. What the framework does by itself is
// always a row, so that following the best is never slower than leaving everything as it is. Other rows are the
// policy as it stands, which needs hooks of one's own or another framework.
//
// Rows with k micro-steps per update are compared by step time / k, but only rows with the fewest
// micro-steps of the sweep can be best: the others train with larger batches. Sharded updates can be best
// where they were asked for: they change which rank holds what. A row that a device has no room for is best only where
// there is room for none.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "frameworks/framework.h"
#include "schedule/policies/policies.h"
#include "schedule/program.h"
#include "search/planner.h"

namespace dovetail::search {

// One policy of a sweep, and which bucket sizes it is tried with.
struct SweptPolicy {
  enum class Sizes {
    Own,   // that of the policy: one row
    Each,  // all thresholds: a row for each
    Best   // all thresholds: one row, of the fastest
  };
  schedule::Policy spec;
  Sizes sizes = Sizes::Own;
  const frameworks::Framework* set_in = nullptr;  // each threshold as its option takes it
  bool is_named = false;                          // by somebody: then it must apply
  friend bool operator==(const SweptPolicy&, const SweptPolicy&) = default;
};

// Whether a policy of this kind is tried with all thresholds where nobody gave it a size.
bool is_swept(const schedule::Policy& policy);

// What is worth comparing where nobody named policies. Left out are pipelines, which change the Program,
// fsdp, which pays time for memory, unless it is the framework's, and rules of papers (PolicyDefinition::compared).
std::vector<SweptPolicy> comparable_policies(const frameworks::Framework& framework,
                                             const schedule::Program& program);

// Every policy with its defaults, and what every framework does by itself, each once. What the Program does not allow (a
// pipeline changes it) is left out by the sweep, with its reason.
std::vector<SweptPolicy> every_policy(const schedule::Program& program);

// What the framework does by itself, and with the options that cost nothing to set; then, for the sizes
// that its own option takes, one that is swept.
std::vector<SweptPolicy> usual_policies(const frameworks::Framework& framework,
                                        const schedule::Program& program);
std::optional<SweptPolicy> size_policy(const frameworks::Framework& framework,
                                       const schedule::Program& program);

// The policy with this size, as it is set in its framework if it is that framework's.
schedule::Policy at_size(const SweptPolicy& policy, Bytes threshold,
                         const schedule::Program& program);

// The first framework that has words for all of these policies, before others one that a file can be written for;
// PyTorch's DDP where none has.
const frameworks::Framework& framework_of(const std::vector<SweptPolicy>& policies);

// What a job runs now, where that was recorded (recorded.h): a Schedule, and whose it is by its id;
// "": unknown.
struct RecordedRun {
  schedule::Schedule schedule;
  std::string framework;
};

struct SweepOptions {
  // Who chose the policies. Of those that somebody named any can be best; of the comparable ones those that
  // shard updates, which is another training job, are compared but are not best, unless the framework does
  // so by itself. Every is of every_policy(): the same, and a row that the framework would change stays as it is, unless it
  // is searched.
  enum class Chosen { Comparable, Named, Every };
  const frameworks::Framework* framework = &frameworks::framework("torch");
  std::vector<SweptPolicy> policies;
  std::vector<NamedSchedule> plans =
      {};  // a row for each, first; policy exact climbs from them too
  std::optional<RecordedRun> recorded = std::nullopt;  // a row before all others
  std::vector<Bytes> thresholds;                       // rising, at least one
  Chosen chosen = Chosen::Comparable;
  std::optional<Bytes> capacity = std::nullopt;  // of a device, where it is known
};

// How many rows these policies have if all apply and nobody ends the sweep early.
std::int64_t row_count(const SweepOptions& options);

// Who watches a sweep: hears which policy it is at, and after each row says whether to go on.
struct SweepWatch {
  std::function<void(const std::string& policy)> begins = [](const std::string&) {};
  std::function<bool()> goes_on = [] { return true; };
};

struct SweepRow {
  Candidate candidate;
  std::optional<Bytes> threshold;     // of a policy that was tried with each
  std::optional<Bytes> first_bucket;  // of torch-ddp
  // How the framework is told; nothing: it does not do this. Then the candidate is the policy as it stands,
  // otherwise what the framework makes of it.
  std::optional<frameworks::Said> said;
  bool is_recorded = false;  // SweepOptions::recorded
  bool is_changed = false;   // the framework makes something else of the policy than it says
  std::optional<Bound> bound = std::nullopt;  // where its search found one
  Bytes resident = {};  // what a rank keeps all step long (schedule/resident.h)
  bool fits = true;     // into SweepOptions::capacity, as far as is known
};

struct Sweep {
  const frameworks::Framework* framework = nullptr;  // that can run the best
  std::vector<SweepRow> rows;
  std::size_t best = 0;
  std::optional<std::size_t> beyond;  // the fastest that the framework cannot run, if it is faster
  std::optional<std::size_t> best_bounded;  // of the rows that the lower bound bounds
  std::optional<Duration> lower_bound;      // absent with best_bounded, or with a reason:
  std::string bounded_schedules;            // of which it is: Bound::schedules
  std::string bound_problem;                // why the bound that was found is none
  double gap = 0;                           // of best_bounded
  std::size_t simulated = 0;
  // By its watch or a signal: `rows` are those until then, without a bound and not yet verified.
  bool interrupted = false;
  std::vector<std::string> left_out;  // policies, and steps of them, that do not apply, and why
};

// What a reader has now: what was recorded; else what the framework does by itself, with as many
// micro-steps as the best. Nothing where neither was tried.
std::optional<std::size_t> row_of_now(const Sweep& sweep, const schedule::Program& program);

// The same for somebody who thinks about this policy.
std::optional<schedule::Policy> policy_of_now(const schedule::Policy& wanted,
                                              const schedule::Program& program);

std::int32_t micro_steps(const SweepRow& row);

// Of one micro-step.
double step_ns(const SweepRow& row);

// Sizes from low to high, spaced evenly in their logarithm; rising and distinct, so at most `points`.
// REQUIRES: 1 B <= low <= high, points >= 2.
std::vector<Bytes> log_range(Bytes low, Bytes high, int points);

// The sizes that are tried where nobody names any.
std::vector<Bytes> usual_thresholds();

// Those of the thresholds that leave a sharded policy, which cuts tensors, few buckets; of other policies all.
inline constexpr std::int64_t kMostCutBuckets = 1024;
std::vector<Bytes> thresholds_for(const schedule::Policy& spec, const schedule::Program& program,
                                  const std::vector<Bytes>& thresholds);

// REQUIRES: options has policies. Throws InputError for a policy that was named and does not apply, for a plan that
// cannot be lowered, and for a best Schedule that verify finds illegal.
Sweep run_sweep(Planner& planner, const SweepOptions& options, const SweepWatch& watch = {});

}  // namespace dovetail::search
