#!/usr/bin/env python3
"""How far contention explains what schedules took on a GPU beside what its calibrations predict.

    scripts/gpu/gpu_contention.py traces/measured/gpu/h100-2026-11-28.json [--tool build/dovetail]

The file is the measured.json of scripts/gpu/gpu_check.sh. Its calibrations have one slow-down for all ops, measured beside a queue of
collectives. Five numbers in their place, the same for all numbers of thread blocks, are taken from half of the schedules and tried
on the other half, and the other way round:

    gap               us, more than the calibrated one, before each command
    gemm, memory      slow-down of products and of ops that stream, beside a collective
    collective        slow-down of a collective beside products, as a part of the calibrated one; at least none
    delay             us, of a collective that begins beside a product

Prints the numbers of each half and, of each schedule, the error as calibrated and with the numbers of the half in which it is not.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile

# Of each number: where the search begins, its first step, and between what it lies.
NUMBERS = {
    "gap": (0.0, 0.2, 0.0, 2.0),
    "gemm": (1.05, 0.05, 1.0, 2.0),
    "memory": (1.05, 0.02, 1.0, 1.5),
    "collective": (1.0, 0.3, 0.3, 4.0),
    "delay": (50.0, 50.0, 0.0, 400.0),
}
ROUNDS = 7  # of halved steps


def with_numbers(calibration, numbers):
    cluster = copy.deepcopy(calibration)
    cluster["host"]["launch_gap_us"] += numbers["gap"]
    cluster["contention"].update(
        gemm_slowdown=numbers["gemm"],
        memory_slowdown=numbers["memory"],
        collective_gemm_slowdown=max(1, numbers["collective"] * cluster["contention"]["collective_slowdown"]),
        start_delay_us=numbers["delay"],
    )
    return cluster


class Steps:
    """Predicted steps of schedules, in us."""

    def __init__(self, tool, measured, folder):
        self.tool, self.calibrations, self.folder = tool, measured["calibrations"], folder
        self.program = measured.get("program")  # that ran

    def of(self, rows, numbers=None):
        lines = []
        for name, calibration in self.calibrations.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                json.dump(with_numbers(calibration, numbers) if numbers else calibration, file)
        program = os.path.join(self.folder, "program.json")
        with open(program, "w", encoding="utf-8") as file:
            json.dump(self.program, file)
        for row in rows:
            calibration = self.calibrations[row["calibration"]]
            cluster = os.path.join(self.folder, row["calibration"])
            asked = {"workload": program if self.program else calibration["notes"]["workload"], "world": calibration["ranks"]}
            lines.append(json.dumps(asked | {"cluster": cluster, "policy": row["policy"]}))
        done = subprocess.run([self.tool, "evaluate"], input="\n".join(lines), capture_output=True, text=True, check=True)
        return [json.loads(line)["step_us"] for line in done.stdout.splitlines()]

    def errors(self, rows, numbers=None):
        return [step / row["measured_step_us"] - 1 for step, row in zip(self.of(rows, numbers), rows, strict=True)]


def fitted(steps, rows):
    """The numbers with the least sum of squared errors: each in turn up and down, with steps that become smaller."""
    numbers = {name: start for name, (start, *_) in NUMBERS.items()}

    def cost(of):
        return sum(error * error for error in steps.errors(rows, of))

    best = cost(numbers)
    for round_ in range(ROUNDS):
        moved = True
        while moved:
            moved = False
            for name, (_, step, low, high) in NUMBERS.items():
                for by in (step, -step):
                    value = min(high, max(low, numbers[name] + by / 2**round_))
                    tried = numbers | {name: value}
                    found = cost(tried) if value != numbers[name] else best
                    if found < best * (1 - 1e-4):
                        numbers, best, moved = tried, found, True
                        break
    return numbers


def summary(errors):
    sizes = [abs(error) for error in errors]
    return f"mean {sum(sizes) / len(sizes):.2%}, worst {max(sizes):.2%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured")
    parser.add_argument("--tool", default="build/dovetail")
    options = parser.parse_args()
    with open(options.measured, encoding="utf-8") as file:
        measured = json.load(file)
    rows = measured["rows"]
    halves = {"A": rows[0::2], "B": rows[1::2]}
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(options.tool, measured, folder)
        numbers = {}
        for name, half in halves.items():
            numbers[name] = fitted(steps, half)
            told = ", ".join(f"{key} {value:.3f}" for key, value in numbers[name].items())
            print(f"half {name}: {told}; there {summary(steps.errors(half, numbers[name]))}")
        print(f"{'half':<4} {'blocks':>6} {'measured ms':>11} {'calibrated':>10} {'other half':>10}  policy")
        before, after = [], []
        for name, half in halves.items():
            old = steps.errors(half)
            new = steps.errors(half, numbers["B" if name == "A" else "A"])
            for row, was, now in zip(half, old, new, strict=True):
                print(
                    f"{name:<4} {row['max_ctas']:>6} {row['measured_step_us'] / 1e3:>11.3f} {was:>+10.2%} {now:>+10.2%}"
                    f"  {row['policy']}"
                )
            print(f"half {name}: as calibrated {summary(old)}; with the numbers of the other half {summary(new)}")
            before, after = before + old, after + new
        print(f"all: as calibrated {summary(before)}; with the numbers of the other half {summary(after)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
