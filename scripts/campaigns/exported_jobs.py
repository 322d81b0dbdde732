#!/usr/bin/env python3
"""Whether the owners' own code takes what `dovetail export --job` writes: parser, validation, and two steps on CPU ranks.

    scripts/campaigns/exported_jobs.py [--megatron FOLDER] [--titan FOLDER] [--deepspeed FOLDER] [--packages FOLDER]
                                       [--python PYTHON] [--tool build/dovetail] [--drawn 12] [--table] [--steps]

Thirteen jobs, and so many of those that are drawn and can be written, are exported to each owner whose FOLDER is given: a checkout of NVIDIA/Megatron-LM (commit
d98e8a6), the unpacked packages of torchtitan 0.2.2 and DeepSpeed 0.19.8. PACKAGES has what those import (tyro; pydantic, hjson, psutil,
py-cpuinfo, einops, msgpack, tqdm; for float8 torchao), PYTHON has torch (`sudo scripts/checks/torch_root.sh` makes one). Asked are

  Megatron     parse_args and validate_args of each script's arguments, as an H100 would answer
  torchtitan   ConfigManager, then its Trainer on ranks that send nothing: mesh, model (meta), converters, batch, parallelism, pipeline
  DeepSpeed    DeepSpeedConfig on as many ranks as the job has

With --table it also says which arguments of Megatron's parser frameworks/jobs/keys/megatron.keys does not know. With --steps an exported
job of two ranks trains two steps (gloo, f32): with DeepSpeed a small transformer for each stage of ZeRO, with torchtitan its debugmodel.
FSDP2's file is run by scripts/checks/check_fsdp2.py. A job that the exporter refuses is no fault: its line says why.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = ROOT / "frameworks" / "jobs" / "keys" / "megatron.keys"
JOBS = [
    "llama3_70b:tp=8,pp=4,dp=2,gbs=64",
    "llama3_70b:tp=8,pp=4,vp=5,dp=2,gbs=64,schedule=interleaved,async_tp=yes",
    "llama3_8b:dp_shard=8,gbs=8,products=fp8",
    "llama3_8b:dp_shard=4,dp=2,zero=3,gbs=8",
    "llama3_8b:tp=2,cp=2,dp=2,gbs=8,recompute=full,recompute_layers=3",
    "llama2_7b:dp=8,gbs=8,zero=1,states=4,master=2",
    "gpt3_175b:tp=8,pp=16,dp=1,gbs=32",
    "qwen3_30b_a3b:ep=8,dp=8,gbs=64,zero=1",
    "qwen3_235b_a22b:ep=8,tp=2,pp=8,dp=16,gbs=256,zero=1,recompute=selective",
    "mixtral_8x7b:dp=8,ep=8,tp=2,etp=2,gbs=64,zero=2",
    "gpt_oss_120b:ep=8,dp=8,gbs=8,zero=1",
    "deepseek_v2:ep=8,pp=4,dp=16,gbs=64,zero=1",
    "deepseek_v3:ep=8,pp=16,dp=16,gbs=256,zero=1",
]
DENSE = ("llama3_8b", "llama3_70b", "qwen3_0.6b", "qwen3_8b", "llama2_13b")
EXPERTS = ("qwen3_30b_a3b", "gpt_oss_20b", "mixtral_8x7b", "deepseek_v3")
LAYERS, WIDTH, LENGTH, WORDS = 4, 64, 32, 256
SMALL = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_attention_heads": 4,
         "num_key_value_heads": 4, "vocab_size": WORDS, "max_position_embeddings": 128}
# typing has these from Python 3.12 on; BooleanOptionalAction took a type until 3.13.
H100 = """
import argparse, os, sys, typing, warnings
warnings.filterwarnings("ignore")
action = argparse.BooleanOptionalAction.__init__
argparse.BooleanOptionalAction.__init__ = lambda self, *a, type=None, **k: action(self, *a, **k)
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
"""
MEGATRON = H100 + """
torch.cuda.device_count, torch.cuda.current_device, torch.cuda.is_available = lambda: 8, lambda: 0, lambda: True
"""
VALIDATE = MEGATRON + """
from megatron.training.arguments import parse_args, validate_args
arguments = parse_args()
validate_args(arguments)
print("taken", arguments.num_layers, arguments.data_parallel_size)
"""
LIST = MEGATRON + """
from megatron.training.arguments import add_megatron_arguments
for action in add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))._actions:
    print("\\n".join(name for name in action.option_strings if name.startswith("--")))
