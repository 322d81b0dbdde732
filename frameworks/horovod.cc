// Horovod: explicit groups of DistributedOptimizer.
//
// Horovod reduces a group once all of its members are ready on all ranks. With
// HOROVOD_DISABLE_GROUP_FUSION=1 ready groups are not fused any further; a group above
// HOROVOD_FUSION_THRESHOLD would be cut, so the threshold is set to the largest bucket. All groups are
// waited for in synchronize(), at the end of backward. A launch waits for the next cycle of the
// background thread: as collectives are first in, first out, delaying every launch by at most one cycle
// delays the last completion by at most one.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "frameworks/list.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/typed.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kHorovodGroups = R"py(

def optimizer(inner, model, **options):
    """hvd.DistributedOptimizer(inner) with the buckets of the plan. ENVIRONMENT must be set before hvd.init()."""
    import horovod.torch as hvd

    parameters = dict(model.named_parameters())
    return hvd.DistributedOptimizer(
        inner, named_parameters=model.named_parameters(),
        groups=[[parameters[name] for name in names] for names in GROUPS], **options)
)py";

void restrict_to_horovod(Restriction& left) {
  require_one_stage_and_group(left, "Horovod");
  keep_parameters_whole(left, "Horovod", schedule::ParameterSync::AfterUpdate);
  left.give_up("sharded updates: Horovod all-reduces", all_reduce);
  give_up_the_usual(left, "Horovod");
  left.give_up("gradients as views of buckets: Horovod copies", [](schedule::Schedule& schedule) {
    use_mode(schedule, schedule::BucketMode::Copy);
  });
  left.give_up("waits at first use: Horovod waits in step()", [](schedule::Schedule& schedule) {
    wait_at(schedule, schedule::WaitPoint::EndOfBackward);
  });
}

Export write_horovod(Restriction& left, const Writing& writing) {
  Export result = left.result();
  Bytes largest;
  for (const schedule::Bucket& bucket : result.schedule.buckets) {
    largest = std::max(largest, payload(left.program(), bucket));
  }
  result.notes = {
      "a launch waits for the next cycle of the background thread: up to 1 ms a step "
      "(HOROVOD_CYCLE_TIME) "
      "that is not in the prediction",
      "groups drop gradient_predivide_factor, and a parameter without gradient fails"};
  result.text = head(writing, result);
  result.text +=
      "\nENVIRONMENT = {\n    \"HOROVOD_DISABLE_GROUP_FUSION\": \"1\",\n"
      "    \"HOROVOD_FUSION_THRESHOLD\": \"" +
      std::to_string(largest.count()) + "\",\n    \"HOROVOD_CYCLE_TIME\": \"1\",\n}\nGROUPS = [\n";
  for (const schedule::Bucket& bucket : result.schedule.buckets) {
    result.text += "    " + quoted_list(parameter_names(left.program(), bucket)) + ",  # " +
                   std::to_string(payload(left.program(), bucket).count()) + " bytes\n";
  }
  result.text += "]\n";
  result.text += kHorovodGroups;
  result.paste =
      "HOROVOD_DISABLE_GROUP_FUSION=1 HOROVOD_FUSION_THRESHOLD=" + std::to_string(largest.count()) +
      " python ...; from FILE import optimizer; opt = optimizer(opt, model)";
  return result;
}

std::vector<std::int64_t> horovod_limits(std::optional<std::int64_t> bytes,
                                         std::int64_t /*ranks*/) {
  return {bytes.value_or(mib(128).count())};
}

Written horovod_setting(const Chosen& chosen) {
  const auto cycle_ms = std::chrono::duration_cast<std::chrono::milliseconds>(chosen.cycle).count();
  const std::string setting =
      "HOROVOD_FUSION_THRESHOLD=" + std::to_string(chosen.number) +
      (cycle_ms == 0 ? "" : " HOROVOD_CYCLE_TIME=" + std::to_string(cycle_ms));
  return {setting, setting};
}

Written horovod_list_setting(std::span<const Bytes> /*sizes*/, const std::string& counts,
                             schedule::BucketMode /*mode*/) {
  return {
      "groups= with HOROVOD_DISABLE_GROUP_FUSION=1",
      "HOROVOD_DISABLE_GROUP_FUSION=1, hvd.DistributedOptimizer(..., groups=groups)  # " + counts};
}

std::string horovod_policy(std::span<const Bytes> limits) {
  return "threshold:cap=" + schedule::typed::exact_size(limits.back()) +
         ",closes=before-exceeding,mode=copy,wait=end-of-backward";
}

std::optional<Said> say_horovod(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  const schedule::BucketPlacement place = schedule::placement(policy);
  const bool is_run = place.wait == schedule::WaitPoint::EndOfBackward && place.batch == 0 &&
                      place.mode == schedule::BucketMode::Copy && groups_freely(policy);
  if (!is_run) return std::nullopt;
  const schedule::ByLimits* fused = limits_of(policy);
  const bool fuses = fused != nullptr && fused->closes == schedule::Closes::BeforeExceeding;
  if (!fuses) return Said{"Horovod: groups= (export --to horovod)", "", ToldBy::List};
  if (fused->cap == mib(128)) return Said{"Horovod's default", "", ToldBy::Default};
  const Written written = horovod_setting({.number = fused->cap.count()});
  return Said{"Horovod: " + written.setting, written.line};
}

}  // namespace

std::vector<Framework> horovod() {
  using std::chrono::milliseconds;
  return {
      {.id = "horovod",
       .name = "Horovod",
       .presets = {{"horovod",
                    "threshold:cap=128MiB,closes=before-exceeding,mode=copy,wait=end-of-backward"}},
       .size = SizeOption{.closes = schedule::Closes::BeforeExceeding,
                          .limits = horovod_limits,
                          .write = horovod_setting,
                          .cycles = {milliseconds(1), milliseconds(2), milliseconds(5),
                                     milliseconds(10), milliseconds(20), milliseconds(50)}},
       .policy = horovod_policy,
       .more = {"exact:mode=copy,wait=end-of-backward"},
       .says = say_horovod,
       .list = horovod_list_setting,
       .not_replayed =
           {"a bucket is launched at the next cycle, up to HOROVOD_CYCLE_TIME ms after its last "
            "gradient, and all are waited for in step()"},
       .curve = "threshold:closes=before-exceeding,wait=end-of-backward,mode=copy",
       .axis = "Horovod: fusion threshold",
       .title = "Horovod",
       .writes = "groups of DistributedOptimizer",
       .names_parameters = true,
       .restrict_to = restrict_to_horovod,
       .write = write_horovod}};
}

}  // namespace dovetail::frameworks
