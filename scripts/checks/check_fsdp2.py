#!/usr/bin/env python3
"""What is exported for FSDP2, run by FSDP2: a step's gradients are those of the whole model.

    scripts/checks/check_fsdp2.py [--tool build/dovetail] [--python /usr/bin/python3]

Starts four ranks (gloo, loopback, f32, since gloo moves no bf16). Each file, of a job (export --job --to fsdp2) and of its
plan (export PLAN --to fsdp), shards a small transformer with torchtitan's and with Hugging Face's names, and two steps of
several micro-batches are compared with the same model on one rank. Two more ranks go round the loop, without looking at
times: capture_sharded, plan, export, and steps whose weights are bit for bit those of FSDP2's usual wrapping, with as many
gathers and reduce-scatters as planned by the profiler's annotations. FSDP2 needs PyTorch 2.6, its loop set_custom_all_gather (2.14 has it): `sudo scripts/checks/torch_root.sh`
makes a root whose run-python has it.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no such PyTorch here (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS, WIDTH, LAYERS, WORDS = 4, 32, 4, 64
SETTINGS = {
    "hybrid": "dp=2,dp_shard=2,gbs=16,prefetch=2,recompute=full,recompute_layers=2,sync_each=no",
    "sharded": "dp_shard=4,gbs=8,reshard=no",
}
CONFIG = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": WORDS, "max_position_embeddings": 128,
          "tie_word_embeddings": False}


def start_ranks(arguments):
    probe = subprocess.run([arguments.python, "-c", "from torch.distributed.fsdp import fully_shard; import torch; "
                            "print(torch.__version__)"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print(f"check_fsdp2: skipped: {arguments.python} has no torch with FSDP2 (sudo scripts/checks/torch_root.sh makes one)")
        return 77
    print(f"check_fsdp2: PyTorch {probe.stdout.strip()}, {RANKS} ranks, gloo, loopback")
    with tempfile.TemporaryDirectory(prefix="dovetail-fsdp2-") as folder:
        config = pathlib.Path(folder, "config.json")
        config.write_text(json.dumps(CONFIG))
        for name, keys in SETTINGS.items():
            job, plan = f"{config}:{keys},dtype=f32,master=0", f"{folder}/{name}.json"
            for words in (["export", "--job", job, "--to", "fsdp2", "-o", f"{folder}/{name}_job.py"],
                          ["plan", "--job", job, "--cluster", "h100x8", "-o", plan],
                          ["export", plan, "--to", "fsdp", "-o", f"{folder}/{name}_plan.py"]):
                subprocess.run([arguments.tool, *words], check=True, stdout=subprocess.DEVNULL)
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0", DOVETAIL_FOLDER=folder,
                           PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
        good = [run_all([arguments.python, __file__, "--tool", arguments.tool, *words], count, environment)
                for words, count in (([], RANKS), (["--loop"], 2))]
        print(f"check_fsdp2: {sum(good)} of {len(good)} sets of ranks passed")
        return 0 if all(good) else 1


def run_all(words, count, environment):
    """Whether all of so many ranks end well."""
    ranks = [subprocess.Popen([*words, "--as-rank", str(rank)], env=dict(environment, RANK=str(rank), WORLD_SIZE=str(count)))
             for rank in range(count)]
    codes = []
    try:
        for rank in ranks:
            codes.append(rank.wait(timeout=170))
    except subprocess.TimeoutExpired:
        print("check_fsdp2: ranks did not end within 170 s")
    for rank in ranks:
        rank.kill()
    return codes == [0] * count


def models():
    from torch import nn

    class Block(nn.Module):
        """Products of every parameter that a Llama layer has, by its names."""

        def __init__(self):
            super().__init__()
            self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
            self.self_attn, self.mlp = nn.Module(), nn.Module()
            for name, out in (("q_proj", WIDTH), ("k_proj", WIDTH // 2), ("v_proj", WIDTH // 2), ("o_proj", WIDTH)):
                setattr(self.self_attn, name, nn.Linear(WIDTH, out, bias=False))
            self.mlp.gate_proj, self.mlp.up_proj = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
            self.mlp.down_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)

        def forward(self, x):
            a, y = self.self_attn, self.input_layernorm(x)
            query, key, value = a.q_proj(y), a.k_proj(y).repeat(1, 1, 2), a.v_proj(y).repeat(1, 1, 2)
            x = x + a.o_proj(nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True))
            y = self.post_attention_layernorm(x)
            return x + self.mlp.down_proj(nn.functional.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))

    class Torchtitan(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok_embeddings, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH, bias=False)
            self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
            self.output = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, tokens):
            x = self.tok_embeddings(tokens)
            for layer in self.layers.values():
                x = layer(x)
            return self.output(self.norm(x))

    class HuggingFace(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Module()
            self.model.embed_tokens, self.model.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH, bias=False)
            self.model.layers = nn.ModuleList(Block() for _ in range(LAYERS))
            self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, tokens):
            x = self.model.embed_tokens(tokens)
            for layer in self.model.layers:
                x = layer(x)
            return self.lm_head(self.model.norm(x))

    return Torchtitan, HuggingFace


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worst_difference(shard, make, job, rank):
    """Of the gradients of two steps, each after the other, against those of the whole model."""
    import torch

    def loss(model, tokens):
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    torch.manual_seed(0)
    whole = make()
    model = shard(copy.deepcopy(whole))
    tokens = torch.randint(0, WORDS, (2, RANKS, job.MICRO_BATCHES, 1, 16), generator=torch.Generator().manual_seed(1))
    worst = 0.0
    for step in tokens:
        model.zero_grad()
        whole.zero_grad()
        for index, mine in enumerate(step[rank]):
            job.begin_micro_batch(model, index)
            loss(model, mine).backward()
        for one in step.flatten(0, 1):
            (loss(whole, one) / RANKS).backward()
        found = {name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", ""): p.grad.full_tensor() for name, p in model.named_parameters()}
        for name, parameter in whole.named_parameters():
            worst = max(worst, float((found.pop(name) - parameter.grad).norm() / parameter.grad.norm()))
        assert not found, found.keys()
    return worst


def compiled(model):
    """Layer by layer, each in a module of torch.compile's own."""
    import torch

    layers = model.layers if hasattr(model, "layers") else model.model.layers
    for name, layer in list(layers.named_children()):
        setattr(layers, name, torch.compile(layer, backend="aot_eager"))
    return model


