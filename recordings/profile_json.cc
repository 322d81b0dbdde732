// Writes an imported step as a profile, JSON of schema dovetail.profile/1.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/json.h"
#include "recordings/profile_file.h"

namespace dovetail::imports {
namespace {

using nlohmann::ordered_json;

const char* word_of(schedule::DType dtype) {
  switch (dtype) {
    case schedule::DType::F16:
      return "float16";
    case schedule::DType::BF16:
      return "bfloat16";
    case schedule::DType::F64:
      return "float64";
    default:
      return "float32";
  }
}

void put_work(ordered_json& object, const models::ProfiledWork& work) {
  object["compute_us"] = to_us(work.compute);
  object["issue_us"] = to_us(work.issue);
}

ordered_json work_json(const models::ProfiledWork& work) {
  ordered_json object;
  put_work(object, work);
  return object;
}

ordered_json host_json(const models::ProfiledHost& host) {
  return {{"forward", work_json(host.forward)},
          {"rest", work_json(host.rest)},
          {"optimizer", work_json(host.optimizer)}};
}

ordered_json recorded_json(const models::Profile& profile) {
  const models::RecordedStep& recorded = *profile.recorded;
  ordered_json buckets = ordered_json::array();
  for (const std::vector<std::size_t>& bucket : recorded.buckets) {
    ordered_json names = ordered_json::array();
    for (const std::size_t place : bucket) names.push_back(profile.gradients[place].name);
    buckets.push_back(std::move(names));
  }
  ordered_json object = {{"step_us", to_us(recorded.step)}};
  if (recorded.replayed) object["replayed_us"] = to_us(*recorded.replayed);
  if (!recorded.framework.empty()) object["framework"] = recorded.framework;
  object["mode"] = recorded.is_copied ? "copy" : "view";
  if (recorded.micro_steps > 1) object["micro_steps"] = recorded.micro_steps;
  if (recorded.call_low != profile.bucket_call) {
    object["bucket_call_low_us"] = to_us(recorded.call_low);
  }
  if (recorded.call_high != profile.bucket_call) {
    object["bucket_call_high_us"] = to_us(recorded.call_high);
  }
  object["buckets"] = std::move(buckets);
  return object;
}

}  // namespace

std::string profile_to_json(const models::Profile& profile, const std::string& what) {
  DOVETAIL_CHECK(profile.by_rank.size() == 1) << profile.by_rank.size();
  const models::ProfiledStep& times = profile.by_rank.front();
  ordered_json gradients = ordered_json::array();
  for (const models::ProfiledGradient& gradient : profile.gradients) {
    ordered_json entry = {{"name", gradient.name},
                          {"numel", gradient.numel},
                          {"dtype", word_of(gradient.dtype)},
                          {"ready_us", to_us(gradient.ready.front())}};
    if (gradient.definition) entry["definition"] = *gradient.definition;
    if (gradient.work) put_work(entry, *gradient.work);
    gradients.push_back(std::move(entry));
  }
  ordered_json root = {{"schema", "dovetail.profile/1"},
                       {"kind", "profile"},
                       {"what", what},
                       {"name", profile.name},
                       {"world_size", profile.world_size},
                       {"profile",
                        {{"forward_us", to_us(times.forward)},
                         {"backward_us", to_us(times.backward)},
                         {"optimizer_us", to_us(times.optimizer)},
                         {"gradients", std::move(gradients)}}}};
  if (profile.bucket_call > Duration{}) root["bucket_call_us"] = to_us(profile.bucket_call);
  if (profile.host) root["host"] = host_json(*profile.host);
  if (profile.recorded) root["recorded"] = recorded_json(profile);
  if (profile.collectives) {
    ordered_json points = ordered_json::array();
    for (const models::CollectivePoint& point : profile.collectives->points) {
      points.push_back({{"bytes", point.bytes.count()}, {"us", to_us(point.isolated)}});
    }
    root["all_reduce_alone"] = std::move(points);
    ordered_json estimated = ordered_json::array();
    for (const models::EstimatedTime& estimate : profile.collectives->estimated) {
      estimated.push_back({{"bytes", estimate.bytes.count()},
                           {"us", to_us(estimate.time)},
                           {"low_us", to_us(estimate.low)},
                           {"high_us", to_us(estimate.high)}});
    }
    if (!estimated.empty()) root["all_reduce_estimated"] = std::move(estimated);
  }
  if (profile.copy_ns_per_byte > 0) root["bucket_copy_ns_per_byte"] = profile.copy_ns_per_byte;
  if (!profile.notes.empty()) root["notes"] = profile.notes;
  return root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string profile_to_json(const ImportedStep& step) {
  models::Profile profile = step.profile;
  profile.notes = {step.what};  // it holds what the times leave out
  return profile_to_json(profile, step.what);
}

}  // namespace dovetail::imports
