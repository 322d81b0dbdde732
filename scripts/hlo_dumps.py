#!/usr/bin/env python3
"""Writes the HLO modules of tests/imports/hlo: one model in three layouts, compiled by JAX for CPU devices.

    python3 -m venv VENV; VENV/bin/pip install jax==0.10.2
    VENV/bin/python scripts/hlo_dumps.py FOLDER            writes cpu-dp.txt, cpu-fsdp.txt, cpu-tp.txt

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
THRESHOLD = "--xla_gpu_all_reduce_combine_threshold_bytes=1000"


def compiled(layout):
    """The text of the step's module on two devices, of tp on 2 x 2."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices())
    mesh = Mesh(devices[:4].reshape(2, 2), ("d", "t")) if layout == "tp" else Mesh(devices[:2], ("d",))

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
    for number, (wide, high) in enumerate(zip(LAYERS[:-1], LAYERS[1:])):
        axes = {"dp": (), "fsdp": ("d",), "tp": (None, "t") if number % 2 == 0 else ("t", None)}[layout]
        parameters.append((shape((wide, high), *axes), shape((high,))))
    out = (shape(()).sharding, jax.tree.map(lambda one: one.sharding, parameters))
    data = shape((32, LAYERS[0]), "d"), shape((32, LAYERS[-1]), "d")
    return jax.jit(step, out_shardings=out).lower(parameters, *data).compile().as_text()


def without_tables(text):
    head, rest = text.split("\n", 1)
    return head + "\n" + re.sub(r" stack_frame_id=\d+", "", rest[rest.index("\n%"):])


def in_a_process(layout, flags=""):
    """Flags of XLA hold for a process."""
    count = 4 if layout == "tp" else 2
    env = dict(os.environ, JAX_PLATFORMS="cpu",
               XLA_FLAGS=f"--xla_force_host_platform_device_count={count} {flags}")
    return without_tables(subprocess.run([sys.executable, __file__, "--print", layout], env=env, check=True,
                                         stdout=subprocess.PIPE, text=True).stdout)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--print":
        print(compiled(sys.argv[2]))
        return 0
    if len(sys.argv) != 2:
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
    same = in_a_process("dp", THRESHOLD) == texts["dp"]
    print(f"jax {jax.__version__}: {', '.join(texts)}; {THRESHOLD} " + ("changes nothing" if same else "changes the module"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
