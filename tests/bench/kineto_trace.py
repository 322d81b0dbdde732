#!/usr/bin/env python3
"""Writes a profiler's trace of any length: a real one, repeated with later times and fresh ids.

  tests/bench/kineto_trace.py OUT --events 200000      as many copies as hold at least that many events
  tests/bench/kineto_trace.py OUT --bytes 1000000000   ... or bytes
  tests/bench/kineto_trace.py OUT --from FILE          another trace than the ResNet-50 one of the tests

The text of the real trace is kept byte for byte, but for the numbers that must differ from copy to copy: times,
correlations, external ids, flow ids and the numbers of ProfilerStep#. So a reader meets what a profiler writes,
and steps, launches and collectives of every copy stay joined. OUT ends in .gz: written as gzip.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import pathlib
import re
import sys

REAL = pathlib.Path(__file__).resolve().parents[2] / "tests/recordings/kineto/traces/ddp-resnet50-a100x2-rank0.json.gz"
# What is counted on: the key (kept), and by how much a copy's number is above that of the copy before.
NUMBERS = re.compile(r'("ts": |"correlation": |"External id": |"id": |"ProfilerStep#)(\d+)')
ID_STEP = 1_000_000
NAMED_STEPS = 1000


def parts_of(text):
    """The text as [literal, key, number, literal, ...], and what to add to each number per copy."""
    pieces = NUMBERS.split(text)
    times = [int(number) for key, number in zip(pieces[1::3], pieces[2::3]) if key == '"ts": ' and int(number) > 0]
    length = max(times) - min(times) + 1000  # us; nothing of a copy begins before the last one's end
    steps = {'"ts": ': length, '"ProfilerStep#': NAMED_STEPS}
    literals = [pieces[0] + (pieces[1] if len(pieces) > 1 else "")]
    numbers, deltas = [], []
    for i in range(1, len(pieces), 3):
        numbers.append(int(pieces[i + 1]))
        deltas.append(steps.get(pieces[i], ID_STEP))
        following = pieces[i + 3] if i + 3 < len(pieces) else ""
        literals.append(pieces[i + 2] + following)
    return literals, numbers, deltas


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--from", dest="source", default=str(REAL))
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=0)
    given = parser.parse_args()
    opener = gzip.open if given.source.endswith(".gz") else open
    with opener(given.source, "rt", encoding="utf-8") as file:
        text = file.read()
    begin = text.index("[", text.index('"traceEvents"')) + 1
    end = text.index('"Record Window End"')
    end = text.index("]", end)
    head, body, tail = text[:begin], text[begin:end].rstrip(), text[end:]
    events = len(re.findall(r'"ph": "', body))
    copies = max(1, -(-given.events // events), -(-given.bytes // len(body.encode())))
    literals, numbers, deltas = parts_of(body)
    out = gzip.open(given.out, "wt", compresslevel=6) if given.out.endswith(".gz") else open(given.out, "w")
    with out:
        out.write(head)
        for copy in range(copies):
            pieces = [literals[0]]
            for literal, number, delta in zip(literals[1:], numbers, deltas):
                pieces.append(str(number + copy * delta))
                pieces.append(literal)
            out.write("".join(pieces) + (",\n" if copy + 1 < copies else "\n"))
        out.write(tail)
    size = pathlib.Path(given.out).stat().st_size
    print(f"{given.out}: {copies} copies, {copies * events} events, {size} bytes", file=sys.stderr)


main()
