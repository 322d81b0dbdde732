#!/usr/bin/env python3
"""The way from a PyTorch job to a plan and back, in real PyTorch: capture, plan, apply, train, record, compare.

    scripts/checks/check_torch.py [--tool build/dovetail] [--python /usr/bin/python3] [--keep DIR]

Starts two ranks (gloo, loopback). Each setting trains a small model for a few steps; its weights must be bit for bit
those of stock DistributedDataParallel, and its buckets those of the plan by DDP's own log.
Models that run nowhere are described: their parameters and FLOPs must be the zoo's, and those that PyTorch counts. A GPU's
own book is measured on processors, and once more on stand-ins for a GPU's graphs and events. Nothing
here depends on how long anything takes; scripts/campaigns/validate_torch.sh compares times.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no PyTorch here (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import contextlib
import copy
import importlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
STEPS = 4
MICRO_STEPS = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--keep", help="folder for the files, instead of a temporary one")
    parser.add_argument("--as-rank", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def start_ranks(arguments):
    probe = subprocess.run([arguments.python, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                           text=True, check=False)
    if probe.returncode != 0:
        print(f"check_torch: skipped: {arguments.python} has no torch (Debian: apt-get install python3-torch)")
        return 77
    print(f"check_torch: PyTorch {probe.stdout.strip()}, two ranks, gloo, loopback")
    folder = arguments.keep or tempfile.mkdtemp(prefix="dovetail-torch-")
    os.makedirs(folder, exist_ok=True)
    # One rendezvous file per job: a used one hangs.
    meeting = os.path.join(folder, f"meeting-{os.getpid()}")
    environment = dict(os.environ, WORLD_SIZE="2", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0",
                       DOVETAIL_MEETING=meeting, DOVETAIL_FOLDER=folder, PYTHONDONTWRITEBYTECODE="1")
    ranks = [subprocess.Popen([arguments.python, __file__, "--as-rank", str(rank), "--tool", arguments.tool],
                              env=dict(environment, RANK=str(rank))) for rank in range(2)]
    codes = []
    try:
        for rank in ranks:
            codes.append(rank.wait(timeout=500))
    except subprocess.TimeoutExpired:
        print("check_torch: FAILED: the ranks did not end within 500 s")
        codes.append(1)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
        if not arguments.keep:
            subprocess.run(["rm", "-rf", folder], check=False)
    return 0 if codes == [0, 0] else 1


arguments = parse_arguments()
if arguments.as_rank is None:
    sys.exit(start_ranks(arguments))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

import dovetail_torch  # noqa: E402
import torch_models  # noqa: E402
from dovetail_torch import gpu_books, gpu_kernels, measure as measuring, meter as meters  # noqa: E402
from dovetail_torch.apply import has_list, logged_buckets, owned_parameters  # noqa: E402
from torch_host import run_on_host  # noqa: E402

FOLDER = pathlib.Path(os.environ["DOVETAIL_FOLDER"])
RANK = int(os.environ["RANK"])
CHECKS = {"passed": 0, "failed": 0}


def check(condition, text):
    """Every rank must agree, or the others wait for ever."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, bool(condition))
    CHECKS["passed" if all(everyone) else "failed"] += 1
    if not all(everyone) and RANK == 0:
        print(f"FAILED: {text}", flush=True)


def raises(error, text, call):
    """That the call raises on every rank, with these words."""
    try:
        call()
    except error as raised:
        check(text in str(raised), f"expected {text!r} in {raised}")
        return
    check(False, f"expected {error.__name__}: {text}")


def tool(*words, code=0):
    """Runs the dovetail tool on rank 0; every rank gets what it printed."""
    said = [None]
    if RANK == 0:
        ended = run_on_host([arguments.tool, *words])
        said = [(ended.returncode, ended.stdout + ended.stderr)]
    dist.broadcast_object_list(said, 0)
    check(said[0][0] == code, f"dovetail {' '.join(words)}: exit code {said[0][0]}, expected {code}: {said[0][1]}")
    return said[0][1]


class Uneven(torch.nn.Module):
    """Layers of uneven sizes, a buffer, and a bias of 7 elements, so that shards cut parameters in the middle."""

    def __init__(self, second_dtype=torch.float32):
        super().__init__()
        sizes = [64, 520, 600, 256, 7]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.layers[1].to(second_dtype)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x.to(layer.weight.dtype)).to(torch.float32)
            x = torch.relu(x) if index + 1 < len(self.layers) else x
        return x


def make_model(**options):
    torch.manual_seed(3)
    return Uneven(**options)


def batch(step):
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return torch.randn(16, 64, generator=generator)


def loss_of(model, step):
    return model(batch(step)).square().mean()


def train(model, optimizer, micro_steps=1, steps=STEPS):
    """Weights after some steps."""
    for step in range(steps):
        optimizer.zero_grad()
        for micro in range(micro_steps - 1):
            with model.no_sync():
                loss_of(model, step + 100 * (micro + 1)).backward()
        loss_of(model, step).backward()
        optimizer.step()
    return [value.detach().clone() for value in model.state_dict().values()]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(model):
    halves = list(model.parameters())
    return torch.optim.Adam([{"params": halves[:3]}, {"params": halves[3:], "lr": 0.004}], lr=0.002)


def stock(make_optimizer=sgd, micro_steps=1, **options):
    model = DistributedDataParallel(make_model(**options))
    return train(model, make_optimizer(model.module), micro_steps)


def applied(plan, make_optimizer=sgd, micro_steps=1, form=None, model_options=None, **options):
    """(weights after training, the wrapped model)"""
    said = []
    module = make_model(**(model_options or {}))
    optimizer = make_optimizer(module)
    model = dovetail_torch.apply(module, plan, optimizer=optimizer, form=form, say=said.append, **options)
    model.said = said
    return train(model, optimizer, micro_steps), model


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


def plan_of(policy, workload):
    path = FOLDER / "plan.json"
    tool("plan", "--workload", str(workload), "--policy", policy, "-o", str(path), "--force")
    return json.loads(path.read_text())


