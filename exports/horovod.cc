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

#include "exports/python_text.h"
#include "exports/restriction.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

constexpr std::string_view kGroups = R"py(

def optimizer(inner, model, **options):
    """hvd.DistributedOptimizer(inner) with the buckets of the plan. ENVIRONMENT must be set before hvd.init()."""
    import horovod.torch as hvd

    parameters = dict(model.named_parameters())
    return hvd.DistributedOptimizer(
        inner, named_parameters=model.named_parameters(),
        groups=[[parameters[name] for name in names] for names in GROUPS], **options)
)py";

}  // namespace

Export export_horovod(const schedule::Plan& plan, const Machine& machine,
                      const ExportOptions& options) {
  require_no_pipeline(plan, "Horovod");
  require_one_group(plan, "Horovod");
  Restriction left(plan, machine);
  left.give_up("sharded updates: Horovod all-reduces", all_reduce);
  give_up_the_usual(left, "Horovod");
  left.give_up("gradients as views of buckets: Horovod copies", [](schedule::Schedule& schedule) {
    use_mode(schedule, schedule::BucketMode::Copy);
  });
  left.give_up("waits at first use: Horovod waits in step()", [](schedule::Schedule& schedule) {
    wait_at(schedule, schedule::WaitPoint::EndOfBackward);
  });
  Export result = left.result();
  Bytes largest;
  for (const schedule::Bucket& bucket : result.schedule.buckets) {
    largest = std::max(largest, payload(plan.program, bucket));
  }
  result.notes = {
      "a launch waits for the next cycle of the background thread: up to 1 ms a step "
      "(HOROVOD_CYCLE_TIME) "
      "that is not in the prediction",
      "groups drop gradient_predivide_factor, and a parameter without gradient fails"};
  result.text = head(Target::Horovod, result, plan, options);
  result.text +=
      "\nENVIRONMENT = {\n    \"HOROVOD_DISABLE_GROUP_FUSION\": \"1\",\n"
      "    \"HOROVOD_FUSION_THRESHOLD\": \"" +
      std::to_string(largest.count()) + "\",\n    \"HOROVOD_CYCLE_TIME\": \"1\",\n}\nGROUPS = [\n";
  for (const schedule::Bucket& bucket : result.schedule.buckets) {
    result.text += "    " + quoted_list(parameter_names(plan.program, bucket)) + ",  # " +
                   std::to_string(payload(plan.program, bucket).count()) + " bytes\n";
  }
  result.text += "]\n";
  result.text += kGroups;
  result.paste =
      "HOROVOD_DISABLE_GROUP_FUSION=1 HOROVOD_FUSION_THRESHOLD=" + std::to_string(largest.count()) +
      " python ...; from FILE import optimizer; opt = optimizer(opt, model)";
  return result;
}

}  // namespace dovetail::exports
