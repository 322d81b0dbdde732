#!/usr/bin/env python3
"""Buckets of a plan beside those that XLA compiles for eight H100 that nobody has, and what its thresholds count.

    scripts/checks/check_xla.py [--tool build/dovetail] [--python PYTHON] [--packages FOLDER]

A step is compiled (xla_gpu.py), imported, planned and exported; compiled again with the file's keys, then with the threshold
that `--framework xla` prints; each module is imported, its buckets must be the plan's, and it is planned in turn. Then reduce-scatters
and all-gathers of cut weights: the threshold of two shards, of two weights, makes pairs.

PYTHON is 3.12 or newer (by itself the first of python3.14, 3.13, 3.12). FOLDER holds the packages that xla_gpu.py names, unpacked;
without it they are fetched (500 MB) and thrown away afterwards. a minute on two cores, and one more for fetching.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no such Python or no packages (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("jax==0.12.0.1", "jaxlib==0.12.0.1", "jax-cuda13-plugin==0.12.0.1", "jax-cuda13-pjrt==0.12.0.1", "nvidia-cuda-nvcc==13.5.37",
            "nvidia-nvvm==13.5.37", "nvidia-cuda-crt==13.5.37", "ml_dtypes==0.6.0", "numpy==2.5.5", "opt_einsum==3.4.0", "scipy==1.18.1")
WEIGHT = 4 << 20  # bytes of each of the model's
LAYERS = 7  # odd: which one is left over shows from where buckets are filled
POLICY = f"threshold:cap={2 * WEIGHT}B,closes=from-last"
COMPILER = pathlib.Path(__file__).with_name("xla_gpu.py")


class Skip(Exception):
    """Why nothing can be checked here."""


def new_enough(word):
    """Version of a Python of 3.12 or newer, as pip names it."""
    names = [word] if word else ["python3.14", "python3.13", "python3.12"]
    for name in names:
        asked = subprocess.run([shutil.which(name) or "false", "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True,
                               text=True, check=False)
        version = asked.stdout.split()
        if asked.returncode == 0 and [int(part) for part in version] >= [3, 12]:
            return name, ".".join(version)
    raise Skip(f"no Python of 3.12 or newer ({', '.join(names)})")


def fetched(version, folder):
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--ignore-requires-python",
                           "--python-version", version,
                           "--target", folder, "--no-compile", *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip("the packages cannot be fetched: " + (done.stderr.strip().splitlines() or ["no message"])[-1])


class Check:
    """What a step looks like once XLA has compiled it."""

    def __init__(self, arguments, python, packages, folder):
        self.tool, self.python, self.folder = arguments.tool, python, folder
        self.environment = dict(os.environ, PYTHONPATH=packages, PYTHONDONTWRITEBYTECODE="1",
                                PATH=f"{packages}/nvidia/cu13/bin:{os.environ['PATH']}")
        self.results = []

    def dovetail(self, *words):
        return subprocess.run([self.tool, *map(str, words)], check=True, capture_output=True, text=True,
                              env=dict(os.environ, COLUMNS="300")).stdout

    def compile(self, name, *words):
        done = subprocess.run([self.python, COMPILER, *map(str, words), f"layers={LAYERS}"], env=self.environment, check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-3:]))
        (self.folder / f"{name}.txt").write_text(done.stdout)

    def imported(self, name):
        """(kind, parts, size) of each collective, in the order of the module."""
        said = self.dovetail("import", "hlo", self.folder / f"{name}.txt", "-o", self.folder / f"{name}.json")
        lines = said.split("collectives, in the order of the module\n")[1].splitlines()[1:]
        rows = [re.split(r"\s{2,}", line) for line in lines if re.match(r"\S+ {2,}", line)]
        return [(row[1].split(" ")[0], int(row[3]), row[4]) for row in rows]

    def planned(self, name, policy):
        plan = self.folder / f"{name}.plan.json"
        self.dovetail("plan", "--workload", self.folder / f"{name}.json", "--cluster", "h100x8", "--policy", policy, "-o", plan)
        return json.loads(plan.read_text()), plan

    def say(self, what, seen, expected):
        self.results.append(seen == expected)
        print(f"  {what}: {seen}" + ("" if seen == expected else f", expected {expected}"), flush=True)


def check_plan(check):
    """A plan's keys, and its threshold, give its buckets."""
    check.compile("first", "dp", 8)
    check.imported("first")
    plan, file = check.planned("first", POLICY)
    check.say("elements of the buckets planned", [bucket["elements"] for bucket in plan["buckets"]], [WEIGHT // 4] + [WEIGHT // 2] * (LAYERS // 2))
    alone, pairs = ("all-reduce", 1, "4 MiB"), [("all-reduce", 2, "8 MiB")] * (LAYERS // 2)
    keys = check.folder / "keys.py"
    check.dovetail("export", file, "--to", "xla", "-o", keys)
    check.compile("keyed", "dp", 8, f"plan={keys}")
    check.say("compiled with its keys", sorted(check.imported("keyed")), sorted([alone, *pairs, ("all-reduce", 1, "4 B")]))
    rows = check.dovetail("explore", "--workload", check.folder / "first.json", "--cluster", "h100x8", "--framework", "xla",
                          "--policies", POLICY, "--json")
    threshold = re.search(r"--xla_gpu_all_reduce_combine_threshold_bytes=(\d+)", json.dumps(json.loads(rows)))[1]
    check.compile("sized", "dp", 8, f"xla_gpu_all_reduce_combine_threshold_bytes={threshold}")
    check.say(f"compiled with the threshold {threshold}", sorted(check.imported("sized")),
              sorted([alone, *pairs[1:], ("all-reduce", 3, "8 MiB")]))
    # What is left over is ready first, but XLA reduces it by a kernel of its own and keeps its product to fill the time of the last NCCL
    # all-reduce (findings/xla_left_over_comes_last.sh).
    again, _ = check.planned("sized", POLICY)
    print(f"  us a step: {plan['predicted']['step_us']} as planned, {again['predicted']['step_us']} of the module with the threshold")
    for name, last in (("first", "weights[0]"), ("sized", f"weights[{LAYERS - 1}]")):
        ops = json.loads((check.folder / f"{name}.json").read_text())["ops"]
        made = [word for op in ops for word in op["writes"] if word.endswith(".grad")]
        check.say(f"gradient that is computed last ({name})", made[-1], last + ".grad")


def check_shards(check):
    """Of pairs that a threshold allows: 2 shards of reduce-scatters, 2 whole weights of all-gathers."""
    for kind, threshold in (("reduce_scatter", 2 * WEIGHT // 8), ("all_gather", 2 * WEIGHT)):
        for bytes_, parts in ((threshold, [1, 2]), (threshold - 1, [1])):
            check.compile("cut", "fsdp", 8, f"xla_gpu_{kind}_combine_threshold_bytes={bytes_}")
            seen = sorted({row[1] for row in check.imported("cut") if row[0] == kind.replace("_", "-")})
            check.say(f"weights in a {kind.replace('_', '-')} of up to {bytes_} bytes", seen, parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default="build/dovetail")
    parser.add_argument("--python", default="")
    parser.add_argument("--packages", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dovetail-xla-") as name:
        try:
            python, version = new_enough(arguments.python)
            packages = str(pathlib.Path(arguments.packages or pathlib.Path(name, "packages")).resolve())
            if not arguments.packages:
                fetched(version, packages)
        except Skip as reason:
            print(f"check_xla: skipped: {reason}")
            return 77
        check = Check(arguments, python, packages, pathlib.Path(name))
        check_plan(check)
        check_shards(check)
    print(f"check_xla: {sum(check.results)} of {len(check.results)} passed")
    return 0 if all(check.results) else 1


if __name__ == "__main__":
    sys.exit(main())
