#!/usr/bin/env python3
"""The parts of gpu_check.sh that are easier in Python; standard library only.

  gpu_report.py facts FILE          what this machine is, as JSON
  gpu_report.py set-ctas PLAN N     limits every bucket of a plan to N thread blocks
  gpu_report.py report DIR          what DIR holds into DIR/errors.json and DIR/measured.json, and tables

errors.json (schema dovetail.gpu_check/1): one row per schedule with predicted and measured step times and
the executor's overhead; for each way of issuing, and for all, the mean and the worst relative error and
overhead; how the self-test ended; wrong elements; what compute-sanitizer found.

Overhead: the share of a step in which no command of its critical path runs. The path is walked back from
the last span of the step: to whatever ended last of the command before on the same stream, of the
collective that the compute stream waited for, or of the op that a collective came after.
SPDX-License-Identifier: Apache-2.0
"""
import bisect
import datetime
import json
import os
import platform
import re
import statistics
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
    """The first JSON object of a file: libraries write to standard output too (NCCL_DEBUG)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin = re.search(r"^\{", text, re.MULTILINE)
    if begin is None:
        raise ValueError("holds no JSON object")
    return json.JSONDecoder().raw_decode(text, begin.start())[0]


def read_or_none(path):
    """What a step wrote, or nothing if it was late or failed."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def interfaces(folder="/sys/class/net"):
    """Name to state; loopback's is "unknown" when it is up."""
    states = {}
    for name in sorted(os.listdir(folder)):
        try:
            with open(os.path.join(folder, name, "operstate"), encoding="utf-8") as file:
                states[name] = file.read().strip()
        except OSError:
            states[name] = "not told"
    return states


def network_objection(states):
    """Why ranks and NCCL would find no socket here; "" where they do."""
    if not states:
        return "no network interface: NCCL finds no socket, and ranks cannot meet"
    if all(state == "down" for state in states.values()):
        return f"all network interfaces are down ({', '.join(states)}): NCCL finds no socket (ip link set lo up)"
    return ""


def facts(path):
    query = "name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current"
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("NCCL_", "CUDA_")) and "TOKEN" not in name
    }
    objection = network_objection(interfaces())
    if objection:
        print(f"gpu_check: {objection}")
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
            "interfaces": interfaces(),
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


COMPUTE_STREAM = 0
SLACK_NS = 2000  # events of different streams are no closer than this


def last_before(spans, moment):
    """Of spans in order of their ends the last one that has ended by then, or None."""
    ended = bisect.bisect_right(spans, moment, key=lambda span: span["end"])
    return spans[ended - 1] if ended else None


def predecessor(span, lanes, waits):
    """What the span came after, by the clock; everything is in order of ends."""
    computes = span["stream"] == COMPUTE_STREAM
    others = lanes["communication" if computes else "compute"]
    found = [span["before"]]
    if not computes:
        found.append(last_before(others, span["start"] + SLACK_NS))
    else:
        wait = last_before(waits, span["start"] + SLACK_NS)
        if wait is not None and (span["before"] is None or wait["start"] >= span["before"]["start"]):
            found.append(last_before(others, wait["end"] + SLACK_NS))
    found = [other for other in found if other is not None and other["start"] < span["start"]]
    return max(found, key=lambda other: other["end"], default=None)


def overhead_of_step(spans):
    spans.sort(key=lambda span: (span["end"], span["start"]))
    waits = [span for span in spans if span["kind"] == "wait"]
    work = [span for span in spans if span["kind"] not in ("wait", "kernel")]
    lanes = {
        "compute": [span for span in work if span["stream"] == COMPUTE_STREAM],
        "communication": [span for span in work if span["stream"] != COMPUTE_STREAM],
    }
    latest = {}
    for span in work:
        span["before"] = latest.get(span["stream"])
        latest[span["stream"]] = span
    step = work[-1]["end"] - min(span["start"] for span in work)
    path, span, until = 0, work[-1], work[-1]["end"]
    while span is not None:
        path += max(0, min(span["end"], until) - span["start"])
        until = span["start"]
        span = predecessor(span, lanes, waits)
    return 1 - path / step if step > 0 else 0.0


