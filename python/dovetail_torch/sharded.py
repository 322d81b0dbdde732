"""FSDP2: captures what a fully sharded step needs of time, and lets its collectives run beside compute without streams.

    dovetail_torch.capture_sharded(model, forward, make_optimizer, path="step.json", cluster="link.json")  # on every rank
    $ dovetail plan --workload step.json --cluster ./link.json --policy fsdp:mode=copy,host_waits=yes,wait=end-of-backward -o plan.json
    $ dovetail export plan.json --to fsdp -o groups.py

How. Copies of the model are sharded, with a group per layer (policy fsdp's blocks=layer) and with one in all, and their
collectives are replaced by stand-ins that meet the other ranks and move one element: what is left of the step is compute,
FSDP2's copies and its work on the host, which takes longer behind a wait than without one. In one of the copies hooks
around FSDP2's own say when each layer computes, forward and backward. Then come all-gathers, reduce-scatters and
all-reduces by size, and steps beside running all-reduces.

What is written: a program (schedule/program_json.h) with two timed ops per layer and what lies between them, of the
slowest rank of each step the median; and a cluster (models/clusters/cluster.h) with the three tables, the copies (what
FSDP2 takes for a group beyond compute and stand-in, by bytes, copies and host together), the slow-down of compute and the
processor time of a collective. An update's time is that of sharded parameters, times the ranks.

Leaves out: frozen parameters and parameters that lie in no layer of their own (both refused); devices other than the CPU;
replicas (HSDP).

SPDX-License-Identifier: Apache-2.0
"""

import copy
import enum
import gc
import platform
import statistics
import sys
import time

import torch
import torch.distributed as dist

from dovetail_torch.capture import (ALL_GATHER, REDUCE_SCATTER, _barrier, _collective_table, _conditions, _HostClock, _median,
                                    _quantile, _read_processors, _slowdown, _verdict, _write, line_residual)
from dovetail_torch.describe import DTYPES
from dovetail_torch.plan import modules_of, own_name


def layer_of(parameter):
    """The unit of a parameter's name, as schedule/policies/grouping.h has it: up to its first number, else its module."""
    words = parameter.split(".")
    for place, word in enumerate(words[:-1]):
        if word.isdigit():
            return ".".join(words[:place + 1])
    return ".".join(words[:-1])


def parameters_of(model):
    return {own_name(name): parameter for name, parameter in model.named_parameters()}


def layers_of(model):
    """{name of a module: [names of its parameters]} in the order of definition."""
    layers = {}
    for name, parameter in parameters_of(model).items():
        if not parameter.requires_grad:
            raise ValueError(f"{name} is frozen: capture_sharded takes models of which all parameters are trained")
        if not layer_of(name):
            raise ValueError(f"{name} lies in the model itself: capture_sharded takes parameters of its submodules")
        layers.setdefault(layer_of(name), []).append(name)
    return layers


def require_stand_ins():
    """ValueError where FSDP2's collectives cannot be replaced."""
    from torch.distributed import fsdp

    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_all_gather"):
        raise ValueError(f"capture_sharded needs FSDP2 with set_custom_all_gather, which PyTorch {torch.__version__} has not")


class _Allocates:
    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


# ---- collectives beside compute

class OverlappedCollectives(_Allocates):
    """Makes the collectives of a sharded model run beside compute where the backend has no streams (Gloo).

    There FSDP2's own gathers and reduce-scatters block the host until they are done, whatever is prefetched. Gathers become
    asynchronous by FSDP2's own switch; a reduce-scatter is started, and wait() ends them all: call it between backward
    and the optimizer. What FSDP2 does to a gradient after its reduce-scatter must be nothing: f32 or bf16, no
    accumulation over steps, no replicas."""

    def __init__(self, model):
        self.works = []
        model._set_unshard_async_op(True)
        for module in model.modules():
            if hasattr(module, "set_custom_reduce_scatter"):
                module.set_custom_reduce_scatter(self)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        self.works.append(REDUCE_SCATTER(output_tensor, input_tensor, op=op, group=group, async_op=True))
        return self.works[-1]

    def wait(self):
        for work in self.works:
            work.wait()
        self.works.clear()


# ---- steps of which the collectives move a few bytes

