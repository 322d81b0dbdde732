"""Captures what a training step needs of time, without a profiler, into a workload file of the dovetail tool.

    def forward(model): return loss_function(model(inputs), targets)
    dovetail_torch.capture(model, forward, optimizer, path="job.json")     # on every rank

How. The model is wrapped in DistributedDataParallel with debugging_hooks.noop_hook, so that a step has no
communication, and DDP's own reducer says after each step when every gradient was ready
(reducer.get_backward_stats(), all versions since 1.13; its clock starts when DDP's forward returns). On CUDA devices
the reducer only knows when the host was there, so an event is recorded at each gradient instead. Then come all-reduces
of several sizes, one at a time and eight in a row; the same step while all-reduces are in flight; and a copy.

What is written (models/workloads/profile.h): medians over `steps` steps; per gradient the ready time, of two ranks each its own,
of more the latest; the table of all-reduces; slow-down of compute; a copy's cost; under "conditions" the spread between
ranks and whether the capture is valid. The limits are those of `dovetail calibrate`: other programs below 5 % of the
processors, steal below 1 %, p10 to p90 of the step within 5 % of the median, all-reduces from 128 KiB on within 2 % of
a line. A capture beyond them is taken again, `attempts` times in all; the one that is least beyond them is written all the
same, with the reasons: the tool takes it only with --force.

Parameters, buffers, optimizer state and random generators are put back to what they were.

SPDX-License-Identifier: Apache-2.0
"""

import copy
import gc
import json
import os
import platform
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

from dovetail_torch.plan import own_name

LIMITS = {"outside_cpu": 0.05, "steal": 0.01, "step_spread": 0.05, "fit_residual": 0.02}
# Of one tensor each; 2.14 gave them new names.
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
KNOWN_DTYPES = ("float32", "float16", "bfloat16", "float64")


# ---- the processors, as /proc/stat tells

