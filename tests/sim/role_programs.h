// Plans of several roles built by hand, command by command, for tests of what the simulator does
// where roles meet.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/costs/costs.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/scheduled_program.h"
#include "schedule/transfers.h"
#include "tests/support/program_builder.h"

namespace dovetail::testing {

// Appends ops and commands; ids are given in order. Role r has ranks r * width .. (r + 1) * width -
// 1.
class RolePlan {
 public:
  RolePlan(std::int32_t roles, std::int32_t width, const std::vector<std::string>& streams);

  GroupId group(const std::string& name, std::vector<Rank> ranks, std::int64_t instance_size = 0);
  // Pairs: the i-th rank of role a with the i-th of role b. REQUIRES: a < b.
  GroupId pairs(std::int32_t a, std::int32_t b);
  // All ranks, each role an instance of its own.
  GroupId within_roles(const std::string& name);

  // A bucket with one gradient of this size.
  BucketId bucket(Bytes bytes, std::int64_t shards = 1);

  // Commands of one role on one stream.
  void run(std::int32_t role, std::int32_t stream, const std::string& name,
           std::vector<Duration> by_rank);
  void communicate(std::int32_t role, std::int32_t stream, const std::string& name,
                   const schedule::CollectiveWork& work);
  void collective(std::int32_t role, std::int32_t stream, const schedule::Communicate& collective);
  void add(std::int32_t role, std::int32_t stream, schedule::Action action);
  EventId record(std::int32_t role, std::int32_t stream);
  void wait(std::int32_t role, std::int32_t stream, EventId event);
  // On `after`, everything issued to `before` so far.
  void chain(std::int32_t role, std::int32_t before, std::int32_t after);

  [[nodiscard]] schedule::ScheduledProgram plan() const {
    schedule::ScheduledProgram linked = plan_;
    linked.program = build_.program;
    schedule::link_transfers(linked);
    return linked;
  }

 private:
  OpId op(std::int32_t role, const std::string& name, schedule::Work work);

  std::int32_t width_;
  std::int32_t events_ = 0;
  std::int32_t commands_ = 0;
  ProgramBuilder build_;
  schedule::ScheduledProgram plan_;  // but for its program
};

// A pipeline without interleaving: forward and backward of each micro-batch as `time(phase, role,
// rank)` says, sends of `message` bytes between neighbours on a stream per direction, and, where
// `gradients` has bytes, an all-reduce within each role behind its last backward on a stream of its
// own.
struct PipelinePlan {
  schedule::PipelineShape shape;
  std::int32_t width = 1;  // ranks per role
  std::function<Duration(schedule::Phase, std::int32_t role, std::int32_t rank)> time;
  Bytes message = Bytes(4);
  Bytes gradients = Bytes(0);
};
schedule::ScheduledProgram pipeline_plan(const PipelinePlan& pipeline);

// Up to four stages, five micro-steps and three ranks per role, in either order.
PipelinePlan random_pipeline(Random& random);

// Ranks in rows and columns of a grid, tensor-parallel groups along one side and data-parallel ones along
// the other; ten ops with an all-reduce each, on the compute stream or one of so many others.
schedule::ScheduledProgram random_grid(Random& random, std::int32_t streams);

// Timed ops as they are; every collective by the table, sends by `send` where it is given; free copies
// and hosts; no rank is folded.
models::Costs role_costs(const schedule::ScheduledProgram& plan,
                         const models::CollectiveTable& collective,
                         const std::optional<models::CollectiveTable>& send = {});

}  // namespace dovetail::testing
