#!/usr/bin/env python3
"""What is exported for DeepSpeed, run by DeepSpeed: the buckets that ZeRO reduces are those that the rule gives.

    scripts/checks/check_deepspeed.py [--tool build/dovetail] [--python python3] [--packages FOLDER]

Two CPU ranks (gloo, loopback) train a perceptron of twelve gradients with ZeRO 1, 2 and 3. For ZeRO 2 the file is the one that
`dovetail export PLAN --to deepspeed` writes, loaded as it is; the other settings are sizes by hand. The element counts of
gloo's reductions in the profiler's trace must be those of the buckets of `dovetail plan --policy deepspeed` for
the gradients in the order in which ZeRO took them.

Of ZeRO 3 two more ranks count the collectives of a step of eight equal layers of 4,096 weights and 64 biases, as DeepSpeed calls them: what
is gathered ahead (GATHERED), what backward gathers again, what is reduced together, what follows the update.

FOLDER is where DeepSpeed and what it needs lie, if PYTHON does not know them: `pip install --target`, with --python-version where
PYTHON is another one than pip's; DeepSpeed itself is a source package whose folder deepspeed/ is enough (its
operators of C++ are not built). With `sudo scripts/checks/torch_root.sh` PYTHON is DIR/run-python and runs as root.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no DeepSpeed here (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

LAYERS, WIDTH = 6, 64
SIZES = (5000, 10000, 20000, 100000)
LIMIT_S = 900  # of all settings of one kind, beside other checks; a minute alone, of which half is the import
DEEP, WHOLE = 8, 8 * WIDTH * WIDTH  # layers whose weights are divided; biases stay whole
# Settings of stage 3: (of the file; gathers before backward, in backward; the reductions). Weights are 4,096 elements each.
GATHERED = (
    ({}, [WHOLE], [], [WHOLE + DEEP * WIDTH]),  # 10^9 elements may live, 500,000,000 are reduced together
    ({"stage3_prefetch_bucket_size": 4096, "stage3_max_reuse_distance": 0}, [4096] * 12, [], None),  # all live: four were freed before, and come early
    ({"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 2 * WHOLE}, [4096] * DEEP, [], None),  # used again soon
    ({"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}, [4096] * DEEP, [4096] * DEEP, None),
    ({"stage3_max_live_parameters": 3 * 4096, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 4096},
     [4096] * 9, [4096] * 5, None),
    ({"reduce_bucket_size": 10000}, [WHOLE], [], [2 * 4160] * (DEEP // 2)),
    ({"reduce_scatter": False}, [WHOLE], [], ["all_reduce", WHOLE + DEEP * WIDTH]),
)


def gradients(stage):
    """(name, elements) in the order in which ZeRO takes them: the last layer first."""
    parts = [("weight", WIDTH * WIDTH), ("bias", WIDTH)]
    if stage != 3:
        parts.reverse()
    return [(f"{layer}.{name}", elements) for layer in reversed(range(LAYERS)) for name, elements in parts]


def workload(stage):
    """A profile with these gradients; its times do not matter here."""
    listed = gradients(stage)
    return {"schema": "dovetail.profile/1", "name": "zero", "world_size": 2,
            "profile": {"forward_us": 1000, "backward_us": 2000, "optimizer_us": 100,
                        "gradients": [{"name": name, "numel": elements, "dtype": "float32", "ready_us": 100 * (i + 1)}
                                      for i, (name, elements) in enumerate(listed)]},
            "all_reduce_alone": [{"bytes": 4096, "us": 200}, {"bytes": 1048576, "us": 4000}]}


def planned(tool, folder, stage, size):
    """Elements of each bucket of ZeRO's rule."""
    step, plan = folder / f"step{stage}.json", folder / f"plan{stage}-{size}.json"
    step.write_text(json.dumps(workload(stage)))
    policy = f"threshold:cap={4 * size}B,closes=before-exceeding,mode=copy,batch=1,wait=before-next-batch"
    subprocess.run([tool, "plan", "--workload", str(step), "--policy", policy, "-o", str(plan)], check=True,
                   stdout=subprocess.DEVNULL)
    return [bucket["elements"] for bucket in json.loads(plan.read_text())["buckets"]]


