// Prints a critical path: links that follow each other and do the same kind of work on one rank
// are one line, with their share of the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/critical_path.h"

#include "base/error.h"
#include "traces/metrics.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <span>
#include <sstream>

namespace dovetail::traces {
namespace {

using Links = std::vector<PathLink>;

// Launches have no span, and so no entry, where they take no time.
const CommandInfo* find(const Trace& trace, CommandId id) {
  const auto found = std::ranges::lower_bound(trace.commands, id, {}, &CommandInfo::id);
  return found != trace.commands.end() && found->id == id ? &*found : nullptr;
}

SpanPhase phase_of(const Trace& trace, const PathLink& link) {
  const CommandInfo* info = find(trace, link.command);
  return info == nullptr ? SpanPhase::Communication : info->phase;
}

bool belong_together(const Trace& trace, const PathLink& a, const PathLink& b) {
  if (a.kind != b.kind || a.rank != b.rank || a.stream != b.stream || a.step != b.step)
    return false;
  return a.kind != LinkKind::Compute || phase_of(trace, a) == phase_of(trace, b);
}

// "bucket 3", "buckets 2 to 6", "buckets 2, 4": in the order of the chain. Empty where a command has no bucket.
std::string buckets_of(const Trace& trace, std::span<const PathLink> links) {
  std::vector<std::int32_t> buckets;
  for (const PathLink& link : links) {
    const CommandInfo* info = find(trace, link.command);
    if (info == nullptr || !info->bucket) return {};
    const std::int32_t bucket = info->bucket->value;
    if (buckets.empty() || buckets.back() != bucket) buckets.push_back(bucket);
  }
  if (buckets.size() == 1) return "bucket " + std::to_string(buckets.front());
  bool is_run = buckets.size() > 2;
  for (std::size_t i = 1; i < buckets.size(); ++i) is_run &= buckets[i] == buckets[i - 1] + 1;
  if (is_run) {
    return "buckets " + std::to_string(buckets.front()) + " to " + std::to_string(buckets.back());
  }
  constexpr std::size_t kMostNamed = 8;
  std::string text = "buckets ";
  for (std::size_t i = 0; i < std::min(buckets.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(buckets[i]);
  }
  return buckets.size() > kMostNamed ? text + ", ..." : text;
}

// What the links do, all alike.
std::string deed(const Trace& trace, std::span<const PathLink> links) {
  const CommandInfo* last = find(trace, links.back().command);
  std::string name = last == nullptr ? std::string("a collective") : last->name;
  const std::string buckets = buckets_of(trace, links);
  switch (links.front().kind) {
    case LinkKind::Compute: {
      if (links.size() == 1) return name;
      return std::string(to_string(phase_of(trace, links.back()))) + ", " +
             std::to_string(links.size()) + " ops, to " + name;
    }
    case LinkKind::Transfer:
    case LinkKind::Copy:
    case LinkKind::Launch: {
      const std::string kind(to_string(links.front().kind));
      if (!buckets.empty()) return kind + ", " + buckets;
      return links.size() == 1 ? kind + ", " + name
                               : kind + ", " + std::to_string(links.size()) + " times, to " + name;
    }
    case LinkKind::WakeUp:
      return "wake-up behind an event";
    case LinkKind::Host:
      return "the host, until it had issued " + name;
  }
  return {};
}

}  // namespace

std::vector<PathPart> path_parts(const Trace& trace, const CriticalPath& path, std::int32_t step) {
  const Links& links = path.steps.at(static_cast<std::size_t>(step));
  std::vector<PathPart> parts;
  for (std::size_t begin = 0; begin < links.size();) {
    std::size_t end = begin + 1;
    while (end < links.size() && belong_together(trace, links[begin], links[end])) ++end;
    const auto part = std::span(links).subspan(begin, end - begin);
    const PathLink& first = part.front();
    std::string what = "rank " + std::to_string(first.rank.value) + " " + deed(trace, part);
    if (first.step < step) what += ", of the step before";
    parts.push_back({.kind = first.kind,
                     .what = std::move(what),
                     .links = part.size(),
                     .rank = first.rank,
                     .stream = first.stream,
                     .start = first.start - links.front().start,
                     .time = part.back().end - first.start});
    begin = end;
  }
  return parts;
}

void print_critical_path(std::ostream& out, const Trace& trace, const CriticalPath& path) {
  const std::int32_t step = median_step_index(trace);
  const std::vector<PathPart> parts = path_parts(trace, path, step);
  Duration whole{};
  for (const PathPart& part : parts) whole += part.time;
  const Milliseconds ms = milliseconds_of(whole);
  out << "critical path of step " << step << ": each line begins when the one before has ended\n"
      << "      at ms   takes ms    share  what\n";
  for (const PathPart& part : parts) {
    const double share = 100 * static_cast<double>(part.time.count()) /
                         static_cast<double>(std::max<std::int64_t>(1, whole.count()));
    std::ostringstream percent;
    percent << std::fixed << std::setprecision(1) << share << " %";
    out << std::setw(11) << ms(part.start) << std::setw(11) << ms(part.time) << std::setw(9)
        << percent.str() << "  " << part.what << '\n';
  }
}

}  // namespace dovetail::traces
