#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for 8 H100: the gradient of an embedding that is also the output layer has two parts. Each is all-reduced whole, and they
# are added afterwards: twice the bytes of the largest gradient, though adding first gives the same.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *
on, words, width = mesh(8), 8192, 512
def loss(weights, tokens):
    x = jnp.tanh(weights["table"][tokens] @ weights["layer"])
    scores = x @ (weights["table"].T if "out" not in weights else weights["out"])
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), tokens[:, None], -1))
tokens = shape(on, (1024,), "d", dtype=jnp.int32)
text = compiled(step(loss), {"table": shape(on, (words, width)), "layer": shape(on, (width, width))}, tokens)
reduced = sum(elements for kind, elements, _ in collectives(text))
owned = words * width + width * width
print(f"weights {owned}, elements all-reduced {reduced}: {(reduced - owned) / words / width:.2f} tables more")
assert reduced == owned + words * width + 1, collectives(text)
PY