def check_capture():
    module = make_model()
    optimizer = sgd(module)
    warm = DistributedDataParallel(module)
    train(warm, optimizer, steps=1)
    del warm
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    path = FOLDER / "job.json"
    profile = dovetail_torch.capture(module, lambda model: loss_of(model, 0), optimizer, path=path, steps=6, warmup=2,
                                     repetitions=2, largest_all_reduce=1 << 20, name="uneven")
    check(same(before[0].values(), module.state_dict().values()), "capture leaves the weights as they were")
    momenta = lambda state: [entry["momentum_buffer"] for entry in state["state"].values()]
    check(same(momenta(before[1]), momenta(optimizer.state_dict())), "capture leaves the optimizer as it was")
    names = [gradient["name"] for gradient in profile["profile"]["gradients"]]
    check(sorted(names) == sorted(owned_parameters(module)), "capture has every gradient")
    layers = [name.split(".")[1] for name in names]
    check(layers == sorted(layers, reverse=True), f"gradients become ready from the last layer on, not {names}")
    check(profile["conditions"]["valid"] == (not profile["conditions"]["why_not_valid"]), "a verdict has reasons")
    # The tool takes an invalid capture only when it is told to.
    dist.barrier()
    judged = json.loads(path.read_text())
    for valid in (False, True):
        judged["conditions"].update(valid=valid, why_not_valid=[] if valid else ["steps spread from p10 to p90 by 9.0 %"])
        if RANK == 0:
            (FOLDER / f"{valid}.json").write_text(json.dumps(judged))
    dist.barrier()
    out = str(FOLDER / "any.json")
    refused = tool("plan", "--workload", str(FOLDER / "False.json"), "-o", out, code=2)
    check("not valid" in refused and "steps spread" in refused and "--force" in refused, f"refused in words: {refused}")
    tool("plan", "--workload", str(FOLDER / "False.json"), "-o", out, "--force")
    tool("plan", "--workload", str(FOLDER / "True.json"), "-o", out)
    return path


def with_given_times(captured):
    """The captured job with times that no other program can disturb: what a policy plans, and so which form a plan
    needs, depends on the times, and those of a busy machine may be any."""
    profile = json.loads(captured.read_text())
    times = profile["profile"]
    times.update(forward_us=1000.0, backward_us=2000.0, optimizer_us=200.0)
    times.pop("rank1", None)
    for place, gradient in enumerate(times["gradients"], start=1):
        gradient["ready_us"] = 2000.0 * place / len(times["gradients"])
        gradient.pop("ready_us_rank1", None)
    alone = lambda size: 100.0 + size / 1000
    for row in profile["all_reduce_alone"]:
        row["us"] = alone(row["bytes"])
    for row in profile["all_reduce_queue_of_8"]:
        row["us_for_8"] = 8 * alone(row["bytes_each"])
    profile["no_communication_step"].update(step_us=3200.0, forward_us=1000.0, backward_us=2000.0, optimizer_us=200.0,
                                            p10_us=3200.0, p90_us=3200.0)
    profile["compute_slowdown_while_communicating"] = {"forward": 1.0, "backward": 1.0}
    profile.update(cpu_share_of_communication=0.0, bucket_copy_ns_per_byte=0.1)
    profile["conditions"].update(valid=True, why_not_valid=[])
    path = FOLDER / "given.json"
    if RANK == 0:
        path.write_text(json.dumps(profile))
    dist.barrier()
    return path


def check_forms(workload):
    """Each policy by the form that it needs; weights as stock DDP's."""
    ddp_form = "list" if has_list() else "assignment"
    reference = {make: stock(make) for make in (sgd, adam)}
    for policy, form in [("exact:mode=copy,wait=end-of-backward", ddp_form),
                         ("threshold:cap=60KiB,mode=view,wait=end-of-backward", ddp_form),
                         ("per-tensor:mode=copy,wait=end-of-backward", ddp_form),
                         ("threshold:cap=60KiB", "hooks"),
                         ("threshold:cap=60KiB,mode=copy", "hooks"),
                         ("threshold:cap=60KiB,batch=2,wait=before-next-batch", "hooks"),
                         ("no-overlap", "hooks"),
                         ("naive", "hooks"),
                         ("sharded:cap=300KiB,p=1", "hooks"),
                         ("sharded:cap=300KiB,p=2,gather=next-forward", "hooks")]:
        plan = plan_of(policy, workload)
        for make in (sgd, adam):
            weights, model = applied(plan, make)
            check(same(weights, reference[make]), f"{policy}, {make.__name__}: weights are stock DDP's")
        check(f"form {form}" in model.said[0], f"{policy}: {model.said[0]}")
        check(any(line.startswith("checked") for line in model.said), f"{policy}: checked: {model.said}")
        if form != "hooks" and f"form {form}" in model.said[0]:
            sizes, _, _ = logged_buckets(model)
            check(sizes == [bucket["bytes"] for bucket in plan["buckets"]], f"{policy}: DDP's log has {sizes}")


def check_micro_steps(workload):
    reference = stock(micro_steps=MICRO_STEPS)
    for policy in ("threshold:cap=60KiB,mode=copy,wait=end-of-backward,k=2", "threshold:cap=60KiB,k=2"):
        weights, _ = applied(plan_of(policy, workload), micro_steps=MICRO_STEPS)
        check(same(weights, reference), f"{policy}: weights are stock DDP's with no_sync")


def check_any_grouping(workload):
    """Groups that follow no order, and gradients cut over buckets."""
    plan = plan_of("threshold:cap=60KiB,mode=copy,wait=end-of-backward", workload)
    numel = {t["name"]: t["shape"][0] for t in plan["program"]["tensors"] if t["kind"] == "gradient"}
    first, second = plan["buckets"][0], plan["buckets"][1]
    first["gradients"].append(second["gradients"].pop())
    resize = lambda bucket: bucket.update(elements=sum(numel[g] if isinstance(g, str) else g["count"] for g in bucket["gradients"]))
    for bucket in (first, second):
        resize(bucket)
        bucket["bytes"] = 4 * bucket["elements"]
    weights, model = applied(plan)
    check("form assignment" in model.said[0], f"any grouping: {model.said[0]}")
    check(same(weights, stock()), "any grouping: weights are stock DDP's")
    cut = plan_of("threshold:cap=60KiB,mode=copy", workload)
    name = cut["buckets"][0]["gradients"][-1]
    cut["buckets"][0]["gradients"][-1] = {"tensor": name, "first": 0, "count": 5}
    cut["buckets"][1]["gradients"].append({"tensor": name, "first": 5, "count": numel[name] - 5})
    for bucket in cut["buckets"]:
        resize(bucket)
        bucket["bytes"] = 4 * bucket["elements"]
    weights, model = applied(cut)
    check("cuts gradients" in model.said[0], f"cut gradients: {model.said[0]}")
    check(same(weights, stock()), "cut gradients: weights are stock DDP's")


def check_mixed_dtypes(workload):
    """Two dtypes: the list form would go wrong, so it is not taken."""
    profile = json.loads(workload.read_text())
    for gradient in profile["profile"]["gradients"]:
        if gradient["name"].startswith("layers.1."):
            gradient["dtype"] = "float64"
    mixed = FOLDER / "mixed.json"
    if RANK == 0:
        mixed.write_text(json.dumps(profile))
    dist.barrier()
    plan = plan_of("threshold:cap=60KiB,mode=copy,wait=end-of-backward", mixed)
    weights, model = applied(plan, model_options={"second_dtype": torch.float64})
    check("form assignment: bucket_cap_mb_list cannot" in model.said[0], f"two dtypes: {model.said[0]}")
    check(same(weights, stock(second_dtype=torch.float64)), "two dtypes: weights are stock DDP's")