def exported(tool, folder):
    """The file for DeepSpeed of the best plan, and the buckets that its size makes."""
    step, plan, file = folder / "step2.json", folder / "best.json", folder / "exported.json"
    subprocess.run([tool, "plan", "--workload", str(step), "-o", str(plan)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tool, "export", str(plan), "--to", "deepspeed", "-o", str(file)], check=True, stdout=subprocess.DEVNULL)
    document = json.loads(file.read_text())
    size = document["zero_optimization"]["reduce_bucket_size"]
    return document, size, planned(tool, folder, 2, size)


def by_hand(stage, size):
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": size, "allgather_bucket_size": size,
                                  "overlap_comm": True, "contiguous_gradients": True}}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run(arguments, folder, configs):
    """Of each, elements of what was reduced in the second step of rank 0; what went wrong instead."""
    file = folder / "configs.json"
    file.write_text(json.dumps([dict(one, train_micro_batch_size_per_gpu=4, zero_allow_untested_optimizer=True) for one in configs]))
    return run_ranks(arguments, folder, "reduced", "--rank", str(file))


def run_ranks(arguments, folder, name, *part):
    """What rank 0 of two of this script's part leaves; what went wrong instead."""
    result = folder / f"{name}.json"
    ranks, port = [], free_port()
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=port, DS_ACCELERATOR="cpu",
                           OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0", PYTHONWARNINGS="ignore")
        ranks.append(subprocess.Popen([arguments.python, __file__, *part, str(result), "--packages", arguments.packages], env=environment, stdout=subprocess.DEVNULL,
                                      stderr=(folder / f"{name}.{rank}.log").open("w")))
    try:
        codes = [rank.wait(LIMIT_S) for rank in ranks]
    except subprocess.TimeoutExpired:
        codes = [f"not done after {LIMIT_S} s"]
    for rank in ranks:
        rank.kill()
        rank.wait()
    if any(codes):
        log = (folder / f"{name}.0.log").read_text().strip().splitlines() or ["no message"]
        return None, f"{codes}: {log[-1]}"
    return json.loads(result.read_text()), ""


def train(config, result, packages):
    """One rank."""
    if packages:
        sys.path.insert(0, packages)
    import deepspeed
    import torch
    from torch.profiler import ProfilerActivity, profile

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # an operator of C++ that needs a build
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    torch.manual_seed(0)
    inputs = torch.randn(4, WIDTH)
    sizes = []
    for one in json.loads(pathlib.Path(config).read_text()):
        model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        engine, *_ = deepspeed.initialize(model=model, config=one, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(2):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
                engine.backward(engine(inputs).square().mean())
                engine.step()
        sizes.append([event.input_shapes[0][0] for event in sorted(seen.events(), key=lambda event: event.time_range.start)
                      if event.name == "gloo:all_reduce" and event.input_shapes and event.input_shapes[0]])
    if os.environ["RANK"] == "0":
        pathlib.Path(result).write_text(json.dumps(sizes))
    torch.distributed.destroy_process_group()


def count_gathers(result, packages):
    """One rank: of each setting in GATHERED the collectives of the fourth step, in the order of their launches."""
    if packages:
        sys.path.insert(0, packages)
    import torch
    import torch.distributed as dist

    seen = []

    def watch(name, elements):
        old = getattr(dist, name)

        def call(*given, **named):
            seen.append((name, elements(*given, **named)))
            return old(*given, **named)

        setattr(dist, name, call)

    watch("all_gather_into_tensor", lambda output_tensor, *_, **__: output_tensor.numel())
    watch("reduce_scatter_tensor", lambda output, input, *_, **__: input.numel())  # pylint: disable=redefined-builtin
    watch("all_reduce", lambda tensor, *_, **__: tensor.numel())
    import deepspeed  # takes the functions as they are then

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    steps = []
    for options, *_ in GATHERED:
        model = torch.nn.Sequential(*[layer for _ in range(DEEP) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())])
        config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True, "zero_optimization": {
            "stage": 3, "stage3_param_persistence_threshold": WIDTH, **options}}
        engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(4):
            seen.clear()
            loss = engine(torch.ones(4, WIDTH)).square().mean()
            seen.append(("backward", 0))
            engine.backward(loss)
            seen.append(("step", 0))
            engine.step()
        steps.append(list(seen))
    if os.environ["RANK"] == "0":
        pathlib.Path(result).write_text(json.dumps(steps))
    dist.destroy_process_group()


