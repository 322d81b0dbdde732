// Writes a diagnosis as JSON, all of it, also what the text leaves out.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose_json.h"

#include "base/json.h"
#include "recordings/diagnose/words.h"

namespace dovetail::cli {
namespace {

using diagnose::Diagnosis;
using diagnose::RankDiagnosis;
using imports::JobTrace;
using nlohmann::ordered_json;

ordered_json gain_json(const diagnose::Gain& gain) {
  return {{"gain_us", to_us(gain.middle)},
          {"gain_low_us", to_us(gain.low)},
          {"gain_high_us", to_us(gain.high)}};
}

ordered_json cause_json(const diagnose::ByCause& by) {
  using enum diagnose::Cause;
  const auto us = [&by](diagnose::Cause cause) {
    return to_us(by[static_cast<std::size_t>(cause)]);
  };
  return {{"host_us", us(Host)},
          {"straggler_us", us(Straggler)},
          {"bubble_us", us(Bubble)},
          {"launch_order_us", us(LaunchOrder)},
          {"bucket_closed_late_us", us(ClosedLate)},
          {"serialised_us", us(Serialised)},
          {"no_prefetch_us", us(NoPrefetch)},
          {"link_us", us(Link)}};
}

ordered_json step_json(const JobTrace& job, const RankDiagnosis& rank, std::size_t r,
                       std::size_t s) {
  const imports::StepFigures& figures = rank.recorded[s].figures;
  ordered_json collectives = ordered_json::array();
  for (const auto& share : rank.causes[s].collectives) {
    const auto& collective =
        job.ranks[r].line.collectives[static_cast<std::size_t>(share.collective)];
    ordered_json entry = {{"collective", std::string(to_string(collective.kind))},
                          {"place", collective.place}};
    entry["bytes"] = collective.bytes ? ordered_json(collective.bytes->count()) : nullptr;
    entry["bucket"] = share.bucket >= 0 ? ordered_json(share.bucket) : nullptr;
    entry["exposed_us"] = to_us(share.exposed);
    entry["by_cause"] = cause_json(share.by);
    collectives.push_back(std::move(entry));
  }
  ordered_json buckets = ordered_json::array();
  for (const auto& bucket : rank.replay.buckets[s].buckets) {
    buckets.push_back({{"elements", bucket.elements},
                       {"bytes", bucket.bytes.count()},
                       {"parameters", bucket.gradients.size()}});
  }
  return {{"name", job.ranks[r].line.steps[s].name},
          {"step_us", to_us(rank.recorded[s].step)},
          {"cpu_step_us", to_us(figures.cpu_step)},
          {"span_us", to_us(figures.span)},
          {"compute_us", to_us(figures.comp)},
          {"communication_us", to_us(figures.comm)},
          {"overlap_us", to_us(figures.overlap)},
          {"exposed_us", to_us(figures.exposed)},
          {"idle_us", to_us(figures.idle)},
          {"gpu_works", figures.gpu_works},
          {"gpu_waits_for_host_us", to_us(rank.causes[s].gpu_waits_for_host)},
          {"exposed_by_cause", cause_json(rank.causes[s].by)},
          {"buckets", std::move(buckets)},
          {"exposed_collectives", std::move(collectives)}};
}

ordered_json named_json(const std::vector<diagnose::NamedTime>& times) {
  ordered_json array = ordered_json::array();
  for (const diagnose::NamedTime& time : times) {
    array.push_back({{"name", time.name}, {"us", to_us(time.time)}, {"count", time.count}});
  }
  return array;
}

ordered_json host_json(const diagnose::HostTime& host, const diagnose::RecordingCost& recording) {
  ordered_json parts = ordered_json::array();
  for (std::size_t p = 0; p < diagnose::kHostParts; ++p) {
    const diagnose::HostPartTime& part = host.parts[p];
    parts.push_back({{"part", std::string(dovetail::to_string(static_cast<diagnose::HostPart>(p)))},
                     {"us", to_us(part.time)},
                     {"in_calls_us", to_us(part.in_calls)},
                     {"in_operators_us", to_us(part.in_operators)},
                     {"neither_us", to_us(part.python)},
                     {"launches", part.launches}});
  }
  ordered_json pauses = ordered_json::array();
  for (const diagnose::HostPause& pause : host.pauses) {
    pauses.push_back({{"us", to_us(pause.time)},
                      {"part", std::string(dovetail::to_string(pause.part))},
                      {"after", pause.after},
                      {"before", pause.before}});
  }
  return {{"step_us", to_us(host.step)},
          {"parts", std::move(parts)},
          {"operators", named_json(host.operators)},
          {"annotations", named_json(host.annotations)},
          {"pauses", std::move(pauses)},
          {"events", recording.operators + recording.calls},
          {"recording_low_us", to_us(recording.a_step().low)},
          {"recording_high_us", to_us(recording.a_step().high)}};
}

ordered_json rank_json(const JobTrace& job, const Diagnosis& diagnosis, std::size_t r) {
  const RankDiagnosis& rank = diagnosis.ranks[r];
  // Without GPU work that can be read nothing was measured.
  if (job.ranks[r].line.works.empty()) {
    return {{"rank", rank.rank},
            {"file", rank.file},
            {"replay", nullptr},
            {"workload", nullptr},
            {"contention", nullptr},
            {"host", nullptr},
            {"steps", ordered_json::array()},
            {"what_ifs", ordered_json::array()}};
  }
  ordered_json steps = ordered_json::array();
  for (std::size_t s = 0; s < rank.recorded.size(); ++s)
    steps.push_back(step_json(job, rank, r, s));
  ordered_json what_ifs = ordered_json::array();
  for (const diagnose::WhatIf& what_if : rank.forecast.what_ifs) {
    ordered_json entry = {{"change", in_words(what_if.change, diagnosis)}};
    entry.update(gain_json(what_if.gain));
    what_ifs.push_back(std::move(entry));
  }
  ordered_json workload = nullptr;
  if (const auto& check = rank.forecast.check) {
    workload = {{"step_us", to_us(check->predicted)},
                {"recorded_step_us", to_us(check->recorded)},
                {"step_error", check->error()}};
  }
  return {{"rank", rank.rank},
          {"file", rank.file},
          {"replay",
           {{"step_error", rank.replay.error.step},
            {"span_error", rank.replay.error.span},
            {"exposed_error", rank.replay.error.exposed},
            {"kept_delays_us", to_us(rank.replay.recorded.unexplained)}}},
          {"workload", std::move(workload)},
          {"contention",
           {{"kernels_compared", rank.contention.kernels}, {"factor", rank.contention.factor()}}},
          {"host", host_json(rank.host, rank.recording)},
          {"steps", std::move(steps)},
          {"what_ifs", std::move(what_ifs)}};
}

ordered_json buckets_json(const diagnose::BucketAdvice& advice) {
  ordered_json settings = ordered_json::array();
  for (const diagnose::BucketSetting& setting : advice.settings) {
    ordered_json entry = {{"setting", setting.setting},
                          {"buckets", setting.schedule.buckets.size()},
                          {"is_recorded", setting.is_recorded}};
    entry.update(gain_json(setting.gain));
    settings.push_back(std::move(entry));
  }
  ordered_json alike = ordered_json::array();
  for (const std::size_t i : advice.alike) alike.push_back(advice.settings[i].setting);
  ordered_json given_up = ordered_json::array();
  for (const diagnose::GivenUp& given : advice.given_up) {
    given_up.push_back({{"what", given.what}, {"less_us", to_us(given.less)}});
  }
  std::vector<std::string> lines;
  for (diagnose::AdviceLine& line : advice_lines(advice)) lines.push_back(std::move(line.text));
  ordered_json gain = gain_json(advice.answer.gain);
  gain["is_told"] = advice.answer.is_told();
  return {{"now_us", to_us(advice.answer.now)},
          {"recorded_step_us", to_us(advice.step)},
          {"gain", std::move(gain)},
          {"settings", std::move(settings)},
          {"best", advice.settings[advice.best].setting},
          {"alike", std::move(alike)},
          {"framework", std::string(advice.framework->id)},
          {"given_up", std::move(given_up)},
          {"not_replayed", advice.framework->not_replayed},
          {"advice", std::move(lines)}};
}

ordered_json pipeline_json(const diagnose::Stages& stages) {
  const auto us = [](const std::optional<Duration>& time) {
    return time ? ordered_json(to_us(*time)) : ordered_json(nullptr);
  };
  return {{"stages", stages.pipeline.stages},
          {"micro_batches", stages.pipeline.micro_batches},
          {"chunks", stages.pipeline.chunks},
          {"forward_us", to_us(stages.forward)},
          {"backward_us", to_us(stages.backward)},
          {"bubble_us", to_us(stages.bubble)},
          {"bubble_of_schedule_us", us(stages.of_schedule)},
          {"less_with_twice_the_micro_batches_us", us(stages.twice_the_micro_batches)},
          {"less_with_twice_the_chunks_us", us(stages.twice_the_chunks)},
          {"less_with_zero_bubble_us", us(stages.zero_bubble)}};
}

ordered_json uneven_json(const diagnose::Uneven& uneven) {
  ordered_json ranks = ordered_json::array();
  for (const diagnose::UnevenRank& rank : uneven.ranks) {
    ranks.push_back(
        {{"rank", rank.rank}, {"compute_us", to_us(rank.compute)}, {"times_the_mean", rank.times}});
  }
  return {{"of_experts", uneven.of_experts},
          {"less_us", to_us(uneven.gain)},
          {"ranks", std::move(ranks)}};
}

ordered_json sharding_json(const Diagnosis& diagnosis) {
  const imports::Sharding& sharding = *diagnosis.ranks.front().sharding;
  const auto size = [](Bytes bytes) {
    return bytes > Bytes(0) ? ordered_json(bytes.count()) : ordered_json(nullptr);
  };
  const auto number = [](std::optional<std::int64_t> value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
  };
  ordered_json groups = ordered_json::array();
  for (const imports::ShardedGroup& group : sharding.groups) {
    groups.push_back({{"name", group.name},
                      {"elements", group.elements > 0 ? ordered_json(group.elements) : nullptr},
                      {"gathered_bytes", size(group.gathered)},
                      {"gathered_as", group.gathered_as},
                      {"reduced_bytes", size(group.reduced)},
                      {"reduced_as", group.reduced_as},
                      {"gathers_in_forward", group.forward},
                      {"gathers_in_backward", group.backward},
                      {"reductions", group.reductions},
                      {"all_reduces", group.all_reduces}});
  }
  ordered_json advice = nullptr;
  if (const auto found = sharding_advice(diagnosis)) {
    advice = {{"change", std::string(to_string(found->change))}, {"line", found->line}};
    advice.update(gain_json(found->gain));
    advice["is_told"] = found->is_told();
  }
  return {{"shards", sharding.shards > 0 ? ordered_json(sharding.shards) : nullptr},
          {"replicas", sharding.replicas > 0 ? ordered_json(sharding.replicas) : nullptr},
          {"gathers_again_for_backward", sharding.gathers_again()},
          {"freed_between_bytes", sharding.kept_without().count()},
          {"groups_ahead_in_forward", number(sharding.forward_ahead)},
          {"groups_ahead_in_backward", number(sharding.backward_ahead)},
          {"groups", std::move(groups)},
          {"advice", std::move(advice)}};
}

ordered_json bus_json(const std::vector<BusRow>& rows) {
  ordered_json array = ordered_json::array();
  for (const BusRow& row : rows) {
    array.push_back(
        {{"collective", row.collective},
         {"bytes", row.bytes.count()},
         {"ranks", row.ranks},
         {"own_us", to_us(row.own)},
         {"bus_gb_per_s", row.gb_s},
         {"machine", row.machine.empty() ? ordered_json(nullptr) : ordered_json(row.machine)},
         {"machine_bus_gb_per_s", row.other ? ordered_json(*row.other) : nullptr}});
  }
  return array;
}

}  // namespace

std::optional<Answer> answer_of_diagnosis(const Diagnosis& diagnosis) {
  if (diagnosis.findings.front().kind == diagnose::FindingKind::NoGpuWork) return std::nullopt;
  const diagnose::Brief brief = diagnose::brief(diagnosis);
  Answer answer{
      .set = {}, .why_nothing = brief.why_nothing, .gives = brief.gives, .left = brief.left};
  if (!brief.set.empty()) answer.set = {brief.set};
  return answer;
}

Table finding_table(const Diagnosis& diagnosis) {
  using diagnose::Finding;
  return table_of<Finding>(
      {{{"kind", "finding"}, [](const Finding& one) { return to_string(one.kind); }},
       {{"amount_us", "ms", Unit::Milliseconds, {3}}, &Finding::amount},
       {{"of_us", "of ms", Unit::Milliseconds, {3}}, &Finding::whole},
       {{"share", "share", Unit::Share, {1}}, &Finding::share},
       {{"replay_error", "replay error", Unit::Share, {1, Sign::Always}}, &Finding::error}},
      diagnosis.findings);
}

std::string diagnosis_json(const JobTrace& job, const Diagnosis& diagnosis,
                           const std::vector<BusRow>& bus) {
  ordered_json ranks = ordered_json::array();
  for (std::size_t r = 0; r < diagnosis.ranks.size(); ++r) {
    ranks.push_back(rank_json(job, diagnosis, r));
  }
  ordered_json late = ordered_json::array();
  for (const diagnose::LateRank& entry : diagnosis.late) {
    late.push_back({{"rank", entry.rank},
                    {"collectives", entry.collectives},
                    {"waiting_of_others_us", to_us(entry.caused)},
                    {"mostly_in", entry.mostly_in},
                    {"mostly_with", entry.mostly_with}});
  }
  ordered_json json = {
      {"schema", "dovetail.diagnosis/1"},
      {"kind", "diagnosis"},
      {"world_size", job.world_size() ? ordered_json(*job.world_size()) : nullptr},
      {"unprofiled_step_us",
       diagnosis.unprofiled_step ? ordered_json(to_us(*diagnosis.unprofiled_step)) : nullptr},
      {"headline", headline(diagnosis)},
      {"sentences", sentences(diagnosis)},
      {"findings", rows_json(finding_table(diagnosis))},
      {"collective_time_us", to_us(job.collective_time)},
      {"waiting_time_us", to_us(job.waiting_time)},
      {"late", std::move(late)},
      {"ranks", std::move(ranks)}};
  const std::optional<Answer> answer = answer_of_diagnosis(diagnosis);
  json["answer"] = answer ? answer_json(*answer) : ordered_json(nullptr);
  if (answer) json["answer"]["gives"] = answer->gives;
  json["collectives"] = bus_json(bus);
  const bool is_of_fsdp2 = !diagnosis.ranks.empty() && diagnosis.ranks.front().sharding.has_value();
  json["fsdp"] = is_of_fsdp2 ? sharding_json(diagnosis) : ordered_json(nullptr);
  json["buckets"] = diagnosis.buckets ? buckets_json(*diagnosis.buckets) : nullptr;
  json["pipeline"] = diagnosis.stages ? pipeline_json(*diagnosis.stages) : nullptr;
  json["uneven"] = diagnosis.uneven ? uneven_json(*diagnosis.uneven) : nullptr;
  json["how_read"] = diagnosis.notes;
  json["not_known"] = diagnosis.unknowns;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dovetail::cli
