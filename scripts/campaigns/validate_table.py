#!/usr/bin/env python3
"""The results of scripts/campaigns/validate.sh: one run plan by plan, or one row for each of several runs.

    scripts/campaigns/validate_table.py FILE          every plan of one run, then its figures
    scripts/campaigns/validate_table.py FILE FILE...  a row per run
    scripts/campaigns/validate_table.py               a row for each run that validate.sh kept in build/validate-runs

A FILE is what validate.sh keeps: {"condition": {"workload", "set", "disturb"}, "run": report}, or the report
of `dovetail run --calibrate-between --json` alone.

    workload          set        disturbed  rounds  quiet %     typical %    in order      regret %   taken %  ...
    mlp-1000mbit      groupings  30:50          12  1.2 / 3.4   1.4 / 4.0    88/88, 90/90  0.0, 0.2  31.0 of 30

quiet, typical: mean and worst error of the figure over the plans. In order: pairs of plans whose measured
figures differ by 2 % and that the prediction puts in the same order. Regret: how much slower than the best
measured plan the one is that the prediction would have chosen. Taken: the share of core 0 that the yardstick
found taken, and what was injected. Own: what the yardstick itself used of a core.

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import sys

KEPT = pathlib.Path(__file__).resolve().parents[2] / "build" / "validate-runs"
DIFFER = 1.02
# Predicted, measured.
FIGURES = {"quiet": ("predicted_quiet_us", "quiet_us"), "typical": ("predicted_step_us", "measured_step_us")}


def fail(path, what):
    sys.exit(f"validate_table.py: {path}: {what}")


def load(path):
    """(condition, report) of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        fail(path, error)
    condition, report = {}, content
    if isinstance(content, dict) and "run" in content:
        condition, report = content.get("condition", {}), content["run"]
    rows = report.get("rows") if isinstance(report, dict) else None
    if not rows:
        fail(path, "/rows: expected the plans of `dovetail run --json`")
    for number, row in enumerate(rows):
        if "quiet_us" not in row:  # a run of before: the quiet step was the 10th percentile
            row["quiet_us"], row["predicted_quiet_us"] = row.get("p10_us"), row.get("predicted_p10_us")
        for names in FIGURES.values():
            for name in names:
                if not isinstance(row.get(name), (int, float)):
                    fail(path, f"/rows/{number}/{name}: missing; run with --calibrate-between")
    return condition, report


def judge(rows, figure):
    """How good the predictions of one figure are, over all plans."""
    predicted, measured = FIGURES[figure]
    errors = [abs(row[predicted] / row[measured] - 1) for row in rows]
    chosen = min(rows, key=lambda row: row[predicted])
    pairs = [(a, b) for a in rows for b in rows if a[measured] > DIFFER * b[measured]]
    return {
        "mean": sum(errors) / len(errors),
        "worst": max(errors),
        "pairs": len(pairs),
        "ordered": sum(a[predicted] > b[predicted] for a, b in pairs),
        "chosen": chosen["policy"],
        "regret": chosen[measured] / min(row[measured] for row in rows) - 1,
    }


def injected_share(condition):
    """In percent; 0 where nothing was injected, None where it is not known."""
    if "disturb" not in condition:
        return None
    return float(condition["disturb"].partition(":")[0]) if condition["disturb"] else 0.0


def print_run(report):
    rows = report["rows"]
    print(report["belief"])
    print(f"measured on {report['machine']}, {report['backend']}, {report['link']}")
    print(f"{'policy':<60} {'buckets':>7}", end="")
    for name in FIGURES:
        print(f" {name + ' ms':>10} {'measured':>9} {'error':>7}", end="")
    print(f" {'spread':>7}")
    for row in rows:
        print(f"{row['policy']:<60} {row['buckets']:>7}", end="")
        for predicted, measured in FIGURES.values():
            error = row[predicted] / row[measured] - 1
            print(f" {row[predicted] / 1e3:>10.2f} {row[measured] / 1e3:>9.2f} {error:>+7.2%}", end="")
        print(f" {(row['p90_us'] - row['p10_us']) / row['measured_step_us']:>7.1%}")
    for name in FIGURES:
        found = judge(rows, name)
        print(f"{name} step: mean absolute error {found['mean']:.2%}, worst {found['worst']:.2%},"
              f" over {len(rows)} schedules;"
              f" {found['ordered']} of {found['pairs']} pairs that differ by 2 % in order")
        print(f"  chosen by prediction: {found['chosen']}, {found['regret']:.2%} above the best measured")
    for again in report.get("measured_again", []):
        print(f"{again['what']} of {again['size_bytes']} bytes between the rounds:"
              f" {again['least_share']:.3f} to {again['most_share']:.3f} of the cluster file's time")
    for core in report["yardstick"]:
        print(f"yardstick, rank {core['rank']}, core {core['core']}: {core['taken_share']:.1%} of the core"
              f" taken, in bursts of about {core['burst_us'] / 1e3:.1f} ms")
    print(f"the yardstick itself used {report['yardstick_cpu_share']:.2%} of a core")
    wrong = sum(row["wrong_elements"] for row in rows)
    print(f"{sum(row['checked_elements'] for row in rows)} gradient elements checked, {wrong} wrong")
    reasons = "; ".join(report["why_not_valid"])
    print("a quiet machine" if report["valid"] else "not a quiet machine: " + reasons)


def row_of(condition, report):
    quiet, typical = (judge(report["rows"], name) for name in FIGURES)
    core = next((core for core in report["yardstick"] if core["core"] == 0), report["yardstick"][0])
    injected = injected_share(condition)
    of = "" if injected is None else f" of {injected:g}"
    return [
        condition.get("workload", "-"),
        condition.get("set", "-"),
        condition.get("disturb", "-") or "as it is",
        str(report["rounds"]),
        *(f"{100 * found['mean']:.2f} / {100 * found['worst']:.2f}" for found in (quiet, typical)),
        ", ".join(f"{found['ordered']}/{found['pairs']}" for found in (quiet, typical)),
        ", ".join(f"{100 * found['regret']:.2f}" for found in (quiet, typical)),
        f"{100 * core['taken_share']:.1f}{of}",
        f"{100 * report['yardstick_cpu_share']:.2f}",
    ]


def print_rows(runs):
    header = ["workload", "set", "disturbed", "rounds", "quiet %", "typical %", "in order", "regret %",
              "taken %", "own %"]
    table = [header] + [row_of(*run) for run in runs]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if row is header:
            print("| " + " | ".join("-" * width for width in widths) + " |")


def main(arguments):
    if any(argument.startswith("-") for argument in arguments):
        print(__doc__.strip())
        return 0 if arguments[0] in ("-h", "--help") else 2
    paths = arguments or sorted(KEPT.glob("*.json"))
    if not paths:
        fail(KEPT, "no run is kept there; scripts/campaigns/validate.sh makes them")
    runs = [load(path) for path in paths]
    if len(arguments) == 1:
        print_run(runs[0][1])
    else:
        print_rows(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
