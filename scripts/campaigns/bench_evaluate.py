#!/usr/bin/env python3
"""How many lines `dovetail evaluate` answers in a second, by the clock and by the processor time that it used.

    scripts/campaigns/bench_evaluate.py [--tool build/dovetail] [--lines 5000]

  new buckets   groups of resnet50's gradients that nobody asked for before: simulated, verified and bounded anew
  sizes         torch-ddp with caps that differ by a kibibyte, most of which make buckets that are known
  again         the same policy: looked up
  jobs          one job, asked again

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = {"workload": "resnet50", "cluster": "a100x8"}


def answers(tool, lines):
    """The answers, and the seconds that they took behind the first, which loads the workload; and all its processor time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = subprocess.Popen([tool, "evaluate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    started.stdin.write(json.dumps(lines[0]) + "\n")
    started.stdin.flush()
    first = started.stdout.readline()
    began = time.monotonic()
    rest, _ = started.communicate("".join(json.dumps(line) + "\n" for line in lines[1:]))
    took = time.monotonic() - began
    found = [json.loads(line) for line in [first, *rest.splitlines()]]
    wrong = [one["error"] for one in found if "error" in one]
    if wrong or len(found) != len(lines):
        raise SystemExit(f"bench_evaluate: {len(found)} answers to {len(lines)} lines; {wrong[:1]}")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, took, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def random_groups(names, generator):
    """Consecutive buckets with borders at random."""
    borders = sorted(generator.sample(range(1, len(names)), generator.randint(1, 12)))
    return [names[a:b] for a, b in zip([0, *borders], [*borders, len(names)])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--lines", type=int, default=5000)
    arguments = parser.parse_args()
    found, _, _ = answers(arguments.tool, [{**SITE, "want": "gradients"}])
    names = [one["name"] for one in found[0]["gradients"]]
    generator = random.Random(1)
    job = {"job": "llama3_8b:dp_shard=8,seq=8192,gbs=8", "cluster": "h100x8"}
    kinds = {
        "new buckets": lambda: {**SITE, "groups": random_groups(names, generator)},
        "sizes": lambda: {**SITE, "policy": f"torch-ddp:cap={generator.randint(1024, 102400)}KiB"},
        "again": lambda: {**SITE, "policy": "ddp"},
        "jobs": lambda: job,
    }
    for kind, line in kinds.items():
        lines = [line() for _ in range(arguments.lines)]
        _, took, used = answers(arguments.tool, lines)
        print(f"{kind:12} {(len(lines) - 1) / took:10.0f} lines/s {len(lines) / used:10.0f} lines a second of one core")


if __name__ == "__main__":
    main()
