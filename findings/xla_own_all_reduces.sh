#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for H100 of one node, no flags: an all-reduce of up to 32 MiB / GPUs is no call of NCCL. It stands in a fusion that
# XLA's Triton emitter makes a kernel of; the entry computation has no all-reduce any more. So the fewer GPUs, the larger they are.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$(dirname "$0")/setup/xla.bash"
install jax==0.12.0.1 jaxlib==0.12.0.1 jax-cuda13-plugin==0.12.0.1 jax-cuda13-pjrt==0.12.0.1
"$PYTHON" - <<'PY'
from h100 import *
for gpus in (2, 4, 8):
    on = mesh(gpus)
    for mib, own in ((32 // gpus, True), (32 // gpus + 1, False)):
        sums = jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=on, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
        text = jax.jit(sums).lower(shape(on, (mib << 18,))).compile(compiler_options={"xla_gpu_autotune_level": 0}).as_text()
        (_, elements, is_own), = collectives(text)
        entry = text[text.index("\nENTRY"):]
        print(f"{gpus} GPUs, {mib} MiB:", "Triton, in a fusion" if is_own else "NCCL,", "all-reduce" if " all-reduce" in entry else "no all-reduce", "in the entry")
        assert is_own == own and ((" all-reduce(" in entry or " all-reduce-start(" in entry) != own), text
PY