"""
DEEPSPEED = """
import json, os, sys
os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
from deepspeed.runtime.config import DeepSpeedConfig
file, world = sys.argv[1:]
told = json.load(open(file))
deepspeed.runtime.config.dist.get_rank = lambda *a, **k: 0
class Mesh:  # replicas are what AutoTP leaves
    def get_data_parallel_world_size(self): return int(world) // told.get("tensor_parallel", {}).get("autotp_size", 1)
config = DeepSpeedConfig(file, mpu=Mesh())
seen = {"train_batch_size": config.train_batch_size, "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps}
wrong = {key: value for key, value in seen.items() if told.get(key, value) != value}
zero = told.get("zero_optimization", {})
for key, value in zero.items():  # stage3_... are other names
    read = getattr(config.zero_config, key, None) if hasattr(config.zero_config, key) else getattr(config.zero_config, key.removeprefix("stage3_"))
    if type(read) in (int, bool) and read != value: wrong[key] = read
if config.bfloat16_config.enabled != told.get("bf16", {}).get("enabled", False): wrong["bf16"] = config.bfloat16_config.enabled
print("taken" if not wrong else f"read otherwise: {wrong}", len(told))
"""
# Ranks that send nothing: torchtitan's own fake_backend. What needs a GPU or a data set is stood in for; the Trainer ends where it
# would make weights.
TITAN_PARTS = """
import dataclasses, types
from unittest.mock import MagicMock
class Anything(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return type(name, (), {"__class_getitem__": classmethod(lambda c, item: c)})
for name in ("datasets", "datasets.distributed", "tokenizers", "torchdata", "torchdata.stateful_dataloader", "torchdata.nodes", "torch.utils.tensorboard"):
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = Anything(name)
import torchtitan.tools.utils as tools
tools.device_type, tools.device_module = "cpu", torch.cpu
import torchtitan.distributed.utils as distributed
distributed.device_type, distributed.device_module = "cpu", torch.cpu
import torchtitan.distributed.parallel_dims as dims
dims.device_type = "cpu"
from torchtitan.config import ConfigManager
import torchtitan.train as train
import torchtitan.protocols.train_spec as specs
own = specs.get_train_spec
def without_data(name):
    return dataclasses.replace(own(name), build_tokenizer_fn=None, build_dataloader_fn=loader, build_metrics_processor_fn=lambda *a: METRICS)
specs.get_train_spec = without_data
METRICS = MagicMock()
METRICS.device_memory_monitor.device_name = "H100"
METRICS.device_memory_monitor.get_peak_stats.return_value = MagicMock(max_reserved_gib=0.0, max_reserved_pct=0.0)
loader = None
"""
TITAN = H100 + TITAN_PARTS + """
torch.cuda.is_available = lambda: True
class Reached(Exception): pass
def reached(*a, **k): raise Reached
torch.nn.Module.to_empty = reached
config = ConfigManager().parse_args(["--job.config_file", sys.argv[1], "--comm.mode", "fake_backend"])
try:
    train.Trainer(config)
except Reached:
    print("taken")
"""
TITAN_STEPS = "import os, sys, warnings\nwarnings.filterwarnings('ignore')\nimport torch\n" + TITAN_PARTS + """
from torch.distributed.fsdp import FSDPModule
divide = FSDPModule.set_gradient_divide_factor
def divide_apart(module, factor):  # gloo has no sum that divides
    module.set_force_sum_reduction_for_comms(True)
    divide(module, factor)
FSDPModule.set_gradient_divide_factor = divide_apart
config = ConfigManager().parse_args(["--job.config_file", sys.argv[1], "--model.flavor", "debugmodel", "--training.steps", "2", "--lr_scheduler.warmup_steps", "1"])
def loader(dp_rank, job_config, **k):
    size = (job_config.training.local_batch_size, job_config.training.seq_len + 1)
    tokens = torch.randint(0, 1000, size, generator=torch.Generator().manual_seed(dp_rank))
    while True:
        yield {"input": tokens[:, :-1]}, tokens[:, 1:]
METRICS.should_log.return_value = True
trainer = train.Trainer(config)
losses = []
METRICS.log.side_effect = lambda step, loss, *a, **k: losses.append(round(float(loss), 4))
batches = iter(trainer.batch_generator(trainer.dataloader))
for step in (1, 2):
    trainer.step = step
    trainer.train_step(batches)
print("losses", losses)
"""
DEEPSPEED_STEPS = f"""
import json, os, sys, warnings
warnings.filterwarnings("ignore")
os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed, torch
from torch import nn
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # an operator of C++ that needs a build
deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding({WORDS}, {WIDTH}), nn.Linear({WIDTH}, {WORDS}, bias=False)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer({WIDTH}, 4, {2 * WIDTH}, 0.0, batch_first=True) for _ in range({LAYERS}))
    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers: x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())
