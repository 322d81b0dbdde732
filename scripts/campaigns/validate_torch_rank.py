"""One rank of scripts/campaigns/validate_torch.sh: captures a model, plans, and measures the settings in turn.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import copy
import datetime
import gc
import json
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "scripts/checks")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import dovetail_torch  # noqa: E402
from torch_host import run_on_host  # noqa: E402

RANK = int(os.environ["RANK"])
CAPS = (1, 2, 4, 8, 16, 32)  # MiB
LEARNING_RATE = 1e-4
LONGEST_SECONDS = 560


def parse_arguments():
    parser = argparse.ArgumentParser()
    for name in ("--model", "--rate", "--tool", "--out", "--meeting"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    return parser.parse_args()


# ---- the models: (module, inputs, targets) with the same weights and other data on each rank

class Transformer(torch.nn.Module):
    """An embedding, 8 encoder blocks, a norm and a head: 101 parameters."""

    def __init__(self, width=352, words=3000):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True) for _ in range(8))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 100)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def layers_of(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def make(model):
    torch.manual_seed(1)
    data = torch.Generator().manual_seed(7 + RANK)
    if model == "mlp":
        return (layers_of([512, 4096, 1024, 2048, 256, 3072, 512, 100]), torch.randn(384, 512, generator=data),
                torch.randint(0, 100, (384,), generator=data))
    if model == "transformer":
        return (Transformer(), torch.randint(0, 3000, (8, 24), generator=data),
                torch.randint(0, 100, (8,), generator=data))
    if model == "deep":
        return (layers_of([160] * 151), torch.randn(256, 160, generator=data),
                torch.randint(0, 100, (256,), generator=data))
    if model == "layers":
        return (layers_of([160] * 101), torch.randn(256, 160, generator=data),
                torch.randint(0, 100, (256,), generator=data))
    raise SystemExit(f"validate_torch: no model {model}; there are mlp, transformer, deep and layers")


def require_fast_products():
    """Debian's torch takes whatever BLAS there is; the reference one is 20 times too slow for these models."""
    a = torch.randn(512, 512)
    best = min(_seconds(lambda: a @ a) for _ in range(5))
    rate = 2 * 512**3 / best / 1e9
    if rate < 4:
        raise SystemExit(f"validate_torch: matrix products reach {rate:.1f} GFLOP/s only, as with the reference BLAS: a step "
                         "would take seconds. scripts/setup.sh --torch installs OpenBLAS (libopenblas0-pthread)")


def _seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def threads():
    return {int(name) for name in os.listdir("/proc/self/task")}


def start(meeting):
    """Gloo's threads at one real-time priority: one core has to carry them beside the step (scripts/campaigns/testbed.sh)."""
    before = threads()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=RANK, world_size=2,
                            timeout=datetime.timedelta(seconds=60))
    dist.all_reduce(torch.zeros(1))
    for thread in threads() - before:
        try:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(10))
        except PermissionError:
            print("validate_torch: no real-time priority for Gloo's threads: times will be too long", file=sys.stderr)
            break


def tool(arguments, *words):
    """Runs the tool on rank 0; the plan or report that it writes to --json or -o as parsed JSON on both."""
    said = [None]
    if RANK == 0:
        ended = run_on_host([arguments.tool, *words])
        if ended.returncode != 0:
            print(ended.stderr, file=sys.stderr)
        output = words[words.index("-o") + 1] if "-o" in words else None
        said = [ended.returncode, pathlib.Path(output).read_text() if output and ended.returncode == 0 else ended.stdout]
    else:
        said = [None, None]
    dist.broadcast_object_list(said, 0)
    if said[0] != 0:
        raise SystemExit(f"validate_torch: dovetail {' '.join(words)} failed")
    return json.loads(said[1])


class Setting:
    """One way to train: its wrapped model and optimizer, the plan that predicts it, and the times of its steps."""

    def __init__(self, name, plan, module, wrap):
        self.name, (self.plan, self.file) = name, plan
        self.optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        self.model = wrap(module, self.optimizer)
        self.times = []   # per round: of whole steps, of the slower rank; seconds
        self.phases = []  # of this rank: forward, backward with its waits, optimizer

    def step(self, inputs, targets, loss_of):
        """Seconds until the end of forward, of backward and of the step."""
        dist.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = loss_of(self.model(inputs), targets)
        forward = time.perf_counter() - begin
        loss.backward()
        backward = time.perf_counter() - begin
        self.optimizer.step()
        return forward, backward, time.perf_counter() - begin

    def buckets(self):
        """What was really sent, in bytes."""
        if isinstance(self.model, dovetail_torch.PlannedModel):
            return [size for _, size in self.model._last_sent]
        said = self.model._get_ddp_logging_data()
        key = "bucket_sizes" if getattr(getattr(self.model, "_dovetail", None), "form", "") == "assignment" else "rebuilt_bucket_sizes"
        return [int(size) for size in str(said[key]).split(",")]


