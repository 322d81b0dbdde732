"""Measured steps of a model under a plan, as a trace that `dovetail compare PREDICTED MEASURED` takes.

    dovetail plan --workload job.json --policy exact -o plan.json --trace predicted.json
    dovetail_torch.record(model, forward, optimizer, predicted="predicted.json", path="measured.json")  # every rank

`model` is what apply() returned. Commands get the numbers that they have in the predicted trace, found by name. What
is measured of them: forward; each gradient's backward, from the gradient before it to the moment its own was ready;
each bucket's collective, from its launch (or the end of the one before it on its stream) to its end; the wait at the end
of backward, or in the optimizer; the optimizer, shared out by bytes. Copies into and out of buckets happen inside
backward and are not seen apart. With DDP the collectives are seen through a communication hook that does what DDP
itself does; it stays on the model, and costs a call of Python per bucket.

On CUDA devices moments are events, recorded on the stream that is current there: the backward pass's in a gradient's
hook, the compute stream at a launch, one that follows the collective at its end. They are read when the last step has
ended; until then nothing waits for the device, and steps follow each other as they do in training. So spans say when
the device did something, not when the host asked for it: how long the host issues or stands in a call is not seen. What was
timed how, and what was not seen, is in the trace's provenance, under `notes`:

    clock      host | cuda-events
    ranks      how the clocks of ranks were laid beside each other
    not_seen   host-issue, host-waits (devices), copies-of-buckets

SPDX-License-Identifier: Apache-2.0
"""

import json
import platform
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist

from dovetail_torch.capture import _DeviceClock, _HostClock, _write
from dovetail_torch.hooks import PlannedModel
from dovetail_torch.plan import PlanError, own_name


class _Watch:
    """When things happened in one step: moments of the clock, ns of the host's or events of the device's."""

    def __init__(self, clock):
        self.now = clock.now
        self.clear()

    def clear(self):
        self.ready = {}   # parameter's name
        self.launch = {}  # bucket's number
        self.end = {}
        self.waits = []    # of own hooks: (bucket's number, start, end)
        self.updates = []  # of own hooks: (names of parameters, start, end)

    def taken(self, marks):
        """All of this step."""
        return SimpleNamespace(marks=marks, ready=self.ready, launch=self.launch, end=self.end, waits=self.waits,
                               updates=self.updates)


def _read(seen, at):
    """The same with every moment read as ns."""
    of_all = lambda moments: {key: at(moment) for key, moment in moments.items()}
    of_spans = lambda spans: [(what, at(start), at(end)) for what, start, end in spans]
    return SimpleNamespace(marks=[at(mark) for mark in seen.marks], ready=of_all(seen.ready), launch=of_all(seen.launch),
                           end=of_all(seen.end), waits=of_spans(seen.waits), updates=of_spans(seen.updates))


def _watch_ddp(ddp, watch):
    size = dist.get_world_size(ddp.process_group)

    def hook(_state, bucket):
        number = bucket.index()
        watch.launch[number] = watch.now()
        tensor = bucket.buffer().div_(size)
        future = dist.all_reduce(tensor, group=ddp.process_group, async_op=True).get_future()

        def done(result):
            watch.end[number] = watch.now()
            value = result.value()
            return value[0] if isinstance(value, (list, tuple)) else value

        return future.then(done)

    ddp.register_comm_hook(None, hook)


def _watch_hooks(model, watch):
    theirs = model._reduce

    def reduce(flat):
        watch.launch[flat.number] = watch.now()
        work = theirs(flat)
        if not hasattr(work, "get_future"):
            return work
        work.get_future().then(lambda _result: watch.end.__setitem__(flat.number, watch.now()))
        return work

    model._reduce = reduce
    wait, step_on = model._wait, model._step_on
    names = {id(parameter): name for name, parameter in model._parameters_by_name.items()}
    for flat in model._flats:
        names.update((id(piece), flat.bucket.names[0]) for piece in flat.pieces)

    def watched_wait(flat):
        if flat.is_waited or flat.work is None:
            return
        start = watch.now()
        wait(flat)
        watch.waits.append((flat.number, start, watch.now()))

    def watched_step(optimizer, chunk, whole_step):
        start = watch.now()
        step_on(optimizer, chunk, whole_step)
        updated = [names[id(p)] for _, params in chunk for p in params if id(p) in names]
        watch.updates.append((updated, start, watch.now()))

    model._wait, model._step_on = watched_wait, watched_step


def _watch_gradients(model, watch):
    keep = []
    for name, parameter in model.module.named_parameters():
        if not parameter.requires_grad:
            continue
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_unused, name=own_name(name): watch.ready.__setitem__(name, watch.now()))
        keep.append(accumulator)
    model._dovetail_watch = keep  # hooks live as long as the accumulators


class _Spans:
    """Spans of one rank, by the commands of the predicted trace."""

    def __init__(self, commands, rank):
        self.by_name = {command["name"]: command for command in commands}
        self.rank = rank
        self.spans = []

    def add(self, name, stream, step, start, end):
        command = self.by_name.get(name)
        if command is not None and end >= start:
            self.spans.append([command["id"], self.rank, stream, step, start, end])


