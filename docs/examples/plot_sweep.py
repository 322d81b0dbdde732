#!/usr/bin/env python3
"""Draws step time over the cap of a bucket from an explore report, with the standard library alone.

  plot_sweep.py SWEEP.json CURVES.svg [ROWS.csv]

One curve per policy that was swept; the dashed line is the lower bound of the report.

SPDX-License-Identifier: Apache-2.0
"""

import csv
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP = 640, 360, 70, 20
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        sweep = json.load(file)
    curves = {}
    for row in sweep["rows"]:
        if row["threshold_bytes"] is not None:
            point = (row["threshold_bytes"], row["step_us"] / 1e3)
            curves.setdefault(row["rule"], []).append(point)
    points = [point for curve in curves.values() for point in curve]
    bound = (sweep["lower_bound_us"] or min(y for _, y in points) * 1e3) / 1e3
    low, high = min(bound, min(y for _, y in points)), max(y for _, y in points)
    first, last = (math.log2(f(x for x, _ in points)) for f in (min, max))

    def place(x, y):
        across = (math.log2(x) - first) / (last - first or 1)
        up = (y - low) / (high - low or 1)
        return f"{LEFT + across * (WIDTH - LEFT - 20):.1f},{HEIGHT - 50 - up * (HEIGHT - 70 - TOP):.1f}"

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             f'<text x="{LEFT}" y="14">{sweep["workload"]} on {sweep["cluster"]}: predicted step time '
             "in ms over the cap of a bucket</text>"]
    (a, y), (b, _) = (place(2 ** end, bound).split(",") for end in (first, last))
    lines.append(f'<line x1="{a}" y1="{y}" x2="{b}" y2="{y}" stroke="#888" stroke-dasharray="4"/>')
    for value in (low, high):
        x, y = place(2 ** first, value).split(",")
        lines.append(f'<text x="{float(x) - 8:.1f}" y="{y}" text-anchor="end">{value:.2f}</text>')
    for size in sorted({x for x, _ in points})[::4]:
        x = place(size, low).split(",")[0]
        lines.append(f'<text x="{x}" y="{HEIGHT - 28}" text-anchor="middle">{size / 2**20:.3g} MiB</text>')
    for (name, curve), colour in zip(curves.items(), COLOURS):
        path = " ".join(place(x, y) for x, y in sorted(curve))
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
    for i, (name, colour) in enumerate(zip(curves, COLOURS)):
        lines.append(f'<text x="{LEFT + 150 * i}" y="{HEIGHT - 8}" fill="{colour}">{name}</text>')
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n</svg>\n")
    print(f"{sys.argv[2]}: {len(curves)} curves, {len(points)} points")
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, sweep["rows"][0])
            writer.writeheader()
            writer.writerows(sweep["rows"])
        print(f'{sys.argv[3]}: {len(sweep["rows"])} rows')


main()
