"""FSDP2: captures what a fully sharded step needs of time, and lets its collectives run beside compute without streams.

    dovetail_torch.capture_sharded(model, forward, make_optimizer, path="step.json", cluster="link.json")  # on every rank
    $ dovetail plan --workload step.json --cluster ./link.json --policy fsdp:mode=copy,wait=end-of-backward -o plan.json
    $ dovetail export plan.json --to fsdp -o groups.py

How. A copy of the model is sharded with a group per layer (policy fsdp's blocks=layer), and its collectives are replaced by
stand-ins that move nothing between ranks, as capture does with DDP's: what is left of the step is compute, FSDP2's copies
and its work on the host. Hooks around FSDP2's own say when each layer computes, forward and backward. Then come
all-gathers, reduce-scatters and all-reduces by size, and steps beside running all-reduces.

What is written: a program (schedule/program_json.h) with two timed ops per layer and what lies between them, of the
slowest rank of each step the median; and a cluster (models/clusters/cluster.h) with the three tables, the copies (a line through what FSDP2 takes
beyond compute and stand-in, over the bytes of the group, copies and host together), the slow-down of compute and the
processor time of a collective. An update's time is that of sharded parameters, times the ranks.

Leaves out: frozen parameters and parameters that lie in no layer of their own (both refused); devices other than the CPU;
replicas (HSDP).

SPDX-License-Identifier: Apache-2.0
"""

import copy
import gc
import platform
import sys
import time

import torch
import torch.distributed as dist

from dovetail_torch.capture import (REDUCE_SCATTER, _barrier, _collective_table, _conditions, _HostClock, _median, _quantile,
                                    _read_processors, _slowdown, _verdict, _write, line_residual)
from dovetail_torch.describe import DTYPES


def layer_of(parameter):
    """The unit of a parameter's name, as schedule/policies/grouping.h has it: up to its first number, else its module."""
    words = parameter.split(".")
    for place, word in enumerate(words[:-1]):
        if word.isdigit():
            return ".".join(words[:place + 1])
    return ".".join(words[:-1])


def layers_of(model):
    """{name of a module: [names of its parameters]} in the order of definition."""
    layers = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            raise ValueError(f"{name} is frozen: capture_sharded takes models of which all parameters are trained")
        if not layer_of(name):
            raise ValueError(f"{name} lies in the model itself: capture_sharded takes parameters of its submodules")
        layers.setdefault(layer_of(name), []).append(name)
    return layers


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


# ---- steps without communication

class _LocalGather(_Allocates):
    """Every shard is this rank's own."""

    def __init__(self, seen):
        self.seen = seen

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        begin = time.perf_counter_ns()
        for row in output_tensor.view(group.size(), -1):
            if row.data_ptr() != input_tensor.data_ptr():
                row.copy_(input_tensor)
        self.seen.append((begin, time.perf_counter_ns()))


class _LocalReduceScatter(_Allocates):
    """The sum is this rank's own gradient."""

    def __init__(self, seen):
        self.seen = seen

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        begin = time.perf_counter_ns()
        output_tensor.copy_(input_tensor.view(group.size(), -1)[group.rank()])
        self.seen.append((begin, time.perf_counter_ns()))


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


class _ShardedSteps:
    """Steps of the sharded copy; run_at_once() is what capture's _slowdown calls."""

    def __init__(self, model, layers, forward, make_optimizer, device, group):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(group or dist.group.WORLD, device.type)
        self.seen, self.layers, modules = [], {}, dict(model.named_modules())
        for name in layers:
            module = fully_shard(modules[name], mesh=mesh)
            module.set_custom_all_gather(_LocalGather(self.seen))
            module.set_custom_reduce_scatter(_LocalReduceScatter(self.seen))
            self.layers[name] = _Layer(module)
        self.model, self.forward = fully_shard(model, mesh=mesh), forward
        self.optimizer = make_optimizer(self.model.parameters())

    def run(self):
        """{name: us} of one step's parts."""
        self.seen.clear()
        begin = time.perf_counter_ns()
        self.optimizer.zero_grad()
        loss = self.forward(self.model)
        backward = time.perf_counter_ns()
        loss.backward()
        optimizer = time.perf_counter_ns()
        self.optimizer.step()
        end = time.perf_counter_ns()
        return self.parts(begin, backward, optimizer, end)

    def run_at_once(self):
        return self.run(), None

    def without_stand_ins(self, begin, end):
        return (end - begin - sum(b - a for a, b in self.seen if begin <= a and b <= end)) / 1e3

    def parts(self, begin, backward, optimizer, end):
        order = sorted(self.layers.items(), key=lambda item: item[1].at["enter backward"])
        arrivals = [layer.at["enter backward"] for _, layer in order] + [optimizer]
        parts = {"step": (end - begin) / 1e3, "forward": (backward - begin) / 1e3, "backward": (optimizer - backward) / 1e3,
                 "optimizer": (end - optimizer) / 1e3}
        between = [self.without_stand_ins(begin, backward), self.without_stand_ins(backward, arrivals[0])]
        for (name, layer), following in zip(order, arrivals[1:]):
            at = layer.at
            parts[name + ".forward"] = (at["computed"] - at["begin"]) / 1e3
            parts[name + ".backward"] = (at["computed backward"] - at["begin backward"]) / 1e3
            parts[name + ".gather"] = (self.without_stand_ins(at["enter"], at["begin"]) +
                                       self.without_stand_ins(at["computed"], at["left"]))
            parts[name + ".reduce"] = self.without_stand_ins(at["computed backward"], following)
            parts[name + ".gather again"] = self.without_stand_ins(at["enter backward"], at["begin backward"])
            between[0] -= self.without_stand_ins(at["enter"], at["left"])
        parts["between forward"], parts["between backward"] = between
        return parts