def _spans_of_step(spans, plan, watch, step, streams):
    begin, forward, backward, optimizer, end = watch.marks
    spans.add("between-steps", 0, step, begin, forward)
    spans.add("forward", 0, step, forward, backward)
    at = backward
    for name in sorted(watch.ready, key=watch.ready.get):
        spans.add(f"{name}.backward", 0, step, at, watch.ready[name])
        at = max(at, watch.ready[name])
    last = {}
    for number, bucket in enumerate(plan.buckets):
        start, done = watch.launch[number], watch.end[number]
        stream = streams.get(bucket.stream, 1)
        start = max(start, last.get(stream, 0))
        last[stream] = max(done, start)
        spans.add(f"{bucket.collective} bucket {number}", stream, step, start, max(done, start))
    waits = watch.waits
    if not waits:  # DDP waits within backward, and does not tell
        ends = sorted((end, number) for number, end in watch.end.items() if at < end <= optimizer)
        for done, number in ends:
            spans.add(f"wait bucket {number}", 0, step, at, done)
            at = done
    for number, start, done in waits:
        if done <= optimizer and start >= at:
            spans.add(f"wait bucket {number}", 0, step, start, done)
            at = done
    spans.add("backward.rest", 0, step, at, optimizer)
    for number, start, done in waits:
        if start >= optimizer:
            spans.add(f"wait bucket {number}", 0, step, start, done)
    for names, start, done in watch.updates or [(list(plan.numel), optimizer, end)]:
        _share_out(spans, plan, step, names, start, done)


def _share_out(spans, plan, step, names, start, end):
    """One call updated all of these: by their sizes."""
    total = sum(plan.numel[name] for name in names)
    at, before = start, 0
    for name in names:
        before += plan.numel[name]
        until = start + (end - start) * before // total
        spans.add(f"{name}.update", 0, step, at, until)
        at = until


def _clock_of(model):
    kind = next(model.parameters()).device.type
    if kind == "cpu":
        return _HostClock()
    if kind != "cuda":
        raise PlanError(f"record() times on processors and on CUDA devices; this model is on {kind}")
    if dist.get_backend() == "gloo":
        raise PlanError("record() on a device needs collectives that end there (nccl); gloo's end on the host")
    return _DeviceClock()


def _steps(model, forward, optimizer, watch, count, is_on_host):
    """So many steps, as they were seen. On a device they follow each other; on processors ranks begin each together."""
    seen = []
    for step in range(count):
        if is_on_host or step == 0:
            dist.barrier()
        watch.clear()
        marks = [watch.now()]
        optimizer.zero_grad()
        marks.append(watch.now())
        loss = forward(model)
        marks.append(watch.now())
        loss.backward()
        marks.append(watch.now())
        optimizer.step()
        marks.append(watch.now())
        seen.append(watch.taken(marks))
    return seen


def record(model, forward, optimizer, *, predicted, path, steps=5, warmup=2):
    """Runs warmup + steps training steps and writes their trace to `path` (rank 0). Collective. Returns the median step in
    us, of the slowest rank."""
    planned = isinstance(model, PlannedModel)
    plan = model._plan if planned else model._dovetail.plan
    with open(predicted, encoding="utf-8") as file:
        foreseen = json.load(file)
    if foreseen.get("schema") != "dovetail.trace/1":
        raise PlanError(f"{predicted}: expected a trace, as dovetail plan --trace writes it")
    clock = _clock_of(model)
    is_on_host = isinstance(clock, _HostClock)
    watch = _Watch(clock)
    (_watch_hooks if planned else _watch_ddp)(model, watch)
    _watch_gradients(model, watch)
    zero = clock.now()
    clock.settle()
    zero_ns = time.perf_counter_ns()  # of the clock that all processes of a machine share
    seen = _steps(model, forward, optimizer, watch, warmup + steps, is_on_host)
    clock.settle()
    spans = _Spans(foreseen["commands"], dist.get_rank())
    streams = {entry["name"]: entry["id"] for entry in foreseen["streams"]}
    took = []
    for number, one in enumerate(seen):
        # Read against the step's own beginning: the distance of two events is a float of 24 bits.
        zero_ns, zero = zero_ns + round(clock.microseconds(zero, one.marks[0]) * 1e3), one.marks[0]
        if number < warmup:
            continue
        read = _read(one, lambda moment: zero_ns + round(clock.microseconds(zero, moment) * 1e3))
        took.append(read.marks[-1] - read.marks[0])
        _spans_of_step(spans, plan, read, number - warmup, streams)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (spans.spans, sorted(took)[len(took) // 2]))
    if dist.get_rank() == 0:
        _write(path, _trace(foreseen, plan, [found for found, _ in everyone], steps, is_on_host))
    return max(median for _, median in everyone) / 1e3


def _notes(is_on_host):
    """What was timed how, and what was not seen, for programs to read."""
    if is_on_host:
        return {"clock": "host", "ranks": "one clock on each host", "not_seen": "copies-of-buckets"}
    return {"clock": "cuda-events", "ranks": "each by its host's clock, read once before the first step",
            "not_seen": "host-issue,host-waits,copies-of-buckets"}


def _trace(foreseen, plan, ranks, steps, is_on_host):
    first = min(span[4] for spans in ranks for span in spans)
    rows = sorted(([*span[:4], span[4] - first, span[5] - first] for spans in ranks for span in spans),
                  key=lambda span: (span[1], span[2], span[4], span[5]))
    seen = {row[0] for row in rows}
    return {"schema": "dovetail.trace/1", "kind": "trace",
            "provenance": {"origin": "measured", "machine": platform.node(), "policy": plan.policy,
                           "workload": foreseen["provenance"]["workload"],
                           "backend": f"torch {torch.__version__} {dist.get_backend()}",
                           "notes": _notes(is_on_host)},
            "world_size": len(ranks), "steps": steps, "ranks": list(range(len(ranks))),
            "streams": foreseen["streams"],
            "commands": [command for command in foreseen["commands"] if command["id"] in seen],
            "span_fields": ["command", "rank", "stream", "step", "start_ns", "end_ns", "transfer_start_ns"],
            "spans": rows}
