#!/usr/bin/env bash
# PyTorch 2.15.0, FSDP2 inside torch.distributed.pipelining. Interleaved1F1B of 2 ranks keeps parameters gathered for three of a rank's stages
# (max_active_stages=3, which torchtitan leaves so): with two or three stages a rank each is gathered once a step, with four of them
# 11 times in all for 4 micro-batches and 15 for 8, although reshard_after_forward=False asks for once; every UNSHARD all-gathers all groups
# of its stage, every RESHARD frees them. 1F1B (here one stage of two layers over 2 ranks, 4 micro-batches) runs none of these
# actions: with reshard_after_forward=True a layer is gathered once more than there are micro-batches, not twice in each, because backward
# keeps it for the next forward. Either way a stage's reduce-scatters (Gloo: all-reduces) all come behind its last backward, not in it.
# Seen: the lines at the end of this script: what the lowered order has for both ranks; the events of a step, F forward, B the end
# of a backward, g and r an all-gather and a reduction of one layer.
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.profiler import ProfilerActivity, profile

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)


def lowered(stages, micro_batches):
    mine = [PipelineStage(torch.nn.Linear(8, 8), 2 * i + rank, 2 * stages, torch.device("cpu")) for i in range(stages)]
    order = ScheduleInterleaved1F1B(mine, micro_batches, loss_fn=torch.nn.functional.mse_loss).pipeline_order_with_comms
    names = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
    return [{name: sum(action.computation_type.name == name for action in order[each]) for name in names} for each in (0, 1)]


def one_f_one_b(reshard):
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("pp", "fsdp"))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    for module in (*model, model):
        fully_shard(module, mesh=mesh["fsdp"], reshard_after_forward=reshard)
    stage = PipelineStage(model, 0, 1, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)

    def step():
        schedule.step(torch.ones(16, 64), target=torch.ones(16, 64), losses=[])
        model.zero_grad()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    letters = {"FSDP::root_pre_forward": "F", "FSDP::root_post_backward_callback": "B", "FSDP::all_gather": "g",
               "FSDP::post_backward_reduce": "r"}
    events = sorted(seen.events(), key=lambda event: event.time_range.start)
    return "".join(letters.get(event.name.split(" ")[0], "") for event in events)


for stages, micro_batches in ((2, 4), (3, 4), (4, 4), (4, 8)):
    seen = lowered(stages, micro_batches)
    if rank == 0:
        print(f"{stages} stages a rank, {micro_batches} micro-batches", *seen)
for reshard in (False, True):
    seen = one_f_one_b(reshard)
    if rank == 0:
        print(f"1F1B, reshard_after_forward={reshard}", seen)
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
2 stages a rank, 4 micro-batches {'UNSHARD': 2, 'RESHARD': 2, 'REDUCE_GRAD': 2} {'UNSHARD': 2, 'RESHARD': 2, 'REDUCE_GRAD': 2}
3 stages a rank, 4 micro-batches {'UNSHARD': 3, 'RESHARD': 3, 'REDUCE_GRAD': 3} {'UNSHARD': 3, 'RESHARD': 3, 'REDUCE_GRAD': 3}
4 stages a rank, 4 micro-batches {'UNSHARD': 11, 'RESHARD': 11, 'REDUCE_GRAD': 4} {'UNSHARD': 9, 'RESHARD': 9, 'REDUCE_GRAD': 4}
4 stages a rank, 8 micro-batches {'UNSHARD': 15, 'RESHARD': 15, 'REDUCE_GRAD': 4} {'UNSHARD': 13, 'RESHARD': 13, 'REDUCE_GRAD': 4}
1F1B, reshard_after_forward=False FggBFBFBFBrr
1F1B, reshard_after_forward=True FggggBFggBFggBFggBrr
SEEN
