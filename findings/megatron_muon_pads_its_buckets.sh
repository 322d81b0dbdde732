#!/usr/bin/env bash
# Megatron-Core 0.19.2, --optimizer muon --use-distributed-optimizer: no matrix is cut over ranks, so a bucket is ranks x what the fullest
# rank holds, and never less than ranks x its largest matrix, whatever --ddp-bucket-size says. The matrices of Llama 3 8B, over 64 ranks: 2
# buckets, whose padding is more than their gradients, where the distributed optimizer has 64 with none; over 256 ranks one bucket of
# 4.3 times the gradients. That is what is reduce-scattered and gathered, and of what f32 sums hold.
# Seen: the lines at the end of this script: ranks, buckets and elements of a buffer for an element of the gradients, of both optimizers.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/torch.bash"
install torch==2.15.0 numpy==2.4.6 packaging==26.4
# Its wheels are for Python 3.12 and later; what is used here is no compiled part.
"$venv/bin/pip" download --quiet --no-deps --only-binary :all: --python-version 3.13 --implementation cp --abi cp313 \
  --platform manylinux_2_28_x86_64 --dest "$work" megatron-core==0.19.2
"$venv/bin/python" -m zipfile -e "$work"/megatron_core-*.whl "$work"
cat >"$work/program.py" <<'PYTHON'
from unittest.mock import MagicMock
import sys

sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock()  # kernels of Triton for another part
import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer

shapes = [(4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336)] * 32  # projection, qkv, gate and up, down
weights = [torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device="meta")) for shape in shapes]
elements = sum(weight.numel() for weight in weights)
for ranks in (8, 64, 256):
    said = []
    for optimizer in (DistributedOptimizer, LayerWiseDistributedOptimizer):
        layout = optimizer._compute_per_buffer_param_layout(
            weights, max(40_000_000, 1_000_000 * ranks), ranks, DistributedDataParallelConfig(overlap_grad_reduce=True))
        said += [len(layout.bucket_indices), f"{layout.bucket_indices[-1][1] / elements:.2f}"]
    print(ranks, *said)
PYTHON
PYTHONPATH=$work "$venv/bin/python" -W ignore "$work/program.py" >"$work/seen"
expect <<'SEEN'
8 96 1.00 9 1.11
64 64 1.00 2 2.15
256 24 1.00 1 4.31
SEEN
