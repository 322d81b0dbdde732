#!/usr/bin/env bash
# PyTorch 2.15.0, aten_distributed_optimizations.enable_overlap_scheduling on the forward of four layers whose weights are gathered, for 8 ranks. The
# times that are given (custom_runtime_estimation) let the gathers hide behind the layers before them. By default (pre_bucketing_fsdp_collectives) the gathers
# are joined before anybody asks for times, up to a cap of PyTorch's own, at least 10 MB: here all four into one in front of everything, which nothing hides.
# Seen: the lines at the end of this script: gathers (with the MiB that they make), waits and products in the order of the graph, and how often
# a gather's time was asked for.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/torch.bash"
install torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'PYTHON'
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._inductor import config
from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing_from_inductor_configs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 8
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)


def forward(x, *shards):
    for shard in shards:
        x = torch.mm(x, functional.all_gather_tensor(shard, 0, dist.group.WORLD))
    return x


def milliseconds(node, _size):
    name = str(node.target)
    asked.append(name)
    return 1.0 if "_c10d_functional.all_gather" in name else 2.0 if "aten.mm" in name else 0.0


options = config.aten_distributed_optimizations
options.collective_bucketing, options.custom_runtime_estimation, options.compute_estimator = True, milliseconds, "analytical"
for first in (None, False):
    if first is not None:
        options.pre_bucketing_fsdp_collectives = first
    asked = []
    with FakeTensorMode():
        graph = make_fx(forward)(torch.empty(8192, 512), *(torch.empty(512 // RANKS, 512) for _ in range(4)))
    graph, seen = schedule_overlap_bucketing_from_inductor_configs(graph), []
    for node in graph.graph.nodes:
        if "all_gather_into" in str(node.target):
            seen.append(f"gather({node.meta['val'].nbytes >> 20})")
        elif "wait_tensor" in str(node.target):
            seen.append("wait")
        elif "aten.mm" in str(node.target):
            seen.append("mm")
    print("pre_bucketing_fsdp_collectives", "by default" if first is None else first, "|", *seen, "| asked", sum("gather_into" in name for name in asked))
dist.destroy_process_group()
PYTHON
"$venv/bin/python" -W ignore "$work/program.py" >"$work/seen" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
expect <<'SEEN'
pre_bucketing_fsdp_collectives by default | gather(4) wait mm mm mm mm | asked 1
pre_bucketing_fsdp_collectives False | gather(1) wait gather(3) mm wait mm mm mm | asked 6
SEEN
