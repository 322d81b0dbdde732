#!/usr/bin/env python3
"""Prints the best rows of an explore report that its framework can run: best.py SWEEP.json

SPDX-License-Identifier: Apache-2.0
"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    sweep = json.load(file)
rows = [row for row in sweep["rows"] if row["micro_steps"] == 1 and row["runs"]]
for row in sorted(rows, key=lambda row: row["step_us"])[:3]:
    print(f'{row["in_words"]}: {row["step_us"] / 1e3:.3f} ms, exposed {row["exposed_us"] / 1e3:.3f} ms')
