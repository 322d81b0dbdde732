#!/usr/bin/env python3
"""What is exported for torchtitan and Megatron-Core, read and laid out by their own code, without a GPU.

    scripts/checks/check_owners.py [--tool build/dovetail] [--python python3] [--titan FOLDER] [--megatron FOLDER]

torchtitan 0.2: its ConfigManager parses the TOML of `dovetail export --job ... --to torchtitan`; each key of the
file must be a field of its JobConfig with that value (0.3 is configured in Python and has no such file). Only its package
config/ is imported. Megatron-Core: DistributedDataParallel lays twelve parameters out on the CPU, without and with its
distributed optimizer; elements and parameters of its buckets must be those of the rule that `--policy` megatron has: a bucket
closes once it holds ddp-bucket-size elements; and it takes the FullParamLayout of `dovetail export PLAN --to megatron`, after which
its buckets must be the plan's. The GPU's number and kernels of Triton are stood in for; nothing runs but the layout.

FOLDERs hold the packages unpacked (`pip download --no-deps`, unzip) and what they need (`pip install --target`: tyro for
torchtitan). With `sudo scripts/checks/torch_root.sh` PYTHON is DIR/run-python and runs as root.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 neither package here (a skip, with the reason).

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

JOBS = ("llama3_8b:dp_shard=4,dp=2,seq=8192,gbs=16,reshard=no", "llama3_8b:dp_shard=2,tp=2,pp=2,seq=4096,gbs=8,recompute=full",
        "llama3_8b:dp_shard=4,cp=2,seq=8192,gbs=4")
LAYERS, WIDTH = 6, 64
SIZES = (1000, 5000, 10000, 100000)


def parse_titan(folder, file):
    """In PYTHON: the fields of torchtitan's configuration that the file speaks of."""
    import dataclasses
    import tomllib
    import types

    sys.path.insert(0, folder)
    package = types.ModuleType("torchtitan")  # its __init__ imports models and tokenizers
    package.__path__ = [f"{folder}/torchtitan"]
    sys.modules["torchtitan"] = package
    from torchtitan.config import ConfigManager

    config = dataclasses.asdict(ConfigManager().parse_args(["--job.config_file", file]))
    told = tomllib.loads(pathlib.Path(file).read_text())
    wrong = [f"{table}.{key}: {config.get(table, {}).get(key, 'no such field')}, told {value}"
             for table, keys in told.items() for key, value in keys.items()
             if config.get(table, {}).get(key, "no such field") != value]
    print(json.dumps({"keys": sum(len(keys) for keys in told.values()), "wrong": wrong}))


def lay_out_megatron(folder, *layouts):
    """In PYTHON: (elements, parameters) of each bucket, by size, without and with the distributed optimizer, and by each exported file."""
    from unittest.mock import MagicMock

    sys.path.insert(0, folder)
    # Kernels of Triton for a part that is not used here.
    sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock()
    import torch

    torch.cuda.current_device = lambda: "cpu"
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    import megatron.core
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer import TransformerConfig

    parallel_state.initialize_model_parallel()
    config = TransformerConfig(num_layers=1, hidden_size=WIDTH, num_attention_heads=1, use_cpu_initialization=True)
    found = {}
    for size in SIZES:
        for sharded in (False, True):
            model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
            ddp = DistributedDataParallel(config, DistributedDataParallelConfig(
                overlap_grad_reduce=True, bucket_size=size, use_distributed_optimizer=sharded), model)
            found[f"{size} {'sharded' if sharded else 'whole'}"] = [
                (sum(p.numel() for p in bucket.params_list), len(bucket.params_list))
                for buffer in ddp.buffers for bucket in buffer.buckets]
    for file in layouts:
        told = {}
        exec(compile(pathlib.Path(file).read_text(), file, "exec"), told)  # pylint: disable=exec-used
        model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        ddp = DistributedDataParallel(config, DistributedDataParallelConfig(
            overlap_grad_reduce=True, use_distributed_optimizer=told["DISTRIBUTED_OPTIMIZER"]), model,
            full_param_layout=told["full_param_layout"](model))
        found[file] = [(sum(p.numel() for p in bucket.params_list), len(bucket.params_list))
                       for buffer in ddp.buffers for bucket in buffer.buckets]
    print(json.dumps({"version": megatron.core.__version__, "buckets": found}))


