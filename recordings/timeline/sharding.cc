// Each collective by the annotations around its call; how far ahead it is by the place of its group among the hooks of the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/sharding.h"

#include "base/statistics.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace dovetail::imports {
namespace {

// "FSDP::all_gather (layers.0)" -> "layers.0"; "FSDP::all_gather" -> "".
std::string group_in(std::string_view name) {
  const std::size_t open = name.find(" (");
  if (open == std::string_view::npos || !name.ends_with(')')) return "";
  return std::string(name.substr(open + 2, name.size() - open - 3));
}

class Reader {
 public:
  Reader(const Recording& trace, const RankTimeline& line) : trace_(trace), line_(line) {
    found_.group_of.assign(line.collectives.size(), kNone);
    found_.gathers_in_backward.assign(line.collectives.size(), 0);
  }

  std::optional<Sharding> read() {
    list_hooks();
    for (std::size_t c = 0; c < line_.collectives.size(); ++c) visit(c);
    if (found_.groups.empty()) return std::nullopt;
    const auto steps = static_cast<double>(std::max<std::size_t>(1, line_.steps.size()));
    for (ShardedGroup& group : found_.groups) {
      for (double* count :
           {&group.forward, &group.backward, &group.reductions, &group.all_reduces}) {
        *count /= steps;
      }
    }
    if (line_.on_cpu) take_whole_gathers();
    found_.forward_ahead = middle(ahead_[0]);
    found_.backward_ahead = middle(ahead_[1]);
    return std::move(found_);
  }

 private:
  static std::optional<std::int64_t> middle(const std::vector<std::int64_t>& values) {
    if (values.empty()) return std::nullopt;
    return median(values);
  }
  // Of a CPU's gather the trace has what one rank gives, and a reduction is of the whole.
  void take_whole_gathers() {
    for (std::size_t g = 0; g < found_.groups.size(); ++g) {
      ShardedGroup& group = found_.groups[g];
      const auto [forward, backward] = given_[g];
      if (forward <= 0 || group.elements <= 0) continue;
      const std::int64_t size = group.gathered.count() / forward;  // of an element
      if (size < 1 || size > 8) continue;
      group.gathered = Bytes(size * group.elements);
      found_.shards = std::max(found_.shards, group.elements / forward);
      if (backward > 0) {
        found_.backward_shards = std::max(found_.backward_shards, group.elements / backward);
      }
    }
    const bool has_replicas = std::ranges::any_of(
        found_.groups, [](const ShardedGroup& group) { return group.all_reduces > 0; });
    if (has_replicas && found_.replicas == 1) found_.replicas = 0;
  }

  [[nodiscard]] std::string_view name_of(std::int32_t event) const {
    return trace_.name_of(trace_.events[static_cast<std::size_t>(event)]);
  }
  [[nodiscard]] std::int32_t around(std::int32_t event, Is kind) const {
    return enclosing(trace_, line_, event, kind);
  }
  [[nodiscard]] std::int32_t step_of(const TracedCollective& collective) const {
    return line_.works[static_cast<std::size_t>(collective.work)].step;
  }

  // Hooks before forward and backward of each step, in order of time: places of groups.
  void list_hooks() {
    for (const RecordedEvent& event : trace_.events) {
      if (event.kind != EventKind::Annotation) continue;
      const std::string_view name = trace_.name_of(event);
      const bool forward = trace_.is(event, Is::FsdpBeforeForward);
      if (!forward && !trace_.is(event, Is::FsdpBeforeBackward)) continue;
      const Instant at = line_.instant(event.start_ns);
      const auto after = std::ranges::upper_bound(line_.steps, at, {}, &TracedStep::start);
      if (after == line_.steps.begin()) continue;
      const auto step = static_cast<std::int32_t>(after - line_.steps.begin()) - 1;
      auto& places = places_[{step, forward ? 0 : 1}];
      places.emplace(group_in(name), std::ssize(places));
    }
  }

  std::size_t number_of(const std::string& name) {
    const auto known = std::ranges::find(found_.groups, name, &ShardedGroup::name);
    if (known != found_.groups.end())
      return static_cast<std::size_t>(known - found_.groups.begin());
    found_.groups.push_back({.name = name});
    return found_.groups.size() - 1;
  }

