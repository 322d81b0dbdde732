"""Applies a plan to a model: through DDP's own list where that is exact, else by other means.

  list        DistributedDataParallel(bucket_cap_mb_list=...), 2.11 and later: buckets that are consecutive in
              gradient-ready order, of whole gradients of one dtype
  assignment  DistributedDataParallel whose buckets are given at construction, every version: any groups of whole
              gradients of one dtype each. DDP asks torch.distributed for its groups when it is built and again after
              the first step; the first question is answered with the plan's, the second is not asked
  hooks       no DDP (hooks.py): waits at first use, reduce-scatter, several process groups or streams, split
              gradients, launch points, thread blocks per bucket

All three give the same sums, so the same weights. Which one is taken is said on standard error by rank 0, and
whether it did what the plan says is checked at the third forward, with static_graph the fourth, when DDP has rebuilt its buckets: against DDP's own log,
or the hooks' record of what was sent. A mismatch raises PlanMismatch on every rank.

SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import inspect
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dovetail_torch.hooks import PlannedModel
from dovetail_torch.plan import PlanError, PlanMismatch, has_places_only, own_name, read_plan, with_names

FORMS = ("list", "assignment", "hooks")
RESET_EVERY = 1000  # steps: see _KeepBuckets


def say_on_rank_0(text):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"dovetail_torch: {text}", file=sys.stderr, flush=True)


def has_list():
    """Whether this PyTorch has bucket_cap_mb_list."""
    return "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel.__init__).parameters


def needs_hooks(plan):
    """What of the plan DDP cannot do, one reason each."""
    reasons = []
    seen = {field: {getattr(bucket, field) for bucket in plan.buckets}
            for field in ("collective", "group", "stream", "launch", "wait")}
    if seen["collective"] != {"all-reduce"}:
        reasons.append("it reduce-scatters")
    if len(seen["group"]) > 1:
        reasons.append(f"it has {len(seen['group'])} process groups")
    if len(seen["stream"]) > 1 or "inline" in seen["stream"]:
        reasons.append("its collectives run on several streams" if len(seen["stream"]) > 1 else "it overlaps nothing")
    if seen["launch"] != {"when-ready"}:
        reasons.append("it launches buckets later than when they are ready")
    if seen["wait"] != {"end-of-backward"}:
        reasons.append("it waits at first use" if "first-use" in seen["wait"] else
                       "it waits at launch" if "at-launch" in seen["wait"] else "it waits between batches")
    if not all(plan.is_whole(bucket) for bucket in plan.buckets):
        reasons.append("it cuts gradients over buckets")
    if any(bucket.max_ctas for bucket in plan.buckets):
        reasons.append("it limits thread blocks per bucket")
    return reasons


def not_a_list(plan):
    """Why the list form cannot say the buckets; "" if it can."""
    if len(set(plan.dtype.values())) > 1:
        return "its gradients have several dtypes, and DDP goes through the list for each of them"
    place = {name: index for index, name in enumerate(plan.ready_order)}
    start = 0
    for bucket in plan.buckets:
        if sorted(place[name] for name in bucket.names) != list(range(start, start + len(bucket.parts))):
            return "its buckets are not consecutive in gradient-ready order"
        start += len(bucket.parts)
    return ""


def choose_form(plan):
    """The first form that does all of the plan, and why."""
    reasons = needs_hooks(plan)
    if reasons:
        return "hooks", "DDP cannot do this plan: " + ", ".join(reasons)
    reason = not_a_list(plan)
    if reason:
        return "assignment", "bucket_cap_mb_list cannot say this plan: " + reason
    if not has_list():
        return "assignment", f"PyTorch {torch.__version__} has no bucket_cap_mb_list"
    return "list", "bucket_cap_mb_list says this plan byte for byte"


def owned_parameters(model):
    """{name: parameter} that DDP reduces, in its order."""
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    return {own_name(name): parameter for name, parameter in model.named_parameters()
            if parameter.requires_grad and name not in ignored}


def require_fit(plan, parameters):
    """Raises PlanError unless the plan is about exactly these parameters."""
    missing = [name for name in parameters if name not in plan.numel]
    extra = [name for name in plan.numel if name not in parameters]
    if missing or extra:
        shorten = lambda names: ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise PlanError(f"{plan.source} is about another model: " + "; ".join(
            ([f"it lacks {shorten(missing)}"] if missing else []) +
            ([f"the model lacks {shorten(extra)}"] if extra else [])))
    for name, parameter in parameters.items():
        dtype = str(parameter.dtype).replace("torch.", "")
        if parameter.numel() != plan.numel[name] or dtype != plan.dtype[name]:
            raise PlanError(f"{plan.source}: {name} has {plan.numel[name]} elements of {plan.dtype[name]}, in the "
                            f"model {parameter.numel()} of {dtype}")
    planned = sorted((part.parameter, part.first, part.count) for bucket in plan.buckets for part in bucket.parts)
    ends = {}
    for name, first, count in planned:
        if first != ends.get(name, 0):
            raise PlanError(f"{plan.source}: element {min(first, ends.get(name, 0))} of {name} lies in no bucket or "
                            "in two")
        ends[name] = first + count
    for name in parameters:
        if ends.get(name, 0) != plan.numel[name]:
            raise PlanError(f"{plan.source}: element {ends.get(name, 0)} of {name} lies in no bucket")


def require_same_plan(plan, group):
    """Raises PlanError on every rank unless all ranks have the same plan: else their collectives would not match."""
    text = repr((plan.buckets, plan.numel, plan.dtype, plan.micro_steps, plan.sync, plan.gather))
    mine = hashlib.sha256(text.encode()).hexdigest()
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    if len(set(everyone)) > 1:
        raise PlanError(f"{plan.source}: the ranks have different plans "
                        f"(ranks {[r for r, one in enumerate(everyone) if one != everyone[0]]} differ from rank 0)")


def apply(model, plan, *, optimizer=None, form=None, process_groups=None, check_steps=True, say=say_on_rank_0,
          **options):
    """The model wrapped so that it reduces gradients as the plan says. Collective: call it on every rank.

    plan            path of a plan file, or what read_plan gives. One that was made of a profiler's trace has no names:
                    it is mapped to the parameters by order and size, and that is said
    optimizer       needed where the plan waits at first use or shards updates: its step then goes bucket by bucket
    form            "list", "assignment" or "hooks" instead of the first that does all of the plan. What a form cannot
                    do is said, and left out
    process_groups  {name in the plan: group of torch.distributed}; one group: the default group
    check_steps     compare what a step did with the plan, at the third forward (with static_graph the fourth)
    options         further options of DistributedDataParallel (of the form hooks: broadcast_buffers and
                    forward_sync_buffers only)

    Raises PlanError where the plan does not fit, PlanMismatch where it was not followed.
    """
    plan = read_plan(plan)
    if form is not None and form not in FORMS:
        raise PlanError(f"form {form!r}: expected one of {', '.join(FORMS)}")
    parameters = owned_parameters(model)
    if has_places_only(plan):
        plan, how = with_names(plan, [(name, parameter.numel(), str(parameter.dtype).replace("torch.", ""))
                                      for name, parameter in parameters.items()])
        say(how)
    require_fit(plan, parameters)
    groups = dict(process_groups or {})
    for name in {bucket.group for bucket in plan.buckets}:
        if name not in groups and len(plan.groups.get(name, [])) != dist.get_world_size():
            raise PlanError(f"process group {name} of the plan has ranks {plan.groups.get(name)}: give "
                            "process_groups={name: group}")
        groups.setdefault(name, None)  # the default group
    only = groups[plan.buckets[0].group]
    require_same_plan(plan, None)
    planned = len(plan.groups.get(plan.buckets[0].group, ()))
    if planned and planned != dist.get_world_size(only):
        raise PlanError(f"{plan.source} is for {planned} ranks; here are {dist.get_world_size(only)}")
    natural, why = choose_form(plan)
    chosen = form or natural
    say(f"{plan.policy}: form {chosen}" + (f": {why}" if chosen == natural else f", as asked (else {natural}: {why})"))
    if type(model).__name__ == "OptimizedModule" or getattr(model, "_compiled_call_impl", None) is not None:
        _judge_compiled(plan, chosen, say)
    if chosen == "hooks":
        return PlannedModel(model, plan, parameters, groups, optimizer=optimizer, check_steps=check_steps, say=say,
                            **options)
    if natural == "hooks":
        if not all(plan.is_whole(bucket) for bucket in plan.buckets) or len(groups) > 1:
            raise PlanError(f"form {chosen}: DDP cannot do this plan at all: {', '.join(needs_hooks(plan))}")
        say(f"left out, since DDP cannot do it: {', '.join(needs_hooks(plan))}")
    return _ddp(model, plan, chosen, only, parameters, check_steps, say, options)


def _ddp(model, plan, form, group, parameters, check_steps, say, options):
    if options.get("find_unused_parameters") and not options.get("static_graph"):
        raise PlanError("find_unused_parameters: DDP keeps its first buckets then; use static_graph=True with it")
    modes = {bucket.mode for bucket in plan.buckets}
    options.setdefault("gradient_as_bucket_view", modes == {"view"})
    if group is not None:
        options.setdefault("process_group", group)
    build = _with_list if form == "list" else _with_assignment
    ddp = build(model, plan, parameters, options, say)
    ddp._dovetail = _Applied(plan, form, list(parameters), say, check_steps)
    if form == "assignment" and hasattr(ddp.reducer, "_reset_state"):
        ddp.register_forward_pre_hook(_forget_before_forward)
    if check_steps or form == "assignment":
        ddp.register_forward_hook(_check_after_forward)  # DDP writes its log within forward
    return ddp


def _judge_compiled(plan, form, say):
    """What torch.compile of the whole model does to DDP's overlap; compiled blocks (block.compile()) are no such case."""
    import torch._dynamo.config as dynamo
    advice = "; to overlap as planned compile its blocks instead (block.compile()) with torch._dynamo.config.optimize_ddp = False"
    if form == "hooks" or dynamo.optimize_ddp in (False, "no_optimization"):
        say("compiled as a whole and not cut, its gradients are all ready when backward ends: nothing overlaps" + advice)
        return
    if dynamo.optimize_ddp not in (True, "ddp_optimizer"):
        raise PlanError(f"torch._dynamo.config.optimize_ddp = {dynamo.optimize_ddp!r} goes without DDP's buckets" + advice)
    cap = max(bucket.bytes for bucket in plan.buckets) if form == "list" else 25 * 2**20
    if cap < 2**20:
        raise PlanError("torch.compile refuses a DDP whose caps are all below 1 MiB" + advice)
    say(f"torch.compile cuts backward at 1 MiB and then at every {cap / 2**20:g} MiB of gradients, whatever the plan's buckets "
        "are, and a bucket waits for the cut behind it" + advice)


