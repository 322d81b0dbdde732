"""One rank of scripts/campaigns/validate_torch.sh --show fsdp: captures a model for FSDP2, plans, and measures the settings in turn.

SPDX-License-Identifier: Apache-2.0
"""

import copy
import gc
import importlib.util
import json
import os
import pathlib
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import validate_torch_rank as validate

import dovetail_torch
from dovetail_torch.sharded import layers_of

# FSDP2's own collectives block the host on this backend: nothing is ahead, and compute waits for each reduce-scatter.
BLOCKING = "wait=at-launch,forward=0,backward=0"


def setting_list():
    """(name, layers in a group or 0 for all, options of the policy, whether its collectives run beside compute)"""
    ahead = lambda count, more="": f"wait=end-of-backward,forward={count},backward={count}{more}"
    return [("layer", 1, ahead(1), False), ("layer, 2 ahead", 1, ahead(2), False), ("layer, kept", 1, ahead(1, ",reshard=no"), False),
            ("two layers", 2, ahead(1), False), ("one group", 0, ahead(1), False),
            ("layer", 1, ahead(1), True), ("layer, 2 ahead", 1, ahead(2), True), ("layer, kept", 1, ahead(1, ",reshard=no"), True),
            ("two layers", 2, ahead(1), True), ("two layers, kept", 2, ahead(1, ",reshard=no"), True),
            ("four layers", 4, ahead(1), True), ("one group", 0, ahead(1), True)]


def grouped(layers, count):
    """Lists of layers, each of so many, in the order of definition."""
    names = list(layers)
    return [names[i:i + (count or len(names))] for i in range(0, len(names), count or len(names))]


def renamed(program, layers, groups):
    """The program with each parameter's name behind its group's, so that blocks=layer makes those groups."""
    place = {name: f"group.{at}." + name for at, group in enumerate(groups) for layer in group for name in layers[layer]}
    def of(name):
        return place.get(name, name)
    program = copy.deepcopy(program)
    for tensor in program["tensors"]:
        tensor["name"] = of(tensor["name"])
    for op in program["ops"]:
        op["reads"], op["writes"] = [of(name) for name in op["reads"]], [of(name) for name in op["writes"]]
    return program


class Capture:
    """What was measured at one time, and what the tool makes of it."""

    def __init__(self, arguments, layers, when, take):
        self.arguments, self.layers = arguments, layers
        self.stem = str(pathlib.Path(arguments.out) / f"{arguments.model}.fsdp.{when}")
        self.program, self.machine = take(self.stem + ".json", self.stem + ".cluster.json")

    def plan(self, groups, policy):
        file = f"{self.stem}.{''.join(c if c.isalnum() else '-' for c in policy)}.of{len(groups)}"
        if validate.RANK == 0:
            pathlib.Path(file + ".workload.json").write_text(json.dumps(renamed(self.program, self.layers, groups)))
        return validate.tool(self.arguments, "plan", "--workload", file + ".workload.json", "--cluster", self.stem + ".cluster.json",
                             "--policy", policy, "-o", file + ".json", "--force")

    def predicted_us(self, setting):
        policy = f"fsdp:mode=copy,host_waits=yes,{setting.options}"
        if not setting.beside:
            policy = f"fsdp:mode=copy,{BLOCKING}" + (",reshard=no" if "reshard=no" in setting.options else "")
        return self.plan(setting.groups, policy)["predicted"]["step_us"]


def exported(arguments, capture):
    """The file that the tool writes for FSDP2, whose shard() takes groups, gathers and prefetch from its constants."""
    plan = f"{capture.stem}.plan.json"
    file = f"{capture.stem}.export.py"
    validate.tool(arguments, "plan", "--workload", capture.stem + ".json", "--cluster", capture.stem + ".cluster.json",
                  "--policy", "fsdp:mode=copy,wait=end-of-backward", "-o", plan, "--force")
    if validate.RANK == 0:
        ended = validate.run_on_host([arguments.tool, "export", plan, "--cluster", capture.stem + ".cluster.json",
                                      "--to", "fsdp", "-o", file])
        if ended.returncode != 0:
            raise SystemExit(ended.stderr)
    dist.barrier()
    spec = importlib.util.spec_from_file_location("exported", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Setting:
    """One way to shard a copy of the model, and the times of its steps."""

    def __init__(self, listed, layers, base, file, mesh):
        self.name, count, self.options, self.beside = listed
        self.groups = grouped(layers, count)
        options = dict(word.split("=") for word in self.options.split(","))
        file.GROUPS = self.groups[::-1]  # in gradient-ready order
        file.FORWARD_PREFETCH, file.BACKWARD_PREFETCH = int(options["forward"]), int(options["backward"])
        file.RESHARD_AFTER_FORWARD = file.KEEP_LAST = options.get("reshard", "yes") == "yes"
        self.model = file.shard(copy.deepcopy(base), mesh=mesh)
        self.overlapped = dovetail_torch.OverlappedCollectives(self.model) if self.beside else None
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=validate.LEARNING_RATE)
        self.times = []

    def step(self, inputs, targets, loss_of):
        dist.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = loss_of(self.model(inputs), targets)
        loss.backward()
        if self.overlapped:
            self.overlapped.wait()
        self.optimizer.step()
        took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        return took.item() * 1e6

    def weights(self):
        return torch.cat([p.full_tensor().detach().flatten() for p in self.model.parameters()])


