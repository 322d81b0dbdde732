// Makes a training step of the nodes of a Chakra trace: when each computation ran (as recorded, or
// by playing the dependencies), which all-reduces there are and when each was ready, and a table
// of collective times where the trace has them.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/chakra.h"

#include "base/count.h"
#include "base/error.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

namespace dovetail::imports {
namespace {

struct Window {
  std::int64_t start_us = 0, end_us = 0;
};

// Whether a node takes the device's time: without any node of a device, all do.
class Devices {
 public:
  explicit Devices(const std::vector<ChakraNode>& nodes)
      : has_device_(std::ranges::any_of(nodes, [](const ChakraNode& node) {
          return !node.is_cpu_op && node.duration_us > 0;
        })) {}
  [[nodiscard]] bool holds(const ChakraNode& node) const { return !has_device_ || !node.is_cpu_op; }

 private:
  bool has_device_;
};

bool is_bucket(const ChakraNode& node, const Devices& devices) {
  return node.type == ChakraNode::Type::Collective && node.is_all_reduce && node.comm_bytes > 0 &&
         devices.holds(node);
}

// Plays the dependencies: one computation at a time, those that can begin in the order of their ids;
// collectives beside them without limit; work of the host takes no time.
std::vector<Window> play(const Source& file, const std::vector<ChakraNode>& nodes,
                         const Devices& devices) {
  std::unordered_map<std::uint64_t, std::size_t> index;
  for (std::size_t i = 0; i < nodes.size(); ++i) index.emplace(nodes[i].id, i);
  std::vector<std::vector<std::size_t>> readers(nodes.size());
  std::vector<std::size_t> waits(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::uint64_t id : nodes[i].needs) {
      const auto needed = index.find(id);
      if (needed == index.end()) continue;  // of another trace, or a node that was left out
      readers[needed->second].push_back(i);
      ++waits[i];
    }
  }
  using Entry = std::pair<std::uint64_t, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (waits[i] == 0) ready.emplace(nodes[i].id, i);
  }
  std::vector<Window> windows(nodes.size());
  std::size_t played = 0;
  std::int64_t free_us = 0;
  while (!ready.empty()) {
    const std::size_t i = ready.top().second;
    ready.pop();
    ++played;
    const ChakraNode& node = nodes[i];
    Window& window = windows[i];
    const bool computes = node.type == ChakraNode::Type::Compute && devices.holds(node);
    if (computes) window.start_us = std::max(window.start_us, free_us);
    window.end_us = window.start_us + (devices.holds(node) ? node.duration_us : 0);
    if (computes) free_us = window.end_us;
    for (const std::size_t reader : readers[i]) {
      windows[reader].start_us = std::max(windows[reader].start_us, window.end_us);
      if (--waits[reader] == 0) ready.emplace(nodes[reader].id, reader);
    }
  }
  if (played < nodes.size()) {
    throw InputError(file.name + ": the dependencies of " + counted(nodes.size() - played, "node") +
                     " go in circles");
  }
  return windows;
}

std::vector<Window> recorded(const std::vector<ChakraNode>& nodes) {
  std::vector<Window> windows;
  for (const ChakraNode& node : nodes) {
    windows.push_back({node.start_us, node.start_us + node.duration_us});
  }
  return windows;
}

struct Bucket {
  std::size_t node = 0;
  std::int64_t ready_us = 0;
};

// When the computation before each all-reduce is done: the latest end that its start does not precede.
std::vector<Bucket> buckets_of(const std::vector<ChakraNode>& nodes,
                               const std::vector<Window>& windows, const Devices& devices) {
  std::vector<std::int64_t> ends;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].type == ChakraNode::Type::Compute && devices.holds(nodes[i])) {
      ends.push_back(windows[i].end_us);
    }
  }
  std::ranges::sort(ends);
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!is_bucket(nodes[i], devices)) continue;
    const auto after = std::ranges::upper_bound(ends, windows[i].start_us);
    buckets.push_back({i, after == ends.begin() ? windows[i].start_us : *(after - 1)});
  }
  std::ranges::stable_sort(buckets, {}, &Bucket::ready_us);
  return buckets;
}

