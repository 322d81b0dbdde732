#!/usr/bin/env python3
"""Runs the tests that ctest knows of in a build folder, many in one process.

  scripts/checks/run_tests.py build-asan                     all tests
  scripts/checks/run_tests.py build -L unit -E Calibration   -L, -R and -E as ctest has them
  scripts/checks/run_tests.py build --of exec_test sim_test  those of these executables, whether the others are built or not

ctest starts a process for each of 2000 tests, and most of them need less time than that. Here it says which
tests there are, with their labels and time limits; those of one GoogleTest executable are handed to it in
batches, cut between suites where that can be. Batches begin large and end small, so that all processors are
busy to the end.

Each test counts by itself. A crash, or a test that passes its limit, ends the process and fails that test; the
rest of the batch goes on in another process. Where a process ends badly after its last test (a leak), its tests
are run again one by one to find whose it is. A test over --longest seconds, also when it then runs alone, fails:
a busy machine is no fault of a test.

What fails is printed whole, with the command that repeats it. Every test has a line, the last line counts:

     0.012 s  Suite.Name
     0.000 s  Suite.Other: skipped: why
  1963 passed, 0 failed, 23 skipped

Exit status 1 if anything failed, 2 where no test was found.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import collections
import dataclasses
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

FILTER = "--gtest_filter="
BEGIN = re.compile(r"\[ RUN      \] (\S+)$")
# What a child of the test left unended may stand before it.
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$")
SKIP_REASON = re.compile(r": Skipped\n(.*)")
KNOWN_PROPERTIES = {"LABELS", "TIMEOUT", "WORKING_DIRECTORY", "SKIP_REGULAR_EXPRESSION", "DISABLED"}
LARGEST_BATCH = 64


@dataclasses.dataclass
class Test:
    name: str  # ctest's, without the remark that some end with ("  # GetParam() = 4")
    filter: str  # GoogleTest's name; empty for other programs
    command: list[str]  # without the filter
    folder: str
    limit: float  # seconds

    def suite(self):
        return self.filter.rsplit(".", 1)[0]


@dataclasses.dataclass
class Result:
    test: Test
    verdict: str  # OK, FAILED or SKIPPED, as GoogleTest has it
    seconds: float
    output: str


def read_tests(options):
    selection = [word for flag in "LRE" if getattr(options, flag) for word in (f"-{flag}", getattr(options, flag))]
    said = subprocess.run(["ctest", "--test-dir", options.folder, "--show-only=json-v1", *selection],
                          capture_output=True, text=True, check=False)
    if said.returncode != 0:
        sys.exit(f"run_tests: {said.stderr or said.stdout}")
    for entry in json.loads(said.stdout)["tests"]:
        program = os.path.basename(entry.get("command", [entry["name"].removesuffix("_NOT_BUILT")])[0])
        if options.of and program not in options.of:
            continue
        properties = {item["name"]: item["value"] for item in entry.get("properties", [])}
        if "command" not in entry:
            sys.exit(f"run_tests: {entry['name']} has not been built")
        if unknown := properties.keys() - KNOWN_PROPERTIES:
            sys.exit(f"run_tests: {entry['name']} has {', '.join(sorted(unknown))}, which means nothing here")
        if properties.get("DISABLED"):
            continue
        filters = [word for word in entry["command"] if word.startswith(FILTER)]
        yield Test(entry["name"].partition("  #")[0], filters[0].removeprefix(FILTER) if filters else "",
                   [word for word in entry["command"] if not word.startswith(FILTER)],
                   properties.get("WORKING_DIRECTORY", options.folder), properties.get("TIMEOUT", 300.0))


def command_of(tests):
    command = tests[0].command
    return [*command, FILTER + ":".join(test.filter for test in tests)] if tests[0].filter else command


class Process:
    """One process; its lines come with a limit, after which it is killed with all its children."""

    def __init__(self, tests):
        self.past_limit = False
        # No terminal, so no colours.
        self.process = subprocess.Popen(
            command_of(tests), cwd=tests[0].folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        self.timer = None
        self.expect_within(tests[0].limit)

    def expect_within(self, seconds):
        if self.timer:
            self.timer.cancel()
        self.timer = threading.Timer(seconds, self.kill)
        self.timer.start()

    def kill(self):
        self.past_limit = True
        os.killpg(self.process.pid, signal.SIGKILL)

    def lines(self):
        yield from self.process.stdout

    def end(self):
        """Its exit status; waits for it, not for a child that outlives it."""
        status = self.process.wait()
        self.timer.cancel()
        return status


def run_batch(tests):
    """The results of those that came to an end, passed or not, and the tests that are still to be run."""
    began = time.monotonic()
    process = Process(tests)
    left = {test.filter: test for test in tests}
    results, lines, now = [], [], None
    for line in process.lines():
        lines.append(line)
        if (found := BEGIN.search(line)) and found[1] in left:
            now, lines = left[found[1]], [line]
            process.expect_within(now.limit)
        elif now and (found := END.search(line)) and found[2] == now.filter:
            results.append(Result(now, found[1], int(found[3]) / 1000, "".join(lines)))
            del left[now.filter]
            now, lines = None, []
            process.expect_within(tests[0].limit)
    status = process.end()
    seconds = time.monotonic() - began
    output = "".join(lines) + ("(it ran past its limit)\n" if process.past_limit else f"(exit status {status})\n")
    if not tests[0].filter:
        return [Result(tests[0], "FAILED" if status else "OK", seconds, output)], []
    if left:  # it ended in the middle of a test, or before the first
        broken = now or next(iter(left.values()))
        del left[broken.filter]
        results.append(Result(broken, "FAILED", seconds, output))
    elif status and all(result.verdict != "FAILED" for result in results):
        return blame(tests, output), []
    return results, list(left.values())


def blame(tests, output):
    """The results of tests that all passed in a process which ended badly."""
    results = [result for test in tests for result in run_batch([test])[0]] if len(tests) > 1 else []
    if all(result.verdict != "FAILED" for result in results):
        again = shlex.join(command_of(tests))
        results[-1:] = [Result(tests[-1], "FAILED", 0, f"{output}at the end of the whole of {again}\n")]
    return results


class Run:
    """What is still to be run, and what came of the rest."""

    def __init__(self, tests, workers, folder):
        self.lock = threading.Lock()
        self.workers, self.folder = workers, folder
        self.left = collections.deque(tests)
        self.results = []

    def take(self):
        """The next batch: of one executable, whole suites unless one is too large."""
        with self.lock:
            if not self.left:
                return []
            first = self.left[0]
            most = max(1, min(LARGEST_BATCH, len(self.left) // (4 * self.workers)))
            same = itertools.takewhile(lambda test: test.filter and test.command == first.command, self.left)
            tests = list(itertools.islice(same, most + 1)) or [first]
            ends = [i for i in range(1, len(tests)) if tests[i].suite() != tests[i - 1].suite()]
            count = len(tests) if len(tests) <= most else ends[-1] if ends else most
            return [self.left.popleft() for _ in range(count)]

    def work(self):
        while batch := self.take():
            while batch:
                results, batch = run_batch(batch)
                with self.lock:
                    self.results += results
                    for result in results:
                        self.show(result)

    def finish(self):
        threads = [threading.Thread(target=self.work) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.results

    def show(self, result):
        name, what = result.test.name, ""
        if result.verdict == "FAILED":
            print(f"\n{result.output}again: ctest --test-dir {self.folder} --output-on-failure -R '^{re.escape(name)}( |$)'")
            what = ": FAILED"
        elif result.verdict == "SKIPPED":
            reason = SKIP_REASON.search(result.output)
            what = f": skipped: {reason[1] if reason else 'no reason given'}"
        print(f"{result.seconds:9.3f} s  {name}{what}", flush=True)


def count_slow(results, longest):
    """How many take too long, also when they run alone."""
    count = 0
    for result in results:
        if result.seconds > longest and result.verdict == "OK":
            again = run_batch([result.test])[0][0].seconds
            slow = again > longest
            count += slow
            print(f"{result.test.name} took {result.seconds:.1f} s, alone {again:.1f} s" + (": FAILED" if slow else ""))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for flag in "LRE":
        parser.add_argument(f"-{flag}", metavar="REGEX")
    parser.add_argument("--of", nargs="+", metavar="EXECUTABLE")
    # One more at a time than there are cores: some tests wait for sockets and deadlines.
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1)
    parser.add_argument("--longest", type=float, default=30.0, metavar="SECONDS")
    options = parser.parse_args()
    tests = list(read_tests(options))
    if not tests:
        print("run_tests: no tests were found", file=sys.stderr)
        return 2
    results = Run(tests, options.jobs, options.folder).finish()
    slow = count_slow(results, options.longest)
    count = collections.Counter(result.verdict for result in results)
    lost = len(tests) - len(results)  # a program that cannot be started, say; its error stands above
    if lost:
        print(f"run_tests: {lost} tests have no result")
    failed = count["FAILED"] + slow + lost
    print(f"{count['OK'] - slow} passed, {failed} failed, {count['SKIPPED']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
