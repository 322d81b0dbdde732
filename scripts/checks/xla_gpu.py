#!/usr/bin/env python3
"""Writes the module that XLA compiles for GPUs that nobody has: a stack of layers, replicated or sharded, unrolled or scanned.

    PYTHON scripts/checks/xla_gpu.py LAYOUT GPUS [HOSTS] [layers=8] [width=1024] [plan=FILE] [XLA_OPTION=VALUE ...]    (to standard output)

LAYOUT: dp (replicated weights), fsdp (each cut by its rows), scan and scan-fsdp (the same layers in jax.lax.scan). Each layer is
tanh(x @ w) of f32, then SGD; the loss is returned. FILE is one of `dovetail export --to xla`: its flags and its keys hold. Only shapes are given and nothing runs, so no GPU is needed: the plugin holds
a description of an H100 SXM, from which it compiles with XLA's own passes.

PYTHON has, of one version from 0.12 on: jax, jaxlib, jax-cuda13-plugin, jax-cuda13-pjrt; nvidia-cuda-nvcc with nvidia-nvvm and
nvidia-cuda-crt (ptxas, libdevice); ml_dtypes, numpy, opt_einsum, scipy. Tables of file names are left out of the module.

SPDX-License-Identifier: Apache-2.0
"""

import mmap
import os
import pathlib
import re
import runpy
import sys

NAME = "NVIDIA H100 80GB HBM3"


def described_target():
    """GpuTargetConfigProto as text, out of the plugin."""
    import jax_plugins.xla_cuda13 as plugin

    with open(pathlib.Path(list(plugin.__path__)[0], "xla_cuda_plugin.so"), "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = f'device_description_str: "{NAME}"\n'.encode()
        at = data.find(end)
        while at >= 0:
            text = data[data.rfind(b"gpu_device_info {", 0, at):at + len(end)].decode(errors="replace")
            if "core_count: 132" in text:
                return text
            at = data.find(end, at + 1)
    raise LookupError(f"the plugin describes no {NAME}")


def step_on(layout, gpus, hosts, layers, width, mark):
    """The step, lowered for `gpus` in all on `hosts`, NVLink within each."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    topology = topologies.get_topology_desc(platform="cuda", topology_name="gpus", topology=f"{hosts}x1x{gpus // hosts}",
                                            target_config=described_target())
    mesh = Mesh(np.array(topology.devices), ("d",))

    def shape(dims, *axes):
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def layer(x, weight):
        return jnp.tanh(x @ weight), None

    def loss(weights, x, y):
        if layout.startswith("scan"):
            x, _ = jax.lax.scan(layer, x, weights)
        else:
            for weight in weights:
                x, _ = layer(x, weight)
        return jnp.mean((x - y) ** 2)

    def step(weights, x, y):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        gradients = mark(gradients)
        return value, jax.tree.map(lambda old, gradient: old - 0.1 * gradient, weights, gradients)

    cut = ("d",) if layout.endswith("fsdp") else ()
    weights = (shape((layers, width, width), None, *cut) if layout.startswith("scan")
               else [shape((width, width), *cut) for _ in range(layers)])
    data = shape((gpus * 128, width), "d")
    out = shape(()).sharding, jax.tree.map(lambda one: one.sharding, weights)
    return jax.jit(step, out_shardings=out, donate_argnums=0).lower(weights, data, data)


def without_tables(text):
    head, rest = text.split("\n", 1)
    return head + "\n" + re.sub(r' ?(stack_frame_id=\d+|(scheduling|deduplicated)_name="[^"]*")', "", rest[rest.index("\n%"):])


def main():
    words = [word for word in sys.argv[1:] if "=" not in word]
    options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if len(words) not in (2, 3) or words[0] not in ("dp", "fsdp", "scan", "scan-fsdp"):
        print(__doc__)
        return 2
    os.environ.update(JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    layers, width = int(options.pop("layers", 8)), int(options.pop("width", 1024))
    told = runpy.run_path(options.pop("plan")) if "plan" in options else {}
    flags = dict(flag[2:].split("=", 1) for flag in told.get("XLA_FLAGS", "").split())
    lowered = step_on(words[0], int(words[1]), int((words + ["1"])[2]), layers, width,
                      lambda gradients: told["mark"](gradients, of="weights") if told else gradients)
    options = {name: {"true": True, "false": False}.get(value, value) for name, value in {**flags, **options}.items()}
    compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": 0, **options})
    print(without_tables(compiled.as_text()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
