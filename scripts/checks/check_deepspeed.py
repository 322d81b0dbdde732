#!/usr/bin/env python3
"""What is exported for DeepSpeed, run by DeepSpeed: the buckets that ZeRO reduces are those that the rule gives.

    scripts/checks/check_deepspeed.py [--tool build/dovetail] [--python python3] [--packages FOLDER]

Two CPU ranks (gloo, loopback) train a perceptron of twelve gradients with ZeRO 1, 2 and 3. For ZeRO 2 the file is the one that
`dovetail export PLAN --to deepspeed` writes, loaded as it is; the other settings are sizes by hand. The element counts of
gloo's reductions in the profiler's trace must be those of the buckets of `dovetail plan --policy deepspeed` for
the gradients in the order in which ZeRO took them. Of ZeRO 3 it is counted what is gathered.

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
LIMIT_S = 240  # for one setting, of which most is the import


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


def run(arguments, folder, name, config):
    """Elements of what was reduced and gathered in the second step of rank 0; what went wrong instead."""
    config = dict(config, train_micro_batch_size_per_gpu=4, zero_allow_untested_optimizer=True)
    file, result = folder / f"{name}.config.json", folder / f"{name}.json"
    file.write_text(json.dumps(config))
    ranks, port = [], free_port()
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=port, DS_ACCELERATOR="cpu",
                           OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0", PYTHONWARNINGS="ignore")
        ranks.append(subprocess.Popen([arguments.python, __file__, "--rank", str(file), str(result), "--packages",
                                       arguments.packages], env=environment, stdout=subprocess.DEVNULL,
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
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    engine, *_ = deepspeed.initialize(model=model, config=config,
                                      optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    inputs = torch.randn(4, WIDTH)
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            engine.backward(engine(inputs).square().mean())
            engine.step()
    sizes = {kind: [event.input_shapes[0][0] for event in sorted(seen.events(), key=lambda one: one.time_range.start)
                    if event.name == f"gloo:{kind}" and event.input_shapes and event.input_shapes[0]]
             for kind in ("all_reduce", "all_gather", "reduce_scatter")}
    if os.environ["RANK"] == "0":
        pathlib.Path(result).write_text(json.dumps(sizes))
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default="build/dovetail")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--packages", default="")
    parser.add_argument("--rank", nargs=2)
    arguments = parser.parse_args()
    if arguments.rank:
        return train(*arguments.rank, arguments.packages)
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
        for label, stage, config, expected in settings:
            total += 1
            seen, trouble = run(arguments, folder, label, config)
            if seen is None:
                print(f"  {label}: did not run: {trouble}")
                continue
            same = seen["all_reduce"] == expected
            good += same
            gathered = f"; gathered {len(seen['all_gather'])} x, {sum(seen['all_gather'])} elements per rank"
            print(f"  {label}: ZeRO {stage} reduced {seen['all_reduce']}, the rule says "
                  f"{'the same' if same else expected}{gathered}")
    print(f"check_deepspeed: {good} of {total} settings passed")
    return 0 if good == total else 1


if __name__ == "__main__":
    sys.exit(main())
