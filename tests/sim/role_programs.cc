// Builds plans of several roles by hand, command by command, for tests of the simulator that no
// policy would produce.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/role_programs.h"

#include <algorithm>
#include <utility>

#include "tests/support/programs.h"

namespace dovetail::testing {

using schedule::Collective;
using schedule::Phase;

RolePlan::RolePlan(std::int32_t roles, std::int32_t width, const std::vector<std::string>& streams)
    : width_(width), build_("roles", std::int64_t{roles} * width, roles) {
  for (std::int32_t role = 0; role < roles; ++role) {
    schedule::RankProgram& program = plan_.roles.emplace_back();
    for (std::int32_t i = 0; i < width; ++i) program.ranks.push_back(Rank{role * width + i});
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    plan_.streams.push_back({StreamId{static_cast<std::int32_t>(i)}, streams[i]});
  }
}

GroupId RolePlan::group(const std::string& name, std::vector<Rank> ranks,
                        std::int64_t instance_size) {
  return build_.group(name, std::move(ranks), instance_size);
}

GroupId RolePlan::pairs(std::int32_t a, std::int32_t b) {
  std::vector<Rank> ranks;
  for (std::int32_t i = 0; i < width_; ++i) {
    ranks.push_back(Rank{a * width_ + i});
    ranks.push_back(Rank{b * width_ + i});
  }
  return group("pp" + std::to_string(a) + "-" + std::to_string(b), std::move(ranks), 2);
}

GroupId RolePlan::within_roles(const std::string& name) { return build_.ranks(name, width_); }

BucketId RolePlan::bucket(Bytes bytes, std::int64_t shards) {
  const BucketId id{static_cast<std::int32_t>(plan_.buckets.size())};
  const TensorId tensor = build_.tensor("g" + std::to_string(build_.program.tensors.size()),
                                        schedule::TensorKind::Gradient, bytes.count() / 4);
  schedule::BucketLayout layout;
  layout.bucket = id;
  layout.payload = layout.size = bytes;
  layout.members = {{tensor, Bytes(0)}};
  layout.shards = shards;
  plan_.buckets.push_back(std::move(layout));
  return id;
}

OpId RolePlan::op(std::int32_t role, const std::string& name, schedule::Work work) {
  const OpId id = build_.op(name, Phase::Forward, std::move(work), {}, {});
  build_.program.ops.back().stage = role;
  return id;
}

void RolePlan::add(std::int32_t role, std::int32_t stream, schedule::Action action) {
  plan_.roles[static_cast<std::size_t>(role)].commands.push_back(
      {CommandId{commands_++}, StreamId{stream}, std::move(action)});
}

void RolePlan::run(std::int32_t role, std::int32_t stream, const std::string& name,
                   std::vector<Duration> by_rank) {
  add(role, stream, schedule::RunOp{op(role, name, schedule::TimedWork{std::move(by_rank)})});
}

void RolePlan::communicate(std::int32_t role, std::int32_t stream, const std::string& name,
                           const schedule::CollectiveWork& work) {
  op(role, name, work);
  add(role, stream, schedule::action_of(build_.program.ops.back()));
}

void RolePlan::collective(std::int32_t role, std::int32_t stream,
                          const schedule::Communicate& collective) {
  add(role, stream, collective);
}

EventId RolePlan::record(std::int32_t role, std::int32_t stream) {
  const EventId event{events_++};
  add(role, stream, schedule::RecordEvent{event});
  return event;
}

void RolePlan::wait(std::int32_t role, std::int32_t stream, EventId event) {
  add(role, stream, schedule::WaitEvent{event});
}

void RolePlan::chain(std::int32_t role, std::int32_t before, std::int32_t after) {
  wait(role, after, record(role, before));
}

namespace {

// Stream 0 computes, 1 reduces, then two per pair of neighbours: to the next role and back.
std::int32_t stream_between(std::int32_t from, std::int32_t to) {
  return 2 + 2 * std::min(from, to) + (from > to ? 1 : 0);
}

class PipelineBuilder {
 public:
  explicit PipelineBuilder(const PipelinePlan& pipeline)
      : pipeline_(pipeline),
        stages_(pipeline.shape.stages),
        plan_(stages_, pipeline.width, stream_names(stages_)) {
    for (std::int32_t role = 0; role + 1 < stages_; ++role) {
      pairs_.push_back(plan_.pairs(role, role + 1));
    }
    dp_ = plan_.within_roles("dp");
  }

  schedule::ScheduledProgram build() {
    for (std::int32_t role = 0; role < stages_; ++role) {
      for (const schedule::PipelineStep& step : schedule::stage_order(pipeline_.shape, role)) {
        play(role, step);
      }
      if (pipeline_.gradients > Bytes(0)) {
        plan_.chain(role, 0, 1);
        plan_.collective(role, 1, {.bucket = plan_.bucket(pipeline_.gradients), .group = dp_});
        plan_.chain(role, 1, 0);
      }
    }
    return plan_.plan();
  }

 private:
  static std::vector<std::string> stream_names(std::int32_t stages) {
    std::vector<std::string> names = {"compute", "comm0"};
    for (std::int32_t r = 0; r + 1 < stages; ++r) {
      const std::string here = std::to_string(r);
      const std::string next = std::to_string(r + 1);
      names.push_back("p2p-" + here + "-" + next);
      names.push_back("p2p-" + next + "-" + here);
    }
    return names;
  }

