#!/usr/bin/env python3
"""How the tool's processor time grows with ranks, gradients, micro-steps of a pipeline, and streams.

  scripts/checks/growth.py PATH_OF_DOVETAIL [--instructions]

Four points each, with their own inputs made in a temporary folder; prints the processor time of each,
the least of three runs, with its peak memory, and the exponent e of time ~ size^e between the last two
points (1: linear). Times are those of this machine and of this build, and grow with what no longer fits
into the caches; nothing is asserted here. What the tests assert are counts.

  --instructions   counts instructions under valgrind instead (a hundred times slower): the same on
                   every machine, and blind to caches. The build must be one that valgrind can run: with
                   -D DOVETAIL_NATIVE=OFF

SPDX-License-Identifier: Apache-2.0
"""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(command):
    """Processor seconds, peak memory in MB, standard error."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}\n{errors}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, errors


def instructions(command):
    counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    return int(re.search(r"Collected : (\d+)", run(counted)[2]).group(1))


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def cluster_of(folder, ranks):
    """A machine of any number of ranks, by a line."""
    return write(folder / f"cluster{ranks}.json", {
        "schema": "dovetail.cluster/1", "kind": "cluster", "name": "line", "ranks": ranks,
        "collectives": [{"collective": "all-reduce", "ranks": ranks, "alpha_us": 20,
                         "beta_ns_per_byte": 0.01}],
        "compute": {"gemm": {"flop_per_s": {"f32": 1.5e13}, "efficiency": 0.5},
                    "memory_bytes_per_s": 1e12}})


def profile_of(folder, gradients):
    return write(folder / f"profile{gradients}.json", {
        "schema": "dovetail.profile/1", "name": "many", "world_size": 2,
        "profile": {"forward_us": 1000, "backward_us": 10.0 * gradients, "optimizer_us": 500,
                    "gradients": [{"name": f"g{i}", "numel": 1000 + 37 * (i % 100), "dtype": "float32",
                                   "ready_us": 10.0 * (i + 1)} for i in range(gradients)]},
        "all_reduce_alone": [{"bytes": 4096, "us": 30}, {"bytes": 1 << 20, "us": 300}]})


def report(name, sizes, command_of, counts):
    values, texts = [], []
    for size in sizes:
        if counts:
            values.append(instructions(command_of(size)))
            texts.append(f"{size}: {values[-1] / 1e6:.0f} M instructions")
        else:
            time, memory, _ = min(run(command_of(size)) for _ in range(3))
            values.append(max(time, 1e-3))
            texts.append(f"{size}: {time:.2f} s, {memory:.0f} MB")
    exponent = math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])
    print(f"{name:34} {'  '.join(texts)}  exponent {exponent:.2f}", flush=True)


def main():
    counts = sys.argv[2:] == ["--instructions"]
    if len(sys.argv) < 2 or (len(sys.argv) > 2 and not counts):
        sys.exit("usage: scripts/checks/growth.py PATH_OF_DOVETAIL [--instructions]")
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = str(folder / "plan.json")
        report("ranks, plan mlp", [12500, 50000, 200000, 800000], lambda n: [
            tool, "plan", "--workload", "mlp", "--cluster", cluster_of(folder, n), "--policy",
            "exact", "-o", plan], counts)
        report("gradients, plan per-tensor", [3000, 6000, 12000, 24000], lambda n: [
            tool, "plan", "--workload", profile_of(folder, n), "--policy", "per-tensor", "-o",
            plan], counts)
        report("gradients, plan exact", [375, 750, 1500, 3000], lambda n: [
            tool, "plan", "--workload", profile_of(folder, n), "--policy", "exact", "-o", plan], counts)
        report("micro-steps, plan llama2_70b S=8", [16, 32, 64, 128], lambda k: [
            tool, "plan", "--workload", "llama2_70b", "--cluster", "h100x16_tcpxo", "--policy",
            f"pipeline:kind=1f1b,stages=8,k={k}", "-o", plan], counts)
        profile = profile_of(folder, 2000)
        subprocess.run([tool, "plan", "--workload", profile, "--policy", "per-tensor", "-o", plan],
                       check=True, capture_output=True)
        text = pathlib.Path(plan).read_text(encoding="utf-8")

        def predict(streams):
            numbers = iter(range(1 << 30))
            changed = re.sub(r'"comm0"', lambda _: f'"comm{next(numbers) % streams}"', text)
            path = folder / f"streams{streams}.json"
            path.write_text(changed, encoding="utf-8")
            return [tool, "predict", "--plan", str(path), "--cluster", profile]
        report("streams, predict 2,000 gradients", [2, 4, 8, 16], predict, counts)


if __name__ == "__main__":
    main()
