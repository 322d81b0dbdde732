// PyTorch FSDP2: fully_shard over lists of modules, and the order of the gathers.
//
// fully_shard([m1, m2, ...]) makes one group: one reduce-scatter of its gradients, one all-gather of its
// parameters. Groups consist of whole modules. Reduce-scatters are launched as backward leaves a group;
// FSDP2 lets one of them be in flight (its input buffer), unless
// set_reduce_scatter_max_input_buffers allows more (2.14), which the file does; then all are waited for
// at the end of backward. A plan that gathers before each use (ZeRO-3, policy fsdp) keeps its gathers; any
// other becomes reshard_after_forward=False, where parameters are gathered once per step, in the next forward.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/fsdp.h"
#include "base/error.h"
#include "frameworks/list.h"
#include "frameworks/modules.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/policies.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kFsdpApply = R"py(

def joined(names, modules):
    """The module around all of them where it has no other parameters: it is compiled in one, which hooks within it break."""
    from os.path import commonprefix

    path, group = commonprefix([name.split(".") for name in names]), [modules[name] for name in names]
    around = modules.get(".".join(path))
    if len(group) == 1 or not path or around is None:
        return group
    import torch

    if getattr(around.forward, "__func__", None) is torch.nn.Module.forward:
        return group  # a list of modules, which nobody calls
    held = {id(parameter) for module in group for parameter in module.parameters()}
    return [around] if held == {id(parameter) for parameter in around.parameters()} else group


def shard(model, **options):
    """fully_shard(model) with the groups of the plan; options as fully_shard takes them (mesh=, ...)."""
    from torch.distributed.fsdp import fully_shard

    options.setdefault("reshard_after_forward", RESHARD_AFTER_FORWARD)
    modules = {}  # of a pipeline: those of one stage
    for name, module in model.named_modules():
        modules.setdefault(".".join(part for part in name.split(".") if part != "_orig_mod"), module)
    listed, begins = [], {}
    for names in GROUPS:
        names = [name for name in names if name and (STAGES == 1 or name in modules)]
        if names:
            listed.append(joined(names, modules))
            begins[names[0]] = listed[-1][0]
    for i, group in enumerate(listed):
        fully_shard(group, **(dict(options, reshard_after_forward=False) if KEEP_LAST and i == 0 else options))
    fully_shard(model, **options)  # what lies in no module of a list
    forward = [group[0] for group in reversed(listed)]
    for i, here in enumerate(forward):
        following = forward[i + 1 : i + 1 + FORWARD_PREFETCH]
        if following:
            here.set_modules_to_forward_prefetch(following)
        preceding = forward[max(0, i - BACKWARD_PREFETCH) : i]
        if preceding:
            here.set_modules_to_backward_prefetch(preceding[::-1])
    for name in FORWARD_ONLY:
        if name in begins:
            begins[name].set_unshard_in_backward(False)
    if hasattr(model, "set_reduce_scatter_max_input_buffers"):
        model.set_reduce_scatter_max_input_buffers(len(GROUPS))
    return model
)py";

// Where the plan reduces sums of micro-steps, in the last of them.
constexpr std::string_view kReduceInTheLast = R"py(

def micro_step(model, last):
    """To call before the forward of each micro-step: gradients are reduced in the last one only."""
    model.set_requires_gradient_sync(last)
)py";

// Whether the plan gathers parameters before each use, and its blocks are groups of whole modules.
bool gathers_each_use(const schedule::Schedule& schedule, const std::vector<ModuleGroup>& groups) {
  return schedule.parameters == schedule::ParameterSync::EachUse &&
         groups.size() == schedule.buckets.size();
}

// What fully_shard is told about gathers besides the groups.
struct Gathers {
  bool reshard = false;    // after forward
  bool keep_last = false;  // but for the group in which forward ends
  std::int32_t forward_ahead = 1;
  std::int32_t backward_ahead = 1;
  // Of each group that backward does not read the first module.
  std::vector<std::string> forward_only = {};
};

