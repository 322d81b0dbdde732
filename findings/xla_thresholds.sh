#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for 8 H100: the same number for the three combine thresholds means three things. Eight weights of 4 MiB, 8 MiB each:
# all-reduces (whole weights) and all-gathers (gathered weights) go in pairs, all eight reduce-scatters in one, for there the shard counts.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *
on, number = mesh(8), 8 << 20
data = shape(on, (1024, 1024), "d")
names = "all_reduce", "all_gather", "reduce_scatter"
options = {f"xla_gpu_{name}_combine_threshold_bytes": number + 64 for name in names}
seen = {}
for cut in ((), ("d",)):
    text = compiled(step(layers), [shape(on, (1024, 1024), *cut) for _ in range(8)], data, data, **options)
    for kind, elements, _ in collectives(text):
        if elements > 1:
            seen.setdefault(kind, []).append(elements // (1024 * 1024 // (8 if kind == "reduce-scatter" else 1)))
print(f"weights in each collective, thresholds of {number + 64}:", seen)
assert seen == {"all-reduce": [2, 2, 2, 2], "all-gather": [2, 2, 2, 2], "reduce-scatter": [8]}, seen
PY