def _with_list(model, plan, parameters, options, say):
    if not has_list():
        raise PlanError(f"PyTorch {torch.__version__} has no bucket_cap_mb_list: form assignment does the same")
    reason = not_a_list(plan)
    if reason:
        raise PlanError(f"bucket_cap_mb_list cannot say this plan: {reason}")
    if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":
        raise PlanError("DDP_SET_LAST_BUCKET_CAP=1 makes DDP read bucket_cap_mb_list from its end: unset it")
    return DistributedDataParallel(model, bucket_cap_mb_list=[bucket.bytes / 2**20 for bucket in plan.buckets], **options)


def _with_assignment(model, plan, parameters, options, say):
    index = {name: place for place, name in enumerate(parameters)}
    assignment = [[index[name] for name in bucket.names] for bucket in plan.buckets]
    if "bucket_cap_mb_list" in options or "bucket_cap_mb" in options:
        raise PlanError("bucket_cap_mb and a plan exclude each other")
    asked = []

    def answer(tensors, *_arguments, **_options):
        asked.append(len(tensors))
        # DDP turns the list round: it expects it in the order of definition.
        return list(reversed(assignment)), [0] * len(assignment)

    theirs = dist._compute_bucket_assignment_by_size
    dist._compute_bucket_assignment_by_size = answer
    try:
        ddp = DistributedDataParallel(model, **options)
    finally:
        dist._compute_bucket_assignment_by_size = theirs
    if asked != [len(parameters)]:
        raise PlanError(f"PyTorch {torch.__version__} builds DDP's buckets in another way than is known here")
    ddp.reducer = _KeepBuckets(ddp.reducer)
    if not hasattr(ddp.reducer, "_reset_state"):
        say("PyTorch 1.13 remembers 16 to 37 bytes per parameter and step in this form, for want of a way to forget")
    for name in ("register_comm_hook", "_register_builtin_comm_hook"):
        setattr(ddp, name, _with_real_reducer(ddp, getattr(ddp, name)))
    return ddp


