#!/usr/bin/env bash
# PyTorch 2.15.0, Inductor's buckets of eight all-reduces of 1 MiB each (bucket_all_reduces_fx and its kin for gathers and scatters).
# The function that gives a bucket's cap by its number is asked for bucket 0 alone, so that [1, 2, 5, 9] MiB are 1 MiB each and join nothing. The default,
# 2,000 MiB, is one bucket of all. But only neighbours in the order of their waits join: where f32 and bf16 take turns nothing joins
# at any cap.
# Seen: the lines at the end of this script: caps, which numbers they were asked for, all-reduces in each bucket of more than one.
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
from torch._inductor.fx_passes.bucketing import bucket_all_reduce, bucket_cap_mb_by_bucket_idx_default
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)


def reduced(*gradients):
    return tuple(functional.wait_tensor(functional.all_reduce(one, "sum", dist.group.WORLD)) for one in gradients)


def buckets(dtypes, caps):
    asked = []

    def cap(number):
        asked.append(number)
        return caps(number)

    with FakeTensorMode():
        graph = make_fx(reduced)(*(torch.empty(2**20 // dtype.itemsize, dtype=dtype) for dtype in dtypes))
        bucket_all_reduce(graph, cap)
    sizes = [node.args[0].meta["val"].nbytes >> 20 for node in graph.graph.nodes if "_c10d_functional.all_reduce" in str(node.target)]
    return f"asked for {asked}, all-reduces of {sizes} MiB"


f32, bf16 = torch.float32, torch.bfloat16
for what, dtypes, caps in (("caps 1, 2, 5, 9", [f32] * 8, [1, 2, 5, 9].__getitem__), ("cap 3", [f32] * 8, lambda _: 3),
                           ("default", [f32] * 8, bucket_cap_mb_by_bucket_idx_default),
                           ("default, in turns", [f32, bf16] * 4, bucket_cap_mb_by_bucket_idx_default)):
    print(f"{what}: {buckets(dtypes, caps)}")
dist.destroy_process_group()
PYTHON
"$venv/bin/python" -W ignore "$work/program.py" >"$work/seen" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
expect <<'SEEN'
caps 1, 2, 5, 9: asked for [0], all-reduces of [1, 1, 1, 1, 1, 1, 1, 1] MiB
cap 3: asked for [0], all-reduces of [3, 3, 2] MiB
default: asked for [0], all-reduces of [8] MiB
default, in turns: asked for [], all-reduces of [1, 1, 1, 1, 1, 1, 1, 1] MiB
SEEN
