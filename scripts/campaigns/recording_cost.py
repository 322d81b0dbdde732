#!/usr/bin/env python3
"""What a record of PyTorch's profiler costs the host, beside what the leanest pairs of operators in the trace take by themselves.

    scripts/campaigns/recording_cost.py [--rounds N]

For each program and way to record: the processor time of the same calls without and with the profiler (medians of N rounds, taken in
turn), divided by the records made (operators and annotations); `own`: the tenth shortest of the times that an operator which calls
one other, and nothing else, spends outside of it; and cost / own. recordings/diagnose/recording_cost.h takes own to 3 own.
PyTorch 2.11 on a virtual machine with two busy cores, 2026-11-28: 1.5 to 2.7 in twelve cases.

Exit codes: 0 done, 77 no PyTorch here (a skip).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

WAYS = ({}, {"record_shapes": True}, {"record_shapes": True, "profile_memory": True})


def programs():
    """(name, function of one round) of programs whose operators take next to no time."""
    import torch

    torch.manual_seed(0)
    functional = torch.nn.functional
    small = torch.zeros(4)

    def adds():
        for _ in range(1000):
            small.add_(1)

    linears = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(24)])
    optimizer = torch.optim.AdamW(linears.parameters(), foreach=True)
    rows = torch.randn(4, 16)

    def training():
        for _ in range(5):
            optimizer.zero_grad()
            out = rows
            for linear in linears:
                out = functional.silu(linear(out)) * out + out
            out.pow(2).mean().backward()
            optimizer.step()

    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    words = torch.randn(2, 8, 32)

    def transformer():
        for _ in range(20):
            layer(words).sum().backward()

    convolutions = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()) for _ in range(16)])
    image = torch.randn(1, 4, 4, 4)

    def images():
        for _ in range(10):
            convolutions(image).sum().backward()

    return (("adds", adds), ("training", training), ("transformer", transformer), ("convolutions", images))


def records_of(profile):
    """How many records a trace has, and the tenth shortest own time of its pairs, in us."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    events = [one for one in events if one.get("cat") in ("cpu_op", "user_annotation")]
    own = []
    for thread in {one["tid"] for one in events}:
        stack = []
        for one in sorted((e for e in events if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= one["ts"]:
                stack.pop()
            one["inside"] = []
            if stack:
                stack[-1]["inside"].append(one["dur"])
            stack.append(one)
    own = sorted(one["dur"] - one["inside"][0] for one in events if len(one["inside"]) == 1)
    return len(events), own[len(own) // 10] if own else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        print("no PyTorch here")
        return 77
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}: records, us a record, own, cost / own")
    for name, program in programs():
        program()
        for way in WAYS:
            bare, recorded, made = [], [], (0, float("nan"))
            for number in range(rounds):
                begin = time.process_time()
                program()
                bare.append(time.process_time() - begin)
                recorder = profile(activities=[ProfilerActivity.CPU], **way)
                recorder.start()
                begin = time.process_time()
                program()
                recorded.append(time.process_time() - begin)
                recorder.stop()
                if number == rounds // 2:
                    made = records_of(recorder)
            cost = (statistics.median(recorded) - statistics.median(bare)) * 1e6 / made[0]
            print(f"{name:12} {'+'.join(way) or 'plain':28} {made[0]:6} {cost:6.2f} {made[1]:6.2f} {cost / made[1]:6.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
