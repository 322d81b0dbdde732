#!/usr/bin/env bash
# PyTorch 2.15.0: FSDP2 all-gathers an embedding again for its backward, which does not read it: what is gathered follows the hooks of a
# module's output, not what its gradient needs. Of Llama 3 8B that is 1002 MiB in bf16, at the end of backward, before the last
# layers' reduce-scatters. set_unshard_in_backward(False) of that module leaves it out, with the same gradients; nothing calls it by itself.
# Seen: the lines at the end of this script: the all-gathers of a step by module, and whether gradients are bit for bit the same.
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
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)


def gathers(leaves_out):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 64))
    for module in (*model, model):
        fully_shard(module)
    if leaves_out:
        model[0].set_unshard_in_backward(False)

    def step():
        model.zero_grad()
        model(torch.arange(16)).square().mean().backward()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    events = sorted(seen.events(), key=lambda event: event.time_range.start)
    names = [event.name for event in events if event.name.startswith("FSDP::all_gather (")]
    return " ".join(name[len("FSDP::all_gather "):] for name in names), [p.grad.full_tensor() for p in model.parameters()]


usual, wanted = gathers(False)
fewer, found = gathers(True)
if rank == 0:
    print("usual:", usual)
    print("set_unshard_in_backward(False):", fewer)
    print("gradients alike:", all(torch.equal(a, b) for a, b in zip(wanted, found)))
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
usual: (0) (1) (2) (2) (1) (0)
set_unshard_in_backward(False): (0) (1) (2) (2) (1)
gradients alike: True
SEEN