def traced(setting, path, *batch):
    """A profiler's trace of one step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        setting.step(*batch)
    profile.export_chrome_trace(path)


def report(arguments, settings, captures):
    weights = {name: setting.weights() for name, setting in enumerate(settings)}
    wrong = [setting.name for at, setting in enumerate(settings) if not torch.equal(weights[at], weights[0])]
    rows = []
    for setting in settings:
        predicted = [capture.predicted_us(setting) for capture in captures]
        rows.append({"setting": setting.name, "collectives": "beside compute" if setting.beside else "blocking",
                     "groups": len(setting.groups), "predicted_us": round(statistics.mean(predicted), 1),
                     "predicted_by_capture_us": predicted,
                     "measured_us": round(statistics.mean(statistics.median(turn) for turn in setting.times), 1),
                     "measured_by_round_us": [round(statistics.median(turn), 1) for turn in setting.times]})
        rows[-1]["error"] = round(rows[-1]["predicted_us"] / rows[-1]["measured_us"] - 1, 5)
    if validate.RANK != 0:
        return not wrong
    quality = captures[0].machine["quality"]
    print(f"\n{arguments.model}: {sum(len(group) for group in settings[0].groups)} layers; capture " +
          ("valid" if quality["valid"] else "NOT valid: " + "; ".join(quality["why"])))
    print(f"{'setting':<18} {'collectives':<15} {'groups':>6} {'predicted ms':>13} {'measured ms':>12} {'error':>8}")
    for row in rows:
        print(f"{row['setting']:<18} {row['collectives']:<15} {row['groups']:>6} {row['predicted_us'] / 1e3:>13.2f} "
              f"{row['measured_us'] / 1e3:>12.2f} {row['error']:>+8.2%}")
    errors = [abs(row["error"]) for row in rows]
    print(f"mean error {statistics.mean(errors):.2%}, worst {max(errors):.2%}; " +
          ("weights bit for bit alike" if not wrong else "WRONG: weights differ with " + ", ".join(wrong)), flush=True)
    path = pathlib.Path(arguments.out) / f"{arguments.model}.fsdp.results.json"
    path.write_text(json.dumps({"model": arguments.model, "torch": torch.__version__, "quality": quality, "rows": rows,
                                "wrong": wrong}, indent=1) + "\n")
    return not wrong


def main():
    arguments = validate.parse_arguments()
    signal.alarm(validate.LONGEST_SECONDS)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # gradients of deep models vanish, and subnormal products take 70 times as long
    validate.require_fast_products()
    validate.start(arguments.meeting)
    base, inputs, targets = validate.make(arguments.model)
    loss_of = torch.nn.CrossEntropyLoss()
    layers = layers_of(base)
    gc.collect()
    gc.disable()
    def capture(when, **how):
        return Capture(arguments, layers, when, lambda path, cluster: dovetail_torch.capture_sharded(
            base, lambda model: loss_of(model(inputs), targets),
            lambda parameters: torch.optim.SGD(parameters, lr=validate.LEARNING_RATE), path=path, cluster=cluster,
            name=arguments.model, **how))
    captures = [capture("first", steps=20)]
    dist.barrier()
    file, mesh = exported(arguments, captures[0]), init_device_mesh("cpu", (2,))
    settings = [Setting(listed, layers, base, file, mesh) for listed in setting_list()]
    for turn in range(arguments.rounds + 1):  # the first one is not counted
        for setting in settings:
            times = [setting.step(inputs, targets, loss_of) for _ in range(arguments.steps if turn else 3)]
            setting.times += [times[1:]] if turn else []
    captures.append(capture("last", steps=10, warmup=3, repetitions=3))
    good = report(arguments, settings, captures)
    for setting in settings:
        name = "".join(c if c.isalnum() else "-" for c in setting.name) + ("-beside" if setting.beside else "")
        traced(setting, f"{arguments.out}/{arguments.model}.fsdp.{name}.rank{validate.RANK}.trace.json", inputs, targets, loss_of)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0 if good else 1)


if __name__ == "__main__":
    main()
