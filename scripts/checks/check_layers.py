#!/usr/bin/env python3
"""Checks the rules between rooms: who may include whom, and how each source file begins.

Reads every .h, .cc and .cu file below the rooms and prints one line per violation,

  sim/simulate.cc:12: sim may not include exec/backend.h (allowed: base, models, schedule, traces)

and exits with 1 if there is any. `--root DIR` checks another tree (tests/base/check_layers_test.cc).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import fnmatch
import pathlib
import re
import sys

# Room -> the other rooms whose headers it may include. A folder of a room that is listed is a room of its own; one that is
# not belongs to the room that it lies in.
ALLOWED_ROOMS = {
    "base": set(),
    "traces": {"base"},
    "schedule": {"base"},
    "schedule/lower": {"base", "schedule", "schedule/lower/rewrite", "schedule/lower/pipeline"},
    "schedule/lower/pipeline": {"base", "schedule", "schedule/lower", "schedule/lower/rewrite"},
    "schedule/lower/rewrite": {"base", "schedule", "schedule/lower"},
    "schedule/verify": {"base", "schedule"},
    "schedule/policies": {"base", "schedule", "schedule/lower"},
    "schedule/reshard": {"base", "schedule"},
    "models/networks": {"base", "schedule", "schedule/lower", "schedule/policies"},
    "models/rates": {"base", "schedule"},
    "models/costs": {"base", "schedule", "models/rates"},
    "models/clusters": {"base", "schedule", "models/rates", "models/costs"},
    "models/workloads": {"base", "schedule", "models/networks", "models/rates", "models/costs", "models/clusters"},
    "frameworks": {"base", "schedule", "schedule/policies", "models/networks"},
    "sim": {"base", "traces", "schedule", "models/rates", "models/costs", "models/clusters", "models/workloads"},
    "search": {"base", "schedule", "schedule/lower", "schedule/verify", "schedule/policies", "frameworks", "models/rates",
               "models/costs", "models/clusters", "models/workloads", "sim"},
    "recordings": {"base", "traces", "schedule", "models/costs", "models/clusters", "models/workloads", "models/rates"},
    "recordings/kineto": {"base", "recordings"},
    "recordings/nsys": {"base", "recordings"},
    "recordings/timeline": {"base", "traces", "recordings"},
    "recordings/load": {"base", "recordings", "recordings/kineto", "recordings/nsys", "recordings/timeline"},
    "recordings/hlo": {"base", "schedule", "recordings"},
    "recordings/diagnose": {"base", "traces", "schedule", "schedule/policies", "frameworks", "models/rates", "models/costs",
                            "models/clusters", "models/workloads", "recordings", "recordings/timeline", "sim", "search"},
    "exec": {"base", "traces", "schedule", "schedule/lower", "schedule/verify", "schedule/policies", "exec/cpu", "exec/cuda",
             "exec/device", "exec/fake", "exec/launch", "exec/ops", "exec/selftest", "exec/training", "exec/values"},
    "calibrate": {"base", "traces", "schedule", "schedule/lower", "schedule/verify", "schedule/policies", "frameworks",
                  "models/rates", "models/costs", "models/clusters", "models/workloads", "exec", "exec/cpu", "exec/cuda",
                  "exec/device", "exec/fake", "exec/launch", "exec/ops", "exec/selftest", "exec/training", "exec/values",
                  "calibrate/noise"},
    "calibrate/logs": {"base", "schedule", "models/rates", "models/costs", "models/clusters", "models/workloads",
                       "recordings"},
    "answers": {"base", "traces", "schedule", "schedule/lower", "schedule/verify", "schedule/policies", "models/networks",
                "models/rates", "models/costs", "models/clusters", "models/workloads", "frameworks", "recordings",
                "recordings/diagnose", "calibrate/logs", "sim", "search"},
    "answers/page": {"base", "traces", "schedule"},
    "answers/validation": {"base", "schedule", "models/networks", "models/rates", "models/costs", "models/clusters",
                           "models/workloads"},
}
# Folders of exec: what lies in exec itself is free to all of them.
for folder, others in {
        "cpu": {"device", "launch", "ops", "training", "values"},
        "cuda": {"device", "ops", "selftest", "training", "values"},
        "device": {"values"},
        "fake": set(),
        "launch": set(),
        "ops": {"device", "training", "values"},
        "selftest": {"cpu", "device", "launch", "ops", "training"},
        "training": set(),
        "values": set()}.items():
    ALLOWED_ROOMS[f"exec/{folder}"] = ({"base", "traces", "schedule", "schedule/lower", "schedule/verify",
                                        "schedule/policies", "exec"} | {f"exec/{other}" for other in others})
ALLOWED_ROOMS["calibrate/noise"] = ALLOWED_ROOMS["calibrate"] | {"sim"}
for room in ("cli", "tests", "tests/bench"):
    ALLOWED_ROOMS[room] = set(ALLOWED_ROOMS) - {"tests"}
ALLOWED_ROOMS["tests"].add("tests")
ALLOWED_ROOMS["python"] = {"base", "cli"}
TOPS = {room.split("/")[0] for room in ALLOWED_ROOMS}
# Benchmarks may also use the samples that tests build; schedule names commands in the words of a trace.
ALLOWED_FOLDERS = {"tests/bench": ["tests/support/*"], "schedule": ["traces/trace.h"]}

# What reads or writes JSON.
JSON_FILES = ["base/json_reader.cc", "base/table.cc", "base/fields.h", "*_fields.h", "*_json.cc", "models/*.cc", "traces/perfetto.cc",
              "traces/compare_print.cc", "traces/difference_print.cc", "answers/page/page.cc", "cli/*.cc", "tests/*", "tests/bench/*"]
EXECUTORS = ["exec/cpu/*", "exec/cuda/*", "exec/launch/*", "tests/exec/*",
             "tests/emulated/*"]

# Pattern of an outside header -> the files that may include it. The first match decides; a header
# in angle brackets that matches none is free (the standard library, POSIX).
OUTSIDE = [
    ("nlohmann/json_fwd.hpp", ["*.h", *JSON_FILES]),
    ("nlohmann/*", ["base/json.h"]),
    ("CLI/*", ["cli/*"]),
    ("nanobind/*", ["python/*"]),
    ("Eigen/*", ["models/rates/fit.cc", "exec/cpu/*", "tests/exec/*", "tests/models/*", "tests/bench/*"]),
    ("gloo/*", EXECUTORS),
    ("mpi.h", EXECUTORS),
    ("nccl.h", EXECUTORS),
    ("cu*.h", EXECUTORS),
    ("sys/socket.h", EXECUTORS),
    ("netinet/*", EXECUTORS),
    ("arpa/*", EXECUTORS),
    ("netdb.h", EXECUTORS),
    ("yaml-cpp/*", ["frameworks/jobs/yaml_json.cc"]),
    ("sqlite3.h", ["recordings/nsys/*", "tests/recordings/*"]),
    ("gtest/*", ["tests/*"]),
    ("gmock/*", ["tests/*"]),
    ("benchmark/*", ["tests/bench/*"]),
    ("simdjson.h", ["tests/bench/plain_parse.cc"]),
]

# Of our own headers, those that not every file of a room may include.
INSIDE = [("base/json.h", ["base/json.cc", *JSON_FILES])]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "SPDX-License-Identifier: Apache-2.0"
FORBIDDEN_TEXT = [
    (re.compile(r"^\s*using\s+namespace\s+(?!std::(\w+_)?literals\b)"),
     "`using namespace` is only used for literals"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "unfinished work does not enter the tree"),
]
# What is refused is looked at by attempt (base/attempt.h). It is caught where the tool ends or a line
# is answered, and where a catch tells it from other errors.
CATCH = re.compile(r"\bcatch \(const (dovetail::)?InputError&")
MAY_CATCH = ["base/attempt.h", "cli/front_door.cc", "cli/evaluate.cc", "answers/weigher.cc", "search/sweep.cc",
             "tests/*"]


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def room_of(path):
    """The room that a file or header lies in: the longest listed folder above it, or None, as for a folder that is not
    listed beside others that are."""
    parts = path.split("/")[:-1]
    if len(parts) > 1 and parts[0] != "tests" and parts[0] + "/" + parts[1] not in ALLOWED_ROOMS:
        if any(room.startswith(parts[0] + "/") for room in ALLOWED_ROOMS):
            return None
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in ALLOWED_ROOMS:
            return "/".join(parts[:length])
    return None


def source_files(root):
    for top in sorted({room.split("/")[0] for room in ALLOWED_ROOMS}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in {".h", ".cc", ".cu", ".cuh"} and path.is_file():
                yield path.relative_to(root).as_posix()


def check_room(path, header):
    """Why this file may not include this header of ours, or None."""
    room, target = room_of(path), room_of(header)
    if room is None:
        return f"{path.rsplit('/', 1)[0]} has no rule: add it to ALLOWED_ROOMS in scripts/checks/check_layers.py"
    if target == room or target in ALLOWED_ROOMS[room] or room == "tests":
        return None
    if target and target.rsplit("/", 1)[0] in ALLOWED_ROOMS[room] and target.count("/") == 2:
        return None  # a folder of a folder, such as schedule/lower/rewrite
    if matches(header, ALLOWED_FOLDERS.get(room, [])):
        return None
    allowed = ", ".join(sorted(ALLOWED_ROOMS[room])) or "nothing of ours"
    return f"{room} may not include {header} (allowed: {allowed})"


def check_reserved(path, header, rules, shown="{}"):
    """Why this file may not include this header, by patterns and the files that may, or None."""
    for pattern, files in rules:
        if fnmatch.fnmatchcase(header, pattern):
            if matches(path, files):
                return None
            return f"{shown.format(header)} may only be included in {', '.join(files)}"
    return None


def check_includes(root, path, lines):
    """Violations among the includes of one file, and our headers that it includes."""
    found, ours = [], []
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if not include:
            continue
        quoted, header = include.group(1) == '"', include.group(2)
        if not quoted:
            if header.split("/")[0] in TOPS and (root / header).exists():
                found.append((number, f'our own header {header} is included as "{header}"'))
            reason = check_reserved(path, header, OUTSIDE, "<{}>")
        elif header.split("/")[0] not in TOPS:
            reason = f'"{header}": our headers are included by their path from the root'
        elif not (root / header).exists():
            reason = f"{header} does not exist"
        else:
            ours.append((number, header))
            reason = check_room(path, header) or check_reserved(path, header, INSIDE)
        if reason:
            found.append((number, reason))
    return found, ours


def check_text(path, lines):
    """Violations in the text of one file: its first comment and forbidden words."""
    found = []
    if not lines or not re.match(r"// \S", lines[0]):
        found.append((1, "the first line is a comment that says what this file is"))
    if not any(SPDX in line for line in lines):
        found.append((1, f"no line says {SPDX}"))
    if path.endswith(".h") and "#pragma once" not in lines:
        found.append((1, "a header says #pragma once"))
    for number, line in enumerate(lines, 1):
        for pattern, reason in FORBIDDEN_TEXT:
            if pattern.search(line):
                found.append((number, reason))
        if CATCH.search(line) and not any(fnmatch.fnmatch(path, allowed) for allowed in MAY_CATCH):
            found.append((number, "an InputError is caught by attempt (base/attempt.h)"))
    return found


def find_cycles(includes):
    """Every include that closes a cycle, as (file, line, chain)."""
    state, cycles = {}, []

    def visit(path, chain):
        state[path] = "open"
        for number, header in includes.get(path, []):
            if state.get(header) == "open":
                cycle = chain[chain.index(header):] + [header]
                cycles.append((path, number, " -> ".join(cycle)))
            elif header not in state:
                visit(header, chain + [header])
        state[path] = "done"

    for path in includes:
        if path not in state:
            visit(path, [path])
    return cycles


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root

    violations, includes = [], {}
    for path in source_files(root):
        lines = (root / path).read_text(encoding="utf-8").splitlines()
        found, includes[path] = check_includes(root, path, lines)
        violations += [(path, *item) for item in found + check_text(path, lines)]
    for path, number, chain in find_cycles(includes):
        violations.append((path, number, f"cycle: {chain}"))

    if not includes:
        violations.append((str(root), 1, "no source files here"))
    for path, number, reason in sorted(violations):
        print(f"{path}:{number}: {reason}")
    print(f"{len(includes)} files, {len(violations)} violations", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