def _read_processors():
    """(all time, time of programs, stolen time, this process's own time) in seconds; None where Linux is not."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            words = file.readline().split()
    except OSError:
        return None
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in words[1:9]]
    own = os.times()
    return sum(ticks), ticks[0] + ticks[1] + ticks[2], ticks[7], own.user + own.system


def _conditions(before, after, group):
    """Shares of all processor time: of programs outside this job, and taken by the hypervisor."""
    if before is None or after is None:
        return {}
    own = [None] * dist.get_world_size(group)
    dist.all_gather_object(own, (platform.node(), after[3] - before[3]), group=group)
    here = sum(seconds for host, seconds in own if host == platform.node())
    total = max(after[0] - before[0], 1e-9)
    return {"outside_cpu": max(0.0, (after[1] - before[1] - here) / total), "steal": max(0.0, (after[2] - before[2]) / total)}


# ---- clocks: of the host, or of the device's stream

class _HostClock:
    def now(self):
        return time.perf_counter_ns()

    def microseconds(self, start, end):
        return (end - start) / 1e3

    def settle(self):
        pass


class _DeviceClock:
    def now(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def microseconds(self, start, end):
        return start.elapsed_time(end) * 1e3

    def settle(self):
        torch.cuda.synchronize()


def _barrier(device, group):
    dist.all_reduce(torch.zeros(1, device=device), group=group)
    if device.type == "cuda":
        torch.cuda.synchronize()


# ---- the step without communication

class _Steps:
    """Steps of the wrapped model, and when things happened in them."""

    def __init__(self, ddp, forward, optimizer, clock, device, group):
        self.ddp, self.forward, self.optimizer, self.clock = ddp, forward, optimizer, clock
        self.device, self.group = device, group
        self.parameters = [p for p in ddp.module.parameters() if p.requires_grad]
        self.returned = 0
        self.events = {}
        self.keep = []
        ddp.register_forward_hook(self._on_return)
        if device.type == "cuda":
            for index, parameter in enumerate(self.parameters):
                accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
                accumulator.register_hook(lambda *_unused, index=index: self.events.__setitem__(index, clock.now()))
                self.keep.append(accumulator)

    def _on_return(self, *_unused):
        self.returned = time.perf_counter_ns()

    def run(self):
        """One step: {zero, forward, backward, optimizer, step} in us, and the ready times of all gradients."""
        _barrier(self.device, self.group)
        self.clock.settle()
        return self.run_at_once()

    def run_at_once(self):
        clock = self.clock
        begin = clock.now()
        self.optimizer.zero_grad()
        start = clock.now()
        loss = self.forward(self.ddp)
        backward = clock.now()
        host_backward = time.perf_counter_ns()
        loss.backward()
        optimizer = clock.now()
        self.optimizer.step()
        end = clock.now()
        clock.settle()
        times = {"zero": clock.microseconds(begin, start), "forward": clock.microseconds(start, backward),
                 "backward": clock.microseconds(backward, optimizer),
                 "optimizer": clock.microseconds(optimizer, end), "step": clock.microseconds(begin, end)}
        if self.device.type == "cuda":
            ready = [clock.microseconds(backward, self.events[index]) for index in range(len(self.parameters))]
        else:
            # The reducer's clock started when DDP's forward returned; backward begins later, after the loss.
            late = (host_backward - self.returned) / 1e3
            ready = [ns / 1e3 - late for ns in self.ddp.reducer.get_backward_stats()]
        return times, [min(max(value, 0.0), times["backward"]) for value in ready]


def _median(values):
    return statistics.median(values)


def _quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _step_times(steps, count):
    rows, ready = [], []
    for _ in range(count):
        times, when = steps.run()
        rows.append(times)
        ready.append(when)
    times = {key: _median([row[key] for row in rows]) for key in rows[0]}
    times["p10"] = _quantile([row["step"] for row in rows], 0.1)
    times["p90"] = _quantile([row["step"] for row in rows], 0.9)
    return times, [_median(column) for column in zip(*ready)]


# ---- collectives

def _starter(collective, size, device, group):
    """Starts a collective of one message of `size` bytes, as often as it is called; of sharding, whole shards of it."""
    ranks = dist.get_world_size(group)
    whole = torch.zeros(size // 4, device=device)
    shard = whole[:size // 4 // ranks].clone()
    return {"all-reduce": lambda: dist.all_reduce(whole, group=group, async_op=True),
            "all-gather": lambda: ALL_GATHER(whole, shard, group=group, async_op=True),
            "reduce-scatter": lambda: REDUCE_SCATTER(shard, whole, group=group, async_op=True)}[collective]


def _spin(us):
    until = time.perf_counter_ns() + us * 1e3
    while time.perf_counter_ns() < until:
        pass


def _timed(starters, clock, device, group, wait_us=0.0, pauses=()):
    """us from the start of the first to the end of the last, of this rank, which begins wait_us late. With pauses (us) they
    are started again behind each, and the mean is without these."""
    _barrier(device, group)
    clock.settle()
    _spin(wait_us)
    start = clock.now()
    for pause in (0.0, *pauses):
        _spin(pause)
        for work in [starter() for starter in starters]:
            work.wait()
    end = clock.now()
    clock.settle()
    return (clock.microseconds(start, end) - sum(pauses)) / (1 + len(pauses))


def _sizes(largest):
    sizes = [4, 4096, 16384, 65536, 131072]
    while sizes[-1] < largest:
        sizes.append(sizes[-1] * 2)
    return sizes


def _timed_behind(late_us, pauses, turn, *how):
    """us of one collective from where its last rank comes, late_us behind the others: another rank in each turn."""
    device, group = how[-2:]
    rank, last = dist.get_rank(group), turn % dist.get_world_size(group)
    mine = _timed(*how, wait_us=late_us if rank == last else 0.0, pauses=pauses)
    took = torch.tensor([mine], dtype=torch.float64, device=device)
    dist.broadcast(took, dist.get_global_rank(group or dist.group.WORLD, last), group=group)
    return took.item()


_LARGEST_OF_MANY = 16 << 20  # bytes; of larger ones a step has few
_IN_A_STEP = 4


def _collective_table(collective, largest, repetitions, clock, device, group, late_us=None, pause_us=0.0):
    """[(bytes, us)] alone, and [(bytes each, us for 8)] in a row; medians, after one that is not counted.

    late_us: alone, one rank begins behind the others, as behind compute of its own, by each of these in turn, several follow
    each other after pauses of pause_us, as in a step, and the mean counts. Gloo's all-gathers take half as long again where a
    rank is late, however late it is, and then that rank is late for the next, too (PyTorch 2.14, two ranks, 6 MB in 25 ms:
    from a millisecond on, not at a tenth of one)."""
    alone, queue = [], []
    for size in _sizes(largest):
        if collective != "all-reduce":
            unit = 4 * dist.get_world_size(group)
            size = max(1, size // unit) * unit
            if alone and alone[-1][0] >= size:
                continue
        starter = _starter(collective, size, device, group)
        times = []
        for turn in range(repetitions + 1):
            time.sleep(0.005)  # a link that gives credit after a pause does so here
            how = [starter], clock, device, group
            pauses = [pause_us] * (_IN_A_STEP - 1 if size <= _LARGEST_OF_MANY else 0)
            took = _timed(*how) if late_us is None else _timed_behind(late_us[turn % len(late_us)], pauses, turn, *how)
            if turn > 0:
                times.append(took)
        kept = max(1, len(times) - 1)  # all but the longest
        alone.append((size, _median(times) if late_us is None else statistics.mean(sorted(times)[:kept])))
        if 16384 <= size <= (2 << 20):
            starters = [_starter(collective, size, device, group) for _ in range(8)]
            times = [_timed(starters, clock, device, group) for _ in range(max(3, repetitions // 2) + 1)]
            queue.append((size, _median(times[1:])))
    return alone, queue


def line_residual(points):
    """Largest relative distance from the least-squares line, of points from 128 KiB on; None of fewer than three."""
    points = [(size, us) for size, us in points if size >= 128 << 10]
    if len(points) < 3:
        return None
    # Relative residuals count alike: each point is weighted by 1 / us^2.
    weight = [1 / us**2 for _, us in points]
    total = sum(weight)
    x = sum(w * size for w, (size, _) in zip(weight, points)) / total
    y = sum(w * us for w, (_, us) in zip(weight, points)) / total
    slope = (sum(w * (size - x) * (us - y) for w, (size, us) in zip(weight, points)) /
             sum(w * (size - x)**2 for w, (size, _) in zip(weight, points)))
    return max(abs(y + slope * (size - x) - us) / us for size, us in points)


def _slowdown(steps, quiet, alone, device, group, count):
    """(forward, backward) with all-reduces in flight, as multiples of the quiet times; and the communication's share of
    a processor while nothing else runs."""
    size, took = alone[-1]
    many = max(1, int(1.6 * quiet["step"] / took) + 1)
    agreed = torch.tensor([many], device=device)
    dist.broadcast(agreed, 0, group=group)
    tensors = [torch.zeros(size // 4, device=device) for _ in range(int(agreed.item()))]
    rows = []
    for _ in range(count):
        _barrier(device, group)
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        rows.append(steps.run_at_once()[0])
        for work in works:
            work.wait()
    _barrier(device, group)
    before, start = time.process_time(), time.perf_counter()
    for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
        work.wait()
    share = (time.process_time() - before) / max(time.perf_counter() - start, 1e-9)
    forward = _median([row["forward"] for row in rows]) / max(quiet["forward"], 1e-3)
    backward = _median([row["backward"] for row in rows]) / max(quiet["backward"], 1e-3)
    return max(1.0, forward), max(1.0, backward), share


def _copy_ns_per_byte(size, clock, device):
    source, target = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    times = []
    for _ in range(9):
        clock.settle()
        start = clock.now()
        target.copy_(source)
        end = clock.now()
        clock.settle()
        times.append(clock.microseconds(start, end))
    return _median(times) * 1e3 / size


# ---- putting things back

class _Kept:
    """State of a model and its optimizer, to be put back after training steps that were only for timing."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.tensors = [(tensor, tensor.detach().clone()) for tensor in list(model.parameters()) + list(model.buffers())]
        self.gradients = [(p, p.grad) for p in model.parameters()]
        self.state = copy.deepcopy(optimizer.state_dict())
        self.random = torch.get_rng_state()
        self.random_of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self.training = model.training

    def put_back(self):
        with torch.no_grad():
            for tensor, value in self.tensors:
                tensor.copy_(value)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        if self.state["state"]:
            self.optimizer.load_state_dict(self.state)
        else:
            self.optimizer.state.clear()
        torch.set_rng_state(self.random)
        torch.cuda.set_rng_state_all(self.random_of_devices)
        self.model.train(self.training)


