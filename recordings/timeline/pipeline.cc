// Counts messages by who sends to whom, per step; the middle over steps.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/pipeline.h"

#include "base/statistics.h"
#include "recordings/timeline/rank_set.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;  // from, to

class PipelineFinder {
 public:
  explicit PipelineFinder(const JobTrace& job) : job_(job) {}

  std::optional<Pipeline> find() {
    for (const RankTrace& rank : job_.ranks) {
      if (!count(rank)) return std::nullopt;
    }
    if (most_a_step_ < 2 || !(any_told_ || has_autograd())) return std::nullopt;
    Pipeline pipeline;
    pipeline.stages = std::max<std::int64_t>(2, stages());
    count_micro_batches(pipeline);
    return pipeline;
  }

 private:
  // Without it nobody can tell a pipeline's messages from a ring's, or from all-to-alls.
  [[nodiscard]] bool has_autograd() const {
    return std::ranges::all_of(
        job_.ranks, [](const RankTrace& rank) { return rank.trace.has(Is::EngineFunction); });
  }

  // False where a message is no pipeline's.
  bool count(const RankTrace& rank) {
    const RankTimeline& line = rank.line;
    std::vector<std::int64_t> a_step(line.steps.size(), 0);
    for (const TracedCollective& collective : line.collectives) {
      const GpuWork& work = line.works[static_cast<std::size_t>(collective.work)];
      if (collective.kind != CollectiveKind::SendReceive || work.step == kNone) continue;
      if (work.launch != kNone &&
          enclosing(rank.trace, line,
                    line.parent[static_cast<std::size_t>(
                        line.calls[static_cast<std::size_t>(work.launch)].event)],
                    Is::EngineFunction) != kNone) {
        return false;
      }
      ++a_step[static_cast<std::size_t>(work.step)];
      of_group_ = std::max<std::int64_t>(
          {of_group_, std::ssize(collective.members), collective.group_size.value_or(0)});
      add_message(rank, collective.message, static_cast<std::size_t>(work.step));
    }
    if (!a_step.empty()) most_a_step_ = std::max(most_a_step_, std::ranges::max(a_step));
    return true;
  }

  void add_message(const RankTrace& rank, const Message& message, std::size_t step) {
    any_told_ |= message.direction != Direction::None;
    if (message.direction == Direction::None || !message.peer || !rank.trace.rank) {
      all_told_ = false;
      return;
    }
    const bool sends = message.direction == Direction::Send;
    const Pair pair = sends ? Pair(rank.rank, *message.peer) : Pair(*message.peer, rank.rank);
    std::vector<std::int64_t>& steps = seen_[pair][rank.rank];
    if (steps.size() < rank.line.steps.size()) steps.resize(rank.line.steps.size());
    ++steps[step];
  }

  [[nodiscard]] std::int64_t stages() const {
    const std::int64_t world = job_.least_world_size();
    const bool are_all_given = std::ssize(job_.ranks) >= world;
    if (all_told_ && are_all_given) return largest_joined();
    if (of_group_ > 1) return of_group_;
    return all_told_ ? std::max(largest_joined(), world == 2 ? world : 0) : world;
  }

  [[nodiscard]] std::int64_t largest_joined() const {
    std::map<std::int64_t, std::set<std::int64_t>> next;
    for (const auto& [pair, seen] : seen_) {
      next[pair.first].insert(pair.second);
      next[pair.second].insert(pair.first);
    }
    std::set<std::int64_t> done;
    std::int64_t largest = 0;
    for (const auto& [first, peers] : next) {
      std::vector<std::int64_t> open = {first};
      std::int64_t joined = 0;
      while (!open.empty()) {
        const std::int64_t rank = open.back();
        open.pop_back();
        if (!done.insert(rank).second) continue;
        ++joined;
        for (const std::int64_t peer : next.at(rank)) open.push_back(peer);
      }
      largest = std::max(largest, joined);
    }
    return largest;
  }

  void count_micro_batches(Pipeline& pipeline) const {
    if (!all_told_ || seen_.empty()) {
      pipeline.micro_batches = fewest_sends();
      return;
    }
    std::int64_t most = 0;
    std::int64_t least = 0;
    for (const auto& [pair, by_rank] : seen_) {
      const std::int64_t messages = median(by_rank.begin()->second);
      least = most == 0 ? messages : std::min(least, messages);
      most = std::max(most, messages);
    }
    pipeline.micro_batches = most;
    // Between neighbours, and from the last stage to the first.
    const bool wraps = pipeline.stages > 2 && std::ssize(seen_) == 2 * pipeline.stages;
    if (!wraps || least >= most || most % (most - least) != 0) return;
    pipeline.micro_batches = most - least;
    pipeline.chunks = most / (most - least);
  }

  // That the host called, in the middle of the steps.
  [[nodiscard]] std::int64_t fewest_sends() const {
    std::int64_t fewest = 0;
    for (const RankTrace& rank : job_.ranks) {
      std::vector<std::int64_t> sends(rank.line.steps.size(), 0);
      for (const RecordedEvent& event : rank.trace.events) {
        if (event.kind != EventKind::Operator || !rank.trace.is(event, Is::C10dSend)) continue;
        const Instant at = rank.line.instant(event.start_ns);
        const auto after = std::ranges::upper_bound(rank.line.steps, at, {}, &TracedStep::start);
        if (after == rank.line.steps.begin() || at >= std::prev(after)->end) continue;
        ++sends[static_cast<std::size_t>(std::prev(after) - rank.line.steps.begin())];
      }
      const std::int64_t usual = median_or(std::move(sends), std::int64_t{0});
      if (usual > 0) fewest = fewest == 0 ? usual : std::min(fewest, usual);
    }
    return fewest;
  }

  const JobTrace& job_;
  std::int64_t most_a_step_ = 0, of_group_ = 0;
  bool any_told_ = false, all_told_ = true;  // whether a message is sent or received
  // Messages by step, as each of the two ranks saw them.
  std::map<Pair, std::map<std::int64_t, std::vector<std::int64_t>>> seen_;
};

}  // namespace

std::optional<Pipeline> pipeline_of(const JobTrace& job) { return PipelineFinder(job).find(); }

}  // namespace dovetail::imports
