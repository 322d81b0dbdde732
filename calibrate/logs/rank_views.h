// One collective as its ranks saw it: the shortest time over the ranks is that of moving the data, what
// a rank has beyond that is waiting for the last one to arrive.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace dovetail::imports {

class RankViews {
 public:
  // What makes entries of several ranks one and the same collective.
  struct Key {
    std::string communicator;
    std::int64_t serial = 0;
    schedule::Collective collective = schedule::Collective::AllReduce;
    std::int64_t bytes = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // `viewer`: the rank, or the file where ranks are not named. Entries of one viewer under one key
  // count once: the shortest.
  void add(const Key& key, std::int64_t viewer, std::int64_t ranks,
           std::optional<std::int64_t> nodes, Duration time);

  [[nodiscard]] bool empty() const { return views_.empty(); }

  // One sample per collective that all its ranks saw; for a size that no collective shows on all
  // ranks, one sample: the shortest time there is. Communicators of equally many ranks whose times are no repetitions
  // of each other (a pair within a node, a pair across) are told by name, and none of them is a sample: a table is
  // for a number of ranks, and their mean would be the time of neither. Adds to log.samples, read and left_out.
  void finish(CollectiveLog& log) const;

 private:
  // Samples of one collective over one number of ranks, by communicator.
  using Table = std::pair<schedule::Collective, std::int64_t>;
  [[nodiscard]] std::set<Table> contradicted(CollectiveLog& log) const;

  struct View {
    std::int64_t ranks = 1;
    std::optional<std::int64_t> nodes;
    std::set<std::int64_t> viewers;
    Duration shortest{}, longest{};
  };
  std::map<Key, View> views_;
};

}  // namespace dovetail::imports