def overhead_of(trace):
    """The median over the steps of rank 0."""
    kinds = {command["id"]: command["kind"] for command in trace["commands"]}
    steps = {}
    for command, rank, stream, step, start, end, *_ in trace["spans"]:
        if rank == 0:
            span = {"kind": kinds[command], "stream": stream, "start": start, "end": end}
            steps.setdefault(step, []).append(span)
    return statistics.median(overhead_of_step(spans) for spans in steps.values())


def errors_of(rows):
    errors = [abs(row["error"]) for row in rows]
    found = {"schedules": len(errors), "mean": sum(errors) / len(errors), "worst": max(errors)}
    overheads = [row["overhead"] for row in rows if row["overhead"] is not None]
    if overheads:
        found["mean_overhead"] = sum(overheads) / len(overheads)
        found["worst_overhead"] = max(overheads)
    return found


def rows_of(report, issue, blocks, directory):
    """One row per plan of one run."""
    rows = []
    for row in report["rows"]:
        predicted, measured = row["predicted_step_us"], row["measured_step_us"]
        if predicted is None:
            continue
        name = os.path.basename(row["plan"]).replace("plan-", "trace-", 1)
        trace = read_or_none(os.path.join(directory, name))
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
                "overhead": overhead_of(trace) if trace else None,
                "communication": communication_of(trace) if trace else None,
            }
        )
    return rows


def communication_of(trace):
    """The share of a step of rank 0 in which a collective is under way, and the median step; or None."""
    kinds = {command["id"]: command["kind"] for command in trace["commands"]}
    shares = {}
    for command, rank, _, step, start, end, *_ in trace["spans"]:
        if rank != 0 or kinds[command] == "wait":
            continue
        entry = shares.setdefault(step, {"first": start, "last": end, "sent": 0})
        entry["first"] = min(entry["first"], start)
        entry["last"] = max(entry["last"], end)
        if kinds[command] == "collective":
            entry["sent"] += end - start
    found = [one["sent"] / (one["last"] - one["first"]) for one in shares.values() if one["last"] > one["first"]]
    return statistics.median(found) if found else None


def differences_of(rows):
    """How wrong predicted differences between two schedules of one machine are, as a part of the step.

    Beside it the same for a model that knows no overlap: it predicts the step of no-overlap for all.
    """
    errors, plain = [], []
    groups = {}
    for row in rows:
        groups.setdefault((row["issue"], row["max_ctas"]), []).append(row)
    for group in groups.values():
        whole = [row["predicted_step_us"] for row in group if row["policy"].startswith("no-overlap")]
        if whole:
            plain += [abs(whole[0] / row["measured_step_us"] - 1) for row in group]
        for index, one in enumerate(group):
            for other in group[:index]:
                predicted = one["predicted_step_us"] - other["predicted_step_us"]
                measured = one["measured_step_us"] - other["measured_step_us"]
                step = (one["measured_step_us"] + other["measured_step_us"]) / 2
                errors.append(abs(predicted - measured) / step)
    found = {"pairs": len(errors)}
    if errors:
        found["mean"] = sum(errors) / len(errors)
        found["worst"] = max(errors)
    if plain:
        found["mean_error_of_a_model_without_overlap"] = sum(plain) / len(plain)
    return found


