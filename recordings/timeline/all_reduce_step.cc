// Ready times and durations of a step's all-reduces from the order in which its kernels were launched.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/all_reduce_step.h"

#include "base/count.h"
#include "base/error.h"
#include "base/statistics.h"
#include "recordings/text.h"
#include "recordings/timeline/unknowns.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace dovetail::imports {
namespace {

struct BareStep {
  std::vector<Duration> ready, took;
  std::vector<std::int32_t> all_reduces;  // in RankTimeline::collectives
  Duration
      beside_last{};  // computation launched behind the last all-reduce that began before its end
  Duration optimizer{};
  std::size_t works = 0;
  std::map<std::string_view, std::size_t> others;  // other collectives, by kind
};

class StepReader {
 public:
  explicit StepReader(const RankTimeline& line) : line_(line) {}

  BareStep read(const TracedStep& step) const {
    BareStep bare;
    bare.works = step.works.size();
    if (step.works.empty()) return bare;
    Instant first = Instant::max();
    Instant computed = Instant::min();  // end of the last computation that was launched so far
    Instant reduced = Instant::min();
    Duration beside{};
    for (const std::int32_t number : step.works) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(number)];
      first = std::min(first, work.start);
      if (work.collective == kNone) {
        computed = std::max(computed, work.end);
        if (work.start < reduced) beside += work.end - work.start;
        continue;
      }
      const CollectiveKind kind = line_.collectives[static_cast<std::size_t>(work.collective)].kind;
      if (kind != CollectiveKind::AllReduce) {
        ++bare.others[to_string(kind)];
        continue;
      }
      beside = {};
      bare.all_reduces.push_back(work.collective);
      bare.ready.push_back(std::clamp(computed, first, std::max(first, work.start)) - first);
      bare.took.push_back(std::max(work.end - work.start, Duration(1)));
      reduced = std::max(reduced, work.end);
    }
    for (const std::int32_t number : step.works) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(number)];
      if (work.collective == kNone && work.start >= reduced)
        bare.optimizer += work.end - work.start;
    }
    bare.beside_last = beside;
    return bare;
  }

 private:
  const RankTimeline& line_;
};

// What a step has instead of all-reduces.
std::string others_in_words(const BareStep& step) {
  std::vector<std::string> others;
  for (const auto& [kind, count] : step.others) {
    others.push_back(std::to_string(count) + " " + std::string(kind));
  }
  return others.empty() ? ""
                        : "; it also has " + listed(others) +
                              ": gradients are made of all-reduces only (DDP), not of sharded ones";
}

// The size of each all-reduce, which must be as many in each step.
std::vector<Bytes> sizes_of(const RankTrace& rank, const std::vector<BareStep>& steps,
                            const std::vector<Bytes>& given) {
  const std::size_t count = given.empty() ? steps.front().ready.size() : given.size();
  if (count == 0) {
    throw InputError(rank.trace.file + ": a step has no all-reduce" +
                     others_in_words(steps.front()));
  }
  for (const BareStep& step : steps) {
    if (step.ready.size() == count) continue;
    throw InputError(rank.trace.file + ": a step has " +
                     counted(step.ready.size(), "NCCL all-reduce") + ", but " +
                     (given.empty() ? "another has " + std::to_string(count)
                                    : "--bytes gives " + counted(count, "size")) +
                     others_in_words(step));
  }
  if (!given.empty()) return given;
  std::vector<Bytes> sizes;
  for (const std::int32_t number : steps.front().all_reduces) {
    const auto& bytes = rank.line.collectives[static_cast<std::size_t>(number)].bytes;
    if (!bytes) {
      throw InputError(rank.trace.file +
                       ": it does not hold the sizes of its all-reduces; give --bytes, or their "
                       "sizes" +
                       way_to_sizes(rank.trace));
    }
    sizes.push_back(*bytes);
  }
  return sizes;
}

std::int64_t ranks_of(const RankTrace& rank, const AllReduceStepOptions& options) {
  if (options.ranks) return *options.ranks;
  if (rank.trace.world_size) return *rank.trace.world_size;
  throw InputError(rank.trace.file +
                   ": the file does not hold the number of ranks; say it with --ranks");
}

}  // namespace

ImportedStep all_reduce_step(const RankTrace& rank, const AllReduceStepOptions& options) {
  const StepReader reader(rank.line);
  std::vector<BareStep> steps;
  std::size_t works = 0;
  for (const TracedStep& step : rank.line.steps) {
    BareStep bare = reader.read(step);
    works += bare.works;
    if (bare.works > 0) steps.push_back(std::move(bare));
  }
  if (steps.empty()) throw InputError(rank.trace.file + ": no kernel was launched in a step");
  const std::vector<Bytes> sizes = sizes_of(rank, steps, options.bytes);
  ImportedStep result;
  models::Profile& profile = result.profile;
  std::map<Bytes, Duration> shortest;
  std::vector<Duration> ready;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<Duration> at;
    for (const BareStep& step : steps) {
      at.push_back(step.ready[i]);
      Duration& time = shortest.try_emplace(sizes[i], step.took[i]).first->second;
      time = std::min(time, step.took[i]);
    }
    ready.push_back(median(std::move(at)));
    if (i > 0) ready[i] = std::max(ready[i], ready[i - 1]);
  }
  std::vector<Duration> optimizer, beside_last;
  for (const BareStep& step : steps) {
    optimizer.push_back(step.optimizer);
    beside_last.push_back(step.beside_last);
  }
  profile.name = std::filesystem::path(rank.trace.file).stem().string();
  profile.world_size = ranks_of(rank, options);
  profile.by_rank.push_back(
      {.forward = ready.front(),
       .backward = ready.back() - ready.front() + median(std::move(beside_last)),
       .optimizer = median(std::move(optimizer))});
  for (std::size_t i = 0; i < ready.size(); ++i) {
    profile.gradients.push_back({.name = "all-reduce " + std::to_string(i),
                                 .numel = (sizes[i].count() + 3) / 4,
                                 .dtype = schedule::DType::F32,
                                 .ready = {ready[i] - ready.front()}});
  }
  if (shortest.size() >= 2) {
    models::ProfiledCollectives table;
    for (const auto& [bytes, time] : shortest) {
      table.points.push_back({.bytes = bytes, .isolated = time});
    }
    profile.collectives = std::move(table);
  } else {
    result.left_out.emplace_back(
        "one size only: no all-reduce table; name a machine with --cluster");
  }
  result.read.push_back(counted(steps.size(), "step") + ", " + counted(works, "kernel") + ", " +
                        counted(ready.size(), "all-reduce") + " a step");
  result.what =
      "Nsight Systems export of one rank; each all-reduce is one gradient of float32, medians over "
      "the steps; times of all-reduces are the shortest over the steps, an upper bound, as they "
      "hold the wait for the last rank; waits for the host count as computation.";
  return result;
}

}  // namespace dovetail::imports
