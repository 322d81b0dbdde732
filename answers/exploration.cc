// Loads, sweeps, and then says of the rows what they do not say of themselves: what they rest on, which cannot be told apart,
// and where the best one may lie. What takes long of that is left out where somebody ended the sweep and waits.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/exploration.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "answers/room.h"
#include "frameworks/framework.h"
#include "search/alike.h"

namespace dovetail::answers {
namespace {

using search::Sweep;
using search::SweepRow;

bool shards(const Sweep& sweep) {
  return std::ranges::any_of(sweep.rows,
                             [](const SweepRow& row) { return row.candidate.sharded(); });
}

void add_notes(Exploration& found, const predict::Machine& machine) {
  const auto notes_with = [&](const std::vector<schedule::Collective>& used) {
    return predict::notes_on(machine, found.planner.program(), found.summary, used);
  };
  found.notes = notes_with({schedule::Collective::AllReduce});
  if (!shards(found.sweep)) return;
  found.sharding_notes = notes_with(predict::sharding_collectives());
  std::erase_if(found.sharding_notes,
                [&](const std::string& note) { return std::ranges::count(found.notes, note) > 0; });
}

void find_alike(Exploration& found, const predict::Machine& machine) {
  const schedule::Program& program = found.planner.program();
  if (!machine.cluster || !models::is_uncalibrated(*machine.cluster)) return;
  if (predict::is_all_timed(program)) return;
  const Sweep& sweep = found.sweep;
  std::vector<const schedule::Schedule*> schedules;
  for (const SweepRow& row : sweep.rows) schedules.push_back(&row.candidate.schedule);
  found.alike = search::alike(program, found.planner.costs(), predict::uncalibrated_ranges(),
                              schedules, sweep.best);
  for (std::size_t i = 0; i < found.alike.size(); ++i) {
    if (!sweep.rows[i].fits) found.alike[i] = false;
  }
}

// How much a row asks of who runs it.
int asks_of(const SweepRow& row) {
  switch (row.said->by) {
    case frameworks::ToldBy::Default:
      return 1;
    case frameworks::ToldBy::Setting:
      return 2;
    case frameworks::ToldBy::File:
      return 3;
    case frameworks::ToldBy::List:
      break;
  }
  return 4;
}

// Whether the row's step cannot be told from that of what there is now.
bool is_like_now(const Exploration& found, std::size_t row) {
  if (!found.now || found.now == row) return false;
  const auto schedule_of = [&](std::size_t i) { return &found.sweep.rows[i].candidate.schedule; };
  return search::alike(found.planner.program(), found.planner.costs(),
                       predict::uncalibrated_ranges(), {schedule_of(row), schedule_of(*found.now)},
                       0)[1];
}

// Of the rows that cannot be told from the best, the one that asks least becomes the best, if it can be told from what there
// is now.
void settle(Exploration& found) {
  if (found.alike.empty() || !found.best().fits || !found.best().said) return;
  const std::size_t fastest = found.sweep.best;
  const SweepRow& first = found.best();
  const auto cost_of = [&](std::size_t i) {
    const SweepRow& row = found.sweep.rows[i];
    return std::tuple(found.now == i ? 0 : asks_of(row), row.resident, search::step_ns(row));
  };
  std::vector<std::size_t> choice = {fastest};
  for (std::size_t i = 0; i < found.alike.size(); ++i) {
    const SweepRow& row = found.sweep.rows[i];
    const bool is_same_job = micro_steps(row) == micro_steps(first) &&
                             row.candidate.sharded() == first.candidate.sharded();
    if (found.alike[i] && row.said && is_same_job) choice.push_back(i);
  }
  std::ranges::sort(choice, {}, cost_of);
  found.sweep.best = *std::ranges::find_if(
      choice, [&](std::size_t i) { return i == fastest || !is_like_now(found, i); });
  if (found.sweep.best == fastest) return;
  found.fastest = fastest;
  found.alike[found.sweep.best] = false;
  found.alike[fastest] = true;
}

void judge_best(Exploration& found, const predict::Machine& machine) {
  search::Planner& planner = found.planner;
  const SweepRow& best = found.best();
  const schedule::ScheduledProgram lowered = planner.verified(best.candidate.schedule);
  const sim::StepSummary& summary = best.candidate.summary;
  if (predict::waits_for_host(summary)) {
    found.host_bound = predict::host_bound(lowered, planner.costs(), {.summary = summary});
  }
  const auto shortage =
      predict::shortage_of(machine.capacity(), planner.program(), {}, best.candidate.schedule);
  if (shortage && best.fits) found.notes.push_back(to_string(*shortage));
  if (micro_steps(best) > 1) return;  // compared by another time
  found.range = predict::step_range(machine.cluster, planner.program(), Duration(summary.step_ns));
  if (!found.range) found.interval = sim::step_interval(lowered, planner.costs());
}

}  // namespace

std::vector<std::string> Exploration::all_notes() const {
  std::vector<std::string> all;
  if (host_bound) all.push_back(to_string(*host_bound));
  all.insert(all.end(), notes.begin(), notes.end());
  all.insert(all.end(), sharding_notes.begin(), sharding_notes.end());
  return all;
}

Exploration explore(predict::InputOptions given, const SweepOptionsOf& options_of,
                    const RunSweep& run) {
  predict::Inputs inputs = predict::load_inputs(given);
  search::Planner planner(std::move(inputs.program), inputs.machine.costs);
  search::SweepOptions asked = options_of(planner.program());
  if (inputs.recorded) asked.recorded = search::recorded_run(planner.program(), *inputs.recorded);
  asked.capacity = inputs.machine.capacity();
  Sweep sweep = run(planner, asked);
  Exploration found{.given = std::move(given),
                    .summary = std::move(inputs.summary),
                    .capacity = asked.capacity,
                    .planner = std::move(planner),
                    .sweep = std::move(sweep)};
  found.recorded = inputs.recorded;
  if (inputs.bounds) {
    found.answer =
        search::recorded_answer(found.planner, *inputs.bounds, *inputs.recorded, found.sweep);
    if (found.answer && !found.given.what_if.nothing()) found.answer->recorded.reset();
  }
  found.now = search::row_of_now(found.sweep, found.planner.program());
  add_notes(found, inputs.machine);
  if (found.sweep.interrupted) return found;
  find_alike(found, inputs.machine);
  settle(found);
  judge_best(found, inputs.machine);
  return found;
}

}  // namespace dovetail::answers
