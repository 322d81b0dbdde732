// Joins what the ranks saw of one collective: its shortest time over the ranks is that of moving
// the data. A collective that some rank does not show gives only an upper bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/rank_views.h"

#include "base/count.h"

#include <algorithm>
#include <cmath>
#include <tuple>

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

void RankViews::finish(CollectiveLog& log) const {
  using Size = std::tuple<schedule::Collective, std::int64_t, std::int64_t>;
  std::set<Size> complete;
  std::map<Size, CollectiveSample> bounds;  // sizes that nobody saw on all ranks
  double waiting = 0;
  double moving = 0;
  for (const auto& [key, view] : views_) {
    if (static_cast<std::int64_t>(view.viewers.size()) < view.ranks) continue;
    complete.insert({key.collective, view.ranks, key.bytes});
    log.samples.push_back(
        {key.collective, view.ranks, view.nodes, Bytes(key.bytes), view.shortest, Launch::Queued});
    moving += to_us(view.shortest);
    waiting += to_us(view.longest - view.shortest);
  }
  const std::size_t whole = log.samples.size();
  for (const auto& [key, view] : views_) {
    const Size size = {key.collective, view.ranks, key.bytes};
    if (complete.contains(size)) continue;
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
