// Plays the recorded buckets and others on the machine of the recording, and on the two that bound
// it.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/recorded.h"

#include <algorithm>
#include <utility>

#include "base/decimal.h"
#include "schedule/policies/named_groups.h"
#include "schedule/policies/policies.h"
#include "search/schedule_memo.h"

namespace dovetail::search {

std::optional<RecordedRun> recorded_run(const schedule::Program& program,
                                        const models::RecordedStep& recorded) {
  std::size_t count = 0;
  for (const std::vector<std::size_t>& bucket : recorded.buckets) count += bucket.size();
  if (program.stages > 1 || program.reductions.size() != count) return std::nullopt;
  const schedule::OwedByName owed(program);
  schedule::NamedGroups groups;
  for (const std::vector<std::size_t>& bucket : recorded.buckets) {
    std::vector<std::string_view>& names = groups.emplace_back();
    for (const std::size_t place : bucket) {
      names.push_back(program.tensor(program.reductions[place].gradient).name);
    }
  }
  const schedule::Policy policy =
      // Without copies what divides gradients is among the recorded ops.
      schedule::parse_policy(recorded.is_copied ? "torch-ddp:mode=copy"
                                                : "torch-ddp:mode=view,scale=collective");
  schedule::Schedule frame = schedule::make_schedule(program, policy);
  frame.buckets.clear();
  return RecordedRun{
      .schedule = schedule::schedule_of(program, owed, groups, policy, std::move(frame)),
      .framework = recorded.framework};
}

Gains::Gains(const schedule::Program& program, const models::Costs& costs,
             const models::CostBounds& bounds, schedule::Schedule now, Duration off)
    : planners_{Planner(program, costs), Planner(program, bounds.cheap),
                Planner(program, bounds.dear)},
      runs_(std::move(now)),
      off_(off) {
  for (std::size_t k = 0; k < planners_.size(); ++k) {
    now_[k] = Duration(planners_[k].evaluate(runs_).step_ns);
  }
}

Gain Gains::of(const schedule::Schedule& schedule) {
  if (is_same(schedule, runs_)) return {};
  std::array<Duration, 3> gains{};
  for (std::size_t k = 0; k < planners_.size(); ++k) {
    gains[k] = now_[k] - Duration(planners_[k].evaluate(schedule).step_ns);
  }
  const auto [low, high] = std::ranges::minmax(gains);
  return {gains.front(), low - off_, high + off_};
}

std::optional<RecordedAnswer> recorded_answer(const Planner& planner,
                                              const models::CostBounds& bounds,
                                              const models::RecordedStep& recorded,
                                              const Sweep& sweep) {
  const auto row = std::ranges::find(sweep.rows, true, &SweepRow::is_recorded);
  if (row == sweep.rows.end()) return std::nullopt;
  Gains gains(planner.program(), planner.costs(), bounds, row->candidate.schedule, recorded.off());
  return RecordedAnswer{.recorded = recorded.step,
                        .now = gains.now(),
                        .gain = gains.of(sweep.rows[sweep.best].candidate.schedule)};
}

std::string in_words(const RecordedAnswer& answer) {
  std::string text = to_string(answer.now - answer.gain.middle) + " a step against " +
                     to_string(answer.now) + " now (";
  if (answer.recorded) {
    const double off = to_us(answer.now) / to_us(*answer.recorded) - 1;
    text += "recorded: " + to_string(*answer.recorded) + ", " + fixed(100 * off, 1, "+") + " %";
  } else {
    text += "as recorded";
  }
  Gain gain = answer.gain;
  const bool is_less = gain.middle >= Duration{};
  if (!is_less) gain = {-gain.middle, -gain.high, -gain.low};
  return text + "): " + to_string(gain.middle) + (is_less ? " less" : " more") + " (" +
         to_string(gain.low) + " to " + to_string(gain.high) + ")";
}

}  // namespace dovetail::search
