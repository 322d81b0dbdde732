#!/usr/bin/env python3
"""Whether Megatron-LM's own parser and validation take the scripts that `dovetail export --to megatron` writes.

    scripts/campaigns/exported_megatron.py --megatron FOLDER [--python PYTHON] [--tool build/dovetail] [--table]

FOLDER is a checkout of github.com/NVIDIA/Megatron-LM (commit d98e8a6), PYTHON one that has torch. Each script is run with a torchrun in
its path that hands its arguments to parse_args and validate_args; nothing of a GPU is asked but what an H100 would answer. With --table
it also says which arguments of that parser frameworks/jobs/keys/megatron.keys does not know.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = ROOT / "frameworks" / "jobs" / "keys" / "megatron.keys"
JOBS = [
    ("llama3_70b:tp=8,pp=4,dp=2,gbs=64", 64),
    ("llama3_70b:tp=8,pp=4,vp=5,dp=2,gbs=64,schedule=interleaved,async_tp=yes", 64),
    ("llama3_8b:dp_shard=8,gbs=8,products=fp8", 8),
    ("llama3_8b:dp_shard=4,dp=2,zero=3,gbs=8", 8),
    ("llama3_8b:tp=2,cp=2,dp=2,gbs=8,recompute=full,recompute_layers=3", 8),
    ("llama2_7b:dp=8,gbs=8,zero=1,states=4,master=2", 8),
    ("gpt3_175b:tp=8,pp=16,dp=1,gbs=32", 128),
    ("qwen3_30b_a3b:ep=8,dp=8,gbs=64,zero=1", 8),
    ("qwen3_235b_a22b:ep=8,tp=2,pp=8,dp=16,gbs=256,zero=1,recompute=selective", 256),
    ("mixtral_8x7b:dp=8,ep=8,tp=2,etp=2,gbs=64,zero=2", 16),
    ("gpt_oss_120b:ep=8,dp=8,gbs=8,zero=1", 8),
    ("deepseek_v2:ep=8,pp=4,dp=16,gbs=64,zero=1", 64),
    ("deepseek_v3:ep=8,pp=16,dp=16,gbs=256,zero=1", 256),
]
# typing has these from Python 3.12 on.
OWNERS = """
import os, sys, typing, warnings
warnings.filterwarnings("ignore")
try:
    import typing_extensions
    for name in ("override", "TypedDict", "NotRequired"):
        setattr(typing, name, getattr(typing, name, None) or getattr(typing_extensions, name))
except ImportError:
    pass
import torch
class H100:
    major, minor, total_memory, name = 9, 0, 80 * 2**30, "H100"
torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
torch.cuda.get_device_properties = lambda *a, **k: H100
torch.cuda.device_count, torch.cuda.current_device, torch.cuda.is_available = lambda: 8, lambda: 0, lambda: True
"""
VALIDATE = OWNERS + """
from megatron.training.arguments import parse_args, validate_args
arguments = parse_args()
validate_args(arguments)
print("taken", arguments.num_layers, arguments.data_parallel_size)
"""
LIST = OWNERS + """
import argparse
from megatron.training.arguments import add_megatron_arguments
for action in add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))._actions:
    print("\\n".join(name for name in action.option_strings if name.startswith("--")))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megatron", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(asked.megatron), "RANK": "0", "NODE_RANK": "0", "MASTER_ADDR": "localhost"}
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.sh"
        torchrun = pathlib.Path(folder) / "torchrun"
        (pathlib.Path(folder) / "validate.py").write_text(VALIDATE, encoding="utf-8")
        torchrun.write_text(f'#!/bin/bash\nwhile [ "$1" != pretrain_gpt.py ]; do shift; done; shift\n'
                            f'exec {asked.python} {folder}/validate.py "$@"\n', encoding="utf-8")
        torchrun.chmod(0o755)
        for job, world in JOBS:
            exported = subprocess.run([asked.tool, "export", "--job", job, "--to", "megatron", "--cluster", f"h100x{world}", "-o", script],
                                      capture_output=True, text=True, check=False)
            if exported.returncode:
                refused += 1
                print(f"not written  {job}: {exported.stderr.strip()}")
                continue
            ran = subprocess.run(["bash", script], capture_output=True, text=True, check=False,
                                 env={**environment, "WORLD_SIZE": str(world), "PATH": f"{folder}:{environment['PATH']}"})
            taken = ran.returncode == 0 and "taken" in ran.stdout
            refused += not taken
            print(f"{'taken' if taken else 'refused':12} {job}" + ("" if taken else f": {ran.stderr.strip().splitlines()[-1]}"))
    if asked.table:
        listed = subprocess.run([asked.python, "-c", LIST], capture_output=True, text=True, check=True, env=environment).stdout.split()
        known = {line.split(";")[1] for line in KEYS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}
        missing = sorted(set(listed) - known - {"--help"})
        refused += len(missing)
        print(f"{len(listed)} arguments, {len(missing)} not in {KEYS.name}: {' '.join(missing)}")
    raise SystemExit(refused > 0)


if __name__ == "__main__":
    main()