model = Model()
engine, *_ = deepspeed.initialize(model=model, config=sys.argv[1], optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
tokens, losses = torch.randint(0, {WORDS}, (engine.train_micro_batch_size_per_gpu(), {LENGTH})), []
for _ in range(2):
    for _ in range(engine.gradient_accumulation_steps()):
        loss = engine(tokens)
        engine.backward(loss)
        engine.step()
    losses.append(round(float(loss), 4))
print("losses", losses, "steps", engine.global_steps)
torch.distributed.destroy_process_group()
"""


def drawn():
    """Jobs that hold together by how they are drawn; the tool has the last word."""
    generator = random.Random(8)
    for number in range(1000):
        model = generator.choice(DENSE if number % 3 else EXPERTS)
        degrees = {key: generator.choice(values) for key, values in (("tp", (1, 2, 4)), ("pp", (1, 1, 2, 4)), ("cp", (1, 1, 2)), ("dp", (1, 2)))}
        shards, micro = generator.choice((2, 4, 8)), generator.choice((1, 2))
        zero = generator.choice((0, 1, 2, 3, 3))
        degrees |= {"dp_shard": shards} if zero == 3 else {"dp": degrees["dp"] * shards}
        keys = {key: value for key, value in degrees.items() if value > 1} | {"zero": zero, "mbs": micro}
        keys["gbs"] = micro * shards * degrees.get("dp", 1) * 8
        if degrees["pp"] > 1 and generator.random() < 0.5:
            keys |= {"vp": 2, "schedule": generator.choice(("interleaved", "zero-bubble", "zbv"))}
        if model in EXPERTS and generator.random() < 0.7:
            keys["ep"] = generator.choice((2, 4))
        for key, values in (("recompute", ("full", "selective", "op")), ("optimizer", ("sgd", "adam")), ("dtype", ("f16", "f32", "bf16")),
                            ("reshard", ("no",)), ("bucket", ("64MiB",)), ("kernels", ("eager",)), ("products", ("fp8",)), ("seq", ("8192",))):
            if generator.random() < 0.3:
                keys[key] = generator.choice(values)
        yield f"{model}:" + ",".join(f"{key}={value}" for key, value in keys.items())


def export(asked, job, owner, file):
    """The ranks of the job; why it was not written."""
    ended = subprocess.run([asked.tool, "export", "--job", job, "--to", owner, "-o", str(file)], capture_output=True, text=True, check=False)
    if ended.returncode:
        return 0, ended.stderr.strip()
    return int(re.search(r"ranks\s+(\d+)", file.read_text(encoding="utf-8"))[1]), ""


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip() and not line.startswith("[W")]
    return lines[-1] if lines else "no message"


def judge(asked, owner, folder, environment, command, suffix):
    """Says each verdict; how many were refused. Of the drawn jobs so many are taken as can be written."""
    written = taken = 0
    last = None
    for number, job in enumerate(itertools.chain(JOBS, drawn())):
        if number == len(JOBS):
            last = written + asked.drawn
        if written == last:
            break
        file = folder / f"{owner}{number}{suffix}"
        world, why = export(asked, job, owner, file)
        if why:
            if last is None:
                print(f"{owner:11} not written  {job}: {why}")
            continue
        written += 1
        ran = subprocess.run(command(file, world), capture_output=True, text=True, check=False,
                             env={**environment, "WORLD_SIZE": str(world), "NGPU": str(world)})
        good = ran.returncode == 0 and "taken" in ran.stdout
        taken += good
        print(f"{owner:11} {'taken' if good else 'REFUSED':12} {job}" +
              ("" if good else f": {last_line(ran.stdout if ran.returncode == 0 else ran.stderr)}"))
    print(f"{owner}: {taken} of {written} taken")
    return written - taken


def train(asked, folder, environment, code, file):
    """What rank 0 of two says of its losses; none that is no number, and the second is less."""
    script = folder / "steps.py"
    script.write_text(code, encoding="utf-8")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    ranks = [subprocess.Popen([asked.python, str(script), str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port})
             for rank in range(2)]
    said = []
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=400))
        except subprocess.TimeoutExpired:
            rank.kill()
            said.append(rank.communicate())
    found = re.search(r"losses \[([0-9.]+), ([0-9.]+)\]", said[0][0])
    good = bool(found) and float(found[2]) < float(found[1]) and all(rank.returncode == 0 for rank in ranks)
    print(f"{file.name:24} " + (found[0] if found else last_line(said[0][1])) + ("" if good else "  FAILED"))
    return not good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for owner in ("megatron", "titan", "deepspeed", "packages"):
        parser.add_argument(f"--{owner}", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--drawn", type=int, default=12)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--steps", action="store_true")
    asked = parser.parse_args()
    path = os.pathsep.join(str(folder) for folder in (asked.megatron, asked.titan, asked.deepspeed, asked.packages) if folder)
    environment = {**os.environ, "PYTHONPATH": path, "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "lo", "USE_LIBUV": "0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torchrun = folder / "torchrun"
        (folder / "validate.py").write_text(VALIDATE, encoding="utf-8")
        torchrun.write_text(f'#!/bin/bash\nwhile [ "$1" != pretrain_gpt.py ]; do shift; done; shift\n'
                            f'exec {asked.python} {folder}/validate.py "$@"\n', encoding="utf-8")
        torchrun.chmod(0o755)
        if asked.megatron:
            environment_of = {**environment, "PATH": f"{folder}:{environment['PATH']}"}
            failed += judge(asked, "megatron", folder, environment_of, lambda file, world: ["bash", str(file)], ".sh")
        if asked.titan:
            failed += judge(asked, "torchtitan", folder, environment, lambda file, world: [asked.python, "-c", TITAN, str(file)], ".toml")
        if asked.deepspeed:
            failed += judge(asked, "deepspeed", folder, environment,
                            lambda file, world: [asked.python, "-c", DEEPSPEED, str(file), str(world)], ".json")
        if asked.steps:
            config = folder / "config.json"
            config.write_text(json.dumps(SMALL), encoding="utf-8")
            f32 = f"seq={LENGTH},mbs=2,gbs=8,dtype=f32,master=0"
            for label, job in [(f"zero{stage}", f"{config}:{'dp_shard' if stage == 3 else 'dp'}=2,zero={stage},{f32}") for stage in range(4)]:
                file = folder / f"deepspeed_{label}.json"
                if asked.deepspeed and not export(asked, job, "deepspeed", file)[1]:
                    failed += train(asked, folder, environment, DEEPSPEED_STEPS, file)
            for label, keys in (("whole", "mbs=2,gbs=4"), ("accumulated", "mbs=1,gbs=8,recompute=full"), ("kept", "mbs=2,gbs=4,reshard=no,recompute=op")):
                file = folder / f"torchtitan_{label}.toml"
                job = f"llama3_8b:dp_shard=2,seq={LENGTH},{keys},dtype=f32,master=0,kernels=eager"
                if asked.titan and not export(asked, job, "torchtitan", file)[1]:
                    failed += train(asked, folder, environment, TITAN_STEPS, file)
    if asked.table:
        listed = subprocess.run([asked.python, "-c", LIST], capture_output=True, text=True, check=True, env=environment).stdout.split()
        known = {line.split(";")[1] for line in KEYS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}
        missing = sorted(set(listed) - known - {"--help"})
        failed += len(missing)
        print(f"{len(listed)} arguments, {len(missing)} not in {KEYS.name}: {' '.join(missing)}")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
