#!/usr/bin/env python3
"""Writes the training step of a chain of linear layers as a program file of dovetail.

  layers_to_program.py BATCH WIDTH WIDTH ... > my-model.json

Widths are the features before the first layer and after each one. Forward runs the layers in order,
backward in reverse: of each layer the product for its weight's gradient, then that for its input.
The program is that of one rank: dovetail lays it out over as many as it is asked for, which average all gradients.

SPDX-License-Identifier: Apache-2.0
"""

import json
import sys


def main():
    batch, *widths = [int(word) for word in sys.argv[1:]]
    tensors, ops, reductions = [], [], []

    def tensor(name, kind, shape):
        tensors.append({"id": len(tensors), "name": name, "kind": kind, "dtype": "f32",
                        "shape": shape})
        return name

    def op(name, phase, work, reads, writes, **more):
        ops.append({"id": len(ops), "name": name, "phase": phase, "dtype": "f32", "work": work,
                    "reads": reads, "writes": writes, **more})

    def gemm(m, n, k):
        return {"kind": "gemm", "m": m, "n": n, "k": k}

    layers = list(zip(widths, widths[1:]))
    kept = []  # what each layer reads; the first one reads data that no op writes
    out = []
    for i, (before, after) in enumerate(layers):
        weight = tensor(f"layer{i}.weight", "parameter", [after, before])
        kept.append(out)
        out = [tensor(f"layer{i}.out", "activation", [batch, after])]
        op(f"layer{i}.forward", "forward", gemm(batch, after, before), [*kept[i], weight], out)
    grad = tensor("loss.grad", "activation", [batch, widths[-1]])
    op("loss", "forward", {"kind": "memory", "traffic_bytes": 8 * batch * widths[-1],
                           "work_flop": batch * widths[-1]}, out, [grad])
    for i, (before, after) in reversed(list(enumerate(layers))):
        weight_grad = tensor(f"layer{i}.weight.grad", "gradient", [after, before])
        op(f"layer{i}.backward.weight", "backward", gemm(after, before, batch), [grad, *kept[i]],
           [weight_grad])
        reductions.append({"gradient": weight_grad, "group": "dp", "op": "average"})
        if i > 0:
            passed = tensor(f"layer{i - 1}.out.grad", "activation", [batch, before])
            op(f"layer{i}.backward.input", "backward", gemm(batch, before, after),
               [grad, f"layer{i}.weight"], [passed])
            grad = passed
    for i, (before, after) in reversed(list(enumerate(layers))):
        op(f"layer{i}.update", "optimizer", {"kind": "memory", "traffic_bytes": 12 * before * after,
                                             "work_flop": 2 * before * after},
           [f"layer{i}.weight.grad"], [f"layer{i}.weight"],
           effect={"kind": "update", "elementwise": True})
    json.dump({"schema": "dovetail.program/1", "kind": "program", "name": "chain",
               "world_size": 1, "groups": [{"id": 0, "name": "dp", "ranks": [0]}], "tensors": tensors,
               "ops": ops, "reductions": reductions}, sys.stdout, indent=1)


main()
