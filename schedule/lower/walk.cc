// The agenda of a role: what is done for each travel, sorted by the moments of the walk.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/walk.h"

namespace dovetail::schedule {

void Agenda::fill(const RoleTimetable& role) {
  role_ = role;
  items_.clear();
  last_on_.clear();  // of messages
  for (std::size_t i = 0; i < role.travels.size(); ++i) {
    const Travel& travel = role.travels[i];
    if (!RoleWalk::is_first(travel)) add_launch(i);
    if (travel.kind != Travel::Kind::Message) continue;
    const auto stream = static_cast<std::size_t>(travel.stream.value);
    if (stream >= last_on_.size()) last_on_.resize(stream + 1);
    last_on_[stream] = i;
  }
  for (std::size_t i = 0; i < role.travels.size(); ++i) {
    const Travel& travel = role.travels[i];
    // At the end of the step the last message of each stream stands for those before it.
    const bool is_told = travel.kind == Travel::Kind::Message && travel.wait_before == kEnd &&
                         last_on_[static_cast<std::size_t>(travel.stream.value)] != i;
    const bool continued =
        travel.kind == Travel::Kind::Bucket && role.buckets[travel.what].continued;
    if (!is_told && !continued) add_wait(i);
  }
  for (std::size_t i = 0; i < role.travels.size(); ++i) {
    const Travel& travel = role.travels[i];
    if (travel.release_after == kEnd) continue;
    add(8 * met_at(travel.release_after) + static_cast<std::size_t>(Around::Release), travel.kind,
        travel.release_after, i, Act::Release, i);
  }
  for (std::size_t k = 0; k < role.packs.size(); ++k) {
    const Pack& pack = role.packs[k];
    add(8 * met_at(pack.behind) + static_cast<std::size_t>(Around::Pack), Travel::Kind::Bucket,
        pack.behind, pack.travel, Act::Pack, k);
  }
  sort();
}

bool Agenda::is_earlier(const Item& a, const Item& b) {
  if (a.when != b.when) return a.when < b.when;
  return a.order != b.order ? a.order < b.order : a.index < b.index;
}

// Merges what stands in order already: each of the lists that were added mostly does.
void Agenda::sort() {
  begins_.clear();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (i == 0 || is_earlier(items_[i], items_[i - 1])) begins_.push_back(i);
  }
  merged_.resize(items_.size());
  while (begins_.size() > 1) {
    const auto at = [this](std::size_t run) {
      return items_.begin() +
             static_cast<std::ptrdiff_t>(run < begins_.size() ? begins_[run] : items_.size());
    };
    auto out = merged_.begin();
    for (std::size_t run = 0; run < begins_.size(); run += 2) {
      out = std::merge(at(run), at(run + 1), at(run + 1), at(run + 2), out, is_earlier);
    }
    for (std::size_t run = 0; 2 * run < begins_.size(); ++run) begins_[run] = begins_[2 * run];
    begins_.resize((begins_.size() + 1) / 2);
    std::swap(items_, merged_);
  }
}

void Agenda::add_launch(std::size_t i) {
  const Travel& travel = role_.travels[i];
  add(launch_of(travel), travel.kind, travel.launch_after.value_or(travel.what), i, Act::Launch, i);
}

// Among what is waited for at one place, buckets keep their launch order.
void Agenda::add_wait(std::size_t i) {
  const Travel& travel = role_.travels[i];
  if (travel.wait_at_launch) {
    const Travel& next = role_.travels[*travel.wait_at_launch];
    return add(launch_of(next), travel.kind, *next.launch_after, *travel.wait_at_launch, Act::Wait,
               i);
  }
  add(8 * met_at(travel.wait_before) + static_cast<std::size_t>(Around::Wait), travel.kind,
      travel.wait_before, i, Act::Wait, i);
}

// The place as its pass gave it: a moment may stand for several, after ops of other roles. Order: of the travels, its own or
// that of the launch in front of which it waits.
void Agenda::add(std::size_t when, Travel::Kind kind, std::size_t place, std::size_t order, Act act,
                 std::size_t index) {
  items_.push_back({when,
                    static_cast<std::uint64_t>(kind) << 62U | std::uint64_t{place} << 31U |
                        std::uint64_t{order} << 2U | static_cast<std::uint64_t>(act),
                    static_cast<std::uint32_t>(index), act});
}

// Where the walk comes to this position: at the role's next op, or at the end of the step.
std::size_t Agenda::met_at(std::size_t position) const {
  const std::span<const std::size_t> ops = role_.ops;
  if (position < ops.size() && ops[position] == position) return position;
  return static_cast<std::size_t>(std::ranges::lower_bound(ops, position) - ops.begin());
}

// Parameters of the last step are gathered before the first op, by RoleWalk::begin.
std::size_t Agenda::launch_of(const Travel& travel) const {
  if (travel.behind_waits) {
    const std::size_t op = travel.launch_after ? *travel.launch_after + 1 : 0;
    return 8 * met_at(op) + static_cast<std::size_t>(Around::Waited);
  }
  const std::size_t at = travel.launch_after.value_or(travel.what);
  const std::size_t met = met_at(at);
  const bool is_own = met < role_.ops.size() && role_.ops[met] == at;
  const Around around = !travel.launch_after ? Around::Op : is_own ? Around::Behind : Around::Ahead;
  return 8 * met + static_cast<std::size_t>(around);
}

}  // namespace dovetail::schedule
