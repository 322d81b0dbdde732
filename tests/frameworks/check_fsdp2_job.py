"""Calls the Python that `dovetail export --job --to fsdp2` wrote on stand-ins for torch and for models with torchtitan's
and Hugging Face's names, and prints as JSON what it asked of them.

    check_fsdp2_job.py FILE.py

SPDX-License-Identifier: Apache-2.0
"""

import importlib.util
import json
import sys
import types


def stand_in(name, **things):
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    for key, value in things.items():
        setattr(sys.modules[name], key, value)


class Module:
    def __init__(self, name, **children):
        self.name, self.children, self.wrapped = name, children, False
        self.forward, self.backward, self.sync = None, None, None

    def named_children(self):
        return list(self.children.items())

    def register_module(self, name, module):
        self.children[name] = module

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self):
        return [("weight", types.SimpleNamespace(dtype=held))]

    def set_modules_to_forward_prefetch(self, modules):
        self.forward = [one.name for one in modules]

    def set_modules_to_backward_prefetch(self, modules):
        self.backward = [one.name for one in modules]

    def set_requires_gradient_sync(self, sync):
        self.sync = sync


def blocks():
    return Module("blocks", **{str(i): Module(f"layer{i}") for i in range(4)})


def torchtitan():
    return Module("model", tok_embeddings=Module("embedding"), layers=blocks(), norm=Module("norm"), output=Module("head"))


def hugging_face():
    inner = Module("inner", embed_tokens=Module("embedding"), layers=blocks(), norm=Module("norm"))
    return Module("model", model=inner, lm_head=Module("head"))


def last_stage():  # of a pipeline: no embedding
    return Module("model", layers=blocks(), norm=Module("norm"), output=Module("head"))


class Mesh:
    def __init__(self, degrees, names):
        self.degrees = dict(zip(names, degrees))

    def __getitem__(self, names):
        return [self.degrees[name] for name in ([names] if isinstance(names, str) else names)]


def checkpoint_wrapper(layer):
    layer.wrapped = True
    return layer


calls = []


def fully_shard(modules, **options):
    listed = modules if isinstance(modules, list) else [modules]
    calls.append([[one.name for one in listed], options["mesh"], options["reshard_after_forward"]])
    policies.add((options["mp_policy"]["param_dtype"], options["mp_policy"]["reduce_dtype"]))


stand_in("torch", float32="float32", bfloat16="bfloat16", float16="float16")
stand_in("torch.distributed.device_mesh", init_device_mesh=lambda device, degrees, mesh_dim_names: Mesh(degrees, mesh_dim_names))
stand_in("torch.distributed.fsdp", fully_shard=fully_shard, MixedPrecisionPolicy=lambda **options: options)
stand_in("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", checkpoint_wrapper=checkpoint_wrapper)

spec = importlib.util.spec_from_file_location("written", sys.argv[1])
written = importlib.util.module_from_spec(spec)
spec.loader.exec_module(written)

found = {}
for make in (torchtitan, hugging_face, last_stage):
    calls.clear()
    policies, held = set(), written.HELD_DTYPE
    mesh = written.device_mesh()
    model = written.shard(make(), mesh)
    layers = [one for name, one in model.named_modules() if one.name.startswith("layer")]
    written.begin_micro_batch(model, written.MICRO_BATCHES - 1)
    last = model.sync
    written.begin_micro_batch(model, 0)
    found[make.__name__] = {
        "mesh": mesh.degrees, "policies": sorted(policies), "calls": list(calls), "sync": [model.sync, last],
        "recomputed": [one.name for one in layers if one.wrapped],
        "forward": [one.forward for one in layers], "backward": [one.backward for one in layers]}
try:
    held = "int8"
    written.shard(torchtitan(), mesh)
    sys.exit("a model of another type was not noticed")
except ValueError:
    pass
print(json.dumps(found))
