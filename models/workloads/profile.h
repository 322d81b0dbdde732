// Measured profiles: gradients with their ready times, as a profiler or a training script saw them,
// with or without the collective times of the machine they come from.
//
// The file (JSON; schema "dovetail.profile/1" or none) holds name, world_size, and
//   profile                 forward_us, backward_us, optimizer_us; gradients [{name, numel, dtype,
//                           ready_us[, ready_us_rank1][, definition]}] in gradient-ready order,
//                           ready_us from the start of backward, definition the place among the
//                           model's parameters (of all gradients or of none); optionally rank1 {forward_us, ...}
//   no_communication_step   step_us, forward_us, backward_us, optimizer_us, p10_us, p90_us: the
//                           same step measured beside the real runs; the profile is scaled to it.
//                           p10_us and p90_us are at most 50 steps apart
//   all_reduce_alone        [{bytes, us}]               one at a time
//   all_reduce_estimated    [{bytes, us, low_us, high_us}]  sizes that nobody measured, by the model of
//                           models/rates/collective_estimate.h; together with all_reduce_alone two at least
//   all_reduce_queue_of_8   [{bytes_each, us_for_8}]    eight in a row
//   compute_slowdown_while_communicating    {forward, backward[, backward_rank1]}
//   bucket_copy_ns_per_byte, cpu_share_of_communication, what, link_mbit_per_s
//   bucket_call_us          what the host takes to launch the collective of one bucket
//   host                    forward, rest and optimizer {compute_us, issue_us}; gradients then have these
//                           keys, too. Of a host that never waits for the device: what each part of the
//                           step takes on the device once it may begin, and what the host takes to issue
//                           it after the part before. forward_us, ready_us, ... are the times that
//                           these give without communication. Not beside no_communication_step or rank1
//   recorded                the step as it was recorded, which is what the job runs now: step_us;
//                           buckets [[names of gradients], ...] in order of launch; mode (copy or
//                           view); framework whose buckets they are, if that is known; micro_steps
//                           of an optimizer's step that reduce (step_us is of the last);
//                           replayed_us, what this profile gives with these buckets where their
//                           collectives take what they took then; bucket_call_low_us and
//                           bucket_call_high_us, between which bucket_call_us may lie
//   conditions              valid, why_not_valid [sentences], and figures for people: how quiet the
//                           machine was (python/dovetail_torch/capture.py). Absent: valid
//   notes                   [sentences] that every prediction repeats: what its times leave out
//   settings                measured steps; no prediction reads them, only who checks one
// All but name, world_size and profile are optional.
//
// From it come a Program of timed work and Costs. What the Costs say, and why:
//   compute      the measured time, per rank, scaled to no_communication_step, times (1 + skew)
//   skew         a synchronous step waits for its slowest rank. With independent jitter sigma per
//                rank the expected maximum over N ranks is mean + c_N sigma (order statistics,
//                base/statistics.h); sigma comes from p10 and p90
//   collectives  lone and back-to-back times from the two tables; beyond its last point the queue's
//                curve runs parallel to the other, but does not fall with it. Reduce-scatter,
//                all-gather and the others are derived from the all-reduce (models/clusters/cluster.h), for
//                the ranks of the profile only
//   memory work  (accumulations that a schedule adds) at half the copy's time per byte of traffic
//   contention   the measured slow-down of backward; and, as an all-reduce of the smallest size is
//                nothing but processor time, each takes that much from its rank's compute
//   copies       pack and unpack at bucket_copy_ns_per_byte
//   host         where it was seen it runs ahead of the device and issues each part and each bucket as recorded;
//                otherwise launching a bucket takes its time from compute. These times are of the
//                Program (Op::issue, Program::bucket_call), so that they go with it everywhere
// Leaves out: what forward and optimizer lose to cold caches in a real step, and the host cost of a
// gradient hook.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/units.h"
#include "models/costs/costs.h"
#include "models/rates/collective_estimate.h"
#include "models/rates/collective_table.h"
#include "schedule/program.h"

