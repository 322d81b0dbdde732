#!/usr/bin/env bash
# PyTorch 2.15.0, DistributedDataParallel(bucket_cap_mb=0) of eight weights of 1 MiB: the first iteration has one bucket of all, later ones a
# bucket for each weight. -1 is one bucket always. Neither is refused. (2.11 ends in an AssertionError at 0.)
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
for cap in (0, -1):
    ddp = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(8)]), bucket_cap_mb=cap)
    for _ in range(3):  # the log has rebuilt buckets from the third on
        ddp(torch.ones(4, 512)).square().mean().backward()
    said = ddp._get_ddp_logging_data()
    if rank == 0:
        print(cap, *[[int(size) >> 20 for size in said[key].split(",")] for key in ("bucket_sizes", "rebuilt_bucket_sizes")])
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
0 [8] [1, 1, 1, 1, 1, 1, 1, 1]
-1 [8] [8]
SEEN