def _verdict(found):
    words = {"outside_cpu": "other programs took", "steal": "the hypervisor took",
             "step_spread": "steps spread from p10 to p90 by", "fit_residual": "all-reduces lie off a line by"}
    return [f"{words[key]} {100 * found[key]:.1f} %, more than {100 * limit:.0f} %"
            for key, limit in LIMITS.items() if found.get(key) is not None and found[key] >= limit]


def _write(path, value):
    temporary = f"{path}.tmp.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, allow_nan=False)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _excess(profile):
    """How far the worst condition lies beyond its limit; below 1 the capture is valid."""
    found = profile["conditions"]
    return max(found.get(key, 0.0) / limit for key, limit in LIMITS.items())


def capture(model, forward, optimizer, *, path=None, name="captured", steps=20, warmup=6, repetitions=9, attempts=3,
            group=None, largest_all_reduce=None, what=""):
    """Measures steps of the model and writes the profile to `path` (rank 0). Collective: call it on every rank.

    forward(model) -> loss   the forward pass of the wrapped model, and the loss, on this rank's batch
    steps, warmup            steps that are timed, and before them
    repetitions              of each all-reduce; largest_all_reduce in bytes (default: all gradients, 32 MiB at least)
    attempts                 how often at most it is measured, until it is valid

    Returns the profile. Its "conditions" say whether it is valid, and if not, why not.
    """
    parameters = {own_name(n): p for n, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("the model has no parameter that is trained")
    for parameter_name, parameter in parameters.items():
        if str(parameter.dtype).replace("torch.", "") not in KNOWN_DTYPES:
            raise ValueError(f"{parameter_name}: the tool knows {', '.join(KNOWN_DTYPES)}, not {parameter.dtype}")
    device = next(iter(parameters.values())).device
    clock = _DeviceClock() if device.type == "cuda" else _HostClock()
    kept = _Kept(model, optimizer)
    total = sum(p.numel() * p.element_size() for p in parameters.values())
    largest = max(largest_all_reduce or total, 32 << 20 if largest_all_reduce is None else 0)
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    ddp = DistributedDataParallel(model, process_group=group)
    tried, measured = [], None
    try:
        ddp.register_comm_hook(None, noop_hook)
        measured = _Steps(ddp, forward, optimizer, clock, device, group)
        while len(tried) < max(1, attempts) and not (tried and tried[-1]["conditions"]["valid"]):
            mine = _measure(measured, steps, warmup, repetitions, largest)
            everyone = [None] * dist.get_world_size(group)
            dist.all_gather_object(everyone, mine, group=group)
            tried.append(_profile(name, what, parameters, device, everyone))  # the same on every rank
    finally:
        del ddp, measured
        if was_enabled:
            gc.enable()
        gc.collect()  # takes DDP's hooks off the parameters
        kept.put_back()
    profile = min(tried, key=_excess)
    profile["conditions"]["attempts"] = len(tried)
    if path is not None and dist.get_rank(group) == 0:
        _write(path, profile)
        said = profile["conditions"]
        print(f"dovetail_torch: {path}: {len(parameters)} gradients, {total} bytes, step "
              f"{profile['no_communication_step']['step_us'] / 1e3:.3f} ms without communication; " +
              (f"attempt {tried.index(profile) + 1} of {len(tried)}: " if len(tried) > 1 else "") +
              ("valid" if said["valid"] else "NOT valid: " + "; ".join(said["why_not_valid"])), file=sys.stderr)
    return profile


def _measure(steps, count, warmup, repetitions, largest):
    clock, device, group = steps.clock, steps.device, steps.group
    for _ in range(warmup):
        steps.run()
    before = _read_processors()
    times, ready = _step_times(steps, count)
    alone, queue = _collective_table("all-reduce", largest, repetitions, clock, device, group)
    # Only rank 0's number counts, so that all ranks agree on how often they meet.
    forward_slow, backward_slow, share = _slowdown(steps, times, alone, device, group, max(3, count // 4))
    conditions = _conditions(before, _read_processors(), group)
    return {"times": times, "ready": ready, "alone": alone, "queue": queue, "slow": (forward_slow, backward_slow),
            "share": share, "copy": _copy_ns_per_byte(16 << 20, clock, device), "conditions": conditions}


def _round(value):
    return round(value, 1)


def _profile(name, what, parameters, device, ranks):
    """The file's content from what every rank measured."""
    two = len(ranks) == 2
    names = list(parameters)
    def of_all(value):
        """Of two ranks the first one's, of more the latest."""
        return value(ranks[0]) if two else max(value(rank) for rank in ranks)
    def phases(read):
        return {f"{key}_us": _round(read(key)) for key in ("forward", "backward", "optimizer")}
    ready = [of_all(lambda rank, i=i: rank["ready"][i]) for i in range(len(names))]
    order = sorted(range(len(names)), key=lambda i: ready[i])
    gradients, latest = [], [0.0, 0.0]
    for i in order:
        entry = {"name": names[i], "numel": parameters[names[i]].numel(),
                 "dtype": str(parameters[names[i]].dtype).replace("torch.", ""), "ready_us": _round(ready[i]),
                 "definition": i}
        if two:
            # In the order of rank 0; where rank 1 had it the other way round, its bucket waits for both anyway.
            latest[1] = max(latest[1], ranks[1]["ready"][i])
            entry["ready_us_rank1"] = _round(latest[1])
        gradients.append(entry)
    section = phases(lambda key: of_all(lambda rank: rank["times"][key]))
    if two:
        section["rank1"] = phases(lambda key: ranks[1]["times"][key])
    section["gradients"] = gradients
    times = {key: of_all(lambda rank: rank["times"][key]) for key in ("step", "forward", "backward", "optimizer", "p10", "p90")}
    alone = [(size, max(rank["alone"][k][1] for rank in ranks)) for k, (size, _) in enumerate(ranks[0]["alone"])]
    queue = [(size, max(rank["queue"][k][1] for rank in ranks)) for k, (size, _) in enumerate(ranks[0]["queue"])]
    found = dict(ranks[0]["conditions"])
    found["step_spread"] = max((rank["times"]["p90"] - rank["times"]["p10"]) / rank["times"]["step"] for rank in ranks)
    found["fit_residual"] = line_residual(alone)
    reasons = _verdict(found)
    skew = [max(rank["ready"][i] for rank in ranks) - min(rank["ready"][i] for rank in ranks) for i in range(len(names))]
    conditions = {"valid": not reasons, "why_not_valid": reasons}
    conditions.update({key: round(value, 5) for key, value in found.items() if value is not None})
    conditions["ready_skew_us"] = {"median": _round(_median(skew)), "worst": _round(max(skew))}
    slow = {"forward": round(max(rank["slow"][0] for rank in ranks), 4), "backward": round(of_all(lambda rank: rank["slow"][1]), 4)}
    if two:
        slow["backward_rank1"] = round(ranks[1]["slow"][1], 4)
    return {
        "schema": "dovetail.profile/1", "kind": "profile", "name": name,
        "what": what or f"PyTorch {torch.__version__}, {dist.get_backend()}, {device.type}, {platform.node()}: "
                        "DistributedDataParallel with noop_hook, reducer.get_backward_stats()",
        "world_size": len(ranks), "conditions": conditions, "profile": section,
        "no_communication_step": {f"{key}_us": _round(value) for key, value in times.items()},
        "all_reduce_alone": [{"bytes": size, "us": _round(us)} for size, us in alone],
        "all_reduce_queue_of_8": [{"bytes_each": size, "us_for_8": _round(us)} for size, us in queue],
        "compute_slowdown_while_communicating": slow,
        "cpu_share_of_communication": round(max(rank["share"] for rank in ranks), 4),
        "bucket_copy_ns_per_byte": round(_median([rank["copy"] for rank in ranks]), 5)}
