#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for 8 H100: which all-reduces are combined follows the order of the step's results, not that in which gradients are
# ready. Three layers, a threshold that holds two: returned first to last, the first two layers (ready last) go together
# and the last layer's gradient alone; returned last to first, the last two do.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *
on, dims = mesh(8), (1024, 1088, 1152, 1216)
sizes = [rows * columns for rows, columns in zip(dims, dims[1:])]
weights = [shape(on, pair) for pair in zip(dims, dims[1:])]
data = shape(on, (1024, dims[0]), "d"), shape(on, (1024, dims[-1]), "d")
seen = []
for turned in (False, True):
    def one(given, x, y):
        value, new = step(layers)(given, x, y)
        return value, new[::-1] if turned else new
    text = jax.jit(one).lower(weights, *data).compile(compiler_options={
        "xla_gpu_autotune_level": 0, "xla_gpu_all_reduce_combine_threshold_bytes": 4 * (sizes[1] + sizes[2] + 1)}).as_text()
    found = [elements for _, elements, _ in collectives(text)]
    seen.append(sorted(found))
    print("returned", "last to first:" if turned else "first to last:", [{sizes[0] + sizes[1] + 1: "layers 0 and 1", sizes[2]: "layer 2",
          sizes[1] + sizes[2] + 1: "layers 1 and 2", sizes[0]: "layer 0"}.get(n, n) for n in found])
assert seen == [sorted([sizes[0] + sizes[1] + 1, sizes[2]]), sorted([sizes[1] + sizes[2] + 1, sizes[0]])], (seen, sizes)
PY
