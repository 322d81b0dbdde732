#!/usr/bin/env bash
# PyTorch 2.15.0: reshard_after_forward of FSDP2 is about more than the gathers of backward. A forward without a backward (an evaluation)
# leaves parameters as its forward left them: with 2 halves, with False whole. The next forward goes on from those, gathers over two ranks
# or not at all, and where the optimizer stepped in between (backward, evaluation, step) computes with the weights of before that step,
# once. Where nothing is said that is so of what lies in the root alone, here the last layer: the first two have new weights, the last
# old ones. reshard() of each module behind the evaluation mends it.
# Seen: the lines at the end of this script: over how many ranks each evaluation gathers, and with which weights the second one computes.
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
from torch.distributed.fsdp import FSDPModule, fully_shard

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=4)
gather, over = dist.all_gather_single, []


def noted(output, shard, group=None, async_op=False):
    over.append(group.size())
    return gather(output, shard, group=group, async_op=async_op)


dist.all_gather_single = noted


def run(reshards=False, **after_forward):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32, bias=False) for _ in range(3)])
    used = []
    for layer in model:
        layer.register_forward_hook(lambda layer, *_: used.append(layer.weight.detach().clone()))
    for module in (*model[:2], model):
        fully_shard(module, **after_forward)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 32)

    def evaluate():
        over.clear()
        used.clear()
        with torch.no_grad():
            model(x)
        return list(over), list(used)

    model(x).sum().backward()
    first, before = evaluate()
    if reshards:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
    optimizer.step()
    second, after = evaluate()
    return first, second, " ".join("old" if torch.equal(a, b) else "new" for a, b in zip(before, after))


for name, options in (("True", {"reshard_after_forward": True}), ("2", {"reshard_after_forward": 2}),
                      ("False", {"reshard_after_forward": False}), ("nothing said", {}),
                      ("nothing said, reshard()", {"reshards": True})):
    first, second, weights = run(**options)
    if rank == 0:
        print(f"{name}: gathers over {first}, then {second}; weights {weights}")
dist.destroy_process_group()
PYTHON
ranks 4 "$work/program.py" >"$work/seen"
expect <<'SEEN'
True: gathers over [4, 4, 4], then [4, 4, 4]; weights new new new
2: gathers over [4, 4, 4], then [2, 2, 2]; weights old old old
False: gathers over [4, 4, 4], then []; weights old old old
nothing said: gathers over [4, 4, 4], then [4, 4]; weights new new old
nothing said, reshard(): gathers over [4, 4, 4], then [4, 4, 4]; weights new new new
SEEN
