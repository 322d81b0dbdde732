// Finds what moved between the median steps of two traces that need not have a command in common:
// spans are summed up by class (the name without its numbers, or the tensors that a collective
// carries), and classes are joined by name.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/difference.h"

#include "traces/intervals.h"
#include "traces/metrics.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace dovetail::traces {
namespace {

// What ran of one class in one step.
struct Ran {
  std::string what;
  SpanKind kind = SpanKind::Compute;
  std::int64_t count = 0;
  Duration time{};
};
using Classes = std::map<std::string, Ran>;  // by what makes them the same on both sides

// The kind of a collective without the bucket that it serves: "all-reduce".
std::string kind_of_collective(const CommandInfo& info) {
  return info.name.substr(0, info.name.find(" bucket"));
}

std::string size_text(Bytes bytes) {
  return bytes.count() == 0 ? std::string() : ", " + dovetail::to_string(bytes);
}

struct Whole {
  Duration compute{}, communication{}, exposed{}, neither{};
};

// The median step of one trace on its slowest rank.
class Step {
 public:
  explicit Step(const Compared& given)
      : trace_(given.trace), compute_(given.compute), report_(median_step(trace_)) {
    read();
  }

  [[nodiscard]] const StepReport& report() const { return report_; }
  [[nodiscard]] const Classes& classes() const { return classes_; }
  [[nodiscard]] const Whole& whole() const { return whole_; }

 private:
  void read() {
    std::vector<Interval> compute;
    std::vector<Interval> communication;
    for (const Span& span : spans_of(trace_, report_.rank)) {
      const CommandInfo& info = trace_.command(span.command);
      const bool hides = compute_ == ComputeWork::AnyStream
                             ? info.kind == SpanKind::Compute
                             : span.stream == kComputeStream && is_compute(info.kind);
      if (hides) put(compute, span);
      if (span.step != report_.step) continue;
      if (info.kind == SpanKind::Collective) put(communication, span);
      if (info.kind == SpanKind::Compute || info.kind == SpanKind::Copy) add_op(info, span);
      if (info.kind == SpanKind::Collective) add_collective(info, span);
    }
    std::vector<Interval> busy = compute;
    busy.insert(busy.end(), communication.begin(), communication.end());
    compute = union_of(std::move(compute));
    communication = union_of(std::move(communication));
    whole_ = {length(compute), length(communication), uncovered(communication, compute),
              report_.step_time - length(union_of(std::move(busy)))};
  }

  // The part of a span within the step.
  void put(std::vector<Interval>& intervals, const Span& span) const {
    const Instant from = std::max(span.start, report_.start);
    const Instant to = std::min(span.end, report_.start + report_.step_time);
    if (from < to) intervals.push_back({from, to});
  }

  void add(const std::string& key, const std::string& what, SpanKind kind, const Span& span) {
    Ran& ran = classes_[key];
    ran.what = what;
    ran.kind = kind;
    ++ran.count;
    ran.time += span.end - span.start;
  }

  void add_op(const CommandInfo& info, const Span& span) {
    if (info.kind == SpanKind::Copy) {
      add("copy", "bucket copies", info.kind, span);
      return;
    }
    const bool has_phase = info.phase != SpanPhase::Communication;
    const std::string phase = has_phase ? std::string(to_string(info.phase)) + " " : std::string();
    const std::string what = phase + op_class(info.name);
    add("op " + what, what, info.kind, span);
  }

  // A span of a collective begins with the wait for its last rank, where that is known: it is left out.
  void add_collective(const CommandInfo& info, Span span) {
    span.start = span.transfer_start.value_or(span.start);
    const std::string kind = kind_of_collective(info);
    if (info.tensors.empty()) {
      const std::string what = kind + size_text(info.bytes);
      const std::int64_t nth = ++count_[what];
      add("collective " + what + "#" + std::to_string(nth),
          nth == 1 ? what : what + " (" + std::to_string(nth) + ")", info.kind, span);
      return;
    }
    std::vector<std::string> names;
    for (const CarriedTensor& tensor : info.tensors) names.push_back(tensor.name);
    std::ranges::sort(names);
    std::string key = "collective " + kind;
    for (const std::string& name : names) key += "\n" + name;
    const std::string of = names.size() == 1 ? names.front()
                                             : std::to_string(names.size()) + " tensors from " +
                                                   info.tensors.front().name + " on";
    add(key, kind + " of " + of + size_text(info.bytes), info.kind, span);
  }

  const Trace& trace_;
  ComputeWork compute_;
  StepReport report_;
  Whole whole_;
  Classes classes_;
  std::map<std::string, std::int64_t> count_;  // of collectives without tensors
};

Moved moved(std::string what, Duration first, Duration second) {
  return {.what = std::move(what),
          .first_count = 1,
          .second_count = 1,
          .first = first,
          .second = second};
}

std::vector<Moved> joined(const Classes& first, const Classes& second) {
  std::map<std::string, Moved> by_key;
  for (const auto& [key, ran] : first) {
    by_key[key] = {.what = ran.what, .kind = ran.kind, .first_count = ran.count, .first = ran.time};
  }
  for (const auto& [key, ran] : second) {
    Moved& both = by_key[key];
    if (both.what.empty()) both.what = ran.what;
    both.kind = ran.kind;
    both.second_count = ran.count;
    both.second = ran.time;
  }
  std::vector<Moved> list;
  for (auto& [key, both] : by_key) list.push_back(std::move(both));
  std::ranges::stable_sort(list, std::greater{},
                           [](const Moved& each) { return std::chrono::abs(each.change()); });
  return list;
}

void note(std::vector<std::string>& notes, std::string_view what, const std::string& first,
          const std::string& second) {
  if (first == second) return;
  notes.push_back(std::string(what) + ": " + first + " first, " + second + " second");
}

Side side(const Trace& trace, const StepReport& report) {
  return {trace.provenance, trace.steps, spread(step_times(trace)), report};
}

}  // namespace

std::string op_class(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, name.find('<'))) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && !text.empty() && text.back() == '*') continue;
    text += is_digit ? '*' : c;
  }
  return text;
}

Difference difference(const Compared& first, const Compared& second) {
  const Step a(first);
  const Step b(second);
  Difference result;
  result.first = side(first.trace, a.report());
  result.second = side(second.trace, b.report());
  const Provenance& from = first.trace.provenance;
  const Provenance& to = second.trace.provenance;
  note(result.notes, "origin", std::string(to_string(from.origin)),
       std::string(to_string(to.origin)));
  note(result.notes, "machine", from.machine, to.machine);
  note(result.notes, "world size", std::to_string(first.trace.world_size),
       std::to_string(second.trace.world_size));
  note(result.notes, "workload", from.workload, to.workload);
  note(result.notes, "policy", from.policy, to.policy);
  result.whole = {moved("step time", a.report().step_time, b.report().step_time),
                  moved("compute", a.whole().compute, b.whole().compute),
                  moved("communication", a.whole().communication, b.whole().communication),
                  moved("exposed communication", a.whole().exposed, b.whole().exposed),
                  moved("neither", a.whole().neither, b.whole().neither)};
  if (first.compute == ComputeWork::FirstStream && second.compute == ComputeWork::FirstStream) {
    for (const Activity activity : kAllOf<Activity>) {
      const Duration before = a.report().breakdown[activity];
      const Duration after = b.report().breakdown[activity];
      if (before == Duration{} && after == Duration{}) continue;
      result.activities.push_back(moved(std::string(to_string(activity)), before, after));
    }
  }
  result.moved = joined(a.classes(), b.classes());
  return result;
}

}  // namespace dovetail::traces
