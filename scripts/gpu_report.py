#!/usr/bin/env python3
"""The parts of gpu_check.sh that are easier in Python; standard library only.

  gpu_report.py facts FILE          what this machine is, as JSON
  gpu_report.py set-ctas PLAN N     limits every bucket of a plan to N thread blocks
  gpu_report.py report DIR          DIR/run-ISSUE-BLOCKS.json into DIR/errors.json, and a table

errors.json (schema dovetail.gpu_check/1): one row per schedule with predicted and measured step times,
and for each way of issuing, and for all, the mean and the worst relative error.
SPDX-License-Identifier: Apache-2.0
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys


def output_of(*command):
    """Standard output of a program, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not available: {type(error).__name__}"


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def facts(path):
    query = "name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current"
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("NCCL_", "CUDA_")) and "TOKEN" not in name
    }
    write_json(
        path,
        {
            "schema": "dovetail.gpu_facts/1",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "query": query,
            "gpus": output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").splitlines(),
            "topology": output_of("nvidia-smi", "topo", "-m").splitlines(),
            "nvcc": output_of("nvcc", "--version").splitlines()[-1:],
            "compiler": output_of("g++", "--version").splitlines()[:1],
            "commit": output_of("git", "rev-parse", "HEAD"),
            "variables": variables,
        },
    )


def set_ctas(path, count):
    plan = read_json(path)
    buckets = plan["buckets"]
    for bucket in buckets:
        bucket["max_ctas"] = count
    write_json(path, plan)
    print(f"{path}: {len(buckets)} buckets, at most {count} thread blocks each")


def errors_of(rows):
    errors = [abs(row["error"]) for row in rows]
    return {"schedules": len(errors), "mean": sum(errors) / len(errors), "worst": max(errors)}


def rows_of(report, issue, blocks):
    """One row per plan of one run."""
    rows = []
    for row in report["rows"]:
        predicted, measured = row["predicted_step_us"], row["measured_step_us"]
        if predicted is None:
            continue
        rows.append(
            {
                "policy": row["policy"],
                "buckets": row["buckets"],
                "issue": issue,
                "max_ctas": blocks,
                "calibration": f"calibration-{issue}-{blocks}.json",
                "predicted_step_us": predicted,
                "measured_step_us": measured,
                "p10_us": row["p10_us"],
                "p90_us": row["p90_us"],
                "error": predicted / measured - 1,
                "wrong_elements": row["wrong_elements"],
            }
        )
    return rows


def report(directory):
    rows = []
    result = {"schema": "dovetail.gpu_check/1", "kind": "gpu_check", "by_issue": {}}
    for name in sorted(os.listdir(directory)):
        matched = re.fullmatch(r"run-(eager|graph)-(\d+)\.json", name)
        if not matched:
            continue
        try:
            run = read_json(os.path.join(directory, name))
            rows += rows_of(run, matched.group(1), int(matched.group(2)))
        except (ValueError, KeyError, TypeError) as error:  # a run that was late leaves half a file
            print(f"{name} cannot be read: {type(error).__name__} {error}")
            continue
        for key in ("machine", "backend", "date"):
            result[key] = run[key]
    for issue in ("eager", "graph"):
        of_issue = [row for row in rows if row["issue"] == issue]
        if of_issue:
            result["by_issue"][issue] = errors_of(of_issue)
    if not rows:
        print("no schedule was both predicted and measured")
        return 1
    result["all"] = errors_of(rows)
    result["rows"] = rows
    write_json(os.path.join(directory, "errors.json"), result)
    print(f"{'issue':<6} {'blocks':>6} {'buckets':>7} {'predicted ms':>12} {'measured ms':>11} {'error':>8}  policy")
    for row in rows:
        print(
            f"{row['issue']:<6} {row['max_ctas']:>6} {row['buckets']:>7} {row['predicted_step_us'] / 1e3:>12.3f}"
            f" {row['measured_step_us'] / 1e3:>11.3f} {row['error']:>+8.2%}  {row['policy']}"
        )
    for name, errors in list(result["by_issue"].items()) + [("all", result["all"])]:
        print(f"{name}: mean {errors['mean']:.2%}, worst {errors['worst']:.2%} over {errors['schedules']} schedules")
    return 0


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "facts":
        facts(arguments[1])
        return 0
    if len(arguments) == 3 and arguments[0] == "set-ctas":
        set_ctas(arguments[1], int(arguments[2]))
        return 0
    if len(arguments) == 2 and arguments[0] == "report":
        return report(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
