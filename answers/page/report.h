// A Report: what one command found, with what was asked, assumed and is to be done, ready to be shown.
//
//   Report report;
//   report.title = "resnet50 on a100x8";
//   report.results.push_back(json);              // what the command prints with --json
//   report.timelines.push_back(timeline(...));   // timeline.h
//   write_file("out.html", page(to_json(report)));
//
// The report computes no figure that the command has not computed: results are taken as they are printed,
// and what is added is derived from traces (timeline.h) or handed in (curves, sensitivity).
// Times are simulated unless the entry says "measured".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "answers/page/timeline.h"
#include "base/units.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::report {

// What the command says first, in its own lines.
struct Answer {
  std::vector<std::string> set;  // lines to paste; empty:
  std::string nothing;           // "nothing: it is what PyTorch DDP does by itself"
  std::string gives, left;
};

struct Fact {
  std::string name, value;
};

// Something that the figures rest on. `error_percent`: how far it can be off, where that is known, and
// `error_of` says of what: "the largest residual of the fit".
struct Assumption {
  std::string text;
  std::optional<double> error_percent = std::nullopt;
  std::string error_of = {};
};

// The step time over the bucket size, for one rule.
struct CurvePoint {
  Bytes threshold;
  std::size_t buckets = 0;
  Duration step{};
  Duration exposed{};
  std::string policy;  // as --policy takes it
};
struct Curve {
  std::string rule;                // "torch-ddp"
  std::string label;               // "PyTorch DDP: bucket_cap_mb"
  std::vector<CurvePoint> points;  // sizes rising
};

// Sizes around the best of a curve whose step is at most this much longer; nothing simulated is good enough
// to prefer one of them.
inline constexpr double kFlatShare = 0.01;
struct FlatRange {
  Bytes from, to;
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};
// REQUIRES: the curve has a point.
FlatRange flat_range(const Curve& curve);

// The step over how many blocks ahead parameters are gathered, and the memory that it takes.
struct PrefetchPoint {
  std::int64_t ahead = 0;
  Duration step{};
  Bytes bytes;
  std::string setting;  // as --policy takes it; of a job its change
};
struct PrefetchCurve {
  std::string label;                  // "reshard_after_forward=True"
  std::vector<PrefetchPoint> points;  // further and further ahead
};
struct Prefetch {
  std::string axis;         // what is ahead
  std::string bytes_are;    // "parameters gathered at a time"
  std::string usual;        // setting of what a job without one runs; empty: no point is that
  std::string usual_words;  // "FSDP2's default"
  std::vector<PrefetchCurve> curves;
};

// The plan that the report is about.
struct Found {
  std::string policy;
  std::size_t buckets = 0;
  Duration step{}, exposed{};
  std::optional<Duration> lower_bound = std::nullopt;
  // p10 and p90 of the step, from the spread of what was measured, where any was.
  std::optional<Duration> p10 = std::nullopt, p90 = std::nullopt;
};

// The steps of the plan, and of the usual setting, where one cost is another.
struct Sensitivity {
  std::string cost;   // "link bandwidth"
  double factor = 1;  // of the time that it takes: 1.2 is slower
  Duration plan{};
  std::optional<Duration> usual =
      std::nullopt;  // of the framework's default, where it can be applied
  Duration best{};   // of a plan made anew for these costs
};

// Lines for a framework, as `export` writes them.
struct Paste {
  std::string framework;
  std::string file;  // what to call it
  std::string text;
  std::string use;  // how to use it
  Duration step{};  // as the framework runs it
  std::vector<std::string> given_up;
};

struct Report {
  std::string title;
  std::string command;  // that makes this report again
  std::optional<Answer> answer = std::nullopt;
  std::vector<Fact> facts;
  std::vector<Assumption> assumptions;
  std::vector<Curve> curves;
  std::optional<Prefetch> prefetch = std::nullopt;
  std::optional<Found> found = std::nullopt;
  std::vector<std::string> remarks;  // sentences that a reader of `found` must see
  std::string usual;                 // policy of Sensitivity::usual; empty: nothing is compared
  std::vector<Sensitivity> sensitivity;
  std::vector<Timeline> timelines;
  std::vector<std::string>
      results;  // JSON of explore, compare, run, diagnose, and the stages of a plan
  std::vector<Paste> paste;
  std::vector<std::string> next;  // commands that follow
};

// Schema dovetail.report/1. REQUIRES: each result is JSON.
nlohmann::ordered_json to_json(const Report& report);

}  // namespace dovetail::report