class _Meets(enum.Enum):
    NOT = "each rank goes on alone"
    WAITING = "the host waits for the others at once, as FSDP2's own collectives do here"
    BESIDE = "it goes on until the result is used, as with OverlappedCollectives"


class _StandIn(_Allocates):
    """Moves this rank's own shard alone, and meets the other ranks at a collective of one element, as the steps say."""

    def __init__(self, steps):
        self.steps = steps

    def meet(self, begin, group, start):
        """start(one element, one of each rank, async_op). What was since begin (ns), and a wait here, are not the host's own
        time. Returns the work that is still to be waited for, if there is one."""
        few, many = torch.zeros(1), torch.zeros(group.size())
        if self.steps.meets is _Meets.WAITING:
            start(few, many, False)
        self.steps.seen.append((begin, time.perf_counter_ns()))
        return start(few, many, True) if self.steps.meets is _Meets.BESIDE else None


class _LocalGather(_StandIn):
    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        begin = time.perf_counter_ns()
        for row in output_tensor.view(group.size(), -1):
            if row.data_ptr() != input_tensor.data_ptr():
                row.copy_(input_tensor)
        return self.meet(begin, group, lambda few, many, beside: ALL_GATHER(many, few, group=group, async_op=beside))


class _LocalReduceScatter(_StandIn):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        begin = time.perf_counter_ns()
        output_tensor.copy_(input_tensor.view(group.size(), -1)[group.rank()])
        work = self.meet(begin, group,
                         lambda few, many, beside: REDUCE_SCATTER(few, many, op=op, group=group, async_op=beside))
        self.steps.works += [work] if work else []
        return work


class _Layer:
    """When one layer was entered, computed and left, forward and backward, in the step that runs."""

    def __init__(self, module):
        self.at = {}
        self.hooked = set()
        module.register_forward_pre_hook(lambda *_: self.mark("enter"), prepend=True)   # before FSDP2's
        module.register_forward_pre_hook(self.begins)                                   # behind it
        module.register_forward_hook(self.ends, prepend=True)
        module.register_forward_hook(self.left)

    def mark(self, name):
        self.at[name] = time.perf_counter_ns()

    def begins(self, module, inputs):
        for tensor in inputs:
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: self.mark("computed backward"))
        for parameter in module.parameters():
            if id(parameter) not in self.hooked:
                self.hooked.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(lambda _: self.mark("computed backward"))
        self.mark("begin")

    def ends(self, _module, _inputs, output):
        self.mark("computed")
        if not isinstance(output, torch.Tensor):
            raise ValueError("capture_sharded takes layers that return one tensor")
        output.register_hook(lambda _: self.mark("enter backward"))

    def left(self, _module, _inputs, output):
        output.register_hook(lambda _: self.mark("begin backward"))
        self.mark("left")


_PHASES = ("forward", "backward")


