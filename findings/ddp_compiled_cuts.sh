#!/usr/bin/env bash
# PyTorch 2.15.0, torch.compile of a DistributedDataParallel of eight weights of 1 MiB. optimize_ddp, True by default, cuts backward at 1 MiB and then at
# every bucket_cap_mb (25 by itself), of a bucket_cap_mb_list at the largest. DDP's buckets are others: with a cap that is given the first is
# that large, too. A full bucket waits for the cut behind it: with a cap of 2 MiB each leaves one gradient late, with a list of 1, 2 and 5 MiB the second
# leaves three late. With optimize_ddp=False all gradients come first, and nothing overlaps. Blocks that
# are compiled one by one follow the list.
# Seen: the lines at the end of this script, in the order of time: +n, n weights have their gradients; (m), an all-reduce of m MiB is launched.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/torch.bash"
install torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'PYTHON'
import os
import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)
events = []


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False), torch.nn.ReLU()) for _ in range(8))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def watched_backward(graph, _inputs):
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    weights = sum(getattr(node, "meta", {}).get("val", x).shape == (512, 512) for node in outputs)

    def run(arguments):
        result = graph.forward(*arguments)
        events.append(f"+{weights}")
        return result

    run._boxed_call = True
    return run


def watched_reduce(_state, bucket):
    events.append(f"({bucket.buffer().nbytes >> 20})")
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


x = torch.ones(4, 512)
backend = aot_autograd(fw_compiler=lambda graph, _inputs: make_boxed_func(graph.forward), bw_compiler=watched_backward)
for what, cut, options in (("whole", True, {}), ("whole", True, {"bucket_cap_mb": 2}),
                           ("whole", True, {"bucket_cap_mb_list": [1, 2, 5]}),
                           ("whole", False, {"bucket_cap_mb_list": [1, 2, 5]}), ("blocks", False, {"bucket_cap_mb_list": [1, 2, 5]})):
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = cut
    model = Model()
    if what == "blocks":
        for block in model.blocks:
            block.compile(backend=backend)
    ddp = DistributedDataParallel(model, **options)
    ddp.register_comm_hook(None, watched_reduce)
    run = ddp if what == "blocks" else torch.compile(ddp, backend=backend)
    for _ in range(3):  # the buckets are DDP's own from the second on
        events.clear()
        run(x).square().mean().backward()
    if rank == 0:
        print(f"{what}, optimize_ddp={cut}, {options}: {' '.join(events)}")
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
whole, optimize_ddp=True, {}: +1 (1) +7 (7)
whole, optimize_ddp=True, {'bucket_cap_mb': 2}: +1 +2 (2) +2 (2) +2 (2) +1 (2)
whole, optimize_ddp=True, {'bucket_cap_mb_list': [1, 2, 5]}: +1 (1) +5 (2) +2 (5)
whole, optimize_ddp=False, {'bucket_cap_mb_list': [1, 2, 5]}: +8 (1) (2) (5)
blocks, optimize_ddp=False, {'bucket_cap_mb_list': [1, 2, 5]}: +1 (1) +1 +1 (2) +1 +1 +1 +1 +1 (5)
SEEN
