// Finds concatenate, all-reduce and slices by who reads and writes what.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/flattened.h"

#include "recordings/hlo/work.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

struct Range {
  std::int64_t begin = 0, end = 0;
  friend auto operator<=>(const Range&, const Range&) = default;
};

// The instruction that does all of the work, alone in its fusion or by itself.
const HloInstruction* sole(const HloModule& module, const HloStep& step) {
  if (step.instruction->opcode != "fusion") return step.instruction;
  const auto called = module.computations.find(hlo_name(step.instruction->attribute("calls")));
  if (called == module.computations.end()) return nullptr;
  const HloInstruction* found = nullptr;
  for (const HloInstruction& at : called->second.instructions) {
    if (at.opcode == "parameter" || at.opcode == "bitcast") continue;
    if (found != nullptr) return nullptr;
    found = &at;
  }
  return found;
}

// slice={[1:2049]} of one dimension without a stride.
std::optional<Range> range_of(const HloInstruction& slice) {
  std::string_view text = slice.attribute("slice");
  if (!text.starts_with("{[") || !text.ends_with("]}")) return std::nullopt;
  text = text.substr(2, text.size() - 4);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto begin = integer_of(text.substr(0, colon));
  const auto end = integer_of(text.substr(colon + 1));
  if (!begin || !end) return std::nullopt;
  return Range{*begin, *end};
}

class Apart {
 public:
  Apart(const HloModule& module, HloFlow& flow) : module_(module), flow_(flow) {
    for (std::size_t i = 0; i < flow.steps.size(); ++i) {
      for (const std::size_t value : flow.steps[i].reads) readers_[value].push_back(i);
      for (const std::size_t value : flow.steps[i].writes) writers_[value] = i;
    }
  }

  std::size_t run() {
    std::size_t count = 0;
    for (HloStep& step : flow_.steps) count += step.collective && take(step) ? 1 : 0;
    std::vector<HloStep> kept;
    std::vector<std::size_t> awaited;
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      HloStep& step = flow_.steps[i];
      awaited.insert(awaited.end(), step.awaits.begin(), step.awaits.end());
      if (gone_.contains(i)) continue;
      step.awaits = std::exchange(awaited, {});
      kept.push_back(std::move(step));
    }
    flow_.steps = std::move(kept);
    return count;
  }

 private:
  bool take(HloStep& step) {
    HloCollective& collective = flow_.collectives[*step.collective];
    if (collective.kind != "all-reduce" || step.reads.size() != 1 || step.writes.size() != 1) {
      return false;
    }
    const auto writer = writers_.find(step.reads.front());
    if (writer == writers_.end() || readers_[step.reads.front()].size() != 1) return false;
    const HloStep& copies = flow_.steps[writer->second];
    const HloInstruction* const joins = sole(module_, copies);
    if (joins == nullptr || joins->opcode != "concatenate") return false;
    const std::vector<std::size_t>& slices = readers_[step.writes.front()];
    const std::optional<std::vector<std::size_t>> parts = parts_of(copies.reads, slices);
    const bool is_result =
        std::ranges::find(flow_.results, step.writes.front()) != flow_.results.end();
    if (!parts || is_result || copies.reads.size() != joins->operands.size()) return false;
    collective.parts = copies.reads.size();
    if (step.is_in_loop) return false;
    gone_.insert(writer->second);
    gone_.insert(slices.begin(), slices.end());
    step.reads = copies.reads;
    step.writes = *parts;
    return true;
  }

  // What each operand became; absent where a slice is no operand.
  std::optional<std::vector<std::size_t>> parts_of(const std::vector<std::size_t>& operands,
                                                   const std::vector<std::size_t>& slices) const {
    std::map<Range, std::size_t> by_range;
    for (const std::size_t at : slices) {
      const HloStep& step = flow_.steps[at];
      const HloInstruction* const cut = sole(module_, step);
      if (cut == nullptr || cut->opcode != "slice" || step.writes.size() != 1) return std::nullopt;
      const std::optional<Range> range = range_of(*cut);
      if (!range || !by_range.emplace(*range, step.writes.front()).second) return std::nullopt;
    }
    std::vector<std::size_t> parts;
    std::int64_t begin = 0;
    for (const std::size_t operand : operands) {
      if (operand == kNoValue) return std::nullopt;
      const std::int64_t end = begin + flow_.values[operand].shape->numel();
      const auto found = by_range.find({begin, end});
      if (found == by_range.end()) return std::nullopt;
      parts.push_back(found->second);
      begin = end;
    }
    if (parts.size() != by_range.size()) return std::nullopt;
    return parts;
  }

  const HloModule& module_;
  HloFlow& flow_;
  std::map<std::size_t, std::vector<std::size_t>> readers_;
  std::map<std::size_t, std::size_t> writers_;
  std::set<std::size_t> gone_;
};

}  // namespace

std::size_t take_apart_flattened(const HloModule& module, HloFlow& flow) {
  return Apart(module, flow).run();
}

}  // namespace dovetail::imports
