#!/usr/bin/env python3
"""Processor time of a layout, seconds of a question, and lines of jobs a second: this tool beside an older one and beside SimuMax.

    scripts/campaigns/bench_jobs.py [--tool build/dovetail] [--before OLDER] [--simumax FOLDER] [--python PYTHON]

--before is a dovetail of another commit. --simumax is a checkout of github.com/MooreThreads/SimuMax, --python one that has what its
requirements.txt names; it is run, not kept. Every tool is asked for the same layouts of the same models, one process each, and what it took
to start and to read the machine is in no figure: a layout's time is that of all layouts less that of one, of the processor, in user mode
and in the system's. SimuMax is timed around run_estimate, analysis_cost and analysis_mem, on the machine that it ships.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import time

from bench_evaluate import answers

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Model, its name at SimuMax, sequence, GPUs, sequences of a step, and (tp, cp, ep, pp, vp) of each layout.
DENSE = [(8, 1, 1, 4, 1), (8, 1, 1, 4, 2), (8, 1, 1, 1, 1), (4, 1, 1, 4, 1), (4, 1, 1, 8, 1), (2, 1, 1, 8, 1), (8, 1, 1, 2, 1), (4, 1, 1, 16, 1)]
EXPERTS = [(1, 1, 8, 8, 1), (2, 1, 8, 8, 1), (4, 1, 8, 8, 1), (1, 1, 16, 8, 1), (2, 1, 16, 4, 1), (4, 1, 32, 4, 1)]
MODELS = [
    ("llama3_70b", "llama3-70b", 8192, 64, 64, DENSE),
    ("qwen3_235b_a22b", None, 4096, 256, 1024, EXPERTS),
    ("deepseek_v3", "deepseekv3", 4096, 256, 1024, EXPERTS),
]
QUESTIONS = [
    ("first example of docs/jobs.md", "llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1,gbs=64,recompute=selective", "h100x64"),
    ("70B on 64", "llama3_70b:seq=8192,gbs=64", "h100x64"),
    ("Qwen3-235B on 256", "qwen3_235b_a22b:seq=4096,gbs=1024", "h100x256"),
    ("405B on 1,024", "llama3_405b:seq=8192,gbs=1024", "h100x1024"),
    ("DeepSeek-V3 on 2,048", "deepseek_v3:seq=4096,gbs=15360", "h100x2048"),
]
# Runs in the Python that has SimuMax's requirements: layouts in, seconds of the processor each.
SIMUMAX = """
import contextlib, io, json, pathlib, sys, time, warnings
warnings.filterwarnings("ignore")
folder, model, seq, world, layouts = pathlib.Path(sys.argv[1]), *json.loads(sys.argv[2])
sys.path.insert(0, str(folder))
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
settings = json.loads((folder / "configs/strategy/tp1_pp4_vp2_sync_mbs1_mbc8_no_ckpt.json").read_text())
took = []
for tp, cp, ep, pp, vp, micro_batches in layouts:
    one = dict(settings, tp_size=tp, ep_size=ep, pp_size=pp, interleaving_size=vp, world_size=world, seq_len=seq, micro_batch_num=micro_batches)
    asked = PerfLLM()
    with contextlib.redirect_stdout(io.StringIO()):
        asked.configure(strategy_config=StrategyConfig.init_from_dict(one),
                        model_config=ModelConfig.init_from_config_file(str(folder / f"configs/models/{model}.json")),
                        system_config=SystemConfig.init_from_config_file(str(folder / "configs/system/a100_pcie.json")))
        asked.model_config.padded_vocab_size, asked.model_config.make_vocab_size_divisible_by = True, 128
        began = time.process_time()
        asked.run_estimate()
        asked.analysis_cost()
        asked.analysis_mem()
        took.append(time.process_time() - began)