namespace dovetail::models {

// One part of a step, where the host was seen too.
struct ProfiledWork {
  Duration compute{};  // on the device, once it may begin
  Duration issue{};    // of the host, after it has issued the part before
  friend bool operator==(const ProfiledWork&, const ProfiledWork&) = default;
};

struct ProfiledGradient {
  std::string name;
  std::int64_t numel = 0;
  schedule::DType dtype = schedule::DType::F32;
  std::vector<Duration> ready;  // by rank; one entry: the same on every rank
  std::optional<std::int64_t> definition = std::nullopt;  // place among the model's parameters
  std::optional<ProfiledWork> work = std::nullopt;        // with Profile::host
};

// The parts of a step that are no gradient's, where the host was seen too.
struct ProfiledHost {
  ProfiledWork forward;    // with what stands between steps
  ProfiledWork rest;       // of backward after its last gradient
  ProfiledWork optimizer;  // all updates
};

// Times of one rank's step without communication.
struct ProfiledStep {
  Duration forward{}, backward{}, optimizer{};
};

struct ProfiledCollectives {
  std::vector<CollectivePoint> points;  // measured; with back-to-back times where the file has them
  std::vector<EstimatedTime> estimated;  // of other sizes; rising
  // Both, as a table has them. Two at least.
  [[nodiscard]] std::vector<CollectivePoint> table() const;
};

// The step as somebody recorded it: what the job runs now, wherever it is taken.
struct RecordedStep {
  Duration step{};
  // What the profile gives with these buckets, where their collectives take what they took then,
  // waiting for late ranks included: by how much it misses `step` is known, whatever else is asked.
  // Absent: nobody knows it.
  std::optional<Duration> replayed = std::nullopt;
  std::string framework = {};  // whose buckets these are, by its id; "": unknown
  bool is_copied = false;      // into buckets; else gradients are views of them
  std::int64_t micro_steps =
      1;  // of a step of the optimizer that reduce; `step` is the last of them
  Duration call_low{},
      call_high{};  // of the host for one bucket: Profile::bucket_call lies between
  std::vector<std::vector<std::size_t>>
      buckets;  // places of gradients in the profile, in order of launch

  // How far any step of this profile may be off: by the miss of this one, half a per cent of it at
  // least. What copies, waits and calls each further bucket brings is known of the recorded ones
  // only.
  [[nodiscard]] Duration off() const;
  friend bool operator==(const RecordedStep&, const RecordedStep&) = default;
};

struct Profile {
  std::string name;
  std::int64_t world_size = 1;
  std::vector<ProfiledStep> by_rank;  // one entry: the same on every rank
  std::vector<ProfiledGradient> gradients;
  struct Baseline {
    Duration step{}, forward{}, backward{}, optimizer{}, p10{}, p90{};
  };
  std::optional<Baseline> baseline;  // no_communication_step
  std::optional<ProfiledCollectives> collectives;
  std::optional<ProfiledHost> host;      // absent: nothing waits for the host
  Duration bucket_call{};                // of the host
  std::vector<double> compute_slowdown;  // by rank; empty: none known
  double copy_ns_per_byte = 0;
  std::optional<RecordedStep> recorded;
  std::vector<std::string> why_not_valid;  // empty: valid
  std::vector<std::string> notes;          // for every prediction made of it
};

// Reads the file strictly. Throws InputError.
Profile read_profile(const JsonFile& file);

// Ops: between-steps and forward; one backward op per gradient that ends when it is ready; the rest
// of backward; one optimizer op per gradient, its share by bytes. problems() of the result is
// empty.
schedule::Program profile_program(const Profile& profile);

// How much longer compute takes than its median, because the slowest rank sets the pace. 0 without
// a baseline.
double skew_share(const Profile& profile);

// Whether the profile says what its machine's collectives cost; over one rank they cost nothing.
bool has_own_costs(const Profile& profile);

// REQUIRES: has_own_costs(profile). The Costs of the machine that the profile was taken on.
Costs profile_costs(const Profile& profile, const schedule::Program& program);

// The same machine where everything that the recording does not tell is as cheap, or as dear, as it
// may be: what a bucket costs the host, and all-reduces of sizes that nobody measured.
struct CostBounds {
  Costs cheap, dear;
};
// REQUIRES: profile.recorded, has_own_costs(profile).
CostBounds profile_bounds(const Profile& profile, const schedule::Program& program);

}  // namespace dovetail::models
