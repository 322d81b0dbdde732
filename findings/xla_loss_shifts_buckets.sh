#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for 8 H100: an all-reduce threshold of exactly two gradients does not make pairs. The scalar loss is reduced
# with the first gradient and counted, its 4 bytes leave no room for the second, and every bucket after it begins one later.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *
on = mesh(8)
data = shape(on, (1024, 1024), "d")
seen = []
for threshold in (8 << 20, (8 << 20) + 4):
    text = compiled(step(layers), [shape(on, (1024, 1024)) for _ in range(8)], data, data,
                    xla_gpu_all_reduce_combine_threshold_bytes=threshold)
    seen.append([elements for _, elements, _ in collectives(text)])
    print(f"threshold {threshold}: elements of the all-reduces {seen[-1]}")
one = 1 << 20
assert seen == [[one, one + 1, 2 * one, 2 * one, 2 * one], [2 * one, 2 * one, 2 * one, 2 * one + 1]], seen
PY
