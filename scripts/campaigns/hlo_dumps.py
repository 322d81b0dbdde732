#!/usr/bin/env python3
"""Writes the HLO modules of tests/recordings/hlo: one model in three layouts, compiled by JAX for CPU devices.

    python3 -m venv VENV; VENV/bin/pip install jax==0.10.2
    VENV/bin/python scripts/campaigns/hlo_dumps.py FOLDER            writes cpu-dp.txt, cpu-fsdp.txt, cpu-tp.txt

    VENV/bin/pip install "jax-cuda12-plugin[with-cuda]"    3 GB; no GPU is needed to compile for one
    VENV/bin/python scripts/campaigns/hlo_dumps.py FOLDER --gpu H100.txtpb    also gpu-dp.txt and, with other thresholds,
                                                                    gpu-dp-5000000.txt and gpu-dp-1000000.txt

H100.txtpb is a target of XLA's as text (xla/backends/gpu/target_config/specs in its sources). The model for
GPUs is larger: 1024-2048-2048-512, a batch of 4096, data parallel on four.

The model is a perceptron with layers 128-256-256-64 and biases, SGD, a batch of 32; the loss is returned. Only
shapes are given and nothing runs. Tables of file names are left out of the dumps, as is what refers to them.

It also says whether a threshold of GPUs' combiner changes what is compiled for CPUs (it does not: XLA's CPU compiler
combines up to 256 all-reduces of any size, and has no flag for it).

Exit codes: 0 done, 77 no jax here: a skip, with the reason.

SPDX-License-Identifier: Apache-2.0
"""
import os
import pathlib
import re
import subprocess
import sys

LAYERS = [128, 256, 256, 64]
LAYOUTS = ("dp", "fsdp", "tp")
GPU_LAYERS = [1024, 2048, 2048, 512]
THRESHOLD = "--xla_gpu_all_reduce_combine_threshold_bytes=1000"


def gpus(target):
    """Four GPUs that nobody has."""
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="cuda", topology_name="gpus", topology="1x1x4",
                                        target_config=pathlib.Path(target).read_text()).devices


def compiled(layout, target="", options=None):
    """The text of the step's module on two devices, of tp on 2 x 2, of four GPUs with a target."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = np.array(gpus(target) if target else jax.devices())
    layers, batch = (GPU_LAYERS, 4096) if target else (LAYERS, 32)
    mesh = Mesh(devices[:4].reshape(2, 2), ("d", "t")) if layout == "tp" else Mesh(devices[:4 if target else 2], ("d",))

    def shape(dims, *axes):
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def loss(parameters, x, y):
        for number, (weight, bias) in enumerate(parameters):
            x = x @ weight + bias
            if number < len(parameters) - 1:
                x = jax.nn.relu(x)
        return jnp.mean((x - y) ** 2)

    def step(parameters, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return value, jax.tree.map(lambda old, gradient: old - 0.1 * gradient, parameters, gradients)

    parameters = []
    for number, (wide, high) in enumerate(zip(layers[:-1], layers[1:])):
        axes = {"dp": (), "fsdp": ("d",), "tp": (None, "t") if number % 2 == 0 else ("t", None)}[layout]
        parameters.append((shape((wide, high), *axes), shape((high,))))
    out = (shape(()).sharding, jax.tree.map(lambda one: one.sharding, parameters))
    data = shape((batch, layers[0]), "d"), shape((batch, layers[-1]), "d")
    return jax.jit(step, out_shardings=out).lower(parameters, *data).compile(compiler_options=options).as_text()


def without_tables(text):
    head, rest = text.split("\n", 1)
    return head + "\n" + re.sub(r' (stack_frame_id=\d+|(scheduling|deduplicated)_name="[^"]*")', "", rest[rest.index("\n%"):])


def in_a_process(layout, flags="", more=()):
    """Flags of XLA hold for a process."""
    count = 4 if layout == "tp" else 2
    env = dict(os.environ, JAX_PLATFORMS="cpu",
               XLA_FLAGS=f"--xla_force_host_platform_device_count={count} {flags}")
    return without_tables(subprocess.run([sys.executable, __file__, "--print", layout, *more], env=env, check=True,
                                         stdout=subprocess.PIPE, text=True).stdout)


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "--print":
        options = {"xla_gpu_autotune_level": 0}
        if len(sys.argv) > 4:
            options["xla_gpu_all_reduce_combine_threshold_bytes"] = int(sys.argv[4])
        target = sys.argv[3] if len(sys.argv) > 3 else ""
        print(compiled(sys.argv[2], target, options if target else None))
        return 0
    target = sys.argv[3] if len(sys.argv) == 4 and sys.argv[2] == "--gpu" else ""
    if len(sys.argv) != (4 if target else 2):
        print(__doc__)
        return 2
    try:
        import jax
    except ImportError as error:
        print(f"hlo_dumps.py: skipped: {error}")
        return 77
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    texts = {layout: in_a_process(layout) for layout in LAYOUTS}
    for layout, text in texts.items():
        (folder / f"cpu-{layout}.txt").write_text(text)
    for threshold in ((), ("5000000",), ("1000000",)) if target else ():
        (folder / ("-".join(("gpu-dp", *threshold)) + ".txt")).write_text(in_a_process("dp", more=(target, *threshold)))
    same = in_a_process("dp", THRESHOLD) == texts["dp"]
    print(f"jax {jax.__version__}: {', '.join(texts)}; {THRESHOLD} " + ("changes nothing" if same else "changes the module"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
