// Joins the median steps of a predicted and a measured trace, command by command and rank by rank,
// and cuts both steps into the same activities, whose differences add up to the difference of the
// step times.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/compare.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dovetail::traces {
namespace {

// All that one command did on one rank in one step; it may have several spans.
struct Occurrence {
  Instant start;
  Duration time{};
};
using Occurrences = std::map<CommandId, Occurrence>;

Occurrences occurrences(const Trace& trace, std::int32_t step, Rank rank) {
  Occurrences result;
  for (const Span& span : spans_of(trace, rank)) {
    if (span.step != step) continue;
    const auto [entry, is_new] = result.try_emplace(span.command);
    Occurrence& occurrence = entry->second;
    occurrence.start = is_new ? span.start : std::min(occurrence.start, span.start);
    occurrence.time += span.end - span.start;
  }
  return result;
}

// Waits and enqueues have a span only where they took time, so a missing one means 0 ns; kernels no
// simulation predicts.
bool must_have_counterpart(SpanKind kind) {
  return kind != SpanKind::Wait && kind != SpanKind::Enqueue && kind != SpanKind::Kernel;
}

// A simulation that folds equal ranks traces the first few of each role; those beyond behave like the
// last one traced before them. REQUIRES: rank 0 is traced.
Rank counterpart(const Trace& predicted, Rank measured) {
  Rank like = predicted.ranks.front();
  for (const Rank rank : predicted.ranks) {
    if (rank <= measured) like = std::max(like, rank);
  }
  return like;
}

// Are these the same command of the same plan? Only ops have names that the plan gives; what a wait
// waits for, the two machines may describe differently.
bool is_same(const CommandInfo& a, const CommandInfo& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == SpanKind::Compute) return a.name == b.name;
  return !must_have_counterpart(a.kind) || a.bucket == b.bucket;
}

// Builds one Comparison: first both sides, then what is listed, row by row.
class Joiner {
 public:
  Joiner(const Trace& predicted, const Trace& measured)
      : predicted_(predicted), measured_(measured) {}

  Comparison join() {
    for (const Trace* trace : {&predicted_, &measured_}) {
      DOVETAIL_CHECK(!trace->ranks.empty()) << "a trace without ranks";
    }
    result_.measured = side(measured_, median_step(measured_));
    const Rank rank = result_.measured.report.rank;
    result_.predicted = side(predicted_, step_report(predicted_, median_step_index(predicted_),
                                                     counterpart(predicted_, rank)));
    add_notes();
    for (const Rank each : measured_.ranks) add_unmatched(each);
    add_buckets();
    add_ops(rank);
    return std::move(result_);
  }

 private:
  static Side side(const Trace& trace, StepReport report) {
    return {trace.provenance, trace.steps, spread(step_times(trace)), std::move(report)};
  }

  void note(std::string_view what, const std::string& predicted, const std::string& measured) {
    if (predicted == measured) return;
    result_.notes.push_back(std::string(what) + ": " + predicted + " predicted, " + measured +
                            " measured");
  }

  void add_notes() {
    note("world size", std::to_string(predicted_.world_size), std::to_string(measured_.world_size));
    note("workload", predicted_.provenance.workload, measured_.provenance.workload);
    note("policy", predicted_.provenance.policy, measured_.provenance.policy);
  }

  Occurrences predicted_on(Rank rank) const {
    return occurrences(predicted_, result_.predicted.report.step, counterpart(predicted_, rank));
  }
  Occurrences measured_on(Rank rank) const {
    return occurrences(measured_, result_.measured.report.step, rank);
  }

  // Every rank is searched, not just the compared one: a command that some rank never ran is a hang
  // in the making.
  void add_unmatched(Rank rank) {
    const Occurrences predicted = predicted_on(rank);
    const Occurrences measured = measured_on(rank);
    std::vector<Unmatched> found;
    for (const auto& [id, unused] : predicted) {
      const CommandInfo& info = predicted_.command(id);
      if (!measured.contains(id)) {
        if (must_have_counterpart(info.kind)) {
          found.push_back({id, rank, info.name, Mismatch::OnlyPredicted});
        }
      } else if (!is_same(info, measured_.command(id))) {
        found.push_back({id, rank, info.name, Mismatch::DifferentCommand});
      }
    }
    for (const auto& [id, unused] : measured) {
      const CommandInfo& info = measured_.command(id);
      if (!predicted.contains(id) && must_have_counterpart(info.kind)) {
        found.push_back({id, rank, info.name, Mismatch::OnlyMeasured});
      }
    }
    std::ranges::stable_sort(found, {}, &Unmatched::command);
    result_.unmatched.insert(result_.unmatched.end(), found.begin(), found.end());
  }

  // Both reports list collectives by start; the measured order is kept, as the order of the table.
  void add_buckets() {
    for (const BucketRow& row : result_.measured.report.buckets) {
      const auto& rows = result_.predicted.report.buckets;
      const auto other = std::ranges::find(rows, row.command, &BucketRow::command);
      if (other == rows.end()) continue;
      BucketComparison joined;
      joined.command = row.command;
      joined.bucket = row.bucket;
      joined.name = row.name;
      joined.bytes = row.bytes;
      joined.start = {other->start, row.start};
      joined.end = {other->end, row.end};
      joined.exposed = {other->exposed, row.exposed};
      if (other->transfer_start && row.transfer_start) {
        joined.transfer = Pair{other->end - *other->transfer_start, row.end - *row.transfer_start};
      }
      result_.buckets.push_back(std::move(joined));
    }
  }

  void add_ops(Rank rank) {
    const Occurrences predicted = predicted_on(rank);
    std::vector<std::pair<Instant, OpComparison>> joined;
    for (const auto& [id, occurrence] : measured_on(rank)) {
      const CommandInfo& info = measured_.command(id);
      const auto other = predicted.find(id);
      if (info.kind != SpanKind::Compute && info.kind != SpanKind::Copy) continue;
      if (other == predicted.end()) continue;
      joined.push_back({occurrence.start,
                        {id, info.name, activity_of(info), {other->second.time, occurrence.time}}});
    }
    std::ranges::stable_sort(joined, {}, &std::pair<Instant, OpComparison>::first);
    for (auto& [start, op] : joined) result_.ops.push_back(std::move(op));
  }

  const Trace& predicted_;
  const Trace& measured_;
  Comparison result_;
};

// A pair needs both numbers: a transfer that one side does not know is no transfer of 0.
std::optional<Pair> both(std::optional<Duration> predicted, std::optional<Duration> measured) {
  if (!predicted || !measured) return std::nullopt;
  return Pair{*predicted, *measured};
}

}  // namespace

std::optional<double> Pair::error() const {
  if (measured == Duration{}) return std::nullopt;
  return static_cast<double>(difference().count()) / static_cast<double>(measured.count());
}

Pair Comparison::step_time() const {
  return {predicted.report.step_time, measured.report.step_time};
}
Pair Comparison::activity(Activity activity) const {
  return {predicted.report.breakdown[activity], measured.report.breakdown[activity]};
}
Pair Comparison::communication() const {
  return {predicted.report.communication, measured.report.communication};
}
Pair Comparison::exposed() const { return {predicted.report.exposed, measured.report.exposed}; }
std::optional<Pair> Comparison::transfer() const {
  return both(predicted.report.transfer, measured.report.transfer);
}
std::optional<Pair> Comparison::exposed_transfer() const {
  return both(predicted.report.exposed_transfer, measured.report.exposed_transfer);
}

Comparison compare(const Trace& predicted, const Trace& measured) {
  return Joiner(predicted, measured).join();
}

}  // namespace dovetail::traces