class _ShardedSteps:
    """Steps of a sharded copy with a group per layer, or one in all; run_at_once() is what capture's _slowdown calls.

    is_marked: each layer says when it computes. That takes time of its own, which other steps tell."""

    def __init__(self, model, layers, forward, make_optimizer, device, group, in_one=False, is_marked=False):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(group or dist.group.WORLD, device.type)
        self.seen, self.works, self.meets, modules = [], [], _Meets.WAITING, modules_of(model)
        units = [modules[name] for name in layers]
        for unit in [units] if in_one else units:
            fully_shard(unit, mesh=mesh)
            first = unit[0] if in_one else unit
            first.set_custom_all_gather(_LocalGather(self))
            first.set_custom_reduce_scatter(_LocalReduceScatter(self))
        for unit, following in [] if in_one or is_marked else zip(units, units[1:]):
            unit.set_modules_to_forward_prefetch([following])
        self.layers = {name: _Layer(modules[name]) for name in layers} if is_marked else {}
        self.model, self.forward = fully_shard(model, mesh=mesh), forward
        self.optimizer = make_optimizer(self.model.parameters())

    def run(self):
        """{name: us} of one step's parts, and how long each of its collectives took ("met": forward's and backward's)."""
        self.seen.clear()
        begin = time.perf_counter_ns()
        self.optimizer.zero_grad()
        loss = self.forward(self.model)
        backward = time.perf_counter_ns()
        loss.backward()
        while self.works:
            self.works.pop().wait()
        optimizer = time.perf_counter_ns()
        self.optimizer.step()
        end = time.perf_counter_ns()
        parts = {"step": (end - begin) / 1e3, "forward": (backward - begin) / 1e3, "backward": (optimizer - backward) / 1e3,
                 "optimizer": (end - optimizer) / 1e3,
                 "met": {phase: [(to - at) / 1e3 for at, to in self.seen if since <= at < until] for phase, since, until in
                         (("forward", begin, backward), ("backward", backward, optimizer))}}
        return {**parts, **self.marked(begin, backward)} if self.layers else parts

    def run_at_once(self):
        return self.run(), None

    def without_stand_ins(self, begin, end):
        return (end - begin - sum(b - a for a, b in self.seen if begin <= a and b <= end)) / 1e3

    def marked(self, begin, backward):
        order = sorted((layer.at["enter backward"], name) for name, layer in self.layers.items())
        until = [at for at, _ in order[1:]] + [None]
        parts = {"between forward": self.without_stand_ins(begin, backward),
                 "between backward": self.without_stand_ins(backward, order[0][0])}
        for (_, name), following in zip(order, until):
            at = self.layers[name].at
            parts[name + ".forward"] = (at["computed"] - at["begin"]) / 1e3
            parts[name + ".backward"] = (at["computed backward"] - at["begin backward"]) / 1e3
            parts[name + ".gather"] = (self.without_stand_ins(at["enter"], at["begin"]) +
                                       self.without_stand_ins(at["computed"], at["left"]))
            if following:
                parts[name + ".reduce"] = self.without_stand_ins(at["computed backward"], following)
            parts["between forward"] -= self.without_stand_ins(at["enter"], at["left"])
        return parts


def _host_us(steps, phase):
    """A phase without its collectives: what is over once the last rank has come to each. steps: [[row of a rank]]."""
    return _median([max(row[phase] for row in step) -
                    sum(min(took) for took in zip(*(row["met"][phase] for row in step))) for step in steps])


def _late_us(step):
    """The most that one rank came to a gather of forward behind the others: no reduction brings them together there."""
    return max(max(took) - min(took) for took in zip(*(row["met"]["forward"] for row in step)))


def _rows(steps, meets, count, device, group):
    """[[row of a rank]] of so many steps."""
    steps.meets = meets
    rows = []
    for _ in range(count + 1):
        _barrier(device, group)
        rows.append(steps.run())
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, rows[1:], group=group)
    return [list(step) for step in zip(*everyone)]


