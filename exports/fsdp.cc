// PyTorch FSDP2: fully_shard over lists of modules, and the order of the gathers.
//
// fully_shard([m1, m2, ...]) makes one group: one reduce-scatter of its gradients, one all-gather of its
// parameters. Groups consist of whole modules. Reduce-scatters are launched as backward leaves a group;
// FSDP2 lets one of them be in flight (its input buffer), unless
// set_reduce_scatter_max_input_buffers allows more (2.14), which the file does; then all are waited for
// at the end of backward. With reshard_after_forward=False parameters are gathered once per step, in the
// next forward.
//
// SPDX-License-Identifier: Apache-2.0
#include "exports/modules.h"
#include "exports/python_text.h"
#include "exports/restriction.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

constexpr std::string_view kApply = R"py(

def shard(model, **options):
    """fully_shard(model) with the groups of the plan; options as fully_shard takes them (mesh=, ...)."""
    from torch.distributed.fsdp import fully_shard

    options.setdefault("reshard_after_forward", RESHARD_AFTER_FORWARD)
    modules = dict(model.named_modules())
    listed = [[modules[name] for name in names if name] for names in GROUPS]
    listed = [group for group in listed if group]
    for group in listed:
        fully_shard(group, **options)
    fully_shard(model, **options)  # what lies in no module of a list
    forward = [group[0] for group in reversed(listed)]
    for here, following in zip(forward, forward[1:]):
        here.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([here])
    if hasattr(model, "set_reduce_scatter_max_input_buffers"):
        model.set_reduce_scatter_max_input_buffers(len(GROUPS))
    return model
)py";

}  // namespace

Export export_fsdp(const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options) {
  require_no_pipeline(plan, "FSDP2");
  require_one_group(plan, "FSDP2");
  Restriction left(plan, machine);
  give_up_the_usual(left, "FSDP2");
  const std::vector<ModuleGroup> groups = module_groups(plan.program, left.schedule());
  left.give_up("groups of single parameters: FSDP2 groups whole modules",
               [&](schedule::Schedule& schedule) { regroup(schedule, gradients_of(groups)); });
  left.give_up("gradients as views of buckets: FSDP2 copies", [](schedule::Schedule& schedule) {
    use_mode(schedule, schedule::BucketMode::Copy);
  });
  left.give_up(
      "all-reduce and update of all parameters: FSDP2 shards and gathers",
      [](schedule::Schedule& schedule) { shard(schedule, schedule::ParameterSync::NextForward); });
  left.give_up(
      "waits at first use: FSDP2 waits at the end of backward",
      [](schedule::Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
  Export result = left.result();
  result.notes = {
      "before 2.14 one reduce-scatter is in flight at a time, and compute waits for it: slower "
      "than "
      "predicted",
      "gathers and reduce-scatters share a communicator unless set_separate_reduce_scatter_group "
      "is "
      "called"};
  result.text = head(Target::Fsdp, result, plan, options);
  result.text += "\nRESHARD_AFTER_FORWARD = False\nGROUPS = [  # in the order of backward\n";
  for (const ModuleGroup& group : groups) {
    result.text += "    " + quoted_list(group.modules) + ",\n";
  }
  result.text += "]\n";
  result.text += kApply;
  result.paste = "from FILE import shard; shard(model, mesh=mesh)";
  return result;
}

}  // namespace dovetail::exports
