// Joins what the ranks saw of one collective: its shortest time over the ranks is that of moving
// the data. A collective that some rank does not show gives only an upper bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/rank_views.h"

#include "base/count.h"
#include "calibrate/logs/repetitions.h"
#include "recordings/text.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace dovetail::imports {

void RankViews::add(const Key& key, std::int64_t viewer, std::int64_t ranks,
                    std::optional<std::int64_t> nodes, Duration time) {
  const auto [entry, is_new] = views_.try_emplace(key);
  View& view = entry->second;
  if (is_new) {
    view.shortest = view.longest = time;
    view.ranks = ranks;
    view.nodes = nodes;
  }
  view.viewers.insert(viewer);
  view.shortest = std::min(view.shortest, time);
  view.longest = std::max(view.longest, time);
}

// Tells what contradicts itself, and gives it back.
std::set<RankViews::Table> RankViews::contradicted(CollectiveLog& log) const {
  // Within a job other work runs beside the collectives: times differ more than those of a benchmark.
  constexpr double kRepeatsInJob = 2;
  std::map<Table, std::map<std::string, std::vector<TimedSize>>> tables;
  for (const auto& [key, view] : views_) {
    if (static_cast<std::int64_t>(view.viewers.size()) < view.ranks) continue;
    tables[{key.collective, view.ranks}][key.communicator].push_back(
        {Bytes(key.bytes), view.shortest});
  }
  std::set<Table> result;
  for (const auto& [table, communicators] : tables) {
    std::vector<std::string> names;
    std::vector<std::span<const TimedSize>> measurements;
    for (const auto& [name, samples] : communicators) {
      names.push_back(printable(name));
      measurements.emplace_back(samples);
    }
    const std::optional<Gap> gap = contradiction(measurements, kRepeatsInJob);
    if (!gap) continue;
    result.insert(table);
    log.left_out.push_back(
        names[gap->fast_of] + " and " + names[gap->slow_of] +
        (names.size() > 2 ? " (" + std::to_string(names.size()) + " groups in all)" : "") +
        ": both are " + std::string(to_string(table.first)) + " over " +
        std::to_string(table.second) +
        " ranks and contradict each other: " + in_words(*gap, table.first, table.second) +
        ". Their links differ; give the files of one group's ranks");
  }
  return result;
}

void RankViews::finish(CollectiveLog& log) const {
  const std::set<Table> refused = contradicted(log);
  using Size = std::tuple<schedule::Collective, std::int64_t, std::int64_t>;
  std::set<Size> complete;
  std::map<Size, CollectiveSample> bounds;  // sizes that nobody saw on all ranks
  std::size_t whole = 0;
  double waiting = 0;
  double moving = 0;
  for (const auto& [key, view] : views_) {
    if (static_cast<std::int64_t>(view.viewers.size()) < view.ranks) continue;
    complete.insert({key.collective, view.ranks, key.bytes});
    ++whole;
    if (!refused.contains({key.collective, view.ranks})) {
      log.samples.push_back({key.collective, view.ranks, view.nodes, Bytes(key.bytes),
                             view.shortest, Launch::Queued});
    }
    moving += to_us(view.shortest);
    waiting += to_us(view.longest - view.shortest);
  }
  for (const auto& [key, view] : views_) {
    const Size size = {key.collective, view.ranks, key.bytes};
    if (complete.contains(size) || refused.contains({key.collective, view.ranks})) continue;
    const auto [entry, is_new] =
        bounds.try_emplace(size, CollectiveSample{key.collective, view.ranks, view.nodes,
                                                  Bytes(key.bytes), view.shortest, Launch::Queued});
    entry->second.time = std::min(entry->second.time, view.shortest);
  }
  for (const auto& [size, sample] : bounds) log.samples.push_back(sample);
  log.read.push_back(counted(views_.size(), "collective") + ", " + std::to_string(whole) +
                     " of them seen on all their ranks");
  if (whole > 0) {
    log.read.push_back("the first rank of a collective waits " +
                       std::to_string(std::llround(waiting / (waiting + moving) * 100)) +
                       " % of its time for the last one, in the mean over those");
  }
  if (!bounds.empty()) {
    log.left_out.push_back(
        counted(bounds.size(), "size") +
        " not seen on all ranks of any collective: the shortest time stands, an upper bound, as it "
        "holds the wait for the last rank; give the files of all ranks");
  }
}

}  // namespace dovetail::imports
