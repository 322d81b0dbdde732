# Sourced by the findings about XLA, which have made the folder $work: JAX and its GPU compiler there (500 MB), and h100.py, which compiles for
# H100 without one.
#
#   install jax==0.12.0.1 ...     pip's, without what they depend on: that stands here
#
# PYTHON: 3.12 or newer, which runs what a finding gives it. PACKAGES: a folder that has all packages already.
#
# SPDX-License-Identifier: Apache-2.0
for name in ${PYTHON:-python3.14 python3.13 python3.12 python3}; do
  "$name" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null && export PYTHON=$name && break
done || { echo "needs Python 3.12 or newer: set PYTHON"; exit 77; }

install() {
  if [[ -z ${PACKAGES:-} ]]; then
    PACKAGES=$work/packages
    "$PYTHON" -m pip install -q --no-deps --only-binary=:all: --target "$PACKAGES" "$@" nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 \
      nvidia-cuda-crt==13.5.37 ml_dtypes==0.6.0 numpy==2.5.5 opt_einsum==3.4.0 scipy==1.18.1
  fi
  export PYTHONPATH=$PACKAGES:$work PATH=$PACKAGES/nvidia/cu13/bin:$PATH PYTHONDONTWRITEBYTECODE=1
  export JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 TF_CPP_MIN_LOG_LEVEL=3
}

cat > "$work/h100.py" <<'PY'
"""mesh(n): n H100 of one node that nobody has. collectives(step, *shapes): what XLA makes of it for them."""
import pathlib
import re

import jax
import jax.numpy as jnp
import jax_plugins.xla_cuda13 as plugin
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def target():
    data = pathlib.Path(list(plugin.__path__)[0], "xla_cuda_plugin.so").read_bytes()
    end = b'device_description_str: "NVIDIA H100 80GB HBM3"\n'
    at = data.find(end)
    while b"core_count: 132" not in data[data.rfind(b"gpu_device_info {", 0, at):at]:
        at = data.find(end, at + 1)
    return data[data.rfind(b"gpu_device_info {", 0, at):at + len(end)].decode()


def mesh(gpus):
    return Mesh(np.array(topologies.get_topology_desc(platform="cuda", topology_name="gpus", topology=f"1x1x{gpus}",
                                                      target_config=target()).devices), ("d",))


def shape(on, dims, *axes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype, sharding=NamedSharding(on, PartitionSpec(*axes)))


def step(loss):
    """One step of SGD."""
    def one(weights, *data):
        value, gradients = jax.value_and_grad(loss)(weights, *data)
        return value, jax.tree.map(lambda old, gradient: old - 0.1 * gradient, weights, gradients)
    return one


def layers(weights, x, y):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.mean((x - y) ** 2)


def compiled(one, weights, *data, **options):
    on = jax.tree.leaves(weights)[0].sharding.mesh
    out = NamedSharding(on, PartitionSpec()), jax.tree.map(lambda leaf: leaf.sharding, weights)
    lowered = jax.jit(one, out_shardings=out).lower(weights, *data)
    return lowered.compile(compiler_options={"xla_gpu_autotune_level": 0, **options}).as_text()


def collectives(text):
    """(opcode, elements of its results, is a fusion's) of each, sorted."""
    found = []
    for line in text.splitlines():
        of = re.search(r" = (.*?) (all-reduce|all-gather|reduce-scatter)(-start)?\(", line)
        if of:
            shapes = re.findall(r"[a-z]+\d+\[([\d,]*)\]", of[1])
            sizes = [int(np.prod([int(n) for n in dims.split(",") if n], dtype=int)) for dims in shapes]
            whole = sizes[len(sizes) // 2:] if of[3] else sizes  # a start gives its operands first
            found.append((of[2], sum(whole), "__triton" in line or "TRITON" in line))
    return sorted(found)
PY
