#!/usr/bin/env python3
"""Records the profiler traces of tests/recordings/kineto/traces/gloo: what a program of known collectives looks like.

    scripts/campaigns/gloo_traces.py FOLDER [--python DIR/run-python] [WAY ...]

CPU ranks (gloo, loopback), two steps recorded of each way; every rank's file stays below 60 KB. PyTorch 2.6 and later;
`sudo scripts/checks/torch_root.sh` makes a root with one. What is known of each way (counts are of one rank and step):

    fsdp2   4 layers of 128 x 128 with a bias, a group each, 2 ranks: 4 all-gathers in forward, 4 in backward less the last
            group's, which stays gathered; 4 reduce-scatters (gloo: all-reduces) of 4 x (128*128 + 128) bytes
    hsdp    the same on 2 x 2 ranks: also 4 all-reduces of the shards among the replicas
    tp      a pair of layers cut by columns and rows on 2 x 2 ranks: an all-reduce of 8 x 128 activations in forward and one
            in backward, and one of each gradient among the replicas
    pp      2 stages of 2 layers, 4 micro-batches of 8 x 128, 1F1B: 4 sends each way
    fsdp2_two   fsdp2 on 4 ranks with reshard_after_forward=2: in backward gathers go over two ranks each
    fsdp2_bf16  fsdp2 that gathers bf16 and reduces f32
    ddp_hook    DDP of the 4 layers, 8 gradients of f32, bucket_cap_mb=0.1 (104,857.6 bytes): buckets of 8, 8 / 2 gradients; a hook like
                bf16_compress_hook sends them as bf16
    ddp_batched the same without a hook, with batched_grad_copy=True: one copy fills a bucket, and one goes back (PyTorch 2.15)
    ddp_compiled    ddp_hook's model without the hook, compiled whole (aot_eager) with optimize_ddp=False: all gradients come behind one
                compiled backward; ddp_blocks: each layer is compiled by itself

Exit codes: 0 done, 1 a rank failed, 77 no such PyTorch here (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys

WAYS = {"fsdp2": 2, "hsdp": 4, "tp": 4, "pp": 2, "fsdp2_two": 4, "fsdp2_bf16": 2, "ddp_hook": 2, "ddp_batched": 2,
        "ddp_compiled": 2, "ddp_blocks": 2}
WIDTH, ROWS, LAYERS, STEPS = 128, 8, 4, 2
LIMIT_S = 240


def layers(count):
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)])


def sharded(mesh, **options):
    from torch.distributed.fsdp import fully_shard

    model = layers(LAYERS)
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return trainer(fully_shard(model, mesh=mesh))


def trainer(model):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(ROWS, WIDTH)

    def step():
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh

    return sharded(init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)))


def fsdp2_two():
    from torch.distributed.device_mesh import init_device_mesh

    return sharded(init_device_mesh("cpu", (4,), mesh_dim_names=("shard",)), reshard_after_forward=2)


def fsdp2_bf16():
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return sharded(init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)),
                   mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def replicated(**options):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(layers(LAYERS), bucket_cap_mb=0.1, **options)


def ddp_hook():
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    # Under its own name DDP refuses the hook without a GPU.
    def hook(state, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.bf16_compress_hook(state, bucket)

    model = replicated()
    model.register_comm_hook(None, hook)
    return trainer(model)


def ddp_batched():
    return trainer(replicated(batched_grad_copy=True))


def compiled(blocks):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch._dynamo.config.optimize_ddp = False  # which takes no cap below 1 MiB
    model = layers(LAYERS)
    for part in model if blocks else [model]:
        part.compile(backend="aot_eager")
    return trainer(DistributedDataParallel(model, bucket_cap_mb=0.1))


def ddp_compiled():
    return compiled(blocks=False)


def ddp_blocks():
    return compiled(blocks=True)


def hsdp():
    from torch.distributed.device_mesh import init_device_mesh

    return sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard")))


def tp():
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(layers(2), mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    group = mesh["dp"].get_group()
    inputs = torch.randn(ROWS, WIDTH, requires_grad=True)

    def step():
        model(inputs).square().mean().backward()
        for parameter in model.parameters():  # DDP knows no DTensor in every version: one all-reduce each
            torch.distributed.all_reduce(parameter.grad.to_local(), group=group)
        optimizer.step()
        optimizer.zero_grad()

    return step


def pp():
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = torch.distributed.get_rank()
    model = layers(2)
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, wanted: (out - wanted).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, wanted = torch.randn(4 * ROWS, WIDTH), torch.randn(4 * ROWS, WIDTH)

    def step():
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=wanted, losses=[])
        optimizer.step()
        optimizer.zero_grad()

    return step


def record(way, folder):
    """One rank."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = torch.distributed.get_rank()
    step = globals()[way]()
    file = folder / f"{way}-rank{rank}.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=schedule(wait=2, warmup=1, active=STEPS),
                 on_trace_ready=lambda seen: seen.export_chrome_trace(str(file))) as seen:
        for _ in range(3 + STEPS):
            torch.distributed.barrier()
            step()
            seen.step()
    document = json.loads(file.read_text())
    file.unlink()
    document.pop("traceName", None)
    for event in document["traceEvents"]:
        for key in ("Fwd thread id", "Record function id", "Ev Idx", "External id"):
            event.get("args", {}).pop(key, None)
    with open(f"{file}.gz", "wb") as out:
        out.write(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0))
    torch.distributed.destroy_process_group()


def start(arguments, way):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    ranks = [subprocess.Popen([arguments.python, __file__, arguments.folder, way, "--rank"],
                              env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(WAYS[way]), MASTER_ADDR="127.0.0.1",
                                       MASTER_PORT=port, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0",
                                       PYTHONWARNINGS="ignore")) for rank in range(WAYS[way])]
    try:
        return all(rank.wait(LIMIT_S) == 0 for rank in ranks)
    except subprocess.TimeoutExpired:
        return False
    finally:
        for rank in ranks:
            rank.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rank", action="store_true")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder).absolute()
    arguments.folder = str(folder)
    if arguments.rank:
        return record(arguments.ways[0], folder)
    if subprocess.run([arguments.python, "-c", "from torch.distributed.fsdp import fully_shard"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        print(f"gloo_traces: skipped: {arguments.python} has no torch with FSDP2 (sudo scripts/checks/torch_root.sh makes one)")
        return 77
    folder.mkdir(parents=True, exist_ok=True)
    good = True
    for way in arguments.ways or WAYS:
        done = start(arguments, way)
        sizes = [file.stat().st_size for file in sorted(folder.glob(f"{way}-rank*.gz"))]
        print(f"{way}: {'recorded' if done else 'a rank failed'}, bytes {sizes}")
        good = good and done
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