def _measure(make_steps, sizes, count, warmup, repetitions, largest, clock, device, group):
    before = _read_processors()
    marked, by_layer, _ = kinds = [make_steps(is_marked=True), make_steps(), make_steps(in_one=True)]
    rows = [[] for _ in kinds]
    for turn in range(warmup + count):
        for kind, its_rows in zip(kinds, rows):
            _barrier(device, group)
            its_rows += [kind.run()][:turn >= warmup]
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, rows, group=group)
    seen, single, in_one = ([list(step) for step in zip(*of_ranks)] for of_ranks in zip(*everyone))
    # Ranks meet at each layer's collectives, so the slowest one of each step sets a layer's time.
    found = {key: _median([max(row[key] for row in step) for step in seen]) for key in seen[0][0] if key != "met"}
    waiting, whole = ({phase: _host_us(steps, phase) for phase in _PHASES} for steps in (single, in_one))
    _fit(found, sizes, waiting, whole)
    found["optimizer"] = _median([max(row["optimizer"] for row in step) for step in single])
    late = sorted(_late_us(step) for step in single)
    late_us = [_quantile(late, (turn + 0.5) / repetitions) for turn in range(repetitions)]
    times = [row["step"] for row in rows[1]]
    found["spread"] = (_quantile(times, 0.9) - _quantile(times, 0.1)) / _median(times)
    between = dict(late_us=late_us, pause_us=_median([found[layer + ".forward"] for layer in sizes]))
    found["tables"] = {kind: _collective_table(kind, largest, repetitions, clock, device, group, **between)
                       for kind in ("all-gather", "reduce-scatter", "all-reduce")}
    some = max(3, count // 4)
    beside = _rows(by_layer, _Meets.BESIDE, 2 * some, device, group)
    found["collective_cpu"] = max(0.0, sum(_host_us(beside, phase) - waiting[phase] for phase in _PHASES) / (3 * len(sizes)))
    alone = _rows(by_layer, _Meets.NOT, some, device, group)
    quiet = {key: _median([max(row[key] for row in step) for step in alone]) for key in ("step", *_PHASES)}
    found["slow"] = _slowdown(by_layer, quiet, found["tables"]["all-reduce"][0], device, group, some)
    found["alone"] = quiet["step"]
    found["conditions"] = _conditions(before, _read_processors(), group)
    # In which order the layers ran.
    found["order"] = [sorted(sizes, key=lambda name: marked.layers[name].at[key]) for key in ("enter", "enter backward")]
    return found


def _fit(found, sizes, single, whole):
    """Adds "copy": (us, us per byte), and to each layer its share of what the host does beyond layers and copies.

    A group has one copy in forward and two in backward: what steps with a group per layer (single) take longer than steps
    with one group (whole) is fixed times of copies. What is left of the whole is each layer's own, in whatever group."""
    points = [(size, found[layer + part]) for layer, size in sizes.items() for part in (".gather", ".reduce")
              if layer + part in found]
    fixed, per_byte = _line(points)
    if len(sizes) > 1:
        fixed = max(0.0, sum(single[phase] - whole[phase] for phase in single) / (3 * (len(sizes) - 1)))
    found["copy"] = fixed, per_byte
    copies = fixed + per_byte * sum(sizes.values())
    for phase, count in (("forward", 1), ("backward", 2)):
        names = [f"{layer}.{phase}" for layer in sizes]
        besides = whole[phase] - found["between " + phase] - sum(found[name] for name in names) - copies * count
        for name in names:
            found[name] = max(0.0, found[name] + besides / len(names))


# ---- what is written

def _line(points):
    """(us, us per byte) of the least squares through [(bytes, us)], neither below 0."""
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points))
    spread = sum((x - mean_x)**2 for x, _ in points)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread) if spread else 0.0
    if mean_y < slope * mean_x:
        return 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    return mean_y - slope * mean_x, slope


def _program(name, parameters, layers, ranks):
    tensors, ops, reductions = [], [], []
    def tensor(called, kind, dtype="f32", shape=()):
        tensors.append({"id": len(tensors), "name": called, "kind": kind, "dtype": dtype, "shape": list(shape)})
        return called
    def op(called, phase, part, reads, writes, share=1.0, **more):
        times = [round(rank[part] * share, 3) for rank in ranks]
        ops.append({"id": len(ops), "name": called, "phase": phase, "dtype": "f32",
                    "work": {"kind": "timed", "by_rank_us": [max(0.0, us) for us in times]},
                    "reads": reads, "writes": writes, **more})
    for layer in layers.values():
        for each in layer:
            tensor(each, "parameter", DTYPES[parameters[each].dtype], parameters[each].shape)
    forward, backward = ranks[0]["order"]
    passed = []
    for layer in forward:
        out = tensor(layer + ".out", "activation")
        op(layer + ".forward", "forward", layer + ".forward", passed + layers[layer], [out])
        passed = [out]
    out = tensor("loss", "activation")
    op("loss.forward", "forward", "between forward", passed, [out])
    passed = [out]
    out = tensor("loss.grad", "activation")
    op("loss.backward", "backward", "between backward", passed, [out])
    passed = [out]
    for layer in backward:
        gradients = [tensor(each + ".grad", "gradient", DTYPES[parameters[each].dtype], parameters[each].shape)
                     for each in layers[layer]]
        out = tensor(layer + ".in.grad", "activation")
        op(layer + ".backward", "backward", layer + ".backward", passed + layers[layer], gradients + [out])
        reductions += [{"gradient": each, "group": "dp", "op": "average"} for each in gradients]
        passed = [out]
    total = sum(parameter.numel() for parameter in parameters.values())
    for layer in backward:
        for each in layers[layer]:
            op(each + ".update", "optimizer", "optimizer", [each + ".grad", each], [each],
               share=len(ranks) * parameters[each].numel() / total, effect={"kind": "update", "elementwise": True})
    return {"schema": "dovetail.program/1", "kind": "program", "name": name, "world_size": len(ranks),
            "groups": [{"id": 0, "name": "dp", "ranks": list(range(len(ranks)))}], "tensors": tensors, "ops": ops,
            "reductions": reductions}


