// The one-pass reference.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/reference.h"

#include <algorithm>
#include <map>
#include <vector>

#include "schedule/visit.h"

namespace dovetail::sim {
namespace {

using Key = std::pair<Rank, StreamId>;

class Reference {
 public:
  Reference(const schedule::ScheduledProgram& program, const models::Costs& costs)
      : program_(program),
        costs_(costs),
        inline_host_(costs.host.kind == models::HostModel::Kind::Inline),
        gap_(inline_host_ ? 0 : costs.host.launch_gap.count()) {}

  ReferenceTimeline run(std::int32_t steps) {
    const std::vector<schedule::Command>& commands = program_.roles.front().commands;
    for (step_ = 0; step_ < steps; ++step_) {
      event_time_.clear();
      for (const schedule::Command& command : commands) play(command);
    }
    return result_;
  }

 private:
  [[nodiscard]] std::vector<Rank> ranks() const {
    std::vector<Rank> all;
    for (std::int32_t r = 0; r < program_.program.world_size; ++r) all.push_back(Rank{r});
    return all;
  }

  // When a command issued now may start at the earliest, before the gap that precedes every device
  // command.
  [[nodiscard]] std::int64_t earliest() const {
    if (inline_host_) return 0;
    return std::max<std::int64_t>(0, host_ + costs_.host.launch_latency.count() - gap_);
  }

  void spend_host(Duration cost) {
    if (!inline_host_) host_ += cost.count();
  }

  // `ns` of work on one stream of one rank, as soon as the stream is free.
  void occupy(Rank rank, const schedule::Command& command, StreamId stream, std::int64_t ns,
              bool enqueue = false) {
    std::int64_t& free = free_[{rank, stream}];
    const std::int64_t start = std::max(free, earliest());
    free = start + gap_ + ns;
    result_[{step_, rank, command.id, enqueue}] = {start, free};
  }

  void play(const schedule::Command& command) {
    schedule::visit(
        command.action,
        [&](const schedule::RunOp& run) {
          spend_host(costs_.host.run_op);
          const schedule::Op& op = program_.program.op(run.op);
          for (const Rank rank : ranks()) {
            occupy(rank, command, command.stream, costs_.op(op, rank).count());
          }
        },
        [&](const schedule::Copy& copy) {
          spend_host(costs_.host.copy);
          Bytes bytes;
          for (const TensorId id : copy.gradients) bytes += program_.program.tensor(id).bytes();
          const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
          for (const Rank rank : ranks()) {
            occupy(rank, command, command.stream, (costs_.copy(bytes) + fixed).count());
          }
        },
        [&](const schedule::RunCollective& collective) { play_collective(command, collective); },
        [&](const schedule::RecordEvent& record) {
          spend_host(costs_.host.event);
          for (const Rank rank : ranks()) {
            event_time_[{rank, record.event}] = free_[{rank, command.stream}];
          }
        },
        [&](const schedule::WaitEvent& wait) {
          const bool wake_up = inline_host_ && command.stream == schedule::kComputeStream &&
                               costs_.host.event > Duration{};
          if (!wake_up) spend_host(costs_.host.event);
          for (const Rank rank : ranks()) {
            std::int64_t& free = free_[{rank, command.stream}];
            free = std::max(free, event_time_[{rank, wait.event}]);
            if (wake_up) occupy(rank, command, command.stream, costs_.host.event.count());
          }
        },
        [&](const schedule::Scale& scale) {
          spend_host(costs_.host.copy);
          const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
          const Duration time = costs_.copy(program_.bucket(scale.bucket).size) + fixed;
          for (const Rank rank : ranks()) occupy(rank, command, command.stream, time.count());
        });
  }

  void play_collective(const schedule::Command& command,
                       const schedule::RunCollective& collective) {
    const StreamId stream = command.stream;
    if (inline_host_ && stream != schedule::kComputeStream && costs_.host.collective > Duration{}) {
      for (const Rank rank : ranks()) {
        occupy(rank, command, schedule::kComputeStream, costs_.host.collective.count(), true);
        const std::int64_t enqueued = free_[{rank, schedule::kComputeStream}];
        free_[{rank, stream}] = std::max(free_[{rank, stream}], enqueued);
      }
    }
    spend_host(costs_.host.collective);
    std::int64_t start = earliest();
    for (const Rank rank : ranks()) start = std::max(start, free_[{rank, stream}]);
    const models::CollectiveTime time =
        costs_.collective(collective.kind, program_.program.group(collective.group),
                          program_.bucket(collective.bucket).size);
    const std::int64_t isolated = time.isolated.count();
    const std::int64_t queued = time.back_to_back.count();
    std::int64_t ns = isolated;
    if (const auto previous = last_collective_.find(stream); previous != last_collective_.end()) {
      const std::int64_t pause = start - previous->second;
      ns = std::min(std::max(isolated, queued - pause), queued + pause);
    }
    for (const Rank rank : ranks()) {
      free_[{rank, stream}] = start + ns;
      result_[{step_, rank, command.id, false}] = {start, start + ns};
    }
    last_collective_[stream] = start + ns;
  }

  const schedule::ScheduledProgram& program_;
  const models::Costs& costs_;
  const bool inline_host_;
  const std::int64_t gap_;
  std::int32_t step_ = 0;
  std::int64_t host_ = 0;
  std::map<Key, std::int64_t> free_;
  std::map<std::pair<Rank, EventId>, std::int64_t> event_time_;
  std::map<StreamId, std::int64_t> last_collective_;
  ReferenceTimeline result_;
};

}  // namespace

ReferenceTimeline reference_simulate(const schedule::ScheduledProgram& program,
                                     const models::Costs& costs, std::int32_t steps) {
  return Reference(program, costs).run(steps);
}

}  // namespace dovetail::sim
