#!/usr/bin/env python3
"""Plants faults, one after the other, and sees whether the checks tell of them (docs/faults.md, scripts/checks/planted_faults.toml).

  scripts/checks/plant_faults.py                    in a clone of HEAD in a temporary folder: the faults that need no building
  scripts/checks/plant_faults.py --tree DIR         in DIR itself, with its build folders, so that only what a fault touches is
                                             compiled; every file is as it was at the end, and what was built of it. Nobody
                                             edits or commits there meanwhile
  scripts/checks/plant_faults.py --tree DIR race asan   these alone, by name or step
  scripts/checks/plant_faults.py --check            only whether each fault can still be planted and stands in docs/faults.md

DIR is a copy of the project with the folders that scripts/test.sh makes: build, build-asan, build-tsan, build-tidy. A fault
whose folder, or what its command needs, is not there is skipped. The clone takes the tool of --build (build).

A line for each fault, with the line of the step's output that told it:

  found      asan    read-behind-buffer     ==7==ERROR: AddressSanitizer: heap-buffer-overflow on address ...

Then each command runs once more without its fault (not with --once), and must pass: else it told of something else.
Exit status 1 where a fault was not found, could not be planted, or fails without it.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "scripts/checks/planted_faults.toml"
PAGE = ROOT / "docs" / "faults.md"
FOLDERS = {"build": "build", "test": "build", "report": "build", "asan": "build-asan", "tsan": "build-tsan", "tidy": "build-tidy"}
SKIPPED = 77  # exit status of a check that lacks something here
LONGEST = 1200  # seconds of one command


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    step: str
    file: str
    old: str
    new: str
    told: str
    command: str = ""
    target: str = ""
    limit: int = LONGEST

    @property
    def folder(self):
        return FOLDERS.get(self.step, "build")


@dataclasses.dataclass
class Outcome:
    verdict: str
    line: str  # of the output, or the reason


def read_faults():
    with open(DATA, "rb") as file:
        return [Fault(**fault) for fault in tomllib.load(file)["fault"]]


def problem_with(fault, tree):
    """Why it cannot be planted."""
    path = tree / fault.file
    count = path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0
    return "" if count == 1 else f"{fault.file} has the text to replace {count} times"


def lacks(fault, tree, is_clone):
    """What is not there to run it with."""
    if is_clone and (fault.target or fault.step in ("tidy", "package", "python")):
        return "needs a tree with its build folders (--tree)"
    return "" if (tree / fault.folder).exists() else f"no folder {fault.folder} here"


def run(words, tree, limit=LONGEST):
    """Exit status and output; a command that runs past its limit is ended with all that it started."""
    with subprocess.Popen(words, cwd=tree, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0] + f"(it ran past its limit of {limit} s)\n", 1


def build(fault, tree):
    return run(["cmake", "--build", fault.folder, "--target", fault.target], tree)


def run_step(fault, tree):
    """What building and the command say: output and exit status."""
    said, status = build(fault, tree) if fault.target else ("", 0)
    if status or not fault.command:
        return said, status
    return run(shlex.split(fault.command.format(build=fault.folder)), tree, fault.limit)


def judge(fault, said, status):
    if status == SKIPPED:
        return Outcome("skipped", next((line for line in said.splitlines() if "skipped" in line), "something is not here"))
    for line in said.splitlines() if status else []:
        if re.search(fault.told, line):
            return Outcome("found", line.strip())
    return Outcome("NOT FOUND", f"exit status {status}" + "".join("\n      " + line for line in said.splitlines()[-8:]))


def plant(fault, tree):
    path = tree / fault.file
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
        return judge(fault, *run_step(fault, tree))
    finally:
        path.write_text(before, encoding="utf-8")  # newer than what was built of the fault, so that it is built again


def show(fault, outcome):
    print(f"{outcome.verdict:<10} {fault.step:<8} {fault.name:<25} {outcome.line[:2000]}", flush=True)


def passes_without(faults, tree):
    """Those whose step fails without them, too."""
    failing = []
    for fault in faults:
        said, status = run_step(fault, tree)
        if status:
            failing.append(fault)
            show(fault, Outcome("FAILS WITHOUT IT", "".join("\n      " + line for line in said.splitlines()[-8:])))
    return failing


def plant_all(faults, tree, is_clone, once):
    outcomes = {}
    for fault in faults:
        if reason := problem_with(fault, tree):
            outcomes[fault] = Outcome("NOT FOUND", reason)
        elif reason := lacks(fault, tree, is_clone):
            outcomes[fault] = Outcome("skipped", reason)
        else:
            outcomes[fault] = plant(fault, tree)
        show(fault, outcomes[fault])
    found = [fault for fault, outcome in outcomes.items() if outcome.verdict == "found"]
    for fault in faults:  # nothing that is built has a fault
        if fault.target and outcomes[fault].verdict != "skipped":
            build(fault, tree)
    failing = [] if once else passes_without(found, tree)
    missed = sum(outcome.verdict == "NOT FOUND" for outcome in outcomes.values())
    print(f"{len(found)} found, {missed} not found, {len(faults) - len(found) - missed} skipped"
          + ("" if once else f"; without them {len(failing)} of their checks fail"))
    return 1 if missed or failing else 0


def check(faults):
    """Whether each can be planted and has its row, and each row its fault."""
    problems = [f"{fault.name}: {reason}" for fault in faults if (reason := problem_with(fault, ROOT))]
    rows = set(re.findall(r"\| `([a-z-]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    names = {fault.name for fault in faults}
    problems += [f"{name}: has no row in docs/faults.md" for name in sorted(names - rows)]
    problems += [f"docs/faults.md: {name} is planted by nothing" for name in sorted(rows - names)]
    print(*problems, f"{len(faults)} faults, {len(problems)} problems", sep="\n")
    return 1 if problems else 0


def clone(build_folder, folder):
    """A clone of HEAD that has the tool of a build folder."""
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), folder], check=True)
    if build_folder.is_dir():
        (pathlib.Path(folder) / "build").symlink_to(build_folder.resolve())
    return pathlib.Path(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR", default=ROOT / "build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("wanted", nargs="*", metavar="NAME_OR_STEP")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that files are as they were
    faults = read_faults()
    if unknown := set(options.wanted) - {word for fault in faults for word in (fault.name, fault.step)}:
        parser.error(f"no fault and no step {', '.join(sorted(unknown))}")
    if options.wanted:
        faults = [fault for fault in faults if fault.name in options.wanted or fault.step in options.wanted]
    if options.check:
        return check(faults)
    if options.tree:
        return plant_all(faults, options.tree.resolve(), False, options.once)
    with tempfile.TemporaryDirectory(prefix="dovetail-faults-") as folder:
        return plant_all(faults, clone(options.build, folder), True, options.once)


if __name__ == "__main__":
    sys.exit(main())
