"""Describes a training step of a model that runs nowhere yet, as a workload file of the dovetail tool.

    with torch.device("meta"): model = Llama(config)                      # or any module: its weights are not touched
    dovetail_torch.describe(model, torch.zeros(1, 4096, dtype=torch.long), loss=lambda logits: ..., file="step.json")
    $ dovetail explore --workload step.json --cluster h100x8

How. A copy of the module on the meta device, where tensors have shapes and no values, runs forward and backward once.
A dispatch mode sees each op of ATen with its shapes; each is one kernel, as it is in eager mode on a device:
  matrix products and convolutions   m, n, k and how many; 2 m n k FLOP each, as torch.utils.flop_counter counts them
  attention (scaled_dot_product_attention), dropout, rms_norm   one kernel forward and one backward, as on CUDA;
                                     attention's FLOP are those of torch's flash attention, half of them where it is causal
  views and empty tensors            nothing
  all other ops                      each tensor that they read or write, once, and how they go over it (`access`), which
                                     decides the share of a GPU's memory rate that they reach

What is written (schedule/program_json.h): kernels of one module that follow each other are one op, MODULE.forward or
MODULE.backward; a backward op ends where a gradient of a parameter is ready. Parameters have their names, shapes and
dtypes, frozen ones too, and tied ones once. Then come the updates of the optimizer, each reading and writing what it
keeps in the parameter's dtype. The file has one rank: dovetail lays it out over as many as are asked for.

Leaves out: what has a kernel of its own on CUDA and is made of parts on the meta device, other than the three above;
autocast, which the meta device does not know (describe the module in the dtype in which it computes).

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import copy
import math
import sys
from collections.abc import Mapping

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail_torch.capture import _write

try:
    from torch.utils.flop_counter import flop_registry  # since 2.1
except ImportError:
    flop_registry = {}

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}
# What an update moves per element, and what it keeps: gradient, parameter and states are read, all but the gradient written.
OPTIMIZERS = {"adam": (7, 2), "sgd": (5, 1)}
# Ops of which one operand, by its place, is not read whole: only as many elements as come out, or only its shape.
LOOK_UPS = {"embedding": 0, "gather": 0, "index": 0, "index_select": 0, "nll_loss_forward": 0}
SHAPE_ONLY = {"nll_loss_backward": 1, "max_pool2d_with_indices_backward": 1, "avg_pool2d_backward": 1,
              "_adaptive_avg_pool2d_backward": 1}
OVERWRITING = ("zero_", "fill_", "copy_", "bernoulli_", "normal_", "uniform_", "random_")


def _tensors(value):
    """All tensors in nested tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))


def _changed(value, change):
    """The same, in lists and dicts, with each tensor and device changed."""
    if isinstance(value, (torch.Tensor, torch.device)):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_changed(one, change) for one in value]
    return {key: _changed(one, change) for key, one in value.items()} if isinstance(value, Mapping) else value


