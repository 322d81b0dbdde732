#!/usr/bin/env python3
"""Checks docs/source-systems.md against the tests: every rule has a row, every row names its tests.

A row is `| id | the rule | what dovetail does | tests |`. What dovetail does begins with one of
`as the source`, `improved`, `refused`, `left out`; only what is left out needs no test. Tests are
names in backquotes, `Suite.Name`, as they stand in TEST, TEST_F, TEST_P below tests/. Prints one
line per violation,

  docs/source-systems.md:31: P7: no test Suite.Name in tests/

and exits with 1 if there is any. `--root DIR` checks another tree; `--list` prints each rule with
the number of its tests.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import pathlib
import re
import sys

DOCUMENT = "docs/source-systems.md"
# Every family of rules, and how many it has.
FAMILIES = {"P": 32, "PI": 12, "PL": 24, "GM": 14, "GMI": 9, "GML": 8, "A": 27, "AS": 11, "AI": 9,
            "AL": 10, "R": 19, "RI": 8, "RL": 8, "O": 8}
WAIT_POLICIES = ["inline", "all-at-end", "whole-stream-at-first-use", "per-event-at-first-use",
                 "previous-batch-at-launch", "last-micro-step-only"]
VERDICTS = ("as the source", "improved", "refused", "left out")

TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
NAMED = re.compile(r"`(\w+\.\w+)`")
ROW = re.compile(r"^\|\s*([A-Z]+\d+|[a-z]+(?:-[a-z]+)+|inline)\s*\|(.*)\|\s*$")


def expected_rules():
    rules = [f"{family}{i}" for family, count in FAMILIES.items() for i in range(1, count + 1)]
    return rules + WAIT_POLICIES


def known_tests(root):
    names = set()
    for path in sorted((root / "tests").rglob("*.cc")):
        for suite, name in TEST.findall(path.read_text(encoding="utf-8")):
            names.add(f"{suite}.{name}")
    return names


def read_rows(text):
    """(line, id, what dovetail does, its tests) of every row."""
    for number, line in enumerate(text.splitlines(), 1):
        row = ROW.match(line)
        if not row:
            continue
        cells = [cell.strip() for cell in row.group(2).split("|")]
        verdict = cells[1] if len(cells) == 3 else ""
        yield number, row.group(1), verdict, NAMED.findall(cells[-1]), len(cells)


def check_row(rule, verdict, tests, cells, names):
    """Violations of one row."""
    if cells != 3:
        return [f"{rule}: {cells + 1} columns where four are expected"]
    found = []
    if not verdict.startswith(VERDICTS):
        found.append(f"{rule}: says none of: {', '.join(VERDICTS)}")
    if not tests and not verdict.startswith("left out"):
        found.append(f"{rule}: names no test")
    found += [f"{rule}: no test {test} in tests/" for test in tests if test not in names]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    names = known_tests(options.root)
    document = (options.root / DOCUMENT).read_text(encoding="utf-8")
    violations, seen, cited, left_out = [], {}, set(), 0
    for number, rule, verdict, tests, cells in read_rows(document):
        if rule in seen:
            violations.append((number, f"{rule}: stands in line {seen[rule]} already"))
        seen[rule] = number
        cited.update(tests)
        left_out += verdict.startswith("left out")
        violations += [(number, text) for text in check_row(rule, verdict, tests, cells, names)]
        if options.list:
            print(f"{rule}\t{len(tests)}\t{verdict}")
    expected = expected_rules()
    violations += [(1, f"{rule}: has no row") for rule in expected if rule not in seen]
    violations += [(seen[rule], f"{rule}: no such rule") for rule in seen if rule not in expected]

    for number, text in sorted(violations):
        print(f"{DOCUMENT}:{number}: {text}")
    print(f"{len(seen)} rules, {left_out} left out, {len(cited & names)} tests, "
          f"{len(violations)} violations", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
