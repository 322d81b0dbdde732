#!/usr/bin/env bash
# PyTorch 2.15.0: torch._inductor.config._micro_pipeline_tp (asynchronous tensor parallelism) joins a product with the collective that feeds
# it or follows it, in the compiled graph of a layer under sequence parallelism. Of one sample a micro-batch no gather joins, forward or
# backward, and nothing of backward: along the second dimension of a tensor whose first is 1 a gather is a view, and the pass knows the
# chunks and their concatenation that two samples have. Backward's reduce-scatters join in no case: they carry the sum of several
# products (queries, keys and values; both of a gated network).
# Seen: the lines at the end of this script: collectives of a layer of Llama's form over four ranks, and how many the pass joined.
#
# Compiled on CPUs in the pass's own test mode, without a network; its operators are stood in for by PyTorch's own fallbacks.
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
import torch.distributed._symmetric_memory as symmetric
import torch._inductor.fx_passes.post_grad as passes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS, WIDTH, LENGTH = 4, 64, 64
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = (one(x).view(rows, length, -1, 16).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(rows, length, -1))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.between, self.gated = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH), Gated()

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.gated(self.between(x))


def parallel():
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    columns = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "gated.gate", "gated.up")}
    rows = {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.o", "gated.down")}
    return parallelize_module(Layer(), mesh, {"before": SequenceParallel(), "between": SequenceParallel(), "attention": gathered,
                                              "gated": gathered, **columns, **rows})


own, seen = passes.micro_pipeline_tp_pass, []


def counted(graph):
    names = [str(node.target) for node in graph.nodes]
    return [sum(part in name for name in names) for part in
            ("functional.all_gather_into_tensor", "functional.reduce_scatter_tensor", "fused_all_gather", "_reduce_scatter.default")]


def noted(graph, *given, **named):
    before = counted(graph)
    own(graph, *given, **named)
    after = counted(graph)
    seen.append(f"of {before[0]} gathers {after[2]}, of {before[1]} reduce-scatters {after[3]}")


passes.micro_pipeline_tp_pass = noted
torch._inductor.config._micro_pipeline_tp = torch._inductor.config.force_disable_caches = True
operators = torch.library.Library("symm_mem", "IMPL")
operators.impl("fused_all_gather_matmul", symmetric._fused_all_gather_matmul_fallback, "CPU")
operators.impl("fused_matmul_reduce_scatter", symmetric._fused_matmul_reduce_scatter_fallback, "CPU")
with symmetric._test_mode():
    for samples in (1, 2):
        torch._dynamo.reset()
        seen.clear()
        x = torch.randn(samples, LENGTH // RANKS, WIDTH, requires_grad=True)
        torch.compile(parallel())(x).sum().backward()
        for phase, joined in zip(("forward", "backward"), seen):
            print(f"{samples} a micro-batch, {phase}: {joined}")
PYTHON
"$venv/bin/python" -W ignore "$work/program.py" >"$work/seen" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
expect <<'SEEN'
1 a micro-batch, forward: of 2 gathers 0, of 2 reduce-scatters 2
1 a micro-batch, backward: of 2 gathers 0, of 2 reduce-scatters 0
2 a micro-batch, forward: of 2 gathers 2, of 2 reduce-scatters 2
2 a micro-batch, backward: of 2 gathers 2, of 2 reduce-scatters 0
SEEN