def _series(kind, ranks):
    points = []
    for place, (size, _) in enumerate(ranks[0]["tables"][kind][0]):
        points.append({"bytes": size, "isolated_us": round(max(rank["tables"][kind][0][place][1] for rank in ranks), 1)})
    queue = {size: max(rank["tables"][kind][1][place][1] for rank in ranks) / 8
             for place, (size, _) in enumerate(ranks[0]["tables"][kind][1])}
    first, last = min(queue), max(queue)
    alone = {point["bytes"]: point["isolated_us"] for point in points}
    for point in points:  # beyond what was queued: parallel to the other curve
        size = point["bytes"]
        beyond = max(0.0, alone[size] - alone[last]) if size > last else 0.0
        point["back_to_back_us"] = round(queue.get(size, queue[first if size < first else last] + beyond), 1)
    return {"collective": kind, "ranks": len(ranks), "nodes": len(ranks), "points": points}


def _cluster(name, what, ranks):
    fixed, per_byte = (statistics.mean(rank["copy"][part] for rank in ranks) for part in (0, 1))
    conditions = dict(ranks[0]["conditions"], step_spread=max(rank["spread"] for rank in ranks),
                      fit_residual=line_residual([(point["bytes"], point["isolated_us"]) for point in
                                                            _series("all-reduce", ranks)["points"]]))
    reasons = _verdict(conditions)
    return {"schema": "dovetail.cluster/1", "kind": "cluster", "name": name, "origin": what, "ranks": len(ranks),
            "backend": "cpu", "collectives": [_series(kind, ranks) for kind in ranks[0]["tables"]],
            "copy": {"fixed_us": round(fixed, 1), "ns_per_byte": round(per_byte * 1e3, 5)},
            "contention": {"compute_slowdown": round(max(rank["slow"][1] for rank in ranks), 4), "collective_slowdown": 1,
                           "collective_cpu_us": round(max(rank["collective_cpu"] for rank in ranks), 1)},
            "quality": {"valid": not reasons, "why": reasons,
                        "figures": {key: round(value, 5) for key, value in conditions.items() if value is not None}}}


def capture_sharded(model, forward, make_optimizer, *, path=None, cluster=None, name="captured", steps=20, warmup=6,
                    repetitions=7, group=None, what=""):
    """Measures the sharded steps of three copies of the model; rank 0 writes the program to `path` and the machine to `cluster`.

    forward(model) -> loss       as capture takes it
    make_optimizer(parameters)   the optimizer of a copy; an update's time is that of sharded parameters

    Collective: call it on every rank, before the model is sharded. Returns (program, cluster)."""
    layers, parameters = layers_of(model), parameters_of(model)
    device = next(iter(parameters.values())).device
    if device.type != "cpu":
        raise ValueError(f"capture_sharded measures on the CPU, not on {device.type}")
    require_stand_ins()
    random, was_enabled = torch.get_rng_state(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        def make_steps(**how):
            return _ShardedSteps(copy.deepcopy(model), layers, forward, make_optimizer, device, group, **how)
        sizes = {layer: sum(parameters[each].numel() * parameters[each].element_size() for each in names)
                 for layer, names in layers.items()}
        largest = max(32 << 20, sum(p.numel() * p.element_size() for p in parameters.values()))
        mine = _measure(make_steps, sizes, steps, warmup, repetitions, largest, _HostClock(), device, group)
        ranks = [None] * dist.get_world_size(group)
        dist.all_gather_object(ranks, mine, group=group)
    finally:
        torch.set_rng_state(random)
        if was_enabled:
            gc.enable()
    program = _program(name, parameters, layers, ranks)
    machine = _cluster(name + "-machine", what or f"PyTorch {torch.__version__}, {dist.get_backend(group)}, {platform.node()}: "
                       "FSDP2 with stand-ins for its collectives", ranks)
    if dist.get_rank(group) == 0:
        for file, value in ((path, program), (cluster, machine)):
            if file is not None:
                _write(file, value)
        quality = machine["quality"]
        print(f"dovetail_torch: {name}: {len(layers)} layers, sharded step {mine['alone'] / 1e3:.3f} ms without communication; " +
              ("valid" if quality["valid"] else "NOT valid: " + "; ".join(quality["why"])), file=sys.stderr)
    return program, machine
