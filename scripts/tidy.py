#!/usr/bin/env python3
"""Runs clang-tidy over every .cc file of the rooms, several files at a time.

Files are read together where they can be (unity_groups.py): a group is a file that includes them,
read with the definitions and folders that any of them is compiled with. A group that the compiler
rejects all the same is checked file by file, which is only slower. With a plug-in (tidy_own_code.cc) the
checks pass over the standard library's declarations: a fifth of the time. It needs the headers of
clang-tidy (libclang-14-dev and llvm-14-dev); without them everything is read, with the same findings.

  scripts/tidy.py BUILD_DIR           reads BUILD_DIR/compile_commands.json; exit 1 if anything is found
  scripts/tidy.py BUILD_DIR exec sim  only these rooms

SPDX-License-Identifier: Apache-2.0
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import unity_groups

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["base", "schedule", "traces", "models", "imports", "frameworks", "step", "sim", "search", "diagnose", "exec", "report", "cli"]
LARGEST_GROUP = 20
HEADERS = "/(" + "|".join([*ROOMS, "tests", "bench"]) + r")/[^ ]*\.(h|cc)$"


def compile_flags(entry):
    """The flags of one entry, without the compiler, the files and precompiled headers."""
    words = shlex.split(entry["command"])[1:]
    flags, skip = [], False
    for position, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-o", "-c") or (word == "-include" and "cmake_pch" in words[position + 1]):
            skip = True
        elif word not in ("-Werror", "-Winvalid-pch"):
            flags.append(word)
    return tuple(flags)


def find_files(build, rooms):
    """Path -> flags, of every .cc file of these rooms. All are there, or the run is no proof."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    flags = {os.path.relpath(entry["file"], ROOT): compile_flags(entry) for entry in entries}
    files = {}
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.cc")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith("exec/cuda/") and name != "exec/cuda/loader.cc":
                continue  # needs the toolkit's headers, which few machines have
            if name not in flags:
                sys.exit(f"tidy: {name} is compiled by nothing")
            files[name] = flags[name]
    return files


def merged_flags(many):
    """Every flag of any of them once, but how to optimise, which changes no finding."""
    merged = []
    for flags in many:
        words = iter(flags)
        for word in words:
            flag = (word, next(words)) if word == "-isystem" else (word,)
            if flag not in merged and not re.fullmatch(r"-O\w|-g\w*", word):
                merged.append(flag)
    return tuple(word for flag in merged for word in flag)


def make_groups(files):
    """Pairs of flags and paths."""
    return [(merged_flags(files[path] for path in members), members)
            for members in unity_groups.make_groups(list(files), LARGEST_GROUP)]


def build_plugin(folder):
    """Path of the plug-in, none where it cannot be built."""
    program = pathlib.Path(shutil.which("clang-tidy") or "clang-tidy").resolve()
    headers = program.parent.parent / "include"
    if not (headers / "clang-tidy/ClangTidyCheck.h").is_file() or not (headers / "llvm/ADT").is_dir():
        print("tidy: without the headers of clang-tidy, which takes five times as long", file=sys.stderr)
        return None
    source, plugin = ROOT / "scripts/tidy_own_code.cc", folder / "own_code.so"
    if not plugin.is_file() or plugin.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["clang++", "-std=c++17", "-O1", "-fPIC", "-fno-rtti", "-shared", "-isystem", str(headers),
                        str(source), "-o", str(plugin)], check=True)
    return plugin


def tidy(path, flags, plugin):
    """The findings in one file and what it includes, and whether the compiler accepted it."""
    load, checks = [], "-bugprone-suspicious-include"
    if plugin:
        load, checks = [f"--load={plugin}"], checks + ",dovetail-own-code"
    command = ["clang-tidy", *load, "--quiet", f"--config-file={ROOT}/.clang-tidy", str(path),
               f"--header-filter={HEADERS}", f"--checks={checks}", "--", *flags, "-Wno-unknown-warning-option"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, "clang-diagnostic-error" in result.stdout


def check_group(folder, plugin, index, flags, paths):
    """Exit status and text of one group."""
    if len(paths) > 1:
        group = folder / f"group{index}.cc"
        group.write_text("".join(f'#include "{path}"\n' for path in paths), encoding="utf-8")
        status, text, rejected = tidy(group, flags, plugin)
        if not rejected:
            return status, text
        reason = next(line for line in text.splitlines() if "clang-diagnostic-error" in line)
        print(f"tidy: one by one, because {reason}", file=sys.stderr)
    results = [tidy(ROOT / path, flags, plugin) for path in paths]
    return max(status for status, _, _ in results), "".join(text for _, text, _ in results)


def main():
    build = pathlib.Path(sys.argv[1])
    groups = make_groups(find_files(build, sys.argv[2:] or ROOMS))
    groups.sort(key=lambda group: -len(group[1]))
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    plugin = build_plugin(folder)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        runs = [pool.submit(check_group, folder, plugin, index, *group) for index, group in enumerate(groups)]
        for run in concurrent.futures.as_completed(runs):
            status, text = run.result()
            failed += status != 0
            print(text, end="", flush=True)
    print(f"tidy: {sum(len(paths) for _, paths in groups)} files in {len(groups)} groups, "
          f"{failed} groups with findings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
