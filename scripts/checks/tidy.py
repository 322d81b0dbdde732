#!/usr/bin/env python3
"""Runs clang-tidy over every .cc file of the rooms, several files at a time.

The build is configured with DOVETAIL_UNITY (preset `tidy`), so that a batch of files of one folder is read as one. With
a plug-in (tidy_own_code.cc) the checks pass over the standard library's declarations: a fifth of the time. It needs the
headers of clang-tidy (libclang-14-dev and llvm-14-dev); without them everything is read, with the same findings.

  scripts/checks/tidy.py BUILD_DIR                 reads BUILD_DIR/compile_commands.json; exit 1 if anything is found
  scripts/checks/tidy.py BUILD_DIR exec sim        only these rooms
  scripts/checks/tidy.py BUILD_DIR --since COMMIT  only files that have changed since then, and of each header that has changed a file
                                            that includes it. A file by itself where few of its batch have

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import check_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = sorted(check_layers.TOPS - {"tests"})
# What needs headers that few machines have: a device's, and those that a wheel's build fetches.
OTHER_HEADERS = ("exec/cuda", "python/core.cc")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
HEADERS = "/(" + "|".join([*ROOMS, "tests"]) + r")/[^ ]*\.(h|cc)$"


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


def find_units(build, rooms):
    """What is compiled of these rooms, batches and files by themselves: {path: flags} and {path: files that it reads}. Every file is
    in one, or the run is no proof."""
    units, files_of, found = {}, {}, set()
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        is_batch = path.is_relative_to(build)
        room = path.relative_to(build if is_batch else ROOT).parts[0]
        if room in rooms and path not in units and (path.parent.name == "Unity" if is_batch else path.suffix == ".cc"):
            units[path] = compile_flags(entry)
            files_of[path] = INCLUDED.findall(path.read_text(encoding="utf-8")) if is_batch else [str(path)]
            found.update(files_of[path])
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.cc")):
            if str(path) not in found and not any(path.is_relative_to(ROOT / other) for other in OTHER_HEADERS):
                sys.exit(f"tidy: {path.relative_to(ROOT)} is compiled by nothing")
    return units, files_of


def changed_since(commit, files):
    """Of these files those that have changed since the commit, and for each header that has changed one that includes it: its own
    source where there is one."""
    listed = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
              for words in (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"])]
    changed = {str(ROOT / name) for name in itertools.chain(*listed)}
    wanted = {file for file in files if file in changed}
    includes = {file: set(INCLUDED.findall(pathlib.Path(file).read_text(encoding="utf-8"))) for file in files}
    for header in sorted(name for name in changed if name.endswith(".h")):
        name = str(pathlib.Path(header).relative_to(ROOT))
        readers = sorted(file for file in files if name in includes[file])
        own = header.removesuffix(".h") + ".cc"
        if readers and not wanted.intersection(readers):
            wanted.add(own if own in readers else readers[0])
    return wanted


def units_of(units, files_of, wanted):
    """The same units, of the wanted files only: a batch stays whole where more than a quarter of it is wanted."""
    for path, flags in units.items():
        here = wanted.intersection(files_of[path])
        if 4 * len(here) > len(files_of[path]):
            yield path, flags
        else:
            yield from ((pathlib.Path(file), flags) for file in sorted(here))


def build_plugin(folder):
    """Path of the plug-in, none where it cannot be built."""
    program = pathlib.Path(shutil.which("clang-tidy") or "clang-tidy").resolve()
    headers = program.parent.parent / "include"
    if not (headers / "clang-tidy/ClangTidyCheck.h").is_file() or not (headers / "llvm/ADT").is_dir():
        print("tidy: without the headers of clang-tidy, which takes five times as long", file=sys.stderr)
        return None
    source, plugin = ROOT / "scripts/checks/tidy_own_code.cc", folder / "own_code.so"
    if not plugin.is_file() or plugin.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["clang++", "-std=c++17", "-O1", "-fPIC", "-fno-rtti", "-shared", "-isystem", str(headers),
                        str(source), "-o", str(plugin)], check=True)
    return plugin


def tidy(path, flags, plugin):
    """Exit status and findings in one unit, with what it includes."""
    load, checks = [], "-bugprone-suspicious-include"
    if plugin:
        load, checks = [f"--load={plugin}"], checks + ",dovetail-own-code"
    command = ["clang-tidy", *load, "--quiet", f"--config-file={ROOT}/.clang-tidy", str(path),
               f"--header-filter={HEADERS}", f"--checks={checks}", "--", *flags, "-Wno-unknown-warning-option"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    parser.add_argument("--since", metavar="COMMIT")
    options = parser.parse_args()
    build = options.build.resolve()
    all_units, files_of = find_units(build, options.rooms)
    files = set(itertools.chain(*files_of.values()))
    wanted = changed_since(options.since, files) if options.since else files
    units = sorted(units_of(all_units, files_of, wanted), key=lambda unit: -unit[0].stat().st_size)
    plugin = build_plugin(build)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        runs = [pool.submit(tidy, path, flags, plugin) for path, flags in units]
        for run in concurrent.futures.as_completed(runs):
            status, text = run.result()
            failed += status != 0
            print(text, end="", flush=True)
    print(f"tidy: {len(wanted)} of {len(files)} files in {len(units)} units, {failed} units with findings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
