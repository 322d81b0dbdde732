// Parts of runs of nccl-tests put together: repetitions become samples of one table, and parts that
// contradict each other are left out by name.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_tests.h"

#include "base/count.h"
#include "imports/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace dovetail::imports {
namespace {

using Parts = std::vector<NcclTestsPart>;

// Repetitions of one measurement are closer than this; other machines, links or settings are farther apart.
constexpr double kRepeats = 1.5;

struct Timed {
  Duration time{};
  std::size_t part = 0;
};

// How far apart the parts are at one size. With four and more of them a single disturbed one does not count.
struct Gap {
  Bytes bytes{};
  Timed fast, slow;
  [[nodiscard]] double factor() const {
    return static_cast<double>(slow.time.count()) / static_cast<double>(fast.time.count());
  }
};

Duration median_time(std::vector<Duration> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// At the sizes that several parts have, rising.
std::vector<Gap> gaps_between(const Parts& parts, const std::vector<std::size_t>& members) {
  std::map<Bytes, std::map<std::size_t, std::vector<Duration>>> sizes;
  for (const std::size_t member : members) {
    for (const NcclTestsPart::Sample& sample : parts[member].samples) {
      sizes[sample.bytes][member].push_back(sample.time);
    }
  }
  std::vector<Gap> gaps;
  for (const auto& [bytes, by_part] : sizes) {
    if (by_part.size() < 2) continue;
    std::vector<Timed> times;
    for (const auto& [part, all] : by_part) times.push_back({median_time(all), part});
    std::ranges::stable_sort(times, {}, &Timed::time);
    const std::size_t aside = times.size() / 4;
    gaps.push_back({bytes, times[aside], times[times.size() - 1 - aside]});
  }
  return gaps;
}

double middle_factor(std::vector<Gap> gaps) {
  std::ranges::sort(gaps, {}, &Gap::factor);
  return gaps[gaps.size() / 2].factor();
}

// The gap that shows that the parts are no repetitions; absent: they are. The largest quarter of the sizes decides as
// well, as small ones take the same time on links of any speed.
std::optional<Gap> contradiction(const std::vector<Gap>& gaps) {
  if (gaps.empty()) return std::nullopt;
  const std::size_t large = (gaps.size() + 3) / 4;
  const std::vector<Gap> largest(gaps.end() - static_cast<std::ptrdiff_t>(large), gaps.end());
  if (middle_factor(gaps) <= kRepeats && middle_factor(largest) <= kRepeats) return std::nullopt;
  return *std::ranges::max_element(gaps, {}, &Gap::factor);
}

std::string fixed_point(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string title_of(const NcclTestsPart& part) {
  return std::string(to_string(part.collective)) + " over " + std::to_string(part.ranks) + " ranks";
}

std::string place_of(const NcclTestsPart& part) { return part.file + ": " + part.place; }

std::string contradiction_in_words(const Parts& parts, std::size_t members, const Gap& gap) {
  const NcclTestsPart& fast = parts[gap.fast.part];
  const NcclTestsPart& slow = parts[gap.slow.part];
  const double factor = bus_factor(fast.collective, fast.ranks);
  const auto busbw = [&](Duration time) {
    return fixed_point(algorithm_bandwidth(gap.bytes, time) * factor);
  };
  const std::string also =
      members > 2 ? " (and " + std::to_string(members - 2) + " more like them)" : "";
  return place_of(fast) + " and " + place_of(slow) + also + ": both are " + title_of(fast) +
         " and contradict each other: " + to_string(gap.bytes) + " takes " +
         to_string(gap.fast.time) + " and " + to_string(gap.slow.time) + " (" +
         busbw(gap.fast.time) + " and " + busbw(gap.slow.time) +
         " GB/s busbw). They are of different machines, groups or settings: import each from a "
         "file "
         "of its own";
}

std::string sizes_in_words(const NcclTestsPart& part) {
  std::set<Bytes> sizes;
  for (const NcclTestsPart::Sample& sample : part.samples) sizes.insert(sample.bytes);
  const std::string text = counted(sizes.size(), "size");
  if (sizes.size() < 2) return text + ", " + to_string(*sizes.begin());
  return text + " from " + to_string(*sizes.begin()) + " to " + to_string(*sizes.rbegin());
}

void tell(const NcclTestsPart& part, Buffers buffers, CollectiveLog& log) {
  const std::string at = place_of(part) + ": ";
  const bool in_place = buffers == Buffers::InPlace;
  log.read.push_back(
      at + title_of(part) + (part.ranks_by.empty() ? "" : " (" + part.ranks_by + ")") +
      (part.nodes ? " on " + counted(*part.nodes, "node") : ", nodes unknown") +
      (part.gpu.empty() ? "" : ", " + part.gpu) + "; " + sizes_in_words(part) +
      (in_place ? ", in place" : ", out of place") + (part.is_blocking ? ", each alone (-z)" : ""));
  if (part.other_buffers > 0) {
    log.read.push_back(at + counted(part.other_buffers, "row") + " had no time " +
                       (in_place ? "in" : "out of") + " place: the other one was taken");
  }
  if (part.groups > 1) {
    log.read.push_back(at + std::to_string(part.groups) +
                       " groups ran at the same time and may have shared links");
  }
}

void add_samples(const NcclTestsPart& part, CollectiveLog& log) {
  for (const NcclTestsPart::Sample& sample : part.samples) {
    log.samples.push_back({.collective = part.collective,
                           .ranks = part.ranks,
                           .nodes = part.nodes,
                           .bytes = sample.bytes,
                           .time = sample.time,
                           .launch = part.is_blocking ? Launch::Alone : Launch::Queued});
  }
}

}  // namespace

void add_parts(std::vector<NcclTestsPart> parts, const NcclTestsOptions& options,
               CollectiveLog& log) {
  std::map<std::tuple<schedule::Collective, std::int64_t, bool>, std::vector<std::size_t>> tables;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    tables[{parts[i].collective, parts[i].ranks, parts[i].is_blocking}].push_back(i);
  }
  std::set<std::size_t> refused;
  for (const auto& [key, members] : tables) {
    const std::optional<Gap> gap = contradiction(gaps_between(parts, members));
    if (!gap) continue;
    log.left_out.push_back(contradiction_in_words(parts, members.size(), *gap));
    refused.insert(members.begin(), members.end());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (refused.contains(i)) continue;
    tell(parts[i], options.buffers, log);
    add_samples(parts[i], log);
  }
}

}  // namespace dovetail::imports