def check_gathers(arguments, folder):
    """Which of the settings in GATHERED go as described."""
    steps, trouble = run_ranks(arguments, folder, "gathers", "--gathers")
    if steps is None:
        print(f"  ZeRO 3: did not run: {trouble}")
        return [False] * len(GATHERED)
    results = []
    for (options, forward, backward, reduced), step in zip(GATHERED, steps):
        begin, end = step.index(["backward", 0]), step.index(["step", 0])
        gathers = [[n for kind, n in part if kind == "all_gather_into_tensor"] for part in (step[:begin], step[begin:end], step[end:])]
        kind = "all_reduce" if reduced and reduced[0] == "all_reduce" else "reduce_scatter_tensor"
        sums = [n for name, n in step[begin:end] if name == kind]
        same = gathers == [forward, backward, [WIDTH] * DEEP] and (reduced is None or sums == [n for n in reduced if n != "all_reduce"])
        results.append(same)
        print(f"  ZeRO 3 {options}: gathered {gathers[0]}, in backward {gathers[1]}, behind the update {len(gathers[2])} x {WIDTH}; "
              f"{kind} {sums}, " + ("as described" if same else f"described: {forward}, {backward}, {reduced}"))
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default="build/dovetail")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--packages", default="")
    parser.add_argument("--rank", nargs=2)
    parser.add_argument("--gathers")
    arguments = parser.parse_args()
    if arguments.rank:
        return train(*arguments.rank, arguments.packages)
    if arguments.gathers:
        return count_gathers(arguments.gathers, arguments.packages)
    path = f"import sys; sys.path.insert(0, {arguments.packages!r}); " if arguments.packages else ""
    probe = subprocess.run([arguments.python, "-c", path + "import deepspeed, torch; print(deepspeed.__version__, torch.__version__)"],
                           capture_output=True, text=True, check=False, env=dict(os.environ, DS_ACCELERATOR="cpu"))
    if probe.returncode != 0:
        reason = (probe.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"check_deepspeed: skipped: {arguments.python} has no DeepSpeed that can be loaded: {reason}")
        return 77
    versions = probe.stdout.strip().splitlines()[-1].split()
    print(f"check_deepspeed: DeepSpeed {versions[0]}, PyTorch {versions[-1]}, 2 CPU ranks, gloo")
    good, total = 0, 0
    with tempfile.TemporaryDirectory(prefix="dovetail-deepspeed-") as name:
        folder = pathlib.Path(name)
        settings = [(f"zero{stage}-{size}", stage, by_hand(stage, size), planned(arguments.tool, folder, stage, size))
                    for stage, sizes in ((2, SIZES), (1, SIZES[1:2]), (3, SIZES[1:2])) for size in sizes]
        document, size, buckets = exported(arguments.tool, folder)
        settings.insert(0, (f"exported-{size}", 2, document, buckets))
        reduced, trouble = run(arguments, folder, [config for _, _, config, _ in settings])
        if reduced is None:
            print(f"  did not run: {trouble}")
        total = len(settings)
        for (label, stage, _, expected), seen in zip(settings, reduced or []):
            same = seen == expected
            good += same
            print(f"  {label}: ZeRO {stage} reduced {seen}, the rule says {'the same' if same else expected}")
        results = check_gathers(arguments, folder)
        good, total = good + sum(results), total + len(results)
    print(f"check_deepspeed: {good} of {total} settings passed")
    return 0 if good == total else 1


if __name__ == "__main__":
    sys.exit(main())