def run_rank(rank):
    import torch
    import torch.distributed as dist
    from torch._dynamo.utils import counters

    folder = pathlib.Path(os.environ["DOVETAIL_FOLDER"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torchtitan, hugging_face = models()
    failed = count = 0
    for name in SETTINGS:
        job, plan = load(folder / f"{name}_job.py"), load(folder / f"{name}_plan.py")
        mesh = job.device_mesh("cpu")
        of_plan = mesh["dp_replicate", "fsdp"] if job.MESH["dp_replicate"] > 1 else mesh["fsdp"]
        for words, make, shard in (("export --job --to fsdp2", torchtitan, lambda model: job.shard(model, mesh)),
                                   ("export --job --to fsdp2", hugging_face, lambda model: job.shard(model, mesh)),
                                   ("export PLAN --to fsdp", hugging_face, lambda model: plan.shard(model, mesh=of_plan)),
                                   ("compiled, job", torchtitan, lambda model: job.shard(compiled(model), mesh)),
                                   ("compiled, plan", hugging_face, lambda model: plan.shard(compiled(model), mesh=of_plan))):
            counters.clear()
            worst = worst_difference(shard, make, job, rank)
            breaks = sum(counters["graph_break"].values())  # FSDP2's hooks lie around compiled layers
            count += 1
            failed += worst > 1e-5 or breaks > 0
            if rank == 0:
                print(f"{'FAILED' if worst > 1e-5 or breaks else 'ok'}  {name}, {words}, {make.__name__}: gradients within "
                      f"{worst:.1e}, {breaks} graph breaks")
    dist.destroy_process_group()
    if rank == 0:
        print(f"check_fsdp2: {count - failed} passed, {failed} failed")
    return 1 if failed else 0


def train(model, forward, wait=lambda: None):
    """The whole weights after three steps, and how often the last one gathered and reduce-scattered."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            optimizer.zero_grad()
            forward(model).backward()
            wait()
            optimizer.step()
    names = [event.name for event in profile.events()]
    return ([p.full_tensor() for p in model.parameters()],
            [sum(name.split(" ")[0] == f"FSDP::{part}" for name in names) for part in ("all_gather", "post_backward_reduce")])


def run_loop(rank, tool):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    import dovetail_torch
    from torch_host import run_on_host

    folder = pathlib.Path(os.environ["DOVETAIL_FOLDER"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-of-two", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, counts = models()[1], [0, 0]
    base = make()
    tokens = torch.randint(0, WORDS, (2, 16), generator=torch.Generator().manual_seed(rank))
    def check(good, what):
        counts[not good] += 1
        if rank == 0 or not good:
            print(f"{'ok' if good else 'FAILED'}  {what}")
    def forward(model):
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    before = [p.detach().clone() for p in base.parameters()]
    random = torch.get_rng_state()
    program, machine = dovetail_torch.capture_sharded(
        base, forward, lambda parameters: torch.optim.SGD(parameters, lr=0.1), path=f"{folder}/loop.json",
        cluster=f"{folder}/loop.cluster.json", steps=2, warmup=1, repetitions=1)
    check(all(torch.equal(p, q) for p, q in zip(base.parameters(), before)) and torch.equal(random, torch.get_rng_state()),
          "capture_sharded leaves weights and random numbers as they were")
    check({t["name"] for t in program["tensors"] if t["kind"] == "parameter"} == {name for name, _ in base.named_parameters()},
          "capture_sharded has the parameters of the model")
    check([op["name"] for op in program["ops"] if op["phase"] == "backward"][:3] ==
          ["loss.backward", "lm_head.backward", "model.norm.backward"], "capture_sharded has the order of backward")
    check({one["collective"] for one in machine["collectives"]} == {"all-gather", "reduce-scatter", "all-reduce"},
          "capture_sharded has the collectives of sharding")

    usual = copy.deepcopy(base)
    for layer in usual.model.layers:
        fully_shard(layer)
    weights, _ = train(fully_shard(usual), forward)
    for name, policy in (("layer", "fsdp:mode=copy,wait=end-of-backward"), ("kept", "fsdp:mode=copy,wait=end-of-backward,reshard=no"),
                         ("exact", "fsdp:mode=copy,wait=end-of-backward,forward=2,backward=2+exact")):
        if rank == 0:
            for words in (["plan", "--workload", f"{folder}/loop.json", "--policy", policy, "-o", f"{folder}/loop-{name}.json", "--force"],
                          ["export", f"{folder}/loop-{name}.json", "--to", "fsdp", "-o", f"{folder}/loop-{name}.py"]):
                ended = run_on_host([tool, *words, "--cluster", f"{folder}/loop.cluster.json"])
                if ended.returncode != 0:
                    raise SystemExit(ended.stderr)
        dist.barrier()
        plan, file = json.loads((folder / f"loop-{name}.json").read_text()), load(folder / f"loop-{name}.py")
        planned = [len(plan["gathers"]), len(plan["buckets"])]
        for how in ("FSDP2's collectives", "OverlappedCollectives"):
            model = file.shard(copy.deepcopy(base))
            overlapped = dovetail_torch.OverlappedCollectives(model) if how.startswith("Over") else None
            found, sent = train(model, forward, *([overlapped.wait] if overlapped else []))
            check(all(torch.equal(p, q) for p, q in zip(found, weights)), f"{name}, {how}: weights are those of the usual wrapping")
            check(sent == planned, f"{name}, {how}: gathers and reduce-scatters {sent}, planned {planned}")
    dist.destroy_process_group()
    if rank == 0:
        print(f"check_fsdp2: {counts[0]} passed, {counts[1]} failed of the loop")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/dovetail")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--as-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_rank is None:
        sys.exit(start_ranks(given))
    sys.exit(run_loop(given.as_rank, given.tool) if given.loop else run_rank(given.as_rank))
