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

# Room -> the other rooms whose headers it may include.
ALLOWED_ROOMS = {
    "base": set(),
    "traces": {"base"},
    "schedule": {"base"},
    "lower": {"base", "schedule"},
    "verify": {"base", "schedule"},
    "policies": {"base", "schedule", "lower"},
    "jobs": {"base", "schedule", "lower", "policies"},
    "yardsticks": {"base", "schedule", "jobs", "models"},
    "frameworks": {"base", "schedule", "policies", "jobs"},
    "reshard": {"base", "schedule"},
    "models": {"base", "traces", "schedule"},
    "imports": {"base", "traces", "schedule", "models"},
    "step": {"base", "models"},
    "sim": {"base", "traces", "schedule", "models", "step"},
    "search": {"base", "schedule", "lower", "verify", "policies", "frameworks", "models", "step", "sim"},
    "diagnose": {"base", "traces", "schedule", "policies", "frameworks", "models", "imports", "step", "sim", "search"},
    "exec": {"base", "traces", "schedule", "lower", "verify", "policies"},
    "predict": {"base", "traces", "schedule", "lower", "verify", "policies", "jobs", "models", "imports", "step", "sim"},
    "testbed": {"base", "traces", "schedule", "lower", "models", "sim", "exec"},
    "calibrate": {"base", "traces", "schedule", "lower", "verify", "policies", "frameworks", "models", "exec", "testbed"},
    "report": {"base", "traces", "schedule"},
}
ALLOWED_ROOMS["cli"] = set(ALLOWED_ROOMS)
ALLOWED_ROOMS["python"] = {"base", "cli"}
ALLOWED_ROOMS["tests"] = set(ALLOWED_ROOMS)
ALLOWED_ROOMS["bench"] = set(ALLOWED_ROOMS) - {"tests"}
# Folder of a room -> the other folders of that room whose headers it may include. What lies in the room
# itself is free to all of them. A folder that is not here has no rule yet.
ALLOWED_WITHIN = {
    "lower": {"pipeline": {"rewrite"}, "rewrite": set()},
    "exec": {
        "cpu": {"device", "launch", "ops", "training", "values"},
        "cuda": {"device", "ops", "selftest", "training", "values"},
        "device": {"values"},
        "fake": set(),
        "launch": set(),
        "ops": {"device", "training", "values"},
        "selftest": {"cpu", "device", "launch", "ops", "training"},
        "training": set(),
        "values": set(),
    },
}
# bench may also use the samples that tests build; schedule names commands in the words of a trace.
ALLOWED_FOLDERS = {"bench": ["tests/support/*"], "schedule": ["traces/trace.h"]}

# What reads or writes JSON.
JSON_FILES = ["base/json_reader.cc", "*_json.cc", "models/*.cc", "traces/perfetto.cc",
              "traces/compare_print.cc", "report/page.cc", "cli/*.cc", "tests/*", "bench/*"]
EXECUTORS = ["exec/cpu/*", "exec/cuda/*", "exec/launch/*", "tests/exec/*",
             "tests/emulated/*"]

# Pattern of an outside header -> the files that may include it. The first match decides; a header
# in angle brackets that matches none is free (the standard library, POSIX).
OUTSIDE = [
    ("nlohmann/json_fwd.hpp", ["*.h", *JSON_FILES]),
    ("nlohmann/*", ["base/json.h"]),
    ("CLI/*", ["cli/*"]),
    ("nanobind/*", ["python/*"]),
    ("Eigen/*", ["models/fit.cc", "exec/cpu/*", "tests/exec/*", "tests/models/*", "bench/*"]),
    ("gloo/*", EXECUTORS),
    ("mpi.h", EXECUTORS),
    ("nccl.h", EXECUTORS),
    ("cu*.h", EXECUTORS),
    ("sys/socket.h", EXECUTORS),
    ("netinet/*", EXECUTORS),
    ("arpa/*", EXECUTORS),
    ("netdb.h", EXECUTORS),
    ("sqlite3.h", ["imports/nsys.cc", "tests/imports/*"]),
    ("gtest/*", ["tests/*"]),
    ("gmock/*", ["tests/*"]),
    ("benchmark/*", ["bench/*"]),
    ("simdjson.h", ["bench/plain_parse.cc"]),
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


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def source_files(root):
    for room in ALLOWED_ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in {".h", ".cc", ".cu", ".cuh"} and path.is_file():
                yield path.relative_to(root).as_posix()


def check_room(path, header):
    """Why this file may not include this header of ours, or None."""
    room, target = path.split("/")[0], header.split("/")[0]
    if target == room or target in ALLOWED_ROOMS[room]:
        return None
    if matches(header, ALLOWED_FOLDERS.get(room, [])):
        return None
    allowed = ", ".join(sorted(ALLOWED_ROOMS[room])) or "nothing of ours"
    return f"{room} may not include {header} (allowed: {allowed})"


def folder_of(path):
    """The folder of a room that a file lies in, or "" where it lies in the room itself."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else ""


def check_within(path, header):
    """Why this file may not include this header of its own room, or None."""
    room, source, target = path.split("/")[0], folder_of(path), folder_of(header)
    rules = ALLOWED_WITHIN.get(room)
    if rules is None or header.split("/")[0] != room:
        return None
    if not source or not target or source == target:
        return None
    if source not in rules:
        return f"{room}/{source} has no rule: add it to ALLOWED_WITHIN in scripts/check_layers.py"
    if target in rules[source]:
        return None
    allowed = ", ".join(sorted(rules[source])) or "no other folder"
    return f"{room}/{source} may not include {header} (allowed within {room}: {allowed})"


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
            if header.split("/")[0] in ALLOWED_ROOMS and (root / header).exists():
                found.append((number, f'our own header {header} is included as "{header}"'))
            reason = check_reserved(path, header, OUTSIDE, "<{}>")
        elif header.split("/")[0] not in ALLOWED_ROOMS:
            reason = f'"{header}": our headers are included by their path from the root'
        elif not (root / header).exists():
            reason = f"{header} does not exist"
        else:
            ours.append((number, header))
            reason = (check_room(path, header) or check_within(path, header)
                      or check_reserved(path, header, INSIDE))
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
                        default=pathlib.Path(__file__).resolve().parent.parent)
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
