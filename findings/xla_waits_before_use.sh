#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for eight H100, no flags: six layers whose weights are cut (FSDP). One collective is in flight at a time, so compute
# waits for one where the next begins, and not where something needs it: half of the gathers stand in front of the first product, beside
# nothing, and of those that are started most are waited for before their first use. With
# xla_gpu_experimental_parallel_collective_overlap_limit=8 none is, and one gather alone stands in front.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *

NAMES = ("get-tuple-element", "bitcast", "tuple", "parameter", "constant")


def entry_of(text):
    """(name, opcode, operands) of each, in the order in which they run."""
    found = []
    for line in text[text.index("\nENTRY"):].splitlines()[2:]:
        of = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\((.*?)\)", line)
        if of:
            found.append((of[1], of[2], re.findall(r"%([\w.-]+)", of[3])))
    return found


def waits(entry):
    """Of what is started: how many kernels stand between where it is waited for and what uses it."""
    behind = []
    for at, (name, opcode, operands) in enumerate(entry):
        if re.fullmatch("(all-gather|reduce-scatter)-done", opcode):
            kernels, same = 0, {name}
            for next_name, next_opcode, reads in entry[at + 1:]:
                if same & set(reads):
                    if next_opcode not in NAMES:
                        break
                    same.add(next_name)
                kernels += next_opcode == "fusion"
            behind.append(kernels)
    return behind


on = mesh(8)
weights = [shape(on, (4096, 4096), "d") for _ in range(6)]
data = shape(on, (8 * 2048, 4096), "d")
for limit, in_front, early in ((None, 3, True), (8, 1, False)):
    options = {} if limit is None else {"xla_gpu_experimental_parallel_collective_overlap_limit": limit}
    entry = entry_of(compiled(step(layers), weights, data, data, **options))
    product = next(at for at, (name, *_) in enumerate(entry) if "gemm" in name or "dot" in name)
    alone = sum(opcode in ("all-gather", "all-gather-done") for _, opcode, _ in entry[:product])
    behind = waits(entry)
    print(f"in flight {limit or 'as is'}: {alone} of 6 gathers done before the first product; {sum(k > 0 for k in behind)} of {len(behind)} started are waited for early")
    assert alone == in_front and (sum(k > 0 for k in behind) * 2 > len(behind) if early else not any(behind)), entry
PY