def check_stock_buckets(workload):
    """torch-ddp of the tool has the buckets that this version's DDP makes."""
    version = "1.13" if torch.__version__.startswith("1.") else "2.6"
    for cap in (None, 0.05, 0.2):
        module = make_model()
        model = DistributedDataParallel(module, **({} if cap is None else {"bucket_cap_mb": cap}))
        train(model, sgd(module), steps=2)
        model(batch(0)).sum().backward()
        sizes = [int(size) for size in model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")]
        words = f"torch-ddp:torch={version}" + ("" if cap is None else f",cap={int(cap * 2**20)}B")
        plan = plan_of(words, workload)
        check(sizes == [bucket["bytes"] for bucket in plan["buckets"]],
              f"{words}: {[b['bytes'] for b in plan['buckets']]}, DDP {sizes}")


def check_static_graph(workload):
    """DDP rebuilds its buckets a step later then: that is not taken for another plan."""
    plan = plan_of("threshold:cap=60KiB,mode=copy,wait=end-of-backward", workload)
    module = make_model()
    model = dovetail_torch.apply(module, plan, say=lambda text: None, static_graph=True)
    train(model, sgd(module), steps=1)
    if has_list():
        raises(dovetail_torch.PlanMismatch, "after the third step", lambda: dovetail_torch.check(model))
    train(model, sgd(module), steps=4)
    check(model._dovetail.forwards == 5 and model._dovetail.checked, "a plan is followed with static_graph, and was looked at")


def check_compiled(workload):
    """A model that is compiled as a whole loses the overlap, or has DDP's cuts, and is told so; compiled blocks follow the plan."""
    if not has_list():
        return
    import torch._dynamo.config as dynamo
    plan = plan_of("threshold:cap=60KiB,mode=copy,wait=end-of-backward", workload)
    small, whole = make_model(), torch.compile(make_model(), backend="eager")
    apply = lambda form, said: dovetail_torch.apply(whole, plan, form=form, say=said.append)
    judge = importlib.import_module("dovetail_torch.apply")._judge_compiled
    tiny = types.SimpleNamespace(buckets=[types.SimpleNamespace(bytes=60 << 10)])
    raises(dovetail_torch.PlanError, "below 1 MiB", lambda: judge(tiny, "list", print))
    refused = torch.compile(DistributedDataParallel(small, bucket_cap_mb_list=[0.06] * 9), backend="eager")
    raises(AssertionError, "First bucket should be smaller", lambda: train(refused, sgd(small)))
    largest = max(bucket["bytes"] for bucket in plan["buckets"]) / 2**20
    for form, mode, words in (("assignment", True, "cuts backward at 1 MiB and then at every 25 MiB"),
                              ("list", "ddp_optimizer", f"at 1 MiB and then at every {largest:g} MiB"),
                              ("assignment", False, "nothing overlaps"), ("list", False, "nothing overlaps"),
                              ("list", "python_reducer", "")):
        said = []
        with dynamo.patch(optimize_ddp=mode):
            if words:
                apply(form, said)
            else:
                raises(dovetail_torch.PlanError, "goes without DDP's buckets", lambda: apply(form, said))
        check(words in " ".join(said), f"{form}, optimize_ddp={mode}: {said}")
    module = make_model()
    for layer in module.layers:
        layer.compile(backend="eager")
    with dynamo.patch(optimize_ddp=False):
        model = dovetail_torch.apply(module, plan, say=lambda text: check("overlap" not in text, f"compiled blocks: {text}"))
        check(same(train(model, sgd(module)), stock()), "compiled blocks: weights are stock DDP's")
    check(model._dovetail.checked, "compiled blocks follow the plan")


def check_refusals(workload):
    plan = plan_of("threshold:cap=60KiB,mode=copy,wait=end-of-backward", workload)
    hooks = plan_of("threshold:cap=60KiB", workload)
    other = copy.deepcopy(plan)
    other["program"]["tensors"] = [t for t in other["program"]["tensors"]]
    raises(dovetail_torch.PlanError, "another model",
           lambda: dovetail_torch.apply(torch.nn.Linear(3, 3), plan))
    raises(dovetail_torch.PlanError, "pass optimizer=", lambda: dovetail_torch.apply(make_model(), hooks))
    raises(dovetail_torch.PlanError, "expected schema", lambda: dovetail_torch.apply(make_model(), {"schema": "x"}))
    raises(dovetail_torch.PlanError, "find_unused_parameters",
           lambda: dovetail_torch.apply(make_model(), plan, find_unused_parameters=True))
    raises(dovetail_torch.PlanError, "different plans",
           lambda: dovetail_torch.apply(make_model(), plan if RANK == 0 else plan_without_last_border(plan)))
    # Another plan than the one that DDP was given is noticed at the third forward, on every rank.
    module = make_model()
    model = dovetail_torch.apply(module, plan, say=lambda text: None)
    model._dovetail.plan = dovetail_torch.read_plan(plan_without_last_border(plan))
    raises(dovetail_torch.PlanMismatch, "bytes", lambda: train(model, sgd(module)))
    # A parameter that gets no gradient would leave its bucket unsent.
    module = make_model()
    optimizer = sgd(module)
    model = dovetail_torch.apply(module, hooks, optimizer=optimizer, say=lambda text: None)
    model.module.layers[3].bias.requires_grad_(True)
    raises(dovetail_torch.PlanMismatch, "got no gradient",
           lambda: (model.module.layers[0](batch(0)).sum()).backward())


def plan_without_last_border(plan):
    merged = copy.deepcopy(plan)
    last = merged["buckets"].pop()
    merged["buckets"][-1]["gradients"] += last["gradients"]
    for key in ("bytes", "elements"):
        merged["buckets"][-1][key] += last[key]
    return merged


def check_export(workload):
    plan_path, path = FOLDER / "export.json", FOLDER / "ddp_plan.py"
    tool("plan", "--workload", str(workload), "--policy", "threshold:cap=60KiB", "-o", str(plan_path), "--force")
    said = tool("export", str(plan_path), "--to", "torch", "-o", str(path))
    check("waits at the end of backward" in said, f"export says what DDP cannot do: {said}")
    spec = importlib.util.spec_from_file_location("ddp_plan", path)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    sizes = [bucket["bytes"] for bucket in json.loads(plan_path.read_text())["buckets"]]
    check([int(cap * 2**20) for cap in exported.BUCKET_CAP_MB_LIST] == sizes, "caps are the plan's bytes")
    module = make_model()
    if not has_list():
        raises(RuntimeError, "dovetail_torch.apply", lambda: exported.wrap(module))
        return
    model = exported.wrap(module)
    check(same(train(model, sgd(module)), stock()), "exported list: weights are stock DDP's")
    exported.check(model)


def check_record(workload):
    """The measured steps beside the predicted ones."""
    for policy in ("threshold:cap=60KiB,mode=copy,wait=end-of-backward", "threshold:cap=60KiB"):
        plan, predicted, measured = (str(FOLDER / name) for name in ("r.json", "p.json", "m.json"))
        tool("plan", "--workload", str(workload), "--policy", policy, "-o", plan, "--trace", predicted, "--force")
        module = make_model()
        optimizer = sgd(module)
        model = dovetail_torch.apply(module, plan, optimizer=optimizer, say=lambda text: None)
        step_us = dovetail_torch.record(model, lambda m: loss_of(m, 0), optimizer, predicted=predicted, path=measured)
        check(step_us > 0, "a step takes time")
        dist.barrier()
        said = json.loads(tool("compare", predicted, measured, "--json"))
        buckets = len(json.loads(pathlib.Path(plan).read_text())["buckets"])
        check(len(said["buckets"]) == buckets, f"{policy}: {len(said['buckets'])} of {buckets} buckets are compared")
        strangers = [one["name"] for one in said["unmatched"] if "pack" not in one["name"]]
        check(not strangers, f"{policy}: of what was foreseen all but copies is measured, not {strangers}")
        notes = json.loads(pathlib.Path(measured).read_text())["provenance"]["notes"]
        check(notes["clock"] == "host" and notes["not_seen"] == "copies-of-buckets", f"the host's clock is named: {notes}")


class LateClock:
    """Stands in for events of a device whose queue runs behind: none is known before the host has waited for all."""

    def __init__(self):
        self.settled = self.early = self.reached = 0

    def now(self):
        return time.perf_counter_ns()

    def microseconds(self, start, end):
        self.early += max(start, end) > self.reached
        return (end - start) / 1e3

    def settle(self):
        self.settled += 1
        self.reached = self.now()


def check_record_on_device(workload):
    """The way of events, with a stand-in for them: read when the last step has ended, and what they cannot tell is said."""
    recorder = sys.modules["dovetail_torch.record"]
    plan, predicted, measured = (str(FOLDER / name) for name in ("dr.json", "dp.json", "dm.json"))
    tool("plan", "--workload", str(workload), "--policy", "threshold:cap=60KiB", "-o", plan, "--trace", predicted, "--force")
    module, clock, ways = make_model(), LateClock(), recorder._clock_of
    optimizer = sgd(module)
    model = dovetail_torch.apply(module, plan, optimizer=optimizer, say=lambda text: None)
    recorder._clock_of = lambda _model: clock
    try:
        step_us = dovetail_torch.record(model, lambda m: loss_of(m, 0), optimizer, predicted=predicted, path=measured)
    finally:
        recorder._clock_of = ways
    check(step_us > 0 and clock.settled == 2, f"the host waits before the first step and behind the last: {clock.settled}")
    check(clock.early == 0, "no event is read before the device has reached it")
    dist.barrier()
    notes = json.loads(pathlib.Path(measured).read_text())["provenance"]["notes"]
    check(notes["clock"] == "cuda-events" and "host-waits" in notes["not_seen"].split(","), f"what was not seen is said: {notes}")
    said = json.loads(tool("compare", predicted, measured, "--json"))
    check(len(said["buckets"]) == len(json.loads(pathlib.Path(plan).read_text())["buckets"]), "all buckets are compared")
    on = lambda device: type("Model", (), {"parameters": lambda self: iter([type("P", (), {"device": device})()])})()
    raises(dovetail_torch.PlanError, "this model is on meta", lambda: recorder._clock_of(on(torch.device("meta"))))
    raises(dovetail_torch.PlanError, "gloo's end on the host", lambda: recorder._clock_of(on(torch.device("cuda", 0))))


class GivenClock:
    """A step takes what the test says."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return self.at

    def microseconds(self, start, end):
        return end - start

    def settle(self):
        pass


class Replanned:
    """A model that plans anew, its plans those of given policies on the given job, its steps as long as is said."""

    def __init__(self, workload, policies):
        self.workload, self.policies = workload, list(policies)
        self.module, self.said = make_model(), []
        self.optimizer = sgd(self.module)
        self.model = dovetail_torch.ReplannedModel(
            self.module, lambda model: loss_of(model, 0), self.optimizer, tool=arguments.tool, run=self.run,
            folder=str(FOLDER / "replan"), steps=4, say=self.said.append, broadcast_buffers=False,
            capturing={"steps": 2, "warmup": 1, "repetitions": 1, "attempts": 1, "largest_all_reduce": 1 << 18})
        self.model._clock = GivenClock()
        self.ended = 0

    def run(self, words):
        if "plan" in words:
            words = list(words)
            words[words.index("--workload") + 1] = str(self.workload)
            words[words.index("--policy") + 1] = self.policies.pop(0)
        return run_on_host(words)

    def train(self, *windows):
        """Windows of 3 + 4 steps and the one from which they are timed, in us; one number, or one for each rank."""
        for us in windows:
            for _ in range(8):
                self.optimizer.zero_grad()
                loss_of(self.model, self.ended).backward()
                self.optimizer.step()
                self.ended += 1
                self.model._clock.at += us[RANK] if isinstance(us, tuple) else us
                self.model.step_ended()

    def decided(self):
        return [decision["decision"] for decision in self.model.decisions]

    def buckets(self):
        return logged_buckets(self.model._now["ddp"])[0]


def check_replanning(_):
    """Measured, planned, tried, kept or dropped, on all ranks alike; weights are those of a model that was never planned."""
    groups = lambda kib: f"threshold:cap={kib}KiB,mode=copy,wait=end-of-backward"
    workload = FOLDER / "False.json"  # of check_capture: a capture that is not valid is planned with all the same
    ours = Replanned(workload, [groups(60), groups(60), groups(4000), "no such policy", groups(4000), groups(60)])
    ours.module.seen.fill_(RANK)
    planned = {kib: [bucket["bytes"] for bucket in plan_of(groups(kib), workload)["buckets"]] for kib in (60, 4000)}
    ours.train(1000.0, 900.0)
    check(ours.decided() == ["kept"] and ours.buckets() == planned[60], f"a shorter step is kept: {ours.model.decisions}")
    ours.train(920.0, 870.0, 1000.0, 910.0)
    check(ours.decided() == ["kept", "passed"], f"a drift that is over is not planned for: {ours.decided()}")
    ours.train(1000.0)  # the pause after a decision that kept nothing
    ours.train(1000.0, 1000.0)
    check(ours.decided()[2:] == ["unchanged"], f"the same plan needs no trial: {ours.decided()}")
    ours.train(1000.0, 1000.0, 1200.0, 1200.0)  # a pause of two windows, a drift that is watched, and measured
    check([bucket.bytes for bucket in ours.model._now["plan"].buckets] == planned[4000], "the trial is of the new plan")
    ours.train((1150.0, 1210.0))
    check(ours.decided()[3:] == ["dropped"] and ours.buckets() == planned[60],
          f"the slowest rank judges on all ranks, and the buckets from before are taken again: {ours.model.decisions}")
    ours.train(*[1200.0] * 4, 800.0, 800.0)
    check(ours.decided()[4:] == ["not planned"] and "no such policy" in ours.model.decisions[4]["reason"],
          f"training goes on without a plan: {ours.model.decisions[4:]}")
    ours.train(*[900.0] * 8, 900.0, 900.0, 800.0)
    check(ours.decided()[5:] == ["kept"] and ours.buckets() == planned[4000], f"what is faster is kept: {ours.decided()}")
    ours.train(1000.0, 1000.0)
    ours.model._now["ddp"]._dovetail.plan = ours.model._before["plan"]
    ours.train(700.0)
    check(ours.decided()[6:] == ["dropped"] and "bytes" in ours.model.decisions[6]["reason"] and
          ours.buckets() == planned[4000], f"a plan that DDP did not follow is dropped: {ours.model.decisions[6:]}")
    twin = DistributedDataParallel(make_model())
    train(twin, sgd(twin.module), steps=ours.ended)
    check(same(ours.module.parameters(), twin.module.parameters()), "weights are stock DDP's")
    check(ours.module.seen.item() == RANK, "each rank has its own buffers after each plan")
    log, said = FOLDER / "replan" / "log.json", ""
    if RANK == 0:
        said = run_on_host(["/usr/bin/python3", str(ROOT / "scripts/checks/check_schemas.py"), str(log)]).stderr
    check(RANK != 0 or said.endswith(" 0 problems\n"), f"the log is as its schema says: {said}")
    check(RANK != 0 or json.loads(log.read_text())["decisions"] == ours.model.decisions, "the log has every decision")


def check_windows():
    """Half of 16 steps at 100 us below their median, half as much above: a notch of 1.57 x 200 / 4 = 78.5 us."""
    window = lambda median: dovetail_torch.replan._Window([[median - 100.0, median + 100.0] * 8])
    check(window(840.0).is_shorter_than(window(1000.0)), "160 us are more than both notches")
    check(not window(850.0).is_shorter_than(window(1000.0)), "150 us are less than both notches")


def check_replanning_refusals(workload):
    make = lambda **options: dovetail_torch.ReplannedModel(make_model(), None, None, folder=str(FOLDER / "replan"), **options)
    raises(dovetail_torch.PlanError, "tool='no-such-tool' does not run", lambda: make(tool="no-such-tool"))
    raises(ValueError, "expected 4 at least", lambda: make(steps=3))
    raises(ValueError, "default group only", lambda: make(process_group=None))
    hooks = Replanned(workload, ["threshold:cap=60KiB"])
    raises(dovetail_torch.PlanError, "expected plans that DDP can run: it waits at first use", lambda: hooks.train(1000.0))


class OnMeta(TorchFunctionMode):
    """Modules that are made within have no memory, in PyTorch before 2.0 too."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func in (torch.empty, torch.ones, torch.zeros, torch.tensor)
        return func(*args, **dict(kwargs or {}, device="meta") if made else kwargs or {})


def kernels_of(program, phase):
    return [kernel for op in program["ops"] if op["phase"] == phase for kernel in op["work"].get("kernels", [op["work"]])]


def flop_of(kernels):
    return sum(2 * one["m"] * one["n"] * one["k"] * one.get("count", 1) if one["kind"] == "gemm" else one["work_flop"]
               for one in kernels)


def shapes_of(program, kind):
    """As they lie, or transposed: GPT-2 has its own linear layers."""
    return sorted(sorted(tensor["shape"]) for tensor in program["tensors"] if tensor["kind"] == kind)


def image_kernels(program, phase):
    """Convolutions and pools with all that is said of them; how many batch norms there are (their running means are no operands of the zoo's)."""
    kernels = kernels_of(program, phase)
    exact = [one for one in kernels if "convolution" in one or one.get("access", "").startswith("max-pool")]
    return sorted(json.dumps({"count": 1, **one, "work_flop": 0}, sort_keys=True) for one in exact), sum(
        one.get("access", "").startswith("batch-norm") for one in kernels)


def check_described_models():
    """As the zoo has them, and as PyTorch counts them, to the last FLOP."""
    tokens = lambda samples, length: torch.zeros(samples, length, dtype=torch.long)
    # Attention here sees the whole square, in the zoo half of it, in a kernel of its own.
    square = lambda samples, length, width, layers: 4 * samples * length * length * width * layers
    for name, make, example, rows, attention in [
            ("gpt2", torch_models.Gpt2, tokens(8, 1024), 8192, square(8, 1024, 768, 12)),
            ("llama2_7b:sequence=512", torch_models.Llama, tokens(1, 512), 512, square(1, 512, 4096, 32)),
            ("resnet50", torch_models.ResNet50, torch.zeros(64, 3, 224, 224), 64, 0)]:
        with OnMeta():
            model = make()
        loss = lambda out, rows=rows: F.cross_entropy(out.view(rows, -1), tokens(1, rows)[0].to("meta"))
        ours = dovetail_torch.describe(model, example, loss=loss)
        zoo = json.loads(tool("show", "program", "--workload", name, "--json"))
        check(shapes_of(ours, "parameter") == shapes_of(zoo, "parameter"), f"{name}: parameters are the zoo's")
        # In one kernel attention's backward computes the scores again: 2 x 32 heads x 512 x 512 x 128, in each of 32 layers.
        again = 32 * 2 * 32 * 512 * 512 * 128 if "llama" in name and hasattr(F, "scaled_dot_product_attention") else 0
        for phase, more in (("forward", attention), ("backward", 2 * attention + again)):
            # The zoo's sums and norms have FLOPs, those of PyTorch none: products alone are compared.
            theirs = flop_of([one for one in kernels_of(zoo, phase) if one["kind"] == "gemm"]) + more
            found = flop_of(kernels_of(ours, phase))
            check(found == theirs, f"{name}: {phase} has {found} FLOP, the zoo's {theirs}")
            check(image_kernels(ours, phase) == image_kernels(zoo, phase), f"{name}: {phase} has the zoo's convolutions, norms and pools")
        if importlib.util.find_spec("torch.utils.flop_counter"):
            counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
            with counter:
                loss(model(example.to("meta"))).backward()
            found = flop_of(kernels_of(ours, "forward") + kernels_of(ours, "backward")) - again
            check(found == counter.get_total_flops(), f"{name}: {found} FLOP, PyTorch counts {counter.get_total_flops()}")


class Adapted(torch.nn.Module):
    """A frozen layer with an adapter beside it, a tied one, and one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = torch.nn.Linear(64, 64), torch.nn.Linear(64, 4), torch.nn.Linear(4, 64)
        self.tied, self.unused = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 3)
        self.base.requires_grad_(False)
        self.tied.weight = self.base.weight
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.tied(torch.relu(self.drop(self.base(x)) + self.up(self.down(x))))


class Passes(torch.nn.Module):
    """One of each kind of pass over memory that needs no fused kernel of a later PyTorch."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = torch.nn.Embedding(32, 64), torch.nn.LayerNorm(64)
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, tokens):
        x = self.norm(self.words(tokens)) * self.weight
        wide = x.double()
        x = torch.cat((-x[..., 32:], x[..., :32]), dim=-1) + (wide * wide.mean(-1, keepdim=True)).float()
        return torch.log_softmax(x.transpose(0, 1).contiguous(), dim=-1)


