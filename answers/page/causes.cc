// Finds what each moment of a stall waited for. The stall is cut wherever a collective of the rank
// starts, begins to move bytes or ends; between two cuts the cause cannot change, so it is judged
// once per piece, and the pieces add up to the stall.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/page/causes.h"

#include "base/error.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace dovetail::report {
namespace {

using traces::Span;
using traces::SpanKind;

// The collectives that can concern a stall: those that touch it.
struct Around {
  std::vector<const Span*> own, others;  // of the bucket; on the streams that carry it
  std::set<Instant> cuts;                // inside the stall, with its ends
};

Around collectives_around(const traces::Trace& trace, std::span<const Span> spans,
                          const Stall& stall) {
  std::set<StreamId> carriers;
  std::vector<const Span*> all;
  for (const Span& span : spans) {
    const traces::CommandInfo& info = trace.command(span.command);
    if (info.kind != SpanKind::Collective) continue;
    const bool is_own = span.step == stall.step && info.bucket == stall.wait->bucket;
    if (is_own) carriers.insert(span.stream);
    if (span.end > stall.from && span.start < stall.to) all.push_back(&span);
  }
  Around around;
  around.cuts = {stall.from, stall.to};
  for (const Span* span : all) {
    const bool is_own =
        span->step == stall.step && trace.command(span->command).bucket == stall.wait->bucket;
    if (!is_own && !carriers.contains(span->stream)) continue;
    (is_own ? around.own : around.others).push_back(span);
    for (const Instant at : {span->start, span->transfer_start.value_or(span->start), span->end}) {
      if (at > stall.from && at < stall.to) around.cuts.insert(at);
    }
  }
  return around;
}

bool holds(const Span* span, Instant at) { return span->start <= at && at < span->end; }

StallCause cause_at(const Around& around, Instant at) {
  bool begun = false;
  for (const Span* span : around.own) {
    if (!holds(span, at)) continue;
    if (span->transfer_start.value_or(span->start) <= at) return StallCause::OwnTransfer;
    begun = true;
  }
  if (begun) return StallCause::OtherRank;
  const bool behind =
      std::ranges::any_of(around.others, [at](const Span* span) { return holds(span, at); });
  return behind ? StallCause::Behind : StallCause::NotLaunched;
}

std::string_view phrase(StallCause cause) {
  switch (cause) {
    case StallCause::OwnTransfer:
      return "its own transfer";
    case StallCause::OtherRank:
      return "until the last rank had come";
    case StallCause::Behind:
      return "behind other buckets in the queue";
    case StallCause::NotLaunched:
      return "not launched yet, or already done";
    case StallCause::OtherStage:
      return "for another stage";
  }
  return "";
}

}  // namespace

Duration ByCause::total() const { return std::accumulate(time.begin(), time.end(), Duration{}); }

ByCause& ByCause::operator+=(const ByCause& other) {
  for (std::size_t i = 0; i < time.size(); ++i) time[i] += other.time[i];
  return *this;
}

ByCause causes_of(const traces::Trace& trace, std::span<const Span> spans, const Stall& stall) {
  DOVETAIL_CHECK(stall.wait != nullptr && stall.from <= stall.to) << "a stall without its wait";
  ByCause causes;
  if (!stall.wait->bucket) {
    causes[StallCause::OtherStage] = stall.to - stall.from;
    return causes;
  }
  const Around around = collectives_around(trace, spans, stall);
  for (auto cut = around.cuts.begin(); std::next(cut) != around.cuts.end(); ++cut) {
    causes[cause_at(around, *cut)] += *std::next(cut) - *cut;
  }
  return causes;
}

std::string in_words(const Stall& stall, const ByCause& causes) {
  std::vector<StallCause> order(kStallCauses.begin(), kStallCauses.end());
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](StallCause cause) { return causes[cause]; });
  std::string text;
  for (const StallCause cause : order) {
    if (causes[cause] == Duration{}) continue;
    text += (text.empty() ? "" : ", ") + dovetail::to_string(causes[cause]) + " " +
            std::string(phrase(cause));
  }
  constexpr std::string_view kWait = "wait for ";
  std::string what = stall.wait->name;
  if (stall.wait->bucket) {
    what = "bucket " + std::to_string(stall.wait->bucket->value);
  } else if (what.starts_with(kWait)) {
    what.erase(0, kWait.size());
  }
  return "waits for " + what + (text.empty() ? "" : ": " + text);
}

}  // namespace dovetail::report