def planned(tool, folder, policy, ranks=2):
    """A plan's file and (elements, parameters) of each of its buckets; gradients in the reverse of the definition."""
    gradients = [(f"{layer}.{name}", elements) for layer in reversed(range(LAYERS))
                 for name, elements in (("bias", WIDTH), ("weight", WIDTH * WIDTH))]
    step, plan = folder / "step.json", folder / f"plan{len(list(folder.iterdir()))}.json"
    step.write_text(json.dumps({
        "schema": "dovetail.profile/1", "name": "megatron", "world_size": ranks,
        "profile": {"forward_us": 1000, "backward_us": 2000, "optimizer_us": 100,
                    "gradients": [{"name": name, "numel": elements, "dtype": "float32", "ready_us": 100 * (i + 1)}
                                  for i, (name, elements) in enumerate(gradients)]},
        "all_reduce_alone": [{"bytes": 4096, "us": 200}, {"bytes": 1048576, "us": 4000}]}))
    subprocess.run([tool, "plan", "--workload", str(step), "--policy", policy, "-o", str(plan)], check=True,
                   stdout=subprocess.DEVNULL)
    return plan, [[bucket["elements"], len(bucket["gradients"])] for bucket in json.loads(plan.read_text())["buckets"]]


def ask(arguments, *words):
    """What a part of this script prints in PYTHON, and why not."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    done = subprocess.run([arguments.python, __file__, "--part", *words], capture_output=True, text=True, check=False,
                          env=dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, USE_LIBUV="0",
                                   GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore"))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1]), ""
    return None, (done.stderr.strip().splitlines() or ["no message"])[-1]


def check_titan(arguments, folder):
    results = []
    for number, job in enumerate(JOBS):
        file = folder / f"job{number}.toml"
        subprocess.run([arguments.tool, "export", "--job", job, "--to", "torchtitan", "-o", str(file)], check=True,
                       stdout=subprocess.DEVNULL)
        seen, trouble = ask(arguments, "titan", arguments.titan, str(file))
        results.append(seen is not None and not seen["wrong"])
        print(f"  torchtitan, {job}: " + (trouble or f"{seen['keys']} keys, {seen['wrong'] or 'all as told'}"))
    return results


def check_megatron(arguments, folder):
    exported = {}
    for policy, ranks in ((f"threshold:cap={5 * 4096}B", 3), (f"sharded+threshold:cap={5 * 4096}B", 1)):
        plan, buckets = planned(arguments.tool, folder, policy, ranks)
        file = plan.with_suffix(".py")
        subprocess.run([arguments.tool, "export", str(plan), "--to", "megatron", "-o", str(file)], check=True,
                       stdout=subprocess.DEVNULL)
        exported[str(file)] = buckets
    seen, trouble = ask(arguments, "megatron", arguments.megatron, *exported)
    if seen is None:
        print(f"  Megatron-Core: {trouble}")
        return [False]
    results = []
    for setting, buckets in seen["buckets"].items():
        expected = exported.get(setting) or planned(
            arguments.tool, folder, f"threshold:cap={4 * int(setting.split()[0])}B,closes=on-reaching")[1]
        results.append(buckets == expected)
        print(f"  Megatron-Core {seen['version']}, {'exported ' if setting in exported else 'bucket size and parameters '}"
              f"{pathlib.Path(setting).name}: {len(buckets)} buckets "
              f"{[elements for elements, _ in buckets]}, " + ("as the rule" if results[-1] else f"the rule says {expected}"))
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default="build/dovetail")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--titan", default="")
    parser.add_argument("--megatron", default="")
    parser.add_argument("--part", nargs="+")
    arguments = parser.parse_args()
    if arguments.part:
        {"titan": parse_titan, "megatron": lay_out_megatron}[arguments.part[0]](*arguments.part[1:])
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="dovetail-owners-") as name:
        for folder, check, title in ((arguments.titan, check_titan, "torchtitan"), (arguments.megatron, check_megatron, "megatron")):
            if pathlib.Path(folder or "/nowhere", title).is_dir():
                results += check(arguments, pathlib.Path(name))
            else:
                print(f"check_owners: skipped: no package {title} in {folder or 'any folder'} (see the first lines of this script)")
    if not results:
        return 77
    print(f"check_owners: {sum(results)} of {len(results)} passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