def settings_of(arguments, base, workload):
    version = "1.13" if torch.__version__.startswith("1.") else ".".join(torch.__version__.split(".")[:2])
    def plan(policy):
        file = str(pathlib.Path(arguments.out) / f"{arguments.model}.{''.join(c if c.isalnum() else '-' for c in policy)}.json")
        return tool(arguments, "plan", "--workload", workload, "--policy", policy, "-o", file, "--force"), file
    def ddp(**options):
        return lambda module, optimizer: DistributedDataParallel(module, **options)
    def applied(of):
        return lambda module, optimizer: dovetail_torch.apply(module, of[0], optimizer=optimizer)
    caps = {cap: plan(f"torch-ddp:torch={version},cap={cap}MiB") for cap in CAPS}
    predicted = lambda cap: caps[cap][0]["predicted"]["step_us"]
    best = min(CAPS, key=predicted)
    place = CAPS.index(best)
    wanted = [("default", plan(f"torch-ddp:torch={version}"), ddp())]
    wanted += [(f"cap {cap}{' (best)' if cap == best else ''}", caps[cap], ddp(bucket_cap_mb=cap))
               for cap in CAPS[max(0, place - 1):place + 2]]
    listed, hooks = plan("exact:mode=copy,wait=end-of-backward"), plan("exact")
    wanted += [("list", listed, applied(listed)), ("own hooks", hooks, applied(hooks))]
    return [Setting(name, of, copy.deepcopy(base), wrap) for name, of, wrap in wanted]


def measure(arguments, settings, capture_again, inputs, targets, loss_of):
    """Round robin; the first step of a turn warms caches and is not counted, nor is the whole first round. Returns the
    captures between the rounds: one before each round and one after the last."""
    captures = []
    for turn in range(arguments.rounds + 1):
        for setting in settings:
            setting.times += [[]] if turn else []
            for step in range(arguments.steps if turn else 4):
                forward, backward, end = setting.step(inputs, targets, loss_of)
                took = torch.tensor([end], dtype=torch.float64)
                dist.all_reduce(took, op=dist.ReduceOp.MAX)
                if turn and step:
                    setting.times[-1].append(took.item())
                    setting.phases.append((forward, backward - forward, end - backward))
        captures.append(capture_again(turn))
    return captures


def predict(arguments, settings, captures):
    """Per round and setting in us: what the captures before and after the round make of its plan, on average."""
    rows = [tool(arguments, "predict", *[setting.file for setting in settings], "--workload", capture, "--force", "--json")["rows"]
            for capture in captures]
    by_capture = [[row["step_us"] for row in of] for of in rows]
    return [[(a + b) / 2 for a, b in zip(before, after)] for before, after in zip(by_capture, by_capture[1:])]


