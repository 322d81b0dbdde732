// Parts of runs of nccl-tests put together: repetitions become samples of one table, and parts that
// contradict each other are left out by name.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_tests.h"

#include "base/count.h"
#include "recordings/text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace dovetail::imports {
namespace {

// Repetitions of one measurement are closer than this; other machines, links or settings are farther apart.
constexpr double kRepeats = 1.5;

std::string title_of(const NcclTestsPart& part) {
  return std::string(to_string(part.collective)) + " over " + std::to_string(part.ranks) + " ranks";
}

std::string place_of(const NcclTestsPart& part) { return part.file + ": " + part.place; }

std::string contradiction_in_words(const NcclTestsPart& fast, const NcclTestsPart& slow,
                                   std::size_t members, const Gap& gap) {
  const std::string also =
      members > 2 ? " (and " + std::to_string(members - 2) + " more like them)" : "";
  return place_of(fast) + " and " + place_of(slow) + also + ": both are " + title_of(fast) +
         " and contradict each other: " + in_words(gap, fast.collective, fast.ranks) +
         ". They are of different machines, groups or settings: import each from a file of its own";
}

// Repetitions that are apart at some sizes only.
std::string odd_sizes_in_words(const std::vector<NcclTestsPart>& parts,
                               const std::vector<std::size_t>& members,
                               const std::vector<Gap>& gaps) {
  const Gap& most = *std::ranges::max_element(gaps, {}, factor_of);
  const NcclTestsPart& fast = parts[members[most.fast_of]];
  const NcclTestsPart& slow = parts[members[most.slow_of]];
  std::vector<std::string> sizes;
  for (const Gap& gap : gaps) sizes.push_back(to_string(gap.bytes));
  return counted(gaps.size(), "size") + " of " + title_of(fast) + " (" + listed(sizes) +
         "), at which measurements are more than a factor of 1.5 apart: " +
         in_words(most, fast.collective, fast.ranks) + " in " + place_of(fast) + " and " +
         place_of(slow) + "; their mean is the time of neither";
}

std::string sizes_in_words(const NcclTestsPart& part) {
  std::set<Bytes> sizes;
  for (const TimedSize& sample : part.samples) sizes.insert(sample.bytes);
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

// Those that are used; pieces of bare rows of one file that are repetitions are told at once.
std::vector<NcclTestsPart> to_tell(std::vector<NcclTestsPart> parts,
                                   const std::set<std::size_t>& refused) {
  struct Told {
    std::size_t at = 0, more = 0;
    std::vector<std::string> places{};
  };
  constexpr std::size_t kShown = 3;
  std::vector<NcclTestsPart> result;
  std::map<std::tuple<std::string, schedule::Collective, std::int64_t, bool>, Told> bare;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (refused.contains(i)) continue;
    NcclTestsPart& part = parts[i];
    if (!part.is_bare) {
      result.push_back(std::move(part));
      continue;
    }
    const auto [entry, is_new] = bare.try_emplace(
        {part.file, part.collective, part.ranks, part.is_blocking}, Told{.at = result.size()});
    Told& told = entry->second;
    if (told.places.size() < kShown) {
      told.places.push_back(part.place);
    } else {
      ++told.more;
    }
    if (is_new) {
      result.push_back(std::move(part));
      continue;
    }
    NcclTestsPart& first = result[told.at];
    first.samples.insert(first.samples.end(), part.samples.begin(), part.samples.end());
    first.other_buffers += part.other_buffers;
    first.place = listed(told.places) +
                  (told.more > 0 ? " and " + std::to_string(told.more) + " more places" : "");
  }
  return result;
}

void add_samples(const NcclTestsPart& part, CollectiveLog& log) {
  for (const TimedSize& sample : part.samples) {
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
    std::vector<std::span<const TimedSize>> measurements;
    for (const std::size_t member : members) measurements.emplace_back(parts[member].samples);
    const std::optional<Gap> gap = contradiction(measurements, kRepeats);
    if (!gap) {
      const std::vector<Gap> odd = contradictory_sizes(measurements, kRepeats);
      if (odd.empty()) continue;
      log.left_out.push_back(odd_sizes_in_words(parts, members, odd));
      for (const std::size_t member : members) {
        std::erase_if(parts[member].samples, [&](const TimedSize& sample) {
          return std::ranges::binary_search(odd, sample.bytes, {}, &Gap::bytes);
        });
        if (parts[member].samples.empty()) refused.insert(member);
      }
      continue;
    }
    log.left_out.push_back(contradiction_in_words(
        parts[members[gap->fast_of]], parts[members[gap->slow_of]], members.size(), *gap));
    refused.insert(members.begin(), members.end());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!refused.contains(i)) add_samples(parts[i], log);
  }
  for (const NcclTestsPart& part : to_tell(std::move(parts), refused)) {
    tell(part, options.buffers, log);
  }
}

}  // namespace dovetail::imports