print(json.dumps(took))
"""


def layouts_of(model, seq, world, gbs, shapes):
    """Lines of evaluate, and how many micro-batches each has."""
    lines, micro_batches = [], []
    for tp, cp, ep, pp, vp in shapes:
        dp = world // (tp * cp * pp)
        parts = {"dp": dp, "tp": tp, "ep": ep, "pp": pp, "vp": vp, "seq": seq, "mbs": 1, "gbs": gbs, "zero": 1}
        said = ",".join(f"{word}={size}" for word, size in parts.items() if size > 1 or word in ("mbs", "zero"))
        lines.append({"job": f"{model}:{said}", "cluster": f"h100x{world}"})
        micro_batches.append(gbs // dp)
    return lines, micro_batches


def of_a_layout(tool, lines):
    """Median seconds of the processor of a layout: the process with it, less the process without."""
    idle = {"job": "llama3_8b:dp=8,gbs=8", "cluster": lines[0]["cluster"]}
    took = []
    for line in lines:
        alone = min(answers(tool, [idle])[2] for _ in range(2))
        took.append(answers(tool, [idle, line])[2] - alone)
    took.sort()
    return took[len(took) // 2], sum(took) / len(took)


def drawn(count):
    """Jobs drawn over sizes and options, many of which nobody asked for before."""
    generator = random.Random(1)
    lines = []
    while len(lines) < count:
        tp, pp = generator.choice([1, 2, 4, 8]), generator.choice([1, 2, 4, 8])
        dp = 64 // (tp * pp)
        gbs = dp * generator.choice([8, 16, 32, 64])
        recompute = generator.choice(["none", "selective", "full"])
        lines.append({"job": f"llama3_70b:tp={tp},pp={pp},dp={dp},seq=4096,mbs=1,gbs={gbs},zero={generator.choice([0, 1])},"
                             f"recompute={recompute}", "cluster": "h100x64"})
    return lines


def question(tool, job, cluster, limit):
    """Seconds by the clock, resident megabytes, or None where the limit came first."""
    began = time.monotonic()
    running = subprocess.Popen(["timeout", str(limit), tool, "explore", "--job", job, "--cluster", cluster, "--json"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode in (124, 137):
        return None
    if running.returncode != 0:
        raise SystemExit(f"bench_jobs: explore --job {job} --cluster {cluster} ended with {running.returncode}")
    return time.monotonic() - began, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--before", help="a dovetail of another commit")
    parser.add_argument("--simumax", type=pathlib.Path, help="a checkout of SimuMax")
    parser.add_argument("--python", default="python3", help="one that has what SimuMax needs")
    parser.add_argument("--limit", type=int, default=60, help="seconds of one question to the older tool")
    parser.add_argument("--lines", type=int, default=300, help="drawn jobs of evaluate")
    asked = parser.parse_args()
    tools = {"now": asked.tool, **({"before": asked.before} if asked.before else {})}

    print("seconds of the processor a layout: median, mean, of how many")
    for model, theirs, seq, world, gbs, shapes in MODELS:
        lines, micro_batches = layouts_of(model, seq, world, gbs, shapes)
        for name, tool in tools.items():
            median, mean = of_a_layout(tool, lines)
            print(f"  {model:18} on {world:4}  {name:8} {median:8.4f} {mean:8.4f}  {len(lines)}", flush=True)
        if asked.simumax and theirs:
            layouts = [[*shape, count] for shape, count in zip(shapes, micro_batches)]
            ran = subprocess.run([asked.python, "-c", SIMUMAX, str(asked.simumax), json.dumps([theirs, seq, world, layouts])],
                                 capture_output=True, text=True, check=False)
            if ran.returncode:
                print(f"  {model:18} on {world:4}  SimuMax: {ran.stderr.strip().splitlines()[-1]}")
                continue
            took = sorted(json.loads(ran.stdout.splitlines()[-1]))
            print(f"  {model:18} on {world:4}  SimuMax  {took[len(took) // 2]:8.4f} {sum(took) / len(took):8.4f}  {len(took)}")

    print("seconds of a question by the clock, and resident megabytes")
    for said, job, cluster in QUESTIONS:
        for name, tool in tools.items():
            found = question(tool, job, cluster, asked.limit)
            shown = f"{found[0]:8.2f} s {found[1]:7.0f} MB" if found else f"no answer in {asked.limit} s"
            print(f"  {said:30} {name:8} {shown}", flush=True)

    lines = drawn(asked.lines)
    for name, tool in tools.items():
        few = lines if name == "now" else lines[:max(2, len(lines) // 8)]
        _, took, used = answers(tool, few)
        print(f"evaluate, drawn jobs  {name:8} {(len(few) - 1) / took:7.1f} a second by the clock, {len(few) / used:7.1f} a second of one core", flush=True)


if __name__ == "__main__":
    main()
