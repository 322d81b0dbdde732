"""One rank of scripts/campaigns/validate_torch.sh --show replan: trains a model that plans anew, on a link whose rate is halved.

SPDX-License-Identifier: Apache-2.0
"""

import copy
import gc
import os
import pathlib
import re
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import validate_torch_rank as validate

import dovetail_torch
from torch_host import run_on_host

MOST_STEPS = 300  # until a decision


class Training:
    """Steps of one wrapped model."""

    def __init__(self, module, wrap, loss_of):
        self.optimizer = torch.optim.SGD(module.parameters(), lr=validate.LEARNING_RATE)
        self.loss_of, self.ended = loss_of, 0
        self.model = wrap(module, self.optimizer)

    def step(self):
        self.optimizer.zero_grad()
        self.loss_of(self.model).backward()
        self.optimizer.step()
        self.ended += 1

    def until_decision(self, number):
        """The number-th decision of the model that plans anew; None where it takes none."""
        for _ in range(MOST_STEPS):
            if len(self.model.decisions) == number:
                return self.model.decisions[-1]
            self.step()
            self.model.step_ended()
        return None


def halve(rate):
    number, unit = re.match(r"([0-9.]+)(.*)", rate).groups()
    slower = f"{float(number) / 2:g}{unit}"
    dist.barrier()
    if validate.RANK == 0:
        ended = run_on_host([str(validate.ROOT / "scripts/campaigns/testbed.sh"), "rate", slower])
        if ended.returncode != 0:
            raise SystemExit(f"replan_torch_rank: {ended.stderr}")
    dist.barrier()
    return slower


def until_as_far(default, steps):
    """Trains on to the same number of steps; the median of the last 20 in us."""
    times = []
    while default.ended < steps:
        begin = time.perf_counter()
        default.step()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times[-20:])


def say(arguments, slower, first, second, default_us):
    def row(what, median_us, why):
        print(f"{what:<44} {median_us / 1e3:>9.2f}  {why}")
    def of_plan(decision):
        predicted = f", predicted {decision['predicted_us'] / 1e3:.2f}" if "predicted_us" in decision else ""
        return f"{decision['decision']}: {decision['reason']}{predicted}"
    print(f"\n{arguments.model}: step medians in ms of windows of 20; {arguments.rate}, then {slower}")
    row(f"{arguments.rate}: DDP's default", first["before"]["median_us"], "")
    row(f"{arguments.rate}: planned", first.get("after", first["before"])["median_us"], of_plan(first))
    row(f"{slower}: the buckets from before", second["before"]["median_us"], "")
    row(f"{slower}: planned again", second.get("after", second["before"])["median_us"], of_plan(second))
    row(f"{slower}: DDP's default", default_us, "")


def main():
    arguments = validate.parse_arguments()
    signal.alarm(2 * validate.LONGEST_SECONDS)
    torch.set_num_threads(1)
    validate.require_fast_products()
    validate.start(arguments.meeting)
    base, inputs, targets = validate.make(arguments.model)
    cross_entropy = torch.nn.CrossEntropyLoss()
    loss_of = lambda model: cross_entropy(model(inputs), targets)
    twin = copy.deepcopy(base)
    gc.collect()
    gc.disable()
    folder = pathlib.Path(arguments.out).resolve() / f"{arguments.model}.replan"
    replanned = Training(base, lambda module, optimizer: dovetail_torch.ReplannedModel(
        module, loss_of, optimizer, tool=os.path.abspath(arguments.tool), run=run_on_host, folder=str(folder)), loss_of)
    first = replanned.until_decision(1)
    slower = halve(arguments.rate)
    second = replanned.until_decision(2)
    default = Training(twin, lambda module, _: DistributedDataParallel(module), loss_of)
    default_us = until_as_far(default, replanned.ended)
    alike = all(torch.equal(a, b) for a, b in zip(base.parameters(), twin.parameters()))
    if validate.RANK == 0:
        if second is None:
            print(f"replan_torch_rank: {MOST_STEPS} steps without a decision on the slower link; see {folder}/log.json")
        else:
            say(arguments, slower, first, second, default_us)
        print(f"weights after {default.ended} steps " + ("bit for bit alike" if alike else "DIFFER from DDP's default") +
              f"; {folder}/log.json", flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0 if alike and second is not None else 1)


if __name__ == "__main__":
    main()