def schedules(directory, result):
    """Predicted against measured, into result; False where nothing was measured."""
    rows = []
    for name in sorted(os.listdir(directory)):
        matched = re.fullmatch(r"run-(eager|graph)-(\d+)\.json", name)
        if not matched:
            continue
        try:
            run = read_json(os.path.join(directory, name))
            rows += rows_of(run, matched.group(1), int(matched.group(2)), directory)
        except (ValueError, KeyError, TypeError) as error:  # a run that was late leaves half a file
            print(f"{name} cannot be read: {type(error).__name__} {error}")
            continue
        for key in ("machine", "backend", "date"):
            result[key] = run[key]
        for key in ("device", "stand_in"):
            result[key] = run.get(key)
    if not rows:
        print("no schedule was both predicted and measured")
        return False
    for issue in ("eager", "graph"):
        of_issue = [row for row in rows if row["issue"] == issue]
        if of_issue:
            result["by_issue"][issue] = errors_of(of_issue)
    result["all"] = errors_of(rows)
    result["differences"] = differences_of(rows)
    result["rows"] = rows
    print(
        f"{'issue':<6} {'blocks':>6} {'buckets':>7} {'predicted ms':>12} {'measured ms':>11} {'error':>8}"
        f" {'overhead':>8} {'sending':>8}  policy"
    )
    for row in rows:
        overhead = "-" if row["overhead"] is None else f"{row['overhead']:.2%}"
        sending = "-" if row["communication"] is None else f"{row['communication']:.0%}"
        print(
            f"{row['issue']:<6} {row['max_ctas']:>6} {row['buckets']:>7} {row['predicted_step_us'] / 1e3:>12.3f}"
            f" {row['measured_step_us'] / 1e3:>11.3f} {row['error']:>+8.2%} {overhead:>8} {sending:>8}  {row['policy']}"
        )
    for name, errors in list(result["by_issue"].items()) + [("all", result["all"])]:
        line = f"{name}: error mean {errors['mean']:.2%}, worst {errors['worst']:.2%}"
        if "mean_overhead" in errors:
            line += f"; overhead mean {errors['mean_overhead']:.2%}, worst {errors['worst_overhead']:.2%}"
        print(f"{line}; {errors['schedules']} schedules")
    found = result["differences"]
    if found["pairs"] > 0:
        print(
            f"differences between two schedules of one machine: error mean {found['mean']:.2%} of the step,"
            f" worst {found['worst']:.2%}; {found['pairs']} pairs"
        )
    if "mean_error_of_a_model_without_overlap" in found:
        print(f"a model without overlap: error mean {found['mean_error_of_a_model_without_overlap']:.2%}")
    return True


def selftest(directory, result):
    found = read_or_none(os.path.join(directory, "selftest.json"))
    if found is None:
        print("self-test: no result")
        return
    for row in found["rows"]:
        print(f"{row['part']:<8} {row['name']:<40} {row['verdict']:<7}  {row['detail']}")
    result["selftest"] = {key: found.get(key, 0) for key in ("passed", "failed", "skipped", "known")}
    result["selftest"]["products"] = [
        {"name": row["name"], "verdict": row["verdict"], "detail": row["detail"]}
        for row in found["rows"]
        if "product" in row["name"] and row["part"] == "cuda"
    ]
    print(
        f"self-test: {found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped,"
        f" {result['selftest']['known']} known faults of libraries"
    )


def values(directory, result):
    """Wrong elements of the runs with real collectives, and which plans ran."""
    sums = {"runs": 0, "checked": 0, "wrong": 0, "plans": []}
    for name in sorted(os.listdir(directory)):
        if not re.fullmatch(r"exact-[12]-(eager|graph)\.json|values-.*\.json", name):
            continue
        run = read_or_none(os.path.join(directory, name))
        if run is None:
            print(f"{name}: no result")
            continue
        for row in run["rows"]:
            sums["runs"] += 1
            sums["checked"] += row["checked_elements"]
            sums["wrong"] += row["wrong_elements"]
            sums["plans"].append(
                {
                    "run": name.removesuffix(".json"),
                    "policy": row["policy"],
                    "checked": row["checked_elements"],
                    "wrong": row["wrong_elements"],
                }
            )
            print(f"{name}: {row['policy']}: {row['checked_elements']} checked, {row['wrong_elements']} wrong")
    result["elements"] = sums
    print(f"values: {sums['checked']} elements checked in {sums['runs']} runs, {sums['wrong']} wrong")


