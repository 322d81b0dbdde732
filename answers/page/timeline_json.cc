// Writes a Timeline as JSON. Keys that say nothing of a span are left out, since there are
// thousands of spans.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/page/timeline_json.h"

#include "base/json.h"

namespace dovetail::report {
namespace {

using nlohmann::ordered_json;

ordered_json time_or_null(const std::optional<Duration>& time) {
  return time ? ordered_json(to_us(*time)) : ordered_json(nullptr);
}

ordered_json json_of(const TimelineSpan& span) {
  ordered_json json = {{"row", span.row},
                       {"what", span.what},
                       {"name", span.name},
                       {"start_us", to_us(span.start)},
                       {"end_us", to_us(span.end)}};
  if (span.transfer_start) json["transfer_start_us"] = to_us(*span.transfer_start);
  if (span.bucket) json["bucket"] = span.bucket->value;
  if (span.bytes.count() != 0) json["size_bytes"] = span.bytes.count();
  if (!span.why.empty()) json["why"] = span.why;
  return json;
}

ordered_json json_of(const TimelineBucket& bucket) {
  ordered_json gradients = ordered_json::array();
  for (const TimelineGradient& gradient : bucket.gradients) {
    gradients.push_back({{"name", gradient.name},
                         {"size_bytes", gradient.bytes.count()},
                         {"ready_us", time_or_null(gradient.ready)}});
  }
  return {{"id", bucket.id.value},
          {"size_bytes", bucket.bytes.count()},
          {"gradients", std::move(gradients)}};
}

ordered_json json_of(const TimelineRow& row) {
  return {{"rank", row.rank.value}, {"stream", row.stream.value}, {"name", row.name}};
}

ordered_json json_of(const TimelineArrow& arrow) {
  return {{"from_row", arrow.from_row},
          {"to_row", arrow.to_row},
          {"name", arrow.name},
          {"size_bytes", arrow.bytes.count()},
          {"start_us", to_us(arrow.start)},
          {"end_us", to_us(arrow.end)}};
}

ordered_json json_of(const TimelinePath& part) {
  return {{"row", part.row ? ordered_json(*part.row) : ordered_json(nullptr)},
          {"kind", part.kind},
          {"what", part.what},
          {"start_us", to_us(part.start)},
          {"end_us", to_us(part.end)}};
}

// Levels are rows of numbers: there are hundreds of them.
ordered_json memory_json(const traces::RankMemory& held, Instant start) {
  ordered_json levels = ordered_json::array();
  for (const traces::MemoryLevels& level : held.levels) {
    levels.push_back({to_us(level.at - start), level.activations.count(), level.gradients.count(),
                      level.gathered.count()});
  }
  return {
      {"rank", held.rank.value}, {"rest_bytes", held.rest.count()}, {"levels", std::move(levels)}};
}

template <class Items>
ordered_json list_json(const Items& items) {
  ordered_json array = ordered_json::array();
  for (const auto& item : items) array.push_back(json_of(item));
  return array;
}

ordered_json breakdown_json(const Timeline& line) {
  ordered_json json = ordered_json::object();
  for (const traces::Activity activity : kAllOf<traces::Activity>) {
    json[std::string(traces::to_string(activity))] = to_us(line.report.breakdown[activity]);
  }
  return json;
}

ordered_json stalls_json(const Timeline& line) {
  ordered_json json = ordered_json::object();
  for (const StallCause cause : kStallCauses) {
    json[std::string(to_string(cause))] = to_us(line.stalls[cause]);
  }
  return json;
}

}  // namespace

ordered_json timeline_json(const Timeline& line) {
  const traces::Provenance& from = line.provenance;
  ordered_json memory = ordered_json::array();
  for (const traces::RankMemory& held : line.memory) {
    memory.push_back(memory_json(held, line.report.start));
  }
  return {{"title", line.title},
          {"origin", std::string(traces::to_string(from.origin))},
          {"machine", from.machine},
          {"policy", from.policy},
          {"workload", from.workload},
          {"backend", from.backend},
          {"notes", ordered_json(from.notes)},
          {"world_size", line.world_size},
          {"steps", line.steps},
          {"step", line.step},
          {"rank", line.report.rank.value},
          {"step_us", to_us(line.report.step_time)},
          {"p10_us", to_us(line.spread.p10)},
          {"p90_us", to_us(line.spread.p90)},
          {"communication_us", to_us(line.report.communication)},
          {"exposed_us", to_us(line.report.exposed)},
          {"transfer_us", time_or_null(line.report.transfer)},
          {"breakdown_us", line.has_breakdown ? breakdown_json(line) : ordered_json(nullptr)},
          {"stalls_us", line.has_breakdown ? stalls_json(line) : ordered_json(nullptr)},
          {"bubble_us", time_or_null(line.bubble)},
          {"ranks_left_out", line.ranks_left_out},
          {"rows", list_json(line.rows)},
          {"buckets", list_json(line.buckets)},
          {"arrows", list_json(line.arrows)},
          {"memory", std::move(memory)},
          {"capacity_bytes",
           line.capacity ? ordered_json(line.capacity->count()) : ordered_json(nullptr)},
          {"critical_path", list_json(line.path)},
          {"spans", list_json(line.spans)}};
}

}  // namespace dovetail::report
