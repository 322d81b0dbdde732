#!/usr/bin/env bash
# PyTorch 2.15.0: torch.compile of a whole model whose layers FSDP2 shards compiles nothing of the function that loops over them. FSDP2's
# hooks are not traced, and a function is left alone where that happens in a loop: what it computes before and behind its layers
# (embedding, last norm, output, a loss there) runs in eager mode, and no graph break is counted. Without the loop three graphs are made.
# Gathers and reductions, their order and the gradients are those of layers that are compiled one by one, and of no compilation.
# Seen: the lines at the end of this script: the operators of each graph.
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
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)
graphs, sent = [], []


def backend(graph, _inputs):
    graphs.append(" ".join(node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"))
    return graph


def noted(name):
    collective = getattr(dist, name)

    def run(*given, **named):
        sent.append(name)
        return collective(*given, **named)
    setattr(dist, name, run)


noted("all_gather_single")
noted("reduce_scatter_single")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = torch.nn.Linear(32, 32)

    def forward(self, x):
        return x + torch.relu(self.product(x))


class Loop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.output = torch.nn.Embedding(64, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 64)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return torch.nn.functional.gelu(self.output(self.norm(x)))


class Straight(Loop):
    def forward(self, tokens):
        x = self.layers[2](self.layers[1](self.layers[0](self.embedding(tokens))))
        return torch.nn.functional.gelu(self.output(self.norm(x)))


def steps(make, shards, compiles):
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()
    graphs.clear()
    model = make()
    if shards:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    for part in {"whole": [model], "layers": model.layers, "nothing": []}[compiles]:
        part.compile(backend=backend)
    for _ in range(2):
        model.zero_grad()
        sent.clear()
        model(torch.arange(16)).square().mean().backward()
    if rank == 0 and compiles == "whole":
        print(f"{make.__name__}, {'sharded' if shards else 'whole'}: {sum(counters['graph_break'].values())} graph breaks")
        print("".join(f"  {graph}\n" for graph in graphs), end="")
    return list(sent), [p.grad.full_tensor() if shards else p.grad for p in model.parameters()]


steps(Loop, False, "whole")
sent_whole, whole = steps(Loop, True, "whole")
steps(Straight, True, "whole")
sent_layers, layers = steps(Loop, True, "layers")
sent_eager, eager = steps(Loop, True, "nothing")
if rank == 0:
    print("collectives alike:", sent_whole == sent_layers == sent_eager)
    print("gradients alike:", all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(whole, layers, eager)))
dist.destroy_process_group()
PYTHON
two_ranks "$work/program.py" >"$work/seen"
expect <<'SEEN'
Loop, whole: 0 graph breaks
  embedding linear relu add linear relu add linear relu add layer_norm linear gelu
Loop, sharded: 0 graph breaks
  linear relu add
Straight, sharded: 3 graph breaks
  embedding
  linear relu add
  layer_norm linear gelu
collectives alike: True
gradients alike: True
SEEN