// `groups` are those of the plan's buckets.
Gathers gathers_of(const schedule::Plan& plan, const std::vector<ModuleGroup>& groups) {
  Gathers result;
  result.reshard =
      std::ranges::any_of(plan.schedule.gathers, [](const schedule::ParameterGather& gather) {
        return gather.readers == schedule::GatherFor::Backward;
      });
  const BucketId last = plan.schedule.buckets.front().id;  // of forward: the first of backward
  result.keep_last =
      result.reshard &&
      std::ranges::any_of(plan.schedule.gathers, [last](const schedule::ParameterGather& gather) {
        return gather.bucket == last && gather.readers == schedule::GatherFor::ForwardAndBackward;
      });
  for (std::size_t i = 0; plan.schedule.frozen.empty() && i < groups.size(); ++i) {
    const bool is_read =
        std::ranges::any_of(plan.schedule.gathers, [&](const schedule::ParameterGather& gather) {
          return gather.bucket == plan.schedule.buckets[i].id &&
                 gather.readers != schedule::GatherFor::Forward;
        });
    if (!is_read) result.forward_only.push_back(groups[i].modules.front());
  }
  const schedule::Prefetch ahead = schedule::prefetch_of(plan.program, plan.schedule);
  result.forward_ahead = ahead.forward;
  result.backward_ahead = ahead.backward;
  return result;
}

void fsdp_gather_once(schedule::Schedule& schedule) {
  shard(schedule, schedule::ParameterSync::NextForward);
}

// Stages are models of their own, and replicas of shards a dimension of the mesh; groups besides are experts'.
void require_one_group(const Restriction& left) {
  const schedule::Bucket& first = left.schedule().buckets.front();
  for (const schedule::Bucket& bucket : left.schedule().buckets) {
    if (bucket.group == first.group && bucket.replicas == first.replicas) continue;
    throw CannotRun("the plan reduces over process groups " +
                    left.program().group(first.group).name + " and " +
                    left.program().group(bucket.group).name +
                    ", and what is written for FSDP2 has one mesh: use dovetail_torch.apply, which "
                    "takes several, or dovetail export --job --to torchtitan, where a job was "
                    "planned");
  }
}