class _KeepBuckets:
    """DDP's reducer, which is never asked to rebuild its buckets after the first step.

    It goes on noting ready gradients for the rebuild that does not come; _reset_state (2.x) forgets them.
    """

    def __init__(self, reducer):
        self.__dict__["_reducer"] = reducer

    def __getattr__(self, name):
        return getattr(self.__dict__["_reducer"], name)

    def _rebuild_buckets(self):
        return False


def _with_real_reducer(ddp, method):
    """Hooks are registered by C++ functions that take a reducer and no proxy."""

    def call(*arguments, **options):
        proxy = ddp.reducer
        ddp.reducer = proxy._reducer
        try:
            return method(*arguments, **options)
        finally:
            ddp.reducer = proxy

    return call


class _Applied:
    """What is remembered of a plan that DDP runs."""

    def __init__(self, plan, form, names, say, check_steps):
        self.plan, self.form, self.names, self.say = plan, form, names, say
        self.forwards = 0
        self.checked = not check_steps


def _check_after_forward(ddp, _inputs, _output):
    applied = ddp._dovetail
    if not (torch.is_grad_enabled() and ddp.training and ddp.require_backward_grad_sync):
        return
    applied.forwards += 1
    rebuilt = 4 if ddp.static_graph else 3  # from this forward on DDP logs the buckets that it rebuilt
    if applied.forwards == rebuilt and not applied.checked:
        check(ddp)