def report(arguments, settings, profile, predicted):
    weights = [torch.cat([p.detach().flatten() for p in s.model.parameters()]) for s in settings]
    rows, wrong = [], []
    for place, (setting, values) in enumerate(zip(settings, weights)):
        if not torch.equal(values, weights[0]):
            wrong.append(f"{setting.name}: weights differ from the default's")
        planned = [bucket["bytes"] for bucket in setting.plan["buckets"]]
        if setting.buckets() != planned:
            wrong.append(f"{setting.name}: sent {setting.buckets()} bytes, planned {planned}")
        ordered = sorted(step for turn in setting.times for step in turn)
        rows.append({"setting": setting.name, "policy": setting.plan["policy"], "buckets": planned,
                     "predicted_us": round(statistics.mean(turn[place] for turn in predicted), 1),
                     "predicted_at_first_us": setting.plan["predicted"]["step_us"],
                     "measured_us": round(statistics.mean(statistics.median(turn) for turn in setting.times) * 1e6, 1),
                     "predicted_by_round_us": [round(turn[place], 1) for turn in predicted],
                     "measured_by_round_us": [round(statistics.median(turn) * 1e6, 1) for turn in setting.times],
                     "p10_us": round(ordered[len(ordered) // 10] * 1e6, 1),
                     "p90_us": round(ordered[-1 - len(ordered) // 10] * 1e6, 1), "steps": len(ordered),
                     "phases_us": {name: round(statistics.median(column) * 1e6, 1) for name, column in
                                   zip(("forward", "backward", "optimizer"), zip(*setting.phases))},
                     "steps_us": [[round(seconds * 1e6, 1) for seconds in turn] for turn in setting.times]})
    for row in rows:
        row["error"] = round(row["predicted_us"] / row["measured_us"] - 1, 5)
    if RANK == 0:
        print_rows(arguments, rows, profile, wrong)
        path = pathlib.Path(arguments.out) / f"{arguments.model}.results.json"
        path.write_text(json.dumps({"model": arguments.model, "torch": torch.__version__, "conditions": profile["conditions"],
                                    "rows": rows, "wrong": wrong}, indent=1) + "\n")
    return not wrong


def print_rows(arguments, rows, profile, wrong):
    conditions = profile["conditions"]
    print(f"\n{arguments.model}: {len(profile['profile']['gradients'])} gradients; capture " +
          ("valid" if conditions["valid"] else "NOT valid: " + "; ".join(conditions["why_not_valid"])))
    print(f"{'setting':<16} {'buckets':>7} {'predicted ms':>13} {'measured ms':>12} {'error':>8} {'p10 ms':>9} {'p90 ms':>9}"
          f" {'gain predicted':>15} {'measured':>9}")
    default = rows[0]
    for row in rows:
        gain = [1 - row[key] / default[key] for key in ("predicted_us", "measured_us")]
        print(f"{row['setting']:<16} {len(row['buckets']):>7} {row['predicted_us'] / 1e3:>13.2f} {row['measured_us'] / 1e3:>12.2f} "
              f"{row['error']:>+8.2%} {row['p10_us'] / 1e3:>9.2f} {row['p90_us'] / 1e3:>9.2f} {gain[0]:>+15.1%} {gain[1]:>+9.1%}")
    print_gains(rows)
    errors = [abs(row["error"]) for row in rows]
    print(f"mean error {statistics.mean(errors):.2%}, worst {max(errors):.2%}; " +
          ("weights bit for bit alike, buckets as planned by DDP's own log" if not wrong else "WRONG: " + "; ".join(wrong)), flush=True)


def print_gains(rows):
    """What the planned list is worth against DDP's default, and the best single cap against the list."""
    def faster(row, than, key):
        return 1 - row[key] / than[key]
    default, listed = rows[0], next(row for row in rows if row["setting"] == "list")
    cap = min((row for row in rows if row["setting"].startswith("cap")), key=lambda row: row["measured_us"])
    said, found = faster(listed, default, "predicted_us"), faster(listed, default, "measured_us")
    print(f"list against default: {said:+.1%} predicted, {found:+.1%} measured, {found - said:+.1%} apart; "
          f"best single cap against list: {faster(cap, listed, 'measured_us'):+.1%} measured ({cap['setting']})")


def main():
    arguments = parse_arguments()
    signal.alarm(LONGEST_SECONDS)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # gradients of deep models vanish, and subnormal products take 70 times as long
    require_fast_products()
    start(arguments.meeting)
    base, inputs, targets = make(arguments.model)
    loss_of = torch.nn.CrossEntropyLoss()
    workload = str(pathlib.Path(arguments.out) / f"{arguments.model}.json")
    optimizer = torch.optim.SGD(base.parameters(), lr=LEARNING_RATE)
    gc.collect()
    gc.disable()
    def capture(path, **how):
        return dovetail_torch.capture(base, lambda model: loss_of(model(inputs), targets), optimizer, path=path,
                                      name=arguments.model, **how)
    def capture_again(turn):
        path = str(pathlib.Path(arguments.out) / f"{arguments.model}.round{turn}.json")
        capture(path, steps=10, warmup=2, repetitions=3, attempts=1)
        return path
    profile = capture(workload, steps=24, warmup=6, repetitions=7)
    dist.barrier()
    settings = settings_of(arguments, base, workload)
    captures = measure(arguments, settings, capture_again, inputs, targets, loss_of)
    good = report(arguments, settings, profile, predict(arguments, settings, captures))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0 if good else 1)


if __name__ == "__main__":
    main()