// The shortest time of each size; absent where fewer than two sizes have one.
std::optional<models::ProfiledCollectives> table_of(const std::vector<ChakraNode>& nodes,
                                                    const std::vector<Bucket>& buckets) {
  std::map<std::int64_t, std::int64_t> shortest;
  for (const Bucket& bucket : buckets) {
    const ChakraNode& node = nodes[bucket.node];
    if (node.duration_us == 0) continue;
    const auto [entry, is_new] = shortest.try_emplace(node.comm_bytes, node.duration_us);
    entry->second = std::min(entry->second, node.duration_us);
  }
  if (shortest.size() < 2) return std::nullopt;
  models::ProfiledCollectives table;
  for (const auto& [bytes, us] : shortest) {
    table.points.push_back({.bytes = Bytes(bytes), .isolated = from_us(static_cast<double>(us))});
  }
  return table;
}

}  // namespace

ImportedStep read_chakra(const Source& file, std::int64_t ranks) {
  const std::vector<ChakraNode> nodes = read_chakra_nodes(file);
  const Devices devices(nodes);
  const bool has_starts =
      std::ranges::any_of(nodes, [](const ChakraNode& node) { return node.start_us > 0; });
  const std::vector<Window> windows = has_starts ? recorded(nodes) : play(file, nodes, devices);
  const std::vector<Bucket> buckets = buckets_of(nodes, windows, devices);
  if (buckets.empty()) {
    throw InputError(
        file.name + ": " + counted(nodes.size(), "node") +
        ", none of them an all-reduce with a size (attributes comm_type and comm_size)");
  }
  const std::int64_t first = buckets.front().ready_us;
  const std::int64_t last = buckets.back().ready_us;
  std::int64_t begin = first;
  std::int64_t after = 0;
  std::size_t computations = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].type != ChakraNode::Type::Compute || !devices.holds(nodes[i])) continue;
    ++computations;
    begin = std::min(begin, windows[i].start_us);
    if (windows[i].start_us >= last) after += nodes[i].duration_us;
  }
  ImportedStep step;
  models::Profile& profile = step.profile;
  const auto us = [](std::int64_t value) { return from_us(static_cast<double>(value)); };
  profile.name = std::filesystem::path(file.name).stem().string();
  if (profile.name.empty()) profile.name = "chakra";
  profile.world_size = ranks;
  profile.by_rank.push_back(
      {.forward = us(first - begin), .backward = us(last - first), .optimizer = us(after)});
  std::set<std::string> names;
  for (const Bucket& bucket : buckets) {
    const ChakraNode& node = nodes[bucket.node];
    std::string name = printable(node.name) + "#" + std::to_string(node.id);
    while (!names.insert(name).second) name += "'";
    const bool is_even = node.comm_bytes % 4 == 0;
    if (!is_even)
      step.left_out.push_back(name + ": its size is no multiple of 4 bytes; rounded up");
    profile.gradients.push_back({.name = std::move(name),
                                 .numel = (node.comm_bytes + 3) / 4,
                                 .dtype = schedule::DType::F32,
                                 .ready = {us(bucket.ready_us - first)}});
  }
  profile.collectives = table_of(nodes, buckets);
  step.read.push_back(counted(nodes.size(), "node") + ", " + counted(computations, "computation") +
                      ", " + counted(buckets.size(), "all-reduce"));
  step.read.push_back(has_starts ? "recorded start times were taken"
                                 : "no start times: the dependencies were played");
  if (!profile.collectives) {
    step.left_out.emplace_back(
        "fewer than two sizes with a time: no all-reduce table; name a machine with --cluster");
  }
  step.what =
      "Chakra trace, taken for one step. Each all-reduce is one gradient of float32: finer ones "
      "are not in the file. Operators of the host take no time: a step that the host holds up "
      "looks faster.";
  return step;
}

}  // namespace dovetail::imports