  void visit(std::size_t number) {
    const TracedCollective& collective = line_.collectives[number];
    if (collective.call == kNone || step_of(collective) == kNone) return;
    if (const std::int32_t gather = around(collective.call, Is::FsdpGather); gather != kNone) {
      add_gather(number, gather);
    } else if (const std::int32_t reduce = around(collective.call, Is::FsdpReduce);
               reduce != kNone) {
      add_reduction(number, reduce);
    }
  }

  void add_gather(std::size_t number, std::int32_t annotation) {
    const TracedCollective& collective = line_.collectives[number];
    const std::size_t group_number = number_of(group_in(name_of(annotation)));
    ShardedGroup& group = found_.groups[group_number];
    found_.group_of[number] = static_cast<std::int32_t>(group_number);
    const std::int32_t backward = around(annotation, Is::FsdpBeforeBackward);
    const std::int32_t hook =
        backward != kNone ? backward : around(annotation, Is::FsdpBeforeForward);
    ++(backward != kNone ? group.backward : group.forward);
    found_.gathers_in_backward[number] = backward != kNone ? 1 : 0;
    auto& over = backward != kNone ? found_.backward_shards : found_.shards;
    over = std::max(over, collective.group_size.value_or(0));
    auto& given = given_[group_number];
    (backward != kNone ? given.second : given.first) = collective.elements.value_or(0);
    if (backward == kNone || group.gathered == Bytes(0)) {
      group.gathered_as = collective.dtype;
      group.gathered = collective.bytes.value_or(Bytes(0));
    }
    if (hook == kNone) return;
    const auto places = places_.find({step_of(collective), backward != kNone ? 1 : 0});
    if (places == places_.end()) return;
    const auto own = places->second.find(group.name);
    const auto issuing = places->second.find(group_in(name_of(hook)));
    if (own == places->second.end() || issuing == places->second.end()) return;
    ahead_[backward != kNone ? 1 : 0].push_back(
        std::max<std::int64_t>(0, own->second - issuing->second));
  }

  void add_reduction(std::size_t number, std::int32_t annotation) {
    const TracedCollective& collective = line_.collectives[number];
    const std::size_t group_number = number_of(group_in(name_of(annotation)));
    ShardedGroup& group = found_.groups[group_number];
    found_.group_of[number] = static_cast<std::int32_t>(group_number);
    const bool scatters = collective.kind == CollectiveKind::ReduceScatter ||
                          trace_.is(collective.call, Is::Scatters);
    if (!scatters) {
      ++group.all_reduces;
      found_.replicas = std::max(found_.replicas, collective.group_size.value_or(1));
      return;
    }
    ++group.reductions;
    group.reduced_as = collective.dtype;
    group.reduced = collective.bytes.value_or(Bytes(0));
    group.elements = collective.elements.value_or(0);
  }

  const Recording& trace_;
  const RankTimeline& line_;
  // By step, forward or backward: the place of each group.
  std::map<std::pair<std::int32_t, int>, std::map<std::string, std::int64_t>> places_;
  std::array<std::vector<std::int64_t>, 2> ahead_;  // of forward, of backward
  // By group: elements that a gather's own rank is said to give, forward and backward.
  std::map<std::size_t, std::pair<std::int64_t, std::int64_t>> given_;
  Sharding found_;
};

}  // namespace

bool Sharding::gathers_again() const {
  return std::ranges::any_of(groups, [](const ShardedGroup& group) { return group.backward > 0; });
}

std::int64_t Sharding::resharded_to() const {
  return backward_shards > 0 && backward_shards < shards ? backward_shards : 0;
}

Bytes Sharding::kept_without() const {
  Bytes kept{};
  for (const ShardedGroup& group : groups) {
    if (group.backward <= 0) continue;
    kept += group.gathered;
    if (resharded_to() > 0) kept -= Bytes(group.gathered.count() / resharded_to());
  }
  return kept;
}

std::optional<Sharding> sharding_of(const Recording& trace, const RankTimeline& line) {
  return Reader(trace, line).read();
}

}  // namespace dovetail::imports