def _forget_before_forward(ddp, _inputs):
    """No backward is under way here, unless gradients are being summed up."""
    applied = ddp._dovetail
    if applied.forwards > 0 and applied.forwards % RESET_EVERY == 0 and ddp.require_backward_grad_sync:
        ddp.reducer._reset_state()


def logged_buckets(ddp):
    """What DDP itself says: bytes per bucket, parameter indices per bucket (None where it does not tell), and the
    indices of the last step's gradients in the order in which they became ready."""
    said = ddp._get_ddp_logging_data()
    rebuilt = ddp._dovetail.form != "assignment"
    numbers = lambda key: [int(word) for word in str(said.get(key, "")).replace(",", " ").split()]
    sizes = numbers("rebuilt_bucket_sizes" if rebuilt else "bucket_sizes")
    listed = str(said.get("rebuilt_per_bucket_param_indices" if rebuilt else "initial_per_bucket_param_indices", ""))
    members = [[int(word) for word in part.split()] for part in listed.split(",") if part.strip()] or None
    stats = ddp.reducer.get_backward_stats()
    order = sorted(range(len(stats)), key=lambda index: stats[index])
    return sizes, members, order


def check(model):
    """Compares the last step with the plan: sizes, order and names of the buckets. Raises PlanMismatch on every rank
    where any rank saw another step; returns what was found, in a line."""
    if isinstance(model, PlannedModel):
        return model.check()
    applied = model._dovetail
    plan = applied.plan
    sizes, members, order = logged_buckets(model)
    problems = []
    if not sizes:
        problems.append("DDP's log has no rebuilt buckets yet: it has them after the third step (with static_graph the "
                        "fourth)")
    elif sizes != [bucket.bytes for bucket in plan.buckets]:
        problems.append(f"DDP's buckets hold {sizes} bytes, the plan's {[bucket.bytes for bucket in plan.buckets]}")
    if members is not None:
        for number, (found, bucket) in enumerate(zip(members, plan.buckets)):
            if {applied.names[index] for index in found} != set(bucket.names):
                problems.append(f"DDP's bucket {number} holds {[applied.names[index] for index in found]}, the plan's "
                                f"{bucket.names}")
                break
    _raise_everywhere(problems, plan)
    applied.checked = True
    ready = [applied.names[index] for index in order]
    if ready != plan.ready_order:
        first = next(k for k, (a, b) in enumerate(zip(ready, plan.ready_order)) if a != b)
        applied.say(f"gradients become ready in another order than when the plan was made: number {first} is "
                    f"{ready[first]}, then it was {plan.ready_order[first]}")
    text = (f"checked against DDP's log: {len(sizes)} buckets of {sizes} bytes, as planned" +
            ("" if members is None else ", with the plan's parameters"))
    applied.say(text)
    return text


def _raise_everywhere(problems, plan):
    """A rank that stopped alone would leave the others waiting in a collective."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, problems)
    for rank, found in enumerate(everyone):
        if found:
            raise PlanMismatch(f"{plan.source} is not what was run (rank {rank}): {'; '.join(found)}")
