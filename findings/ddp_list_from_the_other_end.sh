#!/usr/bin/env bash
# PyTorch 2.15.0, DistributedDataParallel(bucket_cap_mb_list=[1, 2, 5]) of eight weights of 1 MiB: until DDP rebuilds its buckets it reads
# the list from the other end, so the first iteration reduces buckets of 5, 2 and 1 MiB, later ones 1, 2 and 5. With static_graph=True the
# first two iterations do so, with find_unused_parameters=True alone all of them, and nothing says it.
# Seen: the lines at the end of this script, MiB of each bucket by iteration.
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
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)


def iterations(**options):
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(8)])
    ddp = DistributedDataParallel(model, bucket_cap_mb_list=[1, 2, 5], **options)
    sizes = []

    def hook(_state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes[-1].append(bucket.buffer().numel() * 4 >> 20)
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    ddp.register_comm_hook(None, hook)
    for _ in range(4):
        sizes.append([])
        ddp(torch.ones(4, 512)).square().mean().backward()
    return sizes


for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
    seen = iterations(**options)
    if rank == 0:
        print(options, *seen)
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
{} [5, 2, 1] [1, 2, 5] [1, 2, 5] [1, 2, 5]
{'static_graph': True} [5, 2, 1] [5, 2, 1] [1, 2, 5] [1, 2, 5]
{'find_unused_parameters': True} [5, 2, 1] [5, 2, 1] [5, 2, 1] [5, 2, 1]
SEEN