def collectives(directory, result):
    """What several GPUs reduced: every series of every file, with its thread blocks."""
    result["collectives"] = []
    for name in sorted(os.listdir(directory)):
        match = re.fullmatch(r"collectives-(\d+)\.json", name)
        if match is None:
            continue
        cluster = read_json(os.path.join(directory, name))
        for series in cluster["collectives"]:
            ranks = series["ranks"]
            result["collectives"].append(
                {
                    "kind": series["collective"],
                    "ranks": ranks,
                    "hosts": series.get("nodes", 1),
                    "max_ctas": int(match[1]) or None,
                    "valid": cluster["quality"]["valid"],
                    "why_not_valid": cluster["quality"]["why"],
                    "points": series["points"],
                }
            )
            last = series["points"][-1]
            print(
                f"{series['collective']} over {ranks}, {match[1] if match[1] != '0' else 'any'} CTAs: "
                f"{last['bytes'] >> 20} MiB in {last['isolated_us']:.1f} us, "
                f"{last['bytes'] / last['isolated_us'] / 1e3:.1f} GB/s"
            )
    if not result["collectives"]:
        print("collectives between GPUs: not measured")


def whole(directory, result):
    """Everything but traces and plans in one file, to be committed: what was measured, where, and by what."""
    result = dict(result, schema="dovetail.gpu_measured/1", kind="gpu_measured")
    for name in ("facts", "selftest"):
        result[name] = read_or_none(os.path.join(directory, name + ".json"))
    steps = os.path.join(directory, "steps.jsonl")
    if os.path.exists(steps):
        with open(steps, encoding="utf-8") as file:
            result["steps"] = [json.loads(line) for line in file]
    conformance = os.path.join(directory, "conformance.log")
    if os.path.exists(conformance):
        with open(conformance, encoding="utf-8", errors="replace") as file:
            result["conformance"] = file.read().splitlines()
    result["calibrations"] = {
        name: read_or_none(os.path.join(directory, name))
        for name in sorted(os.listdir(directory))
        if re.fullmatch(r"calibration-.*\.json", name)
    }
    # What ran, so that it can be predicted anew where the workload of that name has changed.
    plans = sorted(name for name in os.listdir(directory) if re.fullmatch(r"plan-.*\.json", name))
    if plans:
        result["program"] = read_or_none(os.path.join(directory, plans[0]))["program"]
    write_json(os.path.join(directory, "measured.json"), result)


def sanitizer(directory, result):
    """The result of each step, and the tool's own summary."""
    result["sanitizer"] = {}
    for line in open(os.path.join(directory, "steps.jsonl"), encoding="utf-8"):
        step = json.loads(line)
        if not step["step"].startswith("sanitizer"):
            continue
        summary = "no summary"
        log = os.path.join(directory, step["step"] + ".log")
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as file:
                found = re.findall(r"ERROR SUMMARY: .*", file.read())
            summary = found[-1] if found else summary
        result["sanitizer"][step["step"]] = {"result": step["result"], "summary": summary}
        print(f"compute-{step['step']}: {step['result']}; {summary}")
    if not result["sanitizer"]:
        print("compute-sanitizer: did not run")


def report(directory):
    result = {"schema": "dovetail.gpu_check/1", "kind": "gpu_check", "by_issue": {}}
    known = read_or_none(os.path.join(directory, "facts.json")) or {}
    result["gpus"] = known.get("gpus")
    # Where no repository is: what the tool itself says of its build.
    build = (read_or_none(os.path.join(directory, "selftest.json")) or {}).get("tool", {})
    told = known.get("commit") or "exit"
    result["commit"] = build.get("commit") if told.startswith(("exit", "not available")) else told
    for section in (selftest, values, collectives, sanitizer):
        try:
            section(directory, result)
        except (OSError, ValueError, KeyError, TypeError) as error:  # the others are told all the same
            print(f"{section.__name__}: cannot be told: {type(error).__name__} {error}")
    told = schedules(directory, result)
    whole(directory, result)
    if not told:
        return 0 if result["elements"]["runs"] else 1  # --only values measures no schedule
    write_json(os.path.join(directory, "errors.json"), result)
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
