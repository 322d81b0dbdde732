// Writes a Report as JSON, schema dovetail.report/1 (docs/schemas/report.schema.json), and finds
// the range of a curve in which its points are as good as the best one.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "answers/page/report.h"
#include "answers/page/timeline_json.h"
#include "base/error.h"
#include "base/json.h"

namespace dovetail::report {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::optional<Duration>& time) {
  return time ? ordered_json(to_us(*time)) : ordered_json(nullptr);
}

ordered_json json_of(const Answer& answer) {
  return {{"set", answer.set},
          {"nothing", answer.set.empty() ? ordered_json(answer.nothing) : ordered_json(nullptr)},
          {"gives", answer.gives},
          {"left", answer.left}};
}

ordered_json json_of(const Fact& fact) { return {{"name", fact.name}, {"value", fact.value}}; }

ordered_json json_of(const Assumption& assumption) {
  const auto& error = assumption.error_percent;
  return {{"text", assumption.text},
          {"error_percent", error ? ordered_json(*error) : ordered_json(nullptr)},
          {"error_of", assumption.error_of}};
}

ordered_json json_of(const CurvePoint& point) {
  return {{"threshold_bytes", point.threshold.count()},
          {"buckets", point.buckets},
          {"step_us", to_us(point.step)},
          {"exposed_us", to_us(point.exposed)},
          {"policy", point.policy}};
}

ordered_json json_of(const Curve& curve) {
  const FlatRange flat = flat_range(curve);
  ordered_json points = ordered_json::array();
  for (const CurvePoint& point : curve.points) points.push_back(json_of(point));
  return {{"rule", curve.rule},
          {"label", curve.label},
          {"points", std::move(points)},
          {"flat",
           {{"from_bytes", flat.from.count()},
            {"to_bytes", flat.to.count()},
            {"within_percent", 100 * kFlatShare}}}};
}

ordered_json json_of(const Prefetch& prefetch) {
  ordered_json curves = ordered_json::array();
  for (const PrefetchCurve& curve : prefetch.curves) {
    ordered_json points = ordered_json::array();
    for (const PrefetchPoint& point : curve.points) {
      points.push_back({{"ahead", point.ahead},
                        {"step_us", to_us(point.step)},
                        {"memory_bytes", point.bytes.count()},
                        {"setting", point.setting}});
    }
    curves.push_back({{"label", curve.label}, {"points", std::move(points)}});
  }
  return {{"axis", prefetch.axis},
          {"bytes_are", prefetch.bytes_are},
          {"usual", prefetch.usual.empty() ? ordered_json(nullptr) : ordered_json(prefetch.usual)},
          {"usual_words", prefetch.usual_words},
          {"curves", std::move(curves)}};
}

ordered_json json_of(const Found& found) {
  return {{"policy", found.policy},
          {"buckets", found.buckets},
          {"step_us", to_us(found.step)},
          {"exposed_us", to_us(found.exposed)},
          {"lower_bound_us", or_null(found.lower_bound)},
          {"p10_us", or_null(found.p10)},
          {"p90_us", or_null(found.p90)}};
}

ordered_json json_of(const Sensitivity& row) {
  return {{"cost", row.cost},
          {"factor", row.factor},
          {"plan_us", to_us(row.plan)},
          {"usual_us", or_null(row.usual)},
          {"best_us", to_us(row.best)}};
}

ordered_json json_of(const Paste& paste) {
  return {{"framework", paste.framework}, {"file", paste.file},
          {"text", paste.text},           {"use", paste.use},
          {"step_us", to_us(paste.step)}, {"given_up", paste.given_up}};
}

ordered_json json_of(const Timeline& line) { return timeline_json(line); }

template <class Items>
ordered_json array_of(const Items& items) {
  ordered_json array = ordered_json::array();
  for (const auto& item : items) array.push_back(json_of(item));
  return array;
}

}  // namespace

FlatRange flat_range(const Curve& curve) {
  const auto& points = curve.points;
  DOVETAIL_CHECK(!points.empty()) << curve.rule;
  const auto best = std::ranges::min_element(points, {}, &CurvePoint::step);
  const double limit = static_cast<double>(best->step.count()) * (1 + kFlatShare);
  const auto is_flat = [&](const CurvePoint& point) {
    return static_cast<double>(point.step.count()) <= limit;
  };
  auto first = best;
  while (first != points.begin() && is_flat(*(first - 1))) --first;
  auto last = best;
  while (last + 1 != points.end() && is_flat(*(last + 1))) ++last;
  return {first->threshold, last->threshold};
}

ordered_json to_json(const Report& report) {
  ordered_json results = ordered_json::array();
  for (const std::string& text : report.results) results.push_back(ordered_json::parse(text));
  ordered_json json = {{"schema", "dovetail.report/1"},
                       {"kind", "report"},
                       {"title", report.title},
                       {"command", report.command},
                       {"answer", report.answer ? json_of(*report.answer) : ordered_json(nullptr)},
                       {"facts", array_of(report.facts)},
                       {"assumptions", array_of(report.assumptions)},
                       {"curves", array_of(report.curves)}};
  json["prefetch"] = report.prefetch ? json_of(*report.prefetch) : ordered_json(nullptr);
  json["found"] = report.found ? json_of(*report.found) : ordered_json(nullptr);
  json["remarks"] = report.remarks;
  json["usual"] = report.usual.empty() ? ordered_json(nullptr) : ordered_json(report.usual);
  json["sensitivity"] = array_of(report.sensitivity);
  json["timelines"] = array_of(report.timelines);
  json["results"] = std::move(results);
  json["paste"] = array_of(report.paste);
  json["next"] = report.next;
  return json;
}

}  // namespace dovetail::report
