#!/usr/bin/env bash
# PyTorch 2.15.0, what a profiler's trace has of DDP's copies into buckets and of what travels: four weights of 64 KiB in two buckets
# (bucket_cap_mb=0.1). Without options each gradient has a reducer::mul_out. With bf16_compress_hook it is a reducer::copy_, and the bucket is
# cast before its all-reduce: half the bytes travel, but caps count those of f32, so the buckets stay the same. With batched_grad_copy=True neither name is there: a
# _foreach_copy_ for each bucket, and the way back has one range for each bucket, not for each gradient.
# Seen: the lines at the end of this script: counts by name in a step, elements of each all-reduce, how many buckets a hook cast.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/torch.bash"
install torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'PYTHON'
import collections
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)


# Under its own name DDP refuses the hook without a GPU.
def compress(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return default_hooks.bf16_compress_hook(state, bucket)


def names(hook=None, **options):
    ddp = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(128, 128, bias=False) for _ in range(4)]), bucket_cap_mb=0.1,
                                  **options)
    if hook:
        ddp.register_comm_hook(None, hook)

    def step():
        ddp.zero_grad()
        ddp(torch.ones(4, 128)).square().mean().backward()

    for _ in range(3):
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        step()
    counts = collections.Counter(event.name.split("::")[-1] for event in seen.events() if "reducer::" in event.name or event.name ==
                                 "aten::_foreach_copy_")
    sent = [event.input_shapes[0] for event in seen.events() if event.name == "gloo:all_reduce"]
    wide = sum(event.name == "aten::_to_copy" and event.input_shapes[0] == [32768] for event in seen.events())
    return dict(sorted(counts.items())), sent, f"buckets cast: {wide}"


for title, arguments in {"plain": {}, "bf16_compress_hook": {"hook": compress}, "batched_grad_copy": {"batched_grad_copy": True}}.items():
    seen = names(**arguments)
    if rank == 0:
        print(title, *seen)
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
plain {'copy_bucket_to_grad': 4, 'mul_out': 4} [[32768], [32768]] buckets cast: 0
bf16_compress_hook {'copy_': 4, 'copy_bucket_to_grad': 4} [[32768], [32768]] buckets cast: 2
batched_grad_copy {'_foreach_copy_': 4, 'copy_bucket_to_grad_batched': 2} [[32768], [32768]] buckets cast: 0
SEEN