  // One side of a transfer between neighbours.
  void transfer(std::int32_t role, std::int32_t from, std::int32_t to, std::int32_t micro_step) {
    const std::string name = "send" + std::to_string(from) + "-" + std::to_string(to) + "@" +
                             std::to_string(micro_step) + (role == from ? ".out" : ".in");
    plan_.communicate(role, stream_between(from, to), name,
                      {.kind = Collective::SendRecv,
                       .group = pairs_[static_cast<std::size_t>(std::min(from, to))],
                       .bytes = pipeline_.message,
                       .purpose = schedule::Purpose::Pipeline,
                       .root = from < to ? 0 : 1});
  }

  void play(std::int32_t role, const schedule::PipelineStep& step) {
    const bool forward = step.pass == schedule::Pass::Forward;
    const std::int32_t from = forward ? role - 1 : role + 1;
    const std::int32_t to = forward ? role + 1 : role - 1;
    if (from >= 0 && from < stages_) {
      transfer(role, from, role, step.micro_step);
      plan_.chain(role, stream_between(from, role), 0);
    }
    std::vector<Duration> by_rank;
    for (std::int32_t rank = 0; rank < stages_ * pipeline_.width; ++rank) {
      by_rank.push_back(pipeline_.time(forward ? Phase::Forward : Phase::Backward, role, rank));
    }
    const std::string name =
        (forward ? "F" : "B") + std::to_string(step.micro_step) + "@" + std::to_string(role);
    plan_.run(role, 0, name, std::move(by_rank));
    if (to >= 0 && to < stages_) {
      plan_.chain(role, 0, stream_between(role, to));
      transfer(role, role, to, step.micro_step);
    }
  }

  const PipelinePlan& pipeline_;
  const std::int32_t stages_;
  RolePlan plan_;
  std::vector<GroupId> pairs_;
  GroupId dp_;
};

}  // namespace

schedule::ScheduledProgram pipeline_plan(const PipelinePlan& pipeline) {
  return PipelineBuilder(pipeline).build();
}

PipelinePlan random_pipeline(Random& random) {
  PipelinePlan pipeline;
  pipeline.shape.kind = random.between(0, 1) == 0 ? schedule::PipelineKind::OneFOneB
                                                  : schedule::PipelineKind::Sequential;
  pipeline.shape.stages = static_cast<std::int32_t>(random.between(1, 4));
  pipeline.shape.micro_steps = static_cast<std::int32_t>(random.between(1, 5));
  pipeline.width = static_cast<std::int32_t>(random.between(1, 3));
  pipeline.message = Bytes(random.between(1, 3000));
  pipeline.gradients = Bytes(4 * random.between(0, 2000));
  const std::int64_t seed = random.between(0, 1000);
  pipeline.time = [seed](Phase phase, std::int32_t role, std::int32_t rank) {
    const std::int64_t forward = phase == Phase::Forward ? 1 : 2;
    return Duration(forward * (1000 + (seed * 31 + role * 17 + rank * 7) % 501));
  };
  return pipeline;
}

schedule::ScheduledProgram random_grid(Random& random, std::int32_t streams) {
  const auto rows = static_cast<std::int32_t>(random.between(1, 3));
  const auto columns = static_cast<std::int32_t>(random.between(1, 3));
  std::vector<std::string> names = {"compute"};
  for (std::int32_t i = 0; i < streams; ++i) names.push_back("comm" + std::to_string(i));
  RolePlan roles(1, rows * columns, names);
  std::vector<Rank> by_row;
  std::vector<Rank> by_column;
  for (std::int32_t r = 0; r < rows * columns; ++r) {
    by_row.push_back(Rank{r});
    by_column.push_back(Rank{r % rows * columns + r / rows});
  }
  const GroupId tp = roles.group("tp", by_row, columns);
  const GroupId dp = roles.group("dp", by_column, rows);
  for (int i = 0; i < 10; ++i) {
    std::vector<Duration> by_rank;
    for (std::int32_t r = 0; r < rows * columns; ++r) {
      by_rank.push_back(Duration(random.between(0, 3000)));
    }
    roles.run(0, 0, "op" + std::to_string(i), by_rank);
    const auto stream = static_cast<std::int32_t>(random.between(0, streams));
    const schedule::CollectiveWork work{.kind = Collective::AllReduce,
                                        .group = random.between(0, 1) == 0 ? tp : dp,
                                        .bytes = Bytes(random.between(1, 2000))};
    if (stream != 0) roles.chain(0, 0, stream);
    roles.communicate(0, stream, "sum" + std::to_string(i), work);
    if (stream != 0 && random.between(0, 3) == 0) roles.chain(0, stream, 0);
  }
  return roles.plan();
}

models::Costs role_costs(const schedule::ScheduledProgram& plan,
                         const models::CollectiveTable& collective,
                         const std::optional<models::CollectiveTable>& send) {
  models::Costs costs;
  costs.machine = "test";
  costs.collectives = every_collective(collective);
  for (models::CollectiveCost& cost : costs.collectives) {
    if (cost.key.collective == Collective::SendRecv && send) cost.time = *send;
  }
  costs.copies = models::CopyModel{};
  costs.host.kind = models::HostModel::Kind::Inline;
  costs.distinct_ranks = plan.program.world_size;
  return costs;
}

}  // namespace dovetail::testing
