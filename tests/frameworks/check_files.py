"""Loads the files that `dovetail export` wrote and calls them as their frameworks would, with stand-ins for these.

    check_files.py FOLDER

SPDX-License-Identifier: Apache-2.0
"""

import importlib.util
import json
import math
import pathlib
import sys
import types
from dataclasses import dataclass, field

folder = pathlib.Path(sys.argv[1])
plan = json.loads((folder / "plan.json").read_text())
buckets = [(bucket["bytes"], [name[:-len(".grad")] for name in bucket["gradients"]]) for bucket in plan["buckets"]]
shapes = {t["name"]: t["shape"] for t in plan["program"]["tensors"] if t["kind"] == "parameter"}
owed = {reduction["gradient"][:-len(".grad")] for reduction in plan["program"]["reductions"]}


def load(name):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(name, **things):
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    for key, value in things.items():
        setattr(sys.modules[name], key, value)


def same(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")


# torch: the bytes of every bucket, after the rounding that DDP does, and DDP's log compared.
torch_file = load("torch")
same([int(cap * 1048576) for cap in torch_file.BUCKET_CAP_MB_LIST], [size for size, _ in buckets], "torch bytes")
same(torch_file.BUCKETS, buckets, "torch buckets")


class Logged:
    def __init__(self, sizes):
        self.sizes = sizes

    def _get_ddp_logging_data(self):
        return {"rebuilt_bucket_sizes": ", ".join(str(size) for size in self.sizes)}


torch_file.check(Logged([size for size, _ in buckets]))
try:
    torch_file.check(Logged([1, 2]))
    sys.exit("torch: other buckets were not noticed")
except RuntimeError as error:
    assert "the plan's" in str(error)

# horovod: the groups, as parameters.
stand_in("horovod.torch", DistributedOptimizer=lambda inner, **options: options)


class Model:
    def named_parameters(self):
        return [(name, f"<{name}>") for name in shapes]


horovod = load("horovod")
same(horovod.optimizer(None, Model())["groups"], [[f"<{name}>" for name in names] for _, names in buckets], "groups")
same(int(horovod.ENVIRONMENT["HOROVOD_FUSION_THRESHOLD"]), max(size for size, _ in buckets), "fusion threshold")


# megatron: the rules of its layouts (core/optimizer/param_layout.py).
@dataclass(frozen=True)
class BufferKey:
    param_dtype: str
    grad_dtype: str
    is_expert_parallel: bool
    is_managed_by_layer_wise_optimizer: bool = False


@dataclass
class PerBufferParamLayout:
    param_index_map: dict = field(default_factory=dict)
    bucket_indices: list = field(default_factory=list)
    per_bucket_numel_unpadded: list = field(default_factory=list)
    param_indices: list = field(default_factory=list)


@dataclass
class FullParamLayout:
    layouts: dict = field(default_factory=dict)


stand_in("megatron.core.optimizer.param_layout", BufferKey=BufferKey, FullParamLayout=FullParamLayout,
         PerBufferParamLayout=PerBufferParamLayout)


class Parameter:
    requires_grad, dtype = True, "float32"

    def __init__(self, name):
        self.count = math.prod(shapes[name])

    def numel(self):
        return self.count


class Module:
    def __init__(self, names):
        self.parameters = [(name, Parameter(name)) for name in names]

    def named_parameters(self):
        return self.parameters


for name, sharded in (("megatron", False), ("megatron_sharded", True)):
    file = load(name)
    same(file.DISTRIBUTED_OPTIMIZER, sharded, f"{name} distributed optimizer")
    module = Module([one for one in shapes if one in owed])
    (key, layout), = file.full_param_layout(module).layouts.items()
    places = [layout.param_index_map[p] for _, p in reversed(module.parameters)]
    ids = [bucket for _, _, bucket in places]
    same(ids == sorted(ids) and set(ids) == set(range(len(layout.bucket_indices))), True, f"{name} bucket ids")
    same(all(end - start == p.numel() for (start, end, _), (_, p) in zip(places, reversed(module.parameters))), True,
         f"{name} sizes")
    same(all(a[1] <= b[0] for a, b in zip(places, places[1:])), True, f"{name} overlaps nothing")
    same([low for low, _ in layout.bucket_indices], [0] + [high for _, high in layout.bucket_indices[:-1]], f"{name} gaps")
    if sharded:
        same([start % 64 for start, _, _ in places], [0] * len(places), f"{name} starts")
        same([high % math.lcm(8, 128) for _, high in layout.bucket_indices], [0] * len(layout.bucket_indices), f"{name} ends")
    else:
        same(layout.bucket_indices[-1][1], sum(p.numel() for _, p in module.parameters), f"{name} no padding")
    try:
        file.full_param_layout(Module(list(reversed([one for one in shapes if one in owed]))))
        sys.exit(f"{name}: another order of parameters was not noticed")
    except ValueError:
        pass

# fsdp: every module in one group, in the order of backward.
fsdp = load("fsdp")
modules = [module for group in fsdp.GROUPS for module in group]
same(len(modules), len(set(modules)), "fsdp modules")
same(set(modules), {name.rpartition(".")[0] for name in owed}, "fsdp modules of all parameters")


class Sharded:
    def __init__(self):
        self.forward, self.backward = [], []

    def set_modules_to_forward_prefetch(self, following):
        self.forward = following

    def set_modules_to_backward_prefetch(self, following):
        self.backward = following


class Tree(Sharded):
    def __init__(self):
        super().__init__()
        self.all = {name: Sharded() for name in modules}

    def named_modules(self):
        return [("", self), *self.all.items()]


calls = []
stand_in("torch.distributed.fsdp", fully_shard=lambda group, **options: calls.append((group, options)))
tree = Tree()
fsdp.shard(tree, mesh="mesh")
same([len(group) for group, _ in calls[:-1]], [len(group) for group in fsdp.GROUPS], "fully_shard calls")
same(calls[-1], (tree, {"mesh": "mesh", "reshard_after_forward": False}), "the root is sharded last")
order = [tree.all[group[0]] for group in reversed(fsdp.GROUPS)]
same([one.forward for one in order[:-1]], [[one] for one in order[1:]], "forward prefetch")

# inductor: the table read between its points.
inductor = load("inductor")
low, high = inductor.RUNTIME_MS["all_reduce"][4:6]
middle = inductor.runtime_ms("all_reduce", (low[0] + high[0]) // 2)
same(abs(middle - (low[1] + high[1]) / 2) < 1e-9 * high[1], True, "inductor between points")
same(inductor.runtime_ms("all_reduce", 1), inductor.RUNTIME_MS["all_reduce"][0][1], "inductor below the table")


class Node:
    def __init__(self, target):
        self.target, self.meta = target, {}


same(inductor.custom_runtime_estimation(Node("aten.mm"), 4096), None, "inductor leaves compute alone")
same(inductor.custom_runtime_estimation(Node("_c10d_functional.all_reduce.default"), 4096),
     inductor.RUNTIME_MS["all_reduce"][0][1], "inductor knows all-reduces")
same(inductor.custom_runtime_estimation(Node("bucketing._pre_bucket_all_gather.default"), 4096), None, "inductor leaves copies alone")


class Value:
    def numel(self):
        return 1024

    def element_size(self):
        return 4


one, two = Node("_c10d_functional.reduce_scatter_tensor.default"), Node("_c10d_functional.reduce_scatter_tensor_coalesced.default")
one.meta["val"], two.meta["val"] = Value(), [Value(), Value()]
same([inductor.custom_runtime_estimation(node) for node in (one, two)],
     [inductor.runtime_ms("reduce_scatter", count * 4096 * inductor.WORLD_SIZE) for count in (1, 2)], "inductor knows shards")
same({module for group in inductor.MODULE_BUCKET_PLANS for module in group}, set(modules), "module plans")

# xla: a key per gradient, a profile in PGLE's text.
xla = load("xla")
keys = {}
for name, key in xla.COMBINER_KEY.items():
    keys.setdefault(key, []).append(name)
same(sorted(keys.values()), sorted(names for _, names in buckets), "combiner keys")
dump = '  %all-reduce.9 = f32[] all-reduce(%loss)\n' + "".join(
    f'  %all-reduce-start.{k} = f32[4] all-reduce-start(%x), frontend_attributes={{combiner_key="b{k}"}}\n' for k in range(len(buckets) - 1))
last = len(buckets) - 1  # a kernel of XLA's own: what it holds, a product that has the key too, and what starts it
dump += (f'  ROOT %all-reduce.7 = f32[4] all-reduce(%p), frontend_attributes={{combiner_key="b{last}"}}\n'
         f'  %fusion-start.2 = f32[4] fusion-start(%x), frontend_attributes={{combiner_key="b{last}"}}, '
         'metadata={scheduling_name="fusion-start"}, backend_config={"kind":"__triton_collective"}\n'
         f'  %gemm_fusion = f32[4] fusion(%x), frontend_attributes={{combiner_key="b{last}"}}\n')
names = xla.collective_names(dump)
same(names, {f"b{k}": "fusion-start" if k == last else f"all-reduce-start.{k}" for k in range(len(buckets))}, "names in the dump")
profile = xla.pgle_profile(names).splitlines()
same(profile[0], f'costs {{ name: "all-reduce-start.0" cost_us: {xla.BUCKETS[0][1]} }}', "PGLE line")
same(len(profile), len(buckets), "PGLE lines")

# deepspeed: JSON that holds a size in elements.
zero = json.loads((folder / "deepspeed.json").read_text())["zero_optimization"]
same(zero["reduce_bucket_size"] >= max(math.prod(shapes[name]) for name in owed), True, "reduce_bucket_size")
print("ok")
