// Turning a plan into what a framework runs: one thing is given up at a time, and each is simulated.
//
//   Restriction left(plan, machine);
//   left.give_up("waits at first use: DDP waits at the end of backward",
//                [](Schedule& s) { wait_at(s, WaitPoint::EndOfBackward); });
//
// A change that changes nothing is not recorded. Every Schedule on the way is legal, or the machine's
// step throws.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "frameworks/export.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::frameworks {

// Why a framework cannot run a plan at all, whatever is given up: "export: WHY" for people.
class CannotRun : public InputError {
 public:
  explicit CannotRun(std::string why) : InputError("export: " + why), why_(std::move(why)) {}
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::string why_;
};

class Restriction {
 public:
  // `step` predicts Schedules of the Program; without it nothing is simulated and no loss is known.
  using Step = std::function<Duration(const schedule::Schedule&)>;
  Restriction(const schedule::Program& program, schedule::Schedule schedule, Step step = nullptr);

  // Applies the change. If the Schedule is another one then, it is simulated and `what` is recorded.
  void give_up(const std::string& what, const std::function<void(schedule::Schedule&)>& change);

  // The predicted step of another Schedule; nothing where none is simulated.
  [[nodiscard]] std::optional<Duration> step_of(const schedule::Schedule& schedule) const {
    return step_ == nullptr ? std::nullopt : std::optional(step_(schedule));
  }
  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const schedule::Program& program() const { return program_; }
  // Everything but text, notes and paste.
  [[nodiscard]] Export result() const;

 private:
  const schedule::Program& program_;
  Step step_;
  schedule::Schedule schedule_;
  Duration planned_{}, now_{};
  std::vector<Loss> losses_;
};

// Changes, for give_up.
void launch_when_ready(schedule::Schedule& schedule);
void wait_at(schedule::Schedule& schedule, schedule::WaitPoint wait);
void wait_for_the_previous(schedule::Schedule& schedule);  // one collective in flight: depth one
void use_one_stream(schedule::Schedule& schedule);
void use_mode(schedule::Schedule& schedule, schedule::BucketMode mode);
void all_reduce(schedule::Schedule& schedule);
void shard(schedule::Schedule& schedule, schedule::ParameterSync parameters);
void drop_padding(schedule::Schedule& schedule);
void drop_ctas(schedule::Schedule& schedule);
// A gradient that is split goes whole to the bucket that holds most of it (of equals the first).
void keep_gradients_whole(const schedule::Program& program, schedule::Schedule& schedule);

// Parameters that are gathered before each use, for who holds them whole: what it gathers, and when. The loss says how
// much more a rank holds.
void keep_parameters_whole(Restriction& left, const std::string& framework,
                           schedule::ParameterSync instead);

// What many targets cannot do, in the order in which it is least surprising: parts of gradients,
// launch points, streams, thread blocks, padding. `framework` stands in the words of the losses; `reduces`: in which
// micro-steps it can reduce gradients (Either: in the last or in all of them, as the plan says).
enum class Reduces { InLastMicroStep, InEveryMicroStep, Either };
void give_up_the_usual(Restriction& left, const std::string& framework,
                       Reduces reduces = Reduces::InLastMicroStep);

// The buckets anew: groups of gradients in launch order, each like the first bucket of the Schedule.
void regroup(schedule::Schedule& schedule, const std::vector<std::vector<TensorId>>& groups);

// Whether the plan has one pipeline stage, and all its buckets one process group without replicas.
bool has_one_stage_and_group(const schedule::Program& program, const schedule::Schedule& schedule);
// Throws InputError unless it does.
void require_one_stage_and_group(const Restriction& left, const std::string& framework);
// Throws InputError unless all gradients have one dtype; `why` ends the sentence.
void require_one_dtype(const Restriction& left, const std::string& why);

// The name of the parameter that a gradient belongs to: without ".grad".
std::string parameter_name(const schedule::Program& program, TensorId gradient);
std::vector<std::string> parameter_names(const schedule::Program& program,
                                         const schedule::Bucket& bucket);

// When each gradient of the Program is ready: its place in gradient-ready order.
std::vector<TensorId> ready_order(const schedule::Program& program);

}  // namespace dovetail::frameworks