def check_accesses():
    """Each kernel says how it goes over its bytes, in words of the tool."""
    program = dovetail_torch.describe(Passes(), torch.zeros(4, 16, dtype=torch.long), file=FOLDER / f"passes-{RANK}.json")
    said = {phase: {one.get("access") for one in kernels_of(program, phase) if one["kind"] == "memory"}
            for phase in ("forward", "backward", "optimizer")}
    for phase, expected in {"forward": {"gathered", "layer-norm", "columns", "widened", "sum-rows", "rows", "plain", "strided",
                                        "softmax"},
                            "backward": {"softmax-backward", "layer-norm-backward", "scattered", "filled", "sum-columns"},
                            "optimizer": {"updated"}}.items():
        check(expected <= said[phase], f"kernels {phase} are {said[phase]}; expected {expected}")
    tool("explore", "--workload", str(FOLDER / "passes-0.json"), "--cluster", "h100x8", "--json")


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return self.linear(x).masked_fill(x > 0, 0.0) + torch.zeros_like(x)


def check_copies():
    """Forward: x > 0; masked_fill's copy, and the fill of that with a mask of bytes; zeros, of which nothing is read; the sum."""
    program = dovetail_torch.describe(Masked(), torch.zeros(8, 16))
    sizes = sorted(one["traffic_bytes"] for one in kernels_of(program, "forward") if one["kind"] == "memory")
    floats = 8 * 16 * 4
    check(sizes == sorted([floats + floats // 4, 2 * floats, 2 * floats + floats // 4, floats, 3 * floats]),
          f"bytes of what is masked and filled: {sizes}")


def check_description():
    model, path = Adapted(), FOLDER / f"described-{RANK}.json"
    before = copy.deepcopy(model.state_dict())
    program = dovetail_torch.describe(model, torch.zeros(16, 64), file=path, name="adapted")
    check(same(before.values(), model.state_dict().values()) and "forward" not in vars(model), "the module stays as it was")
    check(json.loads(path.read_text()) == program, "the file has what is returned")
    check_accesses()
    check_copies()
    names = [tensor["name"] for tensor in program["tensors"] if tensor["kind"] == "parameter"]
    check(names == [name for name, _ in model.named_parameters()], f"every parameter once, frozen and tied ones too: {names}")
    reduced = [one["gradient"] for one in program["reductions"]]
    check(sorted(reduced) == sorted(f"{part}.{what}.grad" for part in ("up", "down") for what in ("weight", "bias")),
          f"what is trained and used is reduced: {reduced}")
    check(reduced.index("up.weight.grad") < reduced.index("down.weight.grad"), "gradients are ready from the last layer on")
    ops = {op["name"]: op for op in program["ops"]}
    check(ops["base.forward"]["work"] == {"kind": "gemm", "m": 16, "n": 64, "k": 64, "count": 1}, "a product's shape")
    check("base.weight" in ops["tied.forward"]["reads"], "the tied layer reads the frozen weight")
    # Forward reads 16 x 64 floats, writes as many, and a mask of bytes.
    check(ops["drop.forward"]["work"] == {"kind": "memory", "traffic_bytes": 16 * 64 * 9, "work_flop": 0},
          f"dropout is one kernel: {ops['drop.forward']['work']}")
    # Adam reads gradient, parameter and two moments, and writes the last three: 4 x 64 floats each.
    check(ops["up.weight.update"]["work"]["traffic_bytes"] == 7 * 4 * 4 * 64, "Adam moves seven times the parameter")
    momentum = dovetail_torch.describe(model, (torch.zeros(16, 64),), optimizer="sgd")
    check(momentum["ops"][-1]["work"]["traffic_bytes"] * 7 == program["ops"][-1]["work"]["traffic_bytes"] * 5, "SGD five")
    file = str(FOLDER / "described-0.json")
    explored = json.loads(tool("explore", "--workload", file, "--cluster", "h100x8", "--json"))
    check(explored["world_size"] == 8 and explored["gradients"] == 4, "a description runs on the machine's ranks")
    tool("plan", "--workload", file, "--cluster", "h100x16", "--layout", "dp_shard=8,dp=2", "-o", str(FOLDER / "laid.json"))


class Padded(torch.nn.Module):
    """Asks for the values of its mask, as models of Hugging Face do; of the padded batch it takes another way."""

    def __init__(self):
        super().__init__()
        self.short, self.long = torch.nn.Linear(8, 8), torch.nn.Linear(8, 64)

    def forward(self, x, mask):
        lengths = mask.cumsum(-1)[:, -1]
        lengths += 1
        return self.short(x) if bool((lengths == mask.shape[1] + 1).all()) else self.long(x)


def check_values():
    mask = torch.ones(4, 16, dtype=torch.long)
    for last, way in ((1, "short.forward"), (0, "long.forward")):
        mask[2, 15] = last
        program = dovetail_torch.describe(Padded(), {"x": torch.zeros(4, 16, 8), "mask": mask})
        check(way in [op["name"] for op in program["ops"]], f"the mask's values lead to {way}")
    raises(ValueError, "meta device", lambda: dovetail_torch.describe(Padded(), (torch.zeros(4, 16, 8), mask.to("meta"))))


def check_description_refusals():
    linear = torch.nn.Linear(4, 4)
    describe = dovetail_torch.describe
    raises(ValueError, "meta device", lambda: describe(linear, torch.zeros(2, 4), loss=lambda out: out[out > 0].sum()))
    raises(ValueError, "expected adam or sgd", lambda: describe(linear, torch.zeros(2, 4), optimizer="adagrad"))
    squared = lambda out: (out.to(torch.complex64) @ out.to(torch.complex64).t()).real.sum()
    raises(ValueError, "a matrix product of torch.complex64: the tool knows f32, f16, bf16, f64",
           lambda: describe(linear, torch.zeros(2, 4), loss=squared))
    raises(ValueError, "depends on a parameter that is trained",
           lambda: describe(torch.nn.Linear(4, 4).requires_grad_(False), torch.zeros(2, 4)))
    # A model of Hugging Face has its config, from which a job of any layout can be made.
    said, module = io.StringIO(), torch.nn.Linear(4, 4)
    module.config = type("Config", (), {"model_type": "llama"})()
    with contextlib.redirect_stderr(said):
        describe(module, torch.zeros(2, 4), file=FOLDER / f"of-config-{RANK}.json")
    check("--job config.json:tp=2" in said.getvalue(), f"the way to tensor parallelism is told: {said.getvalue()}")


def command(*words):
    """python -m dovetail_torch, as a process: (exit code, what it printed, what it said beside that)"""
    ended = subprocess.run([sys.executable, "-m", "dovetail_torch", *words], capture_output=True, text=True, check=False,
                           env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    return ended.returncode, ended.stdout, ended.stderr


def check_measuring():
    """A book that the tool reads; what this PyTorch has not is left out, with the reason."""
    path = FOLDER / f"book-{RANK}.json"
    code, _, said = command("measure", "-o", str(path), "--device-type", "cpu", "--device", "h100")
    check(code == 0 and "passes: row" in said, f"measured, and tells how far it is: {said}")
    book = json.loads(path.read_text())
    accesses = {row["access"] for row in book["passes"]}
    everywhere = {"plain", "widened", "mixed", "rows", "columns", "sum-rows", "sum-columns", "strided", "layer-norm",
                  "layer-norm-backward", "softmax", "softmax-backward", "filled", "gathered", "scattered", "foreach"}
    # On a machine that is busy with others a row may be slower than any that a file can hold: then it says so.
    left_out = book["notes"].get("skipped", "")
    there = lambda name, rows: name in rows or ("is below" in left_out and name in left_out)
    check(all(there(access, accesses) for access in everywhere) and there("other_products", book) and book["products"] and
          book["host"]["run_op_us"] > 0, f"what every PyTorch has is there: {sorted(everywhere - accesses)}")
    for is_there, found, word in (
            (hasattr(F, "scaled_dot_product_attention"), there("attention", book), "scaled_dot_product_attention"),
            (hasattr(F, "rms_norm"), there("rms-norm", accesses), "rms_norm")):
        check(is_there == (f"this PyTorch has no {word}" not in left_out) and found >= is_there, f"{word}: {book['notes']}")
    read = json.loads(tool("validate", "gpu", "--gpu", str(FOLDER / "book-0.json"), "--json"))
    check(read["gpu"] == book["name"], f"the tool takes the book: {read['gpu']}")
    tool("explore", "--job", "llama3_8b:dp_shard=8,gbs=8", "--cluster", "h100x8", "--what-if",
         f"gpu={FOLDER / 'book-0.json'}")
    empty = measuring.measure(FOLDER / f"empty-{RANK}.json", seconds=0, device="h100", kind="cpu", say=lambda line: None)
    check(empty["notes"]["skipped"].startswith("no time left: host: issue, updates; products: 256 x 256 x 256") and
          not any(name in empty for name in (*measuring.LISTS, "host")), f"without time all is left out: {empty}")
    tool("validate", "gpu", "--gpu", str(FOLDER / "empty-0.json"))
    broken = FOLDER / "other.json"
    if RANK == 0:
        broken.write_text(json.dumps(dict(empty, device="h1000")))
    refused = tool("validate", "gpu", "--gpu", str(broken), code=2)
    check(set(refused.partition("expected one of ")[2].partition(", found")[0].split(", ")) == set(gpu_books.DEVICES),
          f"both know the same devices: {refused}")


def check_rows_left_out():
    """A row that fails is left out alone."""
    def full(_meter):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    def stop(_meter):
        raise KeyboardInterrupt

    row = lambda name, run: gpu_kernels.Row("passes", name, run)
    values = {"access": "plain", "fixed_us": 1.23456789, "share": 0.9}
    found = measuring._run(meters.Meter("cpu", 60), [
        row("wide", full), row("slow", lambda _meter: dict(values, share=1e-6)), row("good", lambda _meter: values)],
        lambda line: None)
    check(found.lists["passes"] == [dict(values, fixed_us=1.2346)], f"the others are measured: {found.lists}")
    check(found.notes() == {"skipped": "out of memory: passes: wide. share is below 0.0001: passes: slow"}, f"{found.notes()}")
    rounded = lambda points: tuple(round(value, 9) for value in meters.fixed_and_rate(points))
    check(rounded([(2.0, 4.0), (10.0, 8.0), (20.0, 13.0)]) == (3.0, 2.0), "3 us, and 2 a microsecond")
    interrupted = measuring._run(meters.Meter("cpu", 60), [row("one", stop), row("two", lambda _meter: values)],
                                 lambda line: None)
    check(interrupted.notes() == {"skipped": "interrupted: passes: one. no time left: passes: two"}, f"{interrupted.notes()}")
    fixed, rate = meters.fixed_and_rate([(2.0, 0.5), (10.0, 5.0)])
    check(fixed == 0 and 2 < rate < 4, f"no line begins below zero: {fixed}, {rate}")
    check(rounded([(2.0, 8.0), (10.0, 5.0)]) == (0.0, 2.0), "one that falls tells nothing but its end")
    names = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA A100-SXM4-80GB": "a100", "NVIDIA GB200": "gb200", "NVIDIA B200": "b200",
             "NVIDIA B300": "gb300",
             "NVIDIA H200 NVL": "h200", "NVIDIA L40S": "l40s", "NVIDIA GH200 480GB": None, "NVIDIA GeForce RTX 4090": None}
    check({name: measuring.device_of(name) for name in names} == names, "devices by the names of GPUs")


def check_measuring_refusals():
    out = str(FOLDER / "never.json")
    for words, expected in [
            (("measure",), "required: -o"), (("measure", "-o", "/no/such/folder/x"), "expected a file in a folder"),
            (("measure", "-o", out, "--seconds", "soon"), "expected 1 to 7200 seconds, found \"soon\""),
            (("measure", "-o", out, "--device-type", "cpu"), "say with --device whose tables"),
            (("measure", "-o", out, "--device-type", "cpu", "--device", "v100"), "--device: expected one of a100, "),
            (("compare-gpu", "/no/such/file"), "/no/such/file: No such file"),
            (("compare-gpu", __file__), "expected JSON"), (("compare-gpu", str(FOLDER / "job.json")), "expected a GPU's own book"),
            (("guess",), "invalid choice")]:
        code, printed, said = command(*words)
        check(code == 2 and not printed and len(said.splitlines()) == 1 and expected in said, f"{words}: {code}: {said}")
    check(not os.path.exists(out), "nothing is written")


def check_compared_books():
    """How a GPU differs, from the shipped tables and from another one."""
    shipped = gpu_books.shipped("h100")
    slower = dict(shipped, schema="dovetail.gpu/1", name="NVIDIA H100", notes={"power": "620 W in these"},
                  host={"run_op_us": 20.0}, products=[dict(row, us=1.04 * row["us"]) for row in shipped["products"]],
                  attention=[dict(row, tokens=row["tokens"] + 1) for row in shipped["attention"]])
    path, other = FOLDER / f"slower-{RANK}.json", FOLDER / f"twice-{RANK}.json"
    path.write_text(json.dumps(slower))
    code, printed, _ = command("compare-gpu", str(path))
    check(code == 0 and printed.splitlines()[0].endswith("products 4 % slower, plain passes alike; 620 W in these"),
          f"the first line says it: {printed}")
    check("attention" not in printed and "run_op_us: 20 (the tables have no host)" in printed,
          f"by rows that both have: {printed}")
    # The same shares of half the rate: twice the time of what is moved, a little less of small passes.
    other.write_text(json.dumps(dict(slower, memory_bytes_per_s=slower["memory_bytes_per_s"] / 2, host={"run_op_us": 40.0})))
    found = gpu_books.ratios(gpu_books.read_book(other), gpu_books.read_book(path))
    check(found["host: run_op_us"] == [2.0] and set(found["products"]) == {1.0} and 1.9 < found["passes: plain"][0] < 2,
          f"beside another book: {found['passes: plain']}")


class GraphStandIn:
    """torch.cuda.graph and CUDAGraph in one: replays nothing, and refuses what the test says."""
    refused = False

    def __init__(self, *_unused, **_more):
        pass

    def __enter__(self):
        if GraphStandIn.refused:
            raise RuntimeError("operation not permitted when stream is capturing")

    def __exit__(self, *_unused):
        return False

    def replay(self):
        pass


class EventStandIn:
    ended = 0.0

    def __init__(self, **_unused):
        self.at = 0.0

    def record(self):
        EventStandIn.ended += 0.01
        self.at = EventStandIn.ended

    def elapsed_time(self, end):
        return end.at - self.at


class MeterStandIn(meters.Meter):
    """A GPU whose tensors lie in the processor's memory."""

    def __init__(self, kind, seconds):
        super().__init__(kind, seconds)
        self.device, self.half = torch.device("cpu"), torch.float32


def check_measuring_on_device():
    """The way of graphs and events, with stand-ins for them."""
    device = type("Properties", (), {"total_memory": 80 << 30, "L2_cache_size": 50 << 20, "memory_clock_rate": 2619000,
                                     "memory_bus_width": 5120})
    instead = {"is_available": lambda: True, "get_device_name": lambda _index: "NVIDIA H100 80GB HBM3", "Stream": object,
               "get_device_properties": lambda _index: device, "set_stream": lambda _stream: None, "synchronize": lambda: None,
               "memory_reserved": lambda: 50 << 30, "empty_cache": lambda: None, "graph": GraphStandIn,
               "CUDAGraph": GraphStandIn, "Event": EventStandIn}
    before = {name: getattr(torch.cuda, name) for name in instead}
    theirs = measuring.Meter, measuring._read_state, measuring._software, gpu_kernels.Extents, meters.MOST_CALLS
    sustained = measuring.SUSTAINED_SECONDS, measuring.SUSTAINED_SIDE
    try:
        for name, stand_in in instead.items():
            setattr(torch.cuda, name, stand_in)
        measuring.Meter, gpu_kernels.Extents = MeterStandIn, lambda: gpu_kernels.ON_PROCESSORS
        measuring._read_state, measuring._software = lambda: (1410.0, 620.2, 700.0), lambda _kind: "-"
        meters.MOST_CALLS, measuring.SUSTAINED_SECONDS, measuring.SUSTAINED_SIDE = 2, 0.1, 64
        books = []
        for GraphStandIn.refused in (False, True):
            books.append(measuring.measure(FOLDER / f"device-{RANK}.json", seconds=60, say=lambda line: None))
    finally:
        measuring.Meter, measuring._read_state, measuring._software, gpu_kernels.Extents, meters.MOST_CALLS = theirs
        measuring.SUSTAINED_SECONDS, measuring.SUSTAINED_SIDE = sustained
        for name, real in before.items():
            setattr(torch.cuda, name, real)
    captured, refused = books
    # 10 us from one event to the next, in which 16 inputs of a small product, the most there are, are captured once each.
    check(captured["device"] == "h100" and captured["memory_bytes"] == 80 << 30 and
          abs(captured["memory_bytes_per_s"] - 3.352e12) < 1e9, f"what the GPU says of itself: {captured}")
    check(captured["products"][0]["us"] == 10 / 16, f"16 calls in 10 us: {captured['products'][0]}")
    check("under CUDA graphs" in captured["notes"]["method"] and "without graphs" not in captured["notes"] and
          captured["notes"]["power"] == "620 W in these, limit 700 W", f"how it was measured: {captured['notes']}")
    check("plain" in refused["notes"]["without graphs"] and refused["passes"], f"what cannot be captured: {refused['notes']}")
    tool("validate", "gpu", "--gpu", str(FOLDER / "device-0.json"))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['DOVETAIL_MEETING']}", rank=RANK, world_size=2)
    workload = check_capture()
    check_record(workload)
    check_record_on_device(workload)
    given = with_given_times(workload)
    for part in (check_forms, check_micro_steps, check_any_grouping, check_mixed_dtypes, check_stock_buckets, check_static_graph,
                 check_compiled, check_refusals, check_export, check_replanning, check_replanning_refusals):
        part(given)
    for part in (check_windows, check_described_models, check_description, check_values, check_description_refusals,
                 check_measuring, check_rows_left_out, check_measuring_refusals, check_compared_books,
                 check_measuring_on_device):
        part()
    if RANK == 0:
        print(f"check_torch: {CHECKS['passed']} passed, {CHECKS['failed']} failed", flush=True)
    dist.barrier()
    return 0 if CHECKS["failed"] == 0 else 1


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a rank that failed must not wait for the other one