void restrict_to_fsdp(Restriction& left) {
  require_one_group(left);
  give_up_the_usual(left, "FSDP2", Reduces::Either);
  const std::vector<ModuleGroup> groups = module_groups(left.program(), left.schedule());
  const bool each_use = gathers_each_use(left.schedule(), groups);
  if (!each_use && left.schedule().parameters == schedule::ParameterSync::EachUse) {
    left.give_up("gathers before each use: the plan's blocks are no groups of whole modules",
                 fsdp_gather_once);
  }
  give_up_parts_of_modules(left, groups, "FSDP2");
  if (!each_use) {
    left.give_up("all-reduce and update of all parameters: FSDP2 shards and gathers",
                 fsdp_gather_once);
  }
  left.give_up(
      "waits at first use: FSDP2 waits at the end of backward",
      [](schedule::Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
}

Export write_fsdp(Restriction& left, const Writing& writing) {
  std::vector<ModuleGroup> groups = module_groups(left.program(), left.schedule());
  const bool each_use = gathers_each_use(left.schedule(), groups);
  Export result = left.result();
  result.notes = {
      "before 2.14 one reduce-scatter is in flight at a time, and compute waits for it: slower "
      "than "
      "predicted",
      "gathers and reduce-scatters share a communicator unless set_separate_reduce_scatter_group "
      "is "
      "called"};
  if (left.schedule().buckets.front().replicas) {
    result.notes.emplace_back("mesh has two dimensions: replicas, then shards");
  }
  const std::int32_t stages = left.program().stages;
  if (stages > 1) {
    result.notes.emplace_back(
        "shard() takes the model of one stage after the other, named as in the whole model");
  }
  const schedule::Merge& merge = left.schedule().merge;
  const bool reduces_in_the_last =
      merge.micro_steps > 1 && merge.sync == schedule::SyncPoint::LastMicroStep && stages == 1;
  if (reduces_in_the_last) {
    result.notes.emplace_back(
        "call micro_step(model, last) before each micro-step: FSDP2 reduces in every one unless "
        "it is told otherwise");
  }
  result.text = head(writing, result);
  const Gathers gathers = each_use ? gathers_of(writing.plan, groups) : Gathers{};
  if (each_use) groups = with_frozen_modules(left.program(), left.schedule(), std::move(groups));
  result.text += "\nSTAGES = " + std::to_string(stages);
  result.text += std::string("\nRESHARD_AFTER_FORWARD = ") + (gathers.reshard ? "True" : "False") +
                 "\nFORWARD_PREFETCH = " + std::to_string(gathers.forward_ahead) +
                 "  # groups ahead\nBACKWARD_PREFETCH = " + std::to_string(gathers.backward_ahead) +
                 "\nKEEP_LAST = " + (gathers.keep_last ? "True" : "False") +
                 "  # the group in which forward ends stays for backward\nFORWARD_ONLY = " +
                 quoted_list(gathers.forward_only) +
                 "  # not gathered for backward, which does not read them\n" +
                 groups_text("GROUPS", groups);
  result.text += kFsdpApply;
  if (reduces_in_the_last) result.text += kReduceInTheLast;
  result.paste = "from FILE import shard; shard(model, mesh=mesh)";
  return result;
}

std::vector<std::int64_t> fsdp_limits(std::optional<std::int64_t> bytes, std::int64_t /*ranks*/) {
  if (!bytes) return {};  // without lists of modules there is one group for each wrapped module
  return {*bytes};
}

Written fsdp_setting(const Chosen& chosen) {
  const std::string size = to_string(chosen.bytes);
  const std::string groups = std::to_string(chosen.buckets);
  Written written;
  written.setting = "fully_shard lists of " + size;
  written.line = "for modules in groups: fully_shard(modules)  # groups: " + groups +
                 ", each of modules with about " + size + " of gradients";
  if (chosen.in_flight == InFlight::Any) {
    const std::string call = "set_reduce_scatter_max_input_buffers(" + groups + ")";
    written.setting += ", " + call;
    written.line = "model." + call + "; " + written.line;
  }
  return written;
}

bool gathers_alone(const schedule::Policy& policy) {
  return policy.decisions.gathers && !policy.decisions.stages;
}

std::optional<Said> say_fsdp(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  if (!gathers_alone(policy)) return std::nullopt;
  return Said{"PyTorch FSDP2 (export --to fsdp)", "", ToldBy::File};
}

std::optional<Said> say_fsdp1(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  const bool is_view = schedule::placement(policy).mode == schedule::BucketMode::View;
  if (!gathers_alone(policy) || !is_view) return std::nullopt;
  return Said{"PyTorch FSDP1, DeepSpeed ZeRO-3",
              "FullyShardedDataParallel(model, auto_wrap_policy=...)"};
}

}  // namespace

std::vector<Framework> fsdp() {
  Framework two{
      .id = "fsdp",
      .name = "FSDP2",
      .presets = {{"fsdp2",
                   "fsdp:blocks=layer,forward=1,backward=1,mode=copy,wait=end-of-backward"}},
      .size = SizeOption{.written_in = 1 << 20,
                         .limits = fsdp_limits,
                         .write = fsdp_setting,
                         .in_flight = {InFlight::One, InFlight::Any}},
      .usual = {"fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=1,backward=1"},
      .more = {"fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=2,backward=2",
               "fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=1,backward=1,reshard=no",
               "fsdp:mode=copy,wait=end-of-backward+exact"},
      .says = say_fsdp,
      .not_replayed =
          {"groups are of whole modules, whose borders the trace does not hold",
           "FSDP2 moves half of an all-reduce's bytes after backward leaves a group (the "
           "reduce-scatter) and the other half before forward (the all-gather), with "
           "reshard_after_forward=True once more before backward: the replay has whole "
           "all-reduces"},
      .curve = "fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=1,backward=1",
      .axis = "groups ahead (set_modules_to_forward_prefetch, set_modules_to_backward_prefetch)",
      .reshards = "reshard_after_forward=True",
      .keeps = "reshard_after_forward=False",
      .title = "PyTorch FSDP2",
      .writes = "module groups and prefetch lists",
      .names_parameters = true,
      .restrict_to = restrict_to_fsdp,
      .write = write_fsdp};
  // Gradients and parameters lie in flat buffers, and it has no lists of modules.
  Framework one{.id = "fsdp1",
                .name = "FSDP1",
                .presets = {{"zero3", "fsdp:blocks=layer,forward=1,backward=1"}},
                .usual = {"fsdp:blocks=layer,forward=1,backward=1"},
                .more = {"fsdp:blocks=layer,forward=2,backward=2",
                         "fsdp:blocks=layer,forward=1,backward=1,reshard=no",
                         "fsdp:forward=1,backward=1+exact"},
                .says = say_fsdp1,
                .curve = "fsdp:blocks=layer,forward=1,backward=1",
                .axis = "blocks ahead (forward_prefetch, backward_prefetch: one)",
                .reshards = "FULL_SHARD",
                .keeps = "SHARD_GRAD_OP"};
  return {one, two};  // the words of a plan in flat buffers are FSDP1's
}

}  // namespace dovetail::frameworks
