#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for eight H100: seven layers, a threshold of two gradients and the loss, so that the last layer's gradient, which is ready
# first, stays alone. With weights of 16 MiB its all-reduce starts first. With 4 MiB, where it is a kernel of XLA's own
# (xla_own_all_reduces.sh), the product that makes the gradient is kept to fill the time of the last NCCL all-reduce, and its own starts last.
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
for width, last in ((1024, True), (2048, False)):
    weights = [shape(on, (width, width)) for _ in range(7)]
    data = shape(on, (8 * 128, width), "d")
    text = compiled(step(layers), weights, data, data, xla_gpu_all_reduce_combine_threshold_bytes=2 * 4 * width * width + 7)
    entry = text[text.index("\nENTRY"):]
    starts = re.findall(r"^ *%?((?:all-reduce|fusion)-start[\w.]*) = \(?\(?f32\[([\d,]*)\]", entry, re.M)
    alone = [dims in (f"{width},{width}", str(width * width)) for _, dims in starts]
    print(f"weights of {4 * width * width >> 20} MiB:", ", ".join(f"{name} [{dims}]" for name, dims in starts))
    assert len(starts) == 4 and alone.count(True) == 1 and alone[-1 if last else 0], starts
PY
