#!/usr/bin/env python3
"""How models/rates/gemm/convolutions.csv was made, and how well it tells convolutions that it was not made of.

    scripts/data/fit_convolutions.py

Reads answers/validation/data/gpu_convolutions_h100.csv (a batch of 128, channels last, us under CUDA graphs; window and side in pixels) and prints for
each type and pass the shares of memory and products (models/rates/convolution_rates.h) that are nearest in the mean, and the errors of each
convolution by shares that the others give. `narrow`: what the share of products is multiplied by at 64 channels and fewer where the window is
wider than a pixel. Images of three channels are left out: there is one.

SPDX-License-Identifier: Apache-2.0
"""

import csv
import math
import pathlib
import statistics

DATA = pathlib.Path(__file__).resolve().parents[2] / "answers/validation/data/gpu_convolutions_h100.csv"
MEMORY = 3.35e12  # bytes a second of an H100
TYPES = {"bf16": (2, 989e12), "tf32": (4, 494e12)}  # bytes of an element, FLOP a second
BATCH = 128
PASSES = ("forward", "input", "weight")


def measured():
    """(type, pass, strided or None where it does not matter) -> [(least us of memory, of products, is narrow, measured us)]"""
    groups = {}
    for row in csv.DictReader(DATA.open()):
        channels, out, window, stride, side = (int(row[key]) for key in ("in", "out", "window", "stride", "side"))
        if channels == 3:
            continue
        size, peak = TYPES[row["dtype"]]
        pixels = BATCH * (side // stride) ** 2
        touched = pixels if window == 1 else BATCH * side ** 2
        others = channels * out * window ** 2 + pixels * out
        for which in PASSES:
            moved = (BATCH * side ** 2 if which == "input" else touched) * channels + others
            key = row["dtype"], which, stride > 1 if which == "input" else None
            groups.setdefault(key, []).append((1e6 * moved * size / MEMORY, 2e6 * pixels * out * channels * window ** 2 / peak,
                                               min(channels, out) <= 64 and window > 1, float(row[f"{which}_us"])))
    return groups


def predicted(row, memory_share, flop_share, narrow):
    moving, computing = row[0] / memory_share, row[1] / (flop_share * (narrow if row[2] else 1))
    return (moving ** 4 + computing ** 4) ** 0.25


def fitted(rows):
    narrows = (0.5, 0.55, 0.6, 0.65) if any(row[2] for row in rows) else (1,)
    shares = ((memory / 100, flop / 100, narrow) for memory in range(74, 92, 2) for flop in range(30, 84, 2) for narrow in narrows)
    return min(shares, key=lambda some: sum(abs(math.log(predicted(row, *some) / row[3])) for row in rows))


def main():
    everything = []
    print("type pass    strided  memory products narrow  kernels  |median|  worst   (each left out)")
    for (dtype, which, strided), rows in measured().items():
        shares = fitted(rows)
        errors = [abs(predicted(row, *fitted(rows[:place] + rows[place + 1:])) / row[3] - 1) for place, row in enumerate(rows)]
        everything += errors
        print(f"{dtype} {which:<8}{'any' if strided is None else str(strided).lower():<8} {shares[0]:6.2f} {shares[1]:8.2f} {shares[2]:6.2f}"
              f" {len(rows):8} {100 * statistics.median(errors):7.1f} % {100 * max(errors):5.1f} %")
    everything.sort()
    print(f"all {len(everything)}: |median| {100 * statistics.median(everything):.1f} %, p95 {100 * everything[math.ceil(0.95 * len(everything)) - 1]:.1f} %")


if __name__ == "__main__":
    main()