def _twin(module, values):
    """A copy on the meta device; no weight is copied, and what is tied stays so."""
    twins = {}
    for part in module.modules():
        for tensor in [*part._parameters.values(), *part._buffers.values(), *vars(part).values()]:
            if not isinstance(tensor, torch.Tensor):
                continue
            twin = values.on_meta(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                twin = torch.nn.Parameter(twin, requires_grad=tensor.requires_grad)
            twins.setdefault(id(tensor), twin)
    return copy.deepcopy(module, twins)


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _bytes(tensor):
    """In memory: of an expanded tensor only what is there."""
    extents = [size for size, stride in zip(tensor.shape, tensor.stride()) if stride != 0 or size == 0]
    return math.prod(extents) * tensor.element_size()


# ---- kernels

def _gemm(m, n, k, count=1, convolution=None):
    """`convolution`: what _convolved says of a product that a convolution implies."""
    return {"kind": "gemm", "m": m, "n": n, "k": k, "count": count, **({"convolution": convolution} if convolution else {})}


def _memory(size, flop=0, access=None, columns=0):
    """`access`: how the kernel goes over its bytes, a word of the tool (dovetail show dovetail.program/1); None: not known."""
    kernel = {"kind": "memory", "traffic_bytes": size, "work_flop": flop}
    if access:
        kernel["access"] = access
    if columns:
        kernel["columns"] = columns
    return kernel


# ---- how a kernel goes over its bytes

PADDING = ("constant_pad_nd",)
FILLING = ("zeros", "zeros_like", "fill_", "zero_", "new_zeros", "ones_like", "full", "full_like", *PADDING)
NORMS = {"native_layer_norm": "layer-norm", "native_layer_norm_backward": "layer-norm-backward",
         "_fused_rms_norm": "rms-norm", "_fused_rms_norm_backward": "rms-norm-backward",
         "_log_softmax": "softmax", "_log_softmax_backward_data": "softmax-backward"}
CASTS = ("_to_copy", "copy_", "clone")


def _order(tensor):
    """How its axes lie in memory, without those of one."""
    return tuple(stride for extent, stride in zip(tensor.shape, tensor.stride()) if extent > 1)


def _is_in_a_row(tensor):
    """Whether rows follow each other without a gap."""
    expected = 1
    for extent, stride in reversed(list(zip(tensor.shape, tensor.stride()))):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _access(name, reads, results):
    """(access, columns) of an op that is one kernel and no product."""
    out = results[0]
    if "batch_norm" in name:
        wide = max(reads, key=torch.Tensor.numel)
        return "batch-norm-backward" if name.endswith("backward") else "batch-norm", wide.shape[1]
    if name.startswith("max_pool") and "_with_indices" in name:
        return "max-pool-backward" if name.endswith("backward") else "max-pool", 0
    if name in NORMS:
        wide = max(reads, key=torch.Tensor.numel)
        return NORMS[name], wide.shape[-1] if wide.dim() else 0
    if name in ("embedding", "index_select", "index"):
        return "gathered", 0
    if name == "index_put":  # into a copy
        return "scattered", 0
    if name in ("sum", "mean"):
        is_of_rows = out.dim() == 0 or out.shape[-1] == 1
        return "sum-rows" if is_of_rows else "sum-columns", 0
    if name in FILLING or name == "nll_loss_backward":
        return "filled", 0
    if name in LOOK_UPS or name in SHAPE_ONLY or name in OVERWRITING:
        return None, 0
    wide = [one for one in reads if one.numel() > 1]
    if not wide or any(one.dtype not in DTYPES for one in (*wide, out)):
        return None, 0
    if name == "cat":
        return "plain" if all(map(_is_in_a_row, wide)) else "strided", 0
    if any(one.numel() != out.numel() or _bytes(one) != one.numel() * one.element_size() for one in wide):
        if max(one.numel() for one in wide) > out.numel():
            return None, 0
        return "rows" if any(one.dtype == torch.float32 for one in (*wide, out)) else "columns", 0
    if name in CASTS and wide[0].dtype != out.dtype:
        return "widened" if out.element_size() > wide[0].element_size() else "plain", 0
    if any(_order(one) != _order(out) for one in wide if one.shape == out.shape):
        return "strided", 0
    return "mixed" if len({one.dtype for one in (*wide, out)}) > 1 else "plain", 0


def _is_in_tf32(name):
    """Whether this process multiplies f32 in tensor cores: convolutions by default, matrices when it was asked to."""
    if "convolution" in name:
        return torch.backends.cudnn.allow_tf32
    return torch.get_float32_matmul_precision() != "highest"


def _product(a, b):
    return [_gemm(a.shape[-2], b.shape[-1], a.shape[-1], a.shape[0] if a.dim() == 3 else 1)]


def _grouped_product(a, b, offsets=None):
    """Of each expert alike, where the offsets divide the rows or what is summed over."""
    experts = offsets.numel() if offsets is not None else a.shape[0]
    share = lambda extent, divided: -(-extent // experts) if divided else extent
    return [_gemm(share(a.shape[-2], a.dim() == 2 and b.dim() == 3), share(b.shape[-1], a.dim() == 3 and b.dim() == 2),
                  share(a.shape[-1], a.dim() == 2 and b.dim() == 2), experts)]


def _convolution(given, weight, out, transposed, groups):
    """The product that it implies: (m, n, k) and how many."""
    inner, outer = (given, out) if not transposed else (out, given)  # as of the convolution that a transposed one undoes
    pixels = outer.shape[0] * math.prod(outer.shape[2:])
    return pixels, outer.shape[1] // groups, inner.shape[1] // groups * math.prod(weight.shape[2:]), groups


def _convolved(given, weight, out, transposed, groups, stride):
    """Of a pass what its overlapping windows move, and what decides its rate. None: of groups or transposed, of which nothing is known."""
    if transposed or groups > 1:
        return lambda which: None
    touched = min(given.numel(), out.numel() // out.shape[1] * math.prod(weight.shape[1:]))
    others, channels = weight.numel() + out.numel(), min(given.shape[1], out.shape[1])
    return lambda which: {"pass": which, "moved": others + (given.numel() if which == "input" else touched), "channels": channels,
                          "strided": max(stride) > 1}


def _forward_convolution(out, given, weight, _bias, stride, _padding, _dilation, transposed, _more, groups):
    m, n, k, count = _convolution(given, weight, out, transposed, groups)
    of = _convolved(given, weight, out, transposed, groups, stride)
    return [_gemm(m, k, n, count) if transposed else _gemm(m, n, k, count, of("forward"))]


def _backward_convolution(out, grad, given, weight, _sizes, stride, _padding, _dilation, transposed, _more, groups, mask):
    m, n, k, count = _convolution(given, weight, grad, transposed, groups)
    of = _convolved(given, weight, grad, transposed, groups, stride)
    kernels = []
    if mask[0]:
        kernels.append(_gemm(m, n, k, count) if transposed else _gemm(m, k, n, count, of("input")))
    if mask[1]:
        kernels.append(_gemm(n, k, m, count, of("weight")))
    if mask[2]:
        kernels.append(_memory(_bytes(grad) + _bytes(out[2]), access="sum-columns"))
    return kernels


# What comes out, then the op's own arguments.
PRODUCTS = {
    "mm": lambda out, a, b: _product(a, b),
    "addmm": lambda out, add, a, b, **_: _product(a, b),
    "bmm": lambda out, a, b: _product(a, b),
    "baddbmm": lambda out, add, a, b, **_: _product(a, b),
    "_scaled_mm": lambda out, a, b, *_, **__: _product(a, b),
    "_grouped_mm": lambda out, a, b, offsets=None, *_, **more: _grouped_product(a, b, more.get("offs", offsets)),
    "convolution": _forward_convolution,
    "convolution_backward": _backward_convolution,
}


def _traffic(name, func, args, kwargs, out):
    """(tensors that are written in place, bytes read and written)"""
    written, size = [], 0
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _tensors(value):
            if is_written:
                written.append(tensor)
            is_only_asked = SHAPE_ONLY.get(name) == place or name in FILLING
            if (is_only_asked and name not in PADDING) or (is_written and name in OVERWRITING):
                continue
            read = _bytes(tensor)
            size += min(read, sum(map(_bytes, _tensors(out)))) if LOOK_UPS.get(name) == place else read
    return written, size + sum(map(_bytes, written or _tensors(out)))


# ---- values, where a forward pass asks for them

class _Unknown(Exception):
    """A tensor has no value."""


class _Values:
    """Of the tensors of whole numbers and truth values that follow from the example alone, what a forward pass may ask for:
    whether a batch is padded, or packed. They are computed on a processor, too."""

    def __init__(self):
        self.kept = {}  # by id of the tensor on the meta device: (the tensor, so that no id comes twice; the real one)

    def on_meta(self, tensor):
        twin = tensor.detach().to("meta")
        if tensor.device.type != "meta" and not tensor.is_floating_point() and not tensor.is_complex():
            self.kept[id(twin)] = (twin, tensor.detach().cpu())
        return twin

    def real(self, value):
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if id(value) not in self.kept:
            raise _Unknown
        return self.kept[id(value)][1]

    def follow(self, name, func, args, kwargs, out, written):
        results = list(_tensors(out))
        is_random = name.startswith("rand") or (name in OVERWRITING and name not in ("zero_", "fill_", "copy_"))
        try:
            if is_random or any(one.is_floating_point() or one.is_complex() for one in results):
                raise _Unknown
            value = func(*_changed(args, self.real), **_changed(kwargs, self.real))
            self.kept.update((id(one), (one, real)) for one, real in zip(results, _tensors(value)))
        except (_Unknown, RuntimeError):
            changed = {_storage(one)._cdata for one in written}
            self.kept = {key: pair for key, pair in self.kept.items() if not changed or _storage(pair[0])._cdata not in changed}


# ---- what happened, op by op

class _Entry:
    """Kernels that ran, in one phase and for one module; tensors by their storage."""

    def __init__(self, phase, owner, dtype, kernels, reads, writes):
        self.phase, self.owner, self.dtype, self.kernels = phase, owner, dtype, kernels
        self.reads, self.writes = reads, writes
        self.ready = []     # names of parameters whose gradients exist when it has ended
        self.fills = False  # whether it is the gradient with which backward begins


class _Log(TorchDispatchMode):
    def __init__(self, values):
        super().__init__()
        self.values = values
        self.entries, self.owners, self.phase = [], [], "forward"
        self.storages = {}  # by address; kept, so that no address comes twice
        self.written = {}   # address -> (dtype, [elements]) of what was first written there
        self.without_owner = 0  # entries from here on have none yet

    def address(self, tensor):
        storage = _storage(tensor)
        self.storages.setdefault(storage._cdata, storage)
        return storage._cdata

    def add(self, kernels, reads, writes, dtype=None):
        for tensor in writes:
            self.written.setdefault(self.address(tensor), (tensor.dtype, [max(1, _bytes(tensor) // tensor.element_size())]))
        dtypes = [tensor.dtype for tensor in (*writes, *reads) if tensor.dtype in DTYPES]
        self.entries.append(_Entry(self.phase, self.owners[-1] if self.owners else None, dtype or next(iter(dtypes), None),
                                   kernels, [self.address(one) for one in reads], [self.address(one) for one in writes]))

    def belongs_to(self, owner):
        """Backward of a node has ended."""
        for entry in self.entries[self.without_owner:]:
            entry.owner = owner if entry.owner is None else entry.owner
        self.without_owner = len(self.entries)

    def is_ready(self, parameter):
        self.entries[-1].ready.append(parameter)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        if name == "convolution_backward":  # the meta device of 1.13 has none
            grad, given, weight, mask = args[0], args[1], args[2], args[10]
            out = tuple(torch.empty_like(one) if one is not None and wanted else None
                        for one, wanted in zip((given, weight, grad.new_empty(grad.shape[1])), mask))
        elif name == "_local_scalar_dense" and id(args[0]) in self.values.kept:
            return self.values.real(args[0]).item()
        else:
            out = func(*args, **kwargs)
        reads, results = list(_tensors([args, kwargs])), list(_tensors(out))
        in_place, size = _traffic(name, func, args, kwargs, out)
        self.values.follow(name, func, args, kwargs, out, in_place)
        known = {self.address(one) for one in reads}
        if "empty" in name or (not in_place and all(self.address(one) in known for one in results)):
            return out  # memory alone, or a view
        if name in PRODUCTS:
            kernels = PRODUCTS[name](out, *args, **kwargs)
            dtype = results[0].dtype
            if dtype not in DTYPES:
                raise ValueError(f"a matrix product of {dtype}: the tool knows {', '.join(DTYPES.values())}")
            if dtype == torch.float32 and _is_in_tf32(name):
                kernels = [{**one, "operands": "tf32"} if one["kind"] == "gemm" else one for one in kernels]
        else:
            formula = flop_registry.get(func._overloadpacket)
            flop = formula(*args, **kwargs, out_val=out) if formula else 0
            written = in_place or results
            kernels, dtype = [_memory(size, flop, *_access(name, reads, written))], None
            if name == "embedding_dense_backward":  # the table is zeroed, then rows are added into it
                kernels = [_memory(_bytes(written[0]), 0, "filled"), _memory(3 * _bytes(reads[0]), 0, "scattered")]
            elif name == "slice_backward":
                kernels = [_memory(_bytes(written[0]), 0, "filled"), _memory(2 * _bytes(reads[0]), 0, "strided")]
            elif name == "masked_fill":  # in a copy
                kernels.insert(0, _memory(2 * _bytes(written[0]), 0, *_access("clone", reads[:1], written)))
        if kernels:
            self.add(kernels, reads, in_place or results, dtype)
        return out


# ---- ops that have a kernel of their own on a device, but are made of others on the meta device

class _OneKernel(torch.autograd.Function):
    """Reads its inputs and writes an output like the first, or attention's: `width` wide, heads beside tokens; backward reads
    them and the output's gradient, attention's the output, too, and writes one of each."""

    @staticmethod
    def forward(ctx, log, flop, kept_bytes, width, more, *inputs):
        """`more`: keys of the kernel forward, and of the one backward."""
        first = inputs[0]
        is_attention = "attention" in more[0]
        if is_attention and first.dim() == 4:  # heads behind tokens in memory, as its kernels have it
            samples, heads, tokens, _ = first.shape
            out = first.new_empty((samples, tokens, heads, width)).transpose(1, 2)
        else:
            out = torch.empty_like(first) if width == first.shape[-1] else first.new_empty((*first.shape[:-1], width))
        ctx.log, ctx.flop, ctx.kept_bytes, ctx.more = log, flop, kept_bytes, more
        ctx.save_for_backward(*inputs, *([out] if is_attention else []))
        log.add([{**_memory(sum(map(_bytes, inputs)) + _bytes(out) + kept_bytes, flop[0]), **more[0]}], inputs, [out])
        return out

    @staticmethod
    def backward(ctx, grad):
        saved = ctx.saved_tensors
        grads = [torch.empty_like(one) if wanted else None for one, wanted in zip(saved, ctx.needs_input_grad[5:])]
        written = [one for one in grads if one is not None]
        size = _bytes(grad) + sum(map(_bytes, [*saved, *written])) + ctx.kept_bytes
        ctx.log.add([{**_memory(size, ctx.flop[1]), **ctx.more[1]}], [grad, *saved], written)
        return (None, None, None, None, None, *grads)


@contextlib.contextmanager
def _fused(log):
    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **_more):
        rows, wide, out = math.prod(query.shape[:-1]), query.shape[-1], value.shape[-1]
        seen = max(1, key.shape[-2] // 2) if is_causal else key.shape[-2]  # by a query, in the mean
        pairs = 2 * rows * seen
        flop = (pairs * (wide + out), pairs * (3 * wide + 2 * out))  # backward computes the scores again
        more = [{"attention": {"tokens": seen, "head_dim": (wide + out) // 2, "backward": way,
                               **({} if is_causal or attn_mask is not None else {"causal": False})}} for way in (False, True)]
        return _OneKernel.apply(log, flop, 4 * rows, out, more, query, key, value,
                                *([] if attn_mask is None else [attn_mask]))

    def dropout(input, p=0.5, training=True, inplace=False):
        return _OneKernel.apply(log, (0, 0), input.numel(), input.shape[-1], ({}, {}), input) if training and p > 0 else input

    def rms_norm(input, normalized_shape, weight=None, eps=None):
        columns = math.prod(normalized_shape)
        more = [{"access": access, "columns": columns} for access in ("rms-norm", "rms-norm-backward")]
        return _OneKernel.apply(log, (0, 0), 0, input.shape[-1], more, input, *([] if weight is None else [weight]))

    functional = torch.nn.functional
    ours = {"scaled_dot_product_attention": attention, "dropout": dropout, "rms_norm": rms_norm}
    theirs = {name: getattr(functional, name) for name in ours if hasattr(functional, name)}
    try:
        for name in theirs:
            setattr(functional, name, ours[name])
        yield
    finally:
        for name, function in theirs.items():
            setattr(functional, name, function)


# ---- whose backward runs

class _Modules:
    """Puts each module's name on what it runs forward, and on the nodes of autograd that undo it."""

    def __init__(self, model, log):
        self.log, self.nodes, self.names = log, {}, {id(value): name for name, value in model.named_parameters()}
        for name, module in model.named_modules():
            module.forward = self.wrapped(name, module.forward)

    def wrapped(self, name, forward):
        def run(*args, **kwargs):
            if self.log.owners:
                self.mark((args, kwargs), self.log.owners[-1])
            self.log.owners.append(name)
            out = forward(*args, **kwargs)
            self.mark(out, self.log.owners.pop())
            return out
        return run

    def mark(self, values, owner):
        """All nodes below these tensors that belong to nobody yet are the owner's."""
        waiting = [tensor.grad_fn for tensor in _tensors(values)]
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in self.nodes:
                continue
            self.nodes[id(node)] = node  # kept, so that no id comes twice
            if hasattr(node, "variable"):  # accumulates a gradient
                name = self.names.get(id(node.variable))
                if name is not None:
                    node.register_hook(lambda *_, name=name: self.log.is_ready(name))
            else:
                node.register_hook(lambda *_, owner=owner: self.log.belongs_to(owner))
                waiting += [following for following, _ in node.next_functions]


# ---- the program

def _merged(entries):
    """Runs of one module become one op; backward, up to where a gradient is ready."""
    ops = []
    for entry in entries:
        last = ops[-1] if ops else None
        if (last is None or (last.phase, last.owner) != (entry.phase, entry.owner) or last.ready or last.fills or
                (last.dtype and entry.dtype and last.dtype != entry.dtype)):
            ops.append(entry)
            continue
        last.dtype = last.dtype or entry.dtype
        last.kernels += entry.kernels
        last.reads += [one for one in entry.reads if one not in last.writes]
        last.writes += entry.writes
        last.ready = entry.ready
    return ops


class _Writer:
    """Writes the Program: tensors are what parameters are, what one op writes and a later one reads, and what updates need."""

    def __init__(self, name, log, model):
        self.log, self.used, self.of_storage = log, set(), {}
        self.parameters = dict(model.named_parameters())
        self.program = {"schema": "dovetail.program/1", "kind": "program", "name": name, "world_size": 1,
                        "groups": [{"id": 0, "name": "dp", "ranks": [0]}], "tensors": [], "ops": [], "reductions": []}
        for parameter, value in self.parameters.items():
            if value.dtype not in DTYPES:
                raise ValueError(f"{parameter}: the tool knows {', '.join(DTYPES.values())}, not {value.dtype}")
            self.tensor(parameter, "parameter", value.dtype, value.shape)
            self.of_storage.setdefault(log.address(value), []).append(parameter)

    def unique(self, name):
        number, found = 1, name
        while found in self.used:
            number += 1
            found = f"{name}.{number}"
        self.used.add(found)
        return found

    def tensor(self, name, kind, dtype, shape):
        name = self.unique(name)
        self.program["tensors"].append({"id": len(self.program["tensors"]), "name": name, "kind": kind,
                                        "dtype": DTYPES.get(dtype, "f32"), "shape": list(shape)})
        return name

    def op(self, name, phase, dtype, kernels, **more):
        work = kernels[0] if len(kernels) == 1 else {"kind": "kernels", "kernels": kernels}
        self.program["ops"].append({"id": len(self.program["ops"]), "name": name, "phase": phase,
                                    "dtype": DTYPES.get(dtype, "f32"), "work": work, **more})

    def written(self, address, op_name):
        if address not in self.of_storage:
            self.of_storage[address] = [self.tensor(f"{op_name}.out", "activation", *self.log.written[address])]
        return self.of_storage[address]

    def step(self, ops):
        """Forward and backward; returns the gradients of parameters in the order in which they are ready."""
        last_reader = {address: place for place, op in enumerate(ops) for address in op.reads}
        gradients = {}
        for place, op in enumerate(ops):
            name = self.unique(f"{op.owner or self.program['name']}.{op.phase}")
            reads = [one for address in dict.fromkeys(op.reads) for one in self.of_storage.get(address, [])]
            writes = [one for address in dict.fromkeys(op.writes) if last_reader.get(address, -1) > place
                      for one in self.written(address, name)]
            for parameter in op.ready:
                value, known = self.parameters[parameter], gradients.pop(parameter, None)
                gradients[parameter] = known or self.tensor(f"{parameter}.grad", "gradient", value.dtype, value.shape)
                reads += [known] if known else []
                writes.append(gradients[parameter])
            effect = {"effect": {"kind": "fill-loss-gradient", "value": "1"}} if op.fills else {}
            self.op(name, op.phase, op.dtype, op.kernels, reads=reads, writes=writes, **effect)
        return gradients

    def updates(self, gradients, optimizer):
        moved, kept = OPTIMIZERS[optimizer]
        for parameter, gradient in gradients.items():
            value = self.parameters[parameter]
            state = self.tensor(f"{parameter}.state", "optimizer-state", value.dtype, [kept, *value.shape])
            self.op(self.unique(f"{parameter}.update"), "optimizer", value.dtype,
                    [_memory(moved * value.numel() * value.element_size(), access="updated")], reads=[gradient, parameter, state],
                    writes=[parameter, state], effect={"kind": "update", "elementwise": True})
            self.program["reductions"].append({"gradient": gradient, "group": "dp", "op": "average"})


# ---- the step

def _run(model, example, loss, log):
    """One forward and one backward pass."""
    modules = _Modules(model, log)
    given = _changed(example, log.values.on_meta)
    args = given if isinstance(given, list) else [] if isinstance(given, dict) else [given]
    kwargs = given if isinstance(given, dict) else {}
    with torch.enable_grad(), _fused(log), log:
        out = model(*args, **kwargs)
        log.owners.append("loss")
        if loss is not None:
            out = loss(out)
        elif isinstance(out, Mapping) and out.get("loss") is not None:  # as Hugging Face's models return it
            out = out["loss"]
        result = next((one for one in _tensors(out) if one.requires_grad), None)
        if result is None:
            raise ValueError("nothing that the module returns depends on a parameter that is trained")
        modules.mark(result, "loss")
        log.phase = "backward"
        gradient = torch.ones_like(result)
        log.entries[-1].fills = True
        log.owners.pop()
        result.backward(gradient)


def _flop(kernel):
    return 2 * kernel["m"] * kernel["n"] * kernel["k"] * kernel["count"] if kernel["kind"] == "gemm" else kernel["work_flop"]


def _counted(flop):
    unit, size = next((pair for pair in (("T", 1e12), ("G", 1e9)) if flop >= pair[1]), ("M", 1e6))
    return f"{flop / size:.2f} {unit}FLOP"


def _say(file, program, model, ops):
    parameters = list(model.parameters())
    trained = {one["gradient"] for one in program["reductions"]}
    flop = {phase: sum(_flop(kernel) for op in ops if op.phase == phase for kernel in op.kernels)
            for phase in ("forward", "backward")}
    print(f"dovetail_torch: {file}: {sum(one.numel() for one in parameters):,} parameters in {len(parameters)} tensors, "
          f"{len(trained)} of them trained; {_counted(flop['forward'])} forward, {_counted(flop['backward'])} backward, in "
          f"{sum(len(op.kernels) for op in ops)} kernels\n"
          f"next: dovetail explore --workload {file} --cluster h100x8", file=sys.stderr)
    if hasattr(getattr(model, "config", None), "model_type"):
        print("      its config.json takes tensor and pipeline parallelism, too: dovetail explore --job config.json:tp=2 "
              "--cluster h100x8", file=sys.stderr)


def describe(module, example, *, loss=None, file=None, name=None, optimizer="adam"):
    """Describes a training step of the module, whose weights are neither read nor needed, and writes it to `file`.

    example    what the module takes: a tensor, a tuple of arguments, or a dict of named ones; shapes count, and values of
               whole numbers where the forward pass asks for them (a padding mask)
    loss       loss(what the module returns); without it backward begins at the `loss` that the module returns, or else
               at the first tensor of it
    name       of the workload (default: the module's class)
    optimizer  adam or sgd (with momentum): what an update moves and keeps

    Returns the program that was written. Raises ValueError where the module cannot be described: its forward needs values
    that the example does not give (an .item(), a mask that picks rows), or it has a dtype that the tool does not know.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer: expected {' or '.join(OPTIMIZERS)}, found {optimizer!r}")
    log = _Log(_Values())
    model = _twin(module, log.values)
    try:
        _run(model, example, loss, log)
    except (NotImplementedError, RuntimeError) as error:
        raise ValueError("the module does not run on the meta device, where tensors have shapes and no values: "
                         f"{str(error).splitlines()[0]}") from error
    ops = _merged(log.entries)
    writer = _Writer(name or type(module).__name__, log, model)
    writer.updates(writer.step(ops), optimizer)
    if file is not None:
        _write(file, writer.program)
        _say(file, writer.program, model, ops)
    return writer.program