def _measure(steps, layers, count, warmup, repetitions, largest, clock, device, group):
    before = _read_processors()
    for _ in range(warmup):
        steps.run()
    rows = []
    for _ in range(count):
        _barrier(device, group)
        rows.append(steps.run())
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, rows, group=group)
    # Ranks meet at each layer's collectives, so the slowest one of each step sets a layer's time.
    found = {key: _median([max(row[key] for row in step) for step in zip(*everyone)]) for key in rows[0]}
    apart = sorted(max(times) - min(times) for step in zip(*everyone) for layer in layers
                   for times in [[row[layer + ".forward"] + row[layer + ".gather"] for row in step]])
    late_us = [_quantile(apart, (turn + 0.5) / repetitions) for turn in range(repetitions)]
    found["spread"] = (_quantile([row["step"] for row in rows], 0.9) -
                       _quantile([row["step"] for row in rows], 0.1)) / found["step"]
    found["tables"] = {kind: _collective_table(kind, largest, repetitions, clock, device, group, late_us=late_us)
                       for kind in ("all-gather", "reduce-scatter", "all-reduce")}
    found["slow"] = _slowdown(steps, found, found["tables"]["all-reduce"][0], device, group, max(3, count // 4))
    found["conditions"] = _conditions(before, _read_processors(), group)
    # In which order the layers ran.
    found["order"] = [sorted(layers, key=lambda name: steps.layers[name].at[key]) for key in ("enter", "enter backward")]
    return found


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
    op("between-steps", "forward", "between forward", [], [])
    for layer in forward:
        out = tensor(layer + ".out", "activation")
        op(layer + ".forward", "forward", layer + ".forward", passed + layers[layer], [out])
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


def _cluster(name, what, parameters, layers, ranks):
    sizes = {layer: sum(parameters[each].numel() * parameters[each].element_size() for each in names)
             for layer, names in layers.items()}
    points = [(sizes[layer], _median([rank[layer + part] for rank in ranks])) for layer in layers
              for part in (".gather", ".reduce")]
    fixed, per_byte = _line(points)
    conditions = dict(ranks[0]["conditions"], step_spread=max(rank["spread"] for rank in ranks),
                      fit_residual=line_residual([(point["bytes"], point["isolated_us"]) for point in
                                                            _series("all-reduce", ranks)["points"]]))
    reasons = _verdict(conditions)
    smallest = max(rank["tables"]["all-reduce"][0][0][1] for rank in ranks)
    return {"schema": "dovetail.cluster/1", "kind": "cluster", "name": name, "origin": what, "ranks": len(ranks),
            "backend": "cpu", "collectives": [_series(kind, ranks) for kind in ranks[0]["tables"]],
            "copy": {"fixed_us": round(fixed, 1), "ns_per_byte": round(per_byte * 1e3, 5)},
            "contention": {"compute_slowdown": round(max(rank["slow"][1] for rank in ranks), 4), "collective_slowdown": 1,
                           "collective_cpu_us": round(smallest, 1)},
            "quality": {"valid": not reasons, "why": reasons,
                        "figures": {key: round(value, 5) for key, value in conditions.items() if value is not None}}}


def capture_sharded(model, forward, make_optimizer, *, path=None, cluster=None, name="captured", steps=20, warmup=6,
                    repetitions=7, group=None, what=""):
    """Measures the sharded steps of a copy of the model; rank 0 writes the program to `path` and the machine to `cluster`.

    forward(model) -> loss       as capture takes it
    make_optimizer(parameters)   the optimizer of the copy; an update's time is that of sharded parameters

    Collective: call it on every rank, before the model is sharded. Returns (program, cluster)."""
    layers, parameters = layers_of(model), dict(model.named_parameters())
    device = next(iter(parameters.values())).device
    if device.type != "cpu":
        raise ValueError(f"capture_sharded measures on the CPU, not on {device.type}")
    random, was_enabled = torch.get_rng_state(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        measured = _ShardedSteps(copy.deepcopy(model), layers, forward, make_optimizer, device, group)
        largest = max(32 << 20, sum(p.numel() * p.element_size() for p in parameters.values()))
        mine = _measure(measured, layers, steps, warmup, repetitions, largest, _HostClock(), device, group)
        ranks = [None] * dist.get_world_size(group)
        dist.all_gather_object(ranks, mine, group=group)
    finally:
        torch.set_rng_state(random)
        if was_enabled:
            gc.enable()
    program = _program(name, parameters, layers, ranks)
    machine = _cluster(name + "-machine", what or f"PyTorch {torch.__version__}, {dist.get_backend(group)}, {platform.node()}: "
                       "FSDP2 with stand-ins for its collectives", parameters, layers, ranks)
    if dist.get_rank(group) == 0:
        for file, value in ((path, program), (cluster, machine)):
            if file is not None:
                _write(file, value)
        quality = machine["quality"]
        print(f"dovetail_torch: {name}: {len(layers)} layers, sharded step {mine['step'] / 1e3:.3f} ms without communication; " +
              ("valid" if quality["valid"] else "NOT valid: " + "; ".join(quality["why"])), file=sys.stderr)
    return program, machine
