"""The kernels of which a GPU's own book has rows, by section, the most important first: see measure.py.

Each Row runs its kernels and returns what the file says of them (models/clusters/gpu_book.h). What is counted of a pass are the
bytes of every operand once, as ops state them (models/rates/memory_rates.h); of causal attention 2 S^2 d FLOP a head, and 5
S^2 d backward, where scores are computed again (attention_table.h). Extents of products and columns are those of the
shipped tables, so that a book has the rows that it replaces.

SPDX-License-Identifier: Apache-2.0
"""

import inspect
import itertools
import math
from dataclasses import dataclass
from typing import Callable

import torch
from torch.nn import functional as F

from dovetail_torch.meter import fixed_and_rate

WIDTH = 4096  # columns of what does not depend on them
MEBI = 1 << 20
LEAST_SIZE = 2  # bytes of an element


class Absent(Exception):
    """This PyTorch or this device has no such kernel."""


@dataclass(frozen=True)
class Row:
    section: str
    name: str
    run: Callable  # of a meter: what the file says


@dataclass(frozen=True)
class Extents:
    """What is measured on a GPU, and what on processors, where only the way is tried."""
    pass_bytes: tuple = (32 * MEBI, 128 * MEBI, 512 * MEBI)
    wide_rows: tuple = (1024, 4096)
    norm_columns: tuple = (1024, 4096, 8192)
    softmax_columns: tuple = (32000, 128256, 50257, 8000, 151936)
    softmax_backward_columns: tuple = (32000, 128256, 8000)
    table: tuple = (32000, 4096)  # of an embedding
    tokens: tuple = (4096, 16384)  # that it looks up
    updated: tuple = (1 << 25, 1 << 27)
    products: tuple = tuple((m, n, k) for m, (n, k) in itertools.product(
        (4096, 8192, 2048, 16384, 1024), ((4096, 4096), (12288, 4096), (4096, 12288), (8192, 8192), (6144, 4096),
                                          (5120, 5120), (7168, 2048), (2048, 7168))) if m * n * k >= 1.5e10)
    unaligned: tuple = (50257, 50258)  # odd, and even
    unaligned_rows: int = 8192
    unaligned_sides: tuple = (768, 4096)
    # As the shipped curves have their axis, in GFLOP, and a product of about as many.
    cubes: tuple = ((0.27, (512, 512, 512)), (2.1, (1024, 1024, 1024)), (10, (8192, 768, 768)), (17, (2048, 2048, 2048)),
                    (30, (8192, 2304, 768)), (69, (8192, 4096, 1024)), (137, (4096, 4096, 4096)))
    heads: tuple = (8, 32, 128)
    attention: tuple = tuple(itertools.product((128, 64), (4096, 2048, 1024, 8192, 512))) + tuple(
        itertools.product((256, 192), (4096, 2048, 8192, 1024, 512)))


ON_PROCESSORS = Extents(
    pass_bytes=(MEBI // 8, MEBI), wide_rows=(16, 64), norm_columns=(64, 256), softmax_columns=(1000,),
    softmax_backward_columns=(1000,), table=(256, 64), tokens=(64, 256), updated=(1 << 14, 1 << 16),
    products=((256, 256, 256), (512, 256, 256)), unaligned=(257, 258), unaligned_rows=64, unaligned_sides=(96, 128),
    cubes=((0.0042, (128, 128, 128)), (0.034, (256, 256, 256))), heads=(2, 8), attention=((64, 64), (64, 128)))


# ---- products

def _product(meter, m, n, k, dtype=None):
    sets = [(meter.normal(m, k, dtype=dtype), meter.normal(n, k, dtype=dtype))
            for _ in range(meter.copies(LEAST_SIZE * (m + n) * k))]
    return meter.us([lambda a=a, b=b: torch.mm(a, b.t()) for a, b in sets], f"product {m} x {n} x {k}")


def _teraflops(flop, us):
    return flop / us / 1e6


def _in_precision(precision, run):
    """f32 as `highest`, or as TF32 where it is `high`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return run()
    finally:
        torch.set_float32_matmul_precision(before)


PRODUCT_TYPES = {"half": (None, "highest"), "tf32": (torch.float32, "high"), "f32": (torch.float32, "highest")}


def _unaligned(meter, extents, kind, case, side):
    """[rows, side] x [side, v], [rows, v] x [v, side] and [v, rows] x [rows, side]."""
    dtype, precision = PRODUCT_TYPES[kind]
    parity, which = case.split()
    v, rows = extents.unaligned[parity == "even"], extents.unaligned_rows
    short, weight = meter.normal(rows, side, dtype=dtype), meter.normal(v, side, dtype=dtype)
    if which == "n":
        call = lambda: torch.mm(short, weight.t())
    else:
        wide = meter.normal(rows, v, dtype=dtype)
        call = (lambda: torch.mm(wide, weight)) if which == "k" else (lambda: torch.mm(wide.t(), short))
    us = _in_precision(precision, lambda: meter.us([call], f"product {kind}, {case}"))
    return {"type": kind, "of": case, "axis": side, "tflop_per_s": _teraflops(2 * rows * v * side, us)}


def _by_flop(meter, kind, axis, shape):
    dtype, precision = PRODUCT_TYPES[kind]
    us = _in_precision(precision, lambda: _product(meter, *shape, dtype=dtype))
    return {"type": kind, "of": "gflop", "axis": axis, "tflop_per_s": _teraflops(2 * math.prod(shape), us)}


def product_rows(extents):
    for m, n, k in extents.products:
        yield Row("products", f"{m} x {n} x {k}",
                  lambda meter, m=m, n=n, k=k: {"m": m, "n": n, "k": k, "us": _product(meter, m, n, k)})


def other_product_rows(extents):
    cases = [("half", f"{parity} {which}") for parity in ("odd", "even") for which in "nkm"]
    for (kind, case), side in itertools.product(cases, extents.unaligned_sides):
        yield Row("other_products", f"{kind} {case} {side}",
                  lambda meter, kind=kind, case=case, side=side: _unaligned(meter, extents, kind, case, side))
    for kind, (axis, shape) in itertools.product(("tf32", "f32"), extents.cubes):
        yield Row("other_products", f"{kind} {axis} GFLOP",
                  lambda meter, kind=kind, axis=axis, shape=shape: _by_flop(meter, kind, axis, shape))
    for which, side in itertools.product("nkm", extents.unaligned_sides):
        yield Row("other_products", f"tf32 odd {which} {side}",
                  lambda meter, which=which, side=side: _unaligned(meter, extents, "tf32", f"odd {which}", side))


# ---- passes over memory

@dataclass(frozen=True)
class Pass:
    access: str
    size: int  # bytes of an element
    make: Callable  # of a meter, rows and columns: what `call` takes
    call: Callable
    columns: int = 0  # of a row, where they matter
    rows: tuple = ()  # in place of those that have the bytes of Extents.pass_bytes


def _one(meter, rows, columns):
    return (meter.normal(rows, columns),)


def _two(meter, rows, columns):
    return meter.normal(rows, columns), meter.normal(rows, columns)


def _single(meter, rows, columns):
    return (meter.normal(rows, columns, dtype=torch.float32),)


def _backward(forward, make):
    """Inputs of the backward pass of what forward makes of them."""
    def made(meter, rows, columns):
        inputs = make(meter, rows, columns)
        out = forward(*inputs)
        return out, [one for one in inputs if one.requires_grad], torch.randn_like(out)
    return made


def _gradients(out, inputs, grad):
    return torch.autograd.grad(out, inputs, grad, retain_graph=True)


def _parameters(count):
    """What is normed, and so many parameters of its width."""
    return lambda meter, rows, columns: (meter.normal(rows, columns, grad=True),
                                         *(meter.normal(columns, grad=True) for _ in range(count)))


def _no_grad(call):
    def run(*inputs):
        with torch.no_grad():
            return call(*inputs)
    return run


def _heads_apart(x):
    return x.view(x.shape[0], -1, 128).transpose(0, 1).contiguous()


def _rms_norm(x, weight):
    if not hasattr(F, "rms_norm"):
        raise Absent("this PyTorch has no rms_norm")
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


def _layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def _log_softmax(x):
    return F.log_softmax(x, -1)


def _common_passes(extents, half):
    """`half`: bytes of an element of the type that stands for bf16."""
    yield Pass("plain", 3 * half, _two, torch.add)
    yield from _norms(half, extents.norm_columns[1])
    yield Pass("columns", 2 * half, lambda meter, rows, columns: (*_one(meter, rows, columns), meter.normal(1, columns)),
               torch.mul)
    yield Pass("widened", half + 4, _one, lambda x: x.to(torch.float32, copy=True))
    yield Pass("mixed", half + 8, lambda meter, rows, columns: (*_single(meter, rows, columns), meter.normal(rows, columns)),
               lambda x, y: x.add_(y))
    yield Pass("rows", 8, lambda meter, rows, columns: (*_single(meter, rows, columns),
                                                        meter.normal(rows, 1, dtype=torch.float32)), torch.mul)
    yield Pass("strided", 2 * half, _one, _heads_apart)


def _other_passes(extents, half):
    yield Pass("sum-rows", 4, _single, lambda x: x.mean(-1, keepdim=True))
    yield Pass("sum-columns", half, _one, lambda x: x.sum(0))
    for columns in extents.softmax_columns:
        yield Pass("softmax", 8, _single, _log_softmax, columns, extents.wide_rows)
    followed = lambda meter, rows, columns: (meter.normal(rows, columns, dtype=torch.float32, grad=True),)
    for columns in extents.softmax_backward_columns:
        yield Pass("softmax-backward", 12, _backward(_log_softmax, followed), _gradients, columns, extents.wide_rows)
    yield Pass("filled", half, _one, lambda x: x.zero_())
    yield Pass("gathered", 2 * half, lambda meter, rows, columns: (
        meter.whole(extents.table[0], rows), meter.normal(extents.table[0], columns)), F.embedding)
    for columns in extents.norm_columns[:1] + extents.norm_columns[2:]:
        yield from _norms(half, columns)


def _norms(half, columns):
    yield Pass("rms-norm", 2 * half, _parameters(1), _no_grad(_rms_norm), columns)
    yield Pass("rms-norm-backward", 3 * half, _backward(_rms_norm, _parameters(1)), _gradients, columns)
    yield Pass("layer-norm", 2 * half, _parameters(2), _no_grad(_layer_norm), columns)
    yield Pass("layer-norm-backward", 3 * half, _backward(_layer_norm, _parameters(2)), _gradients, columns)


def _pass_row(access, points, nominal, **keys):
    """`points`: bytes and us; `nominal`: bytes a second."""
    fixed, rate = fixed_and_rate(points)
    return {"access": access, **keys, "fixed_us": fixed, "share": 1e6 * rate / nominal}


def _points(meter, one, extents):
    columns = one.columns or WIDTH
    for rows in one.rows or [size // one.size // columns for size in extents.pass_bytes]:
        size = one.size * rows * columns
        sets = [one.make(meter, rows, columns) for _ in range(meter.copies(size))]
        yield size, meter.us([lambda inputs=inputs: one.call(*inputs) for inputs in sets], one.access)
        del sets
        meter.release()


def _scattered(meter, extents, nominal):
    """Backward of an embedding, less the time in which its table is filled, which ops state by itself."""
    words, width = extents.table
    table = meter.normal(words, width)
    filled = meter.us([table.zero_], "filled")
    points = []
    for tokens in extents.tokens:
        sets = [(meter.normal(tokens, width), meter.whole(words, tokens)) for _ in range(2)]
        us = meter.us([lambda grad=grad, ids=ids: torch.ops.aten.embedding_dense_backward(grad, ids, words, -1, False)
                       for grad, ids in sets], "scattered")
        points.append((3 * table.element_size() * tokens * width, max(us - filled, us / 100)))
    return _pass_row("scattered", points, nominal)


ADAM_READS_AND_WRITES = 7  # of an element: gradient, parameter and two moments read, the last three written
FOREACH_PASSES = 20        # operator by operator, each over whole tensors


def fused_adam(parameters):
    """AdamW over lists of tensors at once."""
    if "fused" not in inspect.signature(torch.optim.AdamW).parameters:
        raise Absent("this PyTorch has no fused AdamW")
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def _updated(meter, extents, nominal, access, name, dtype):
    """AdamW in one kernel, or operator by operator: over 16 tensors, step after step, so that the host does not show."""
    points = []
    passes_over = ADAM_READS_AND_WRITES if access == "updated" else FOREACH_PASSES
    for elements in extents.updated:
        parameters = [meter.normal(elements // 16, dtype=dtype, grad=True) for _ in range(16)]
        for one in parameters:
            one.grad = torch.randn_like(one)
        optimizer = fused_adam(parameters) if access == "updated" else torch.optim.AdamW(parameters, lr=1e-4, foreach=True)
        size = passes_over * elements * parameters[0].element_size()
        points.append((size, meter.us([optimizer.step], access, captured=False)))
        del optimizer, parameters
        meter.release()
    return _pass_row(access, points, nominal, dtype=name)


def pass_rows(extents, nominal, half):
    def row(one):
        keys = {"columns": one.columns} if one.columns else {}
        return Row("passes", f"{one.access} {one.columns or ''}".strip(),
                   lambda meter: _pass_row(one.access, list(_points(meter, one, extents)), nominal, **keys))

    yield from map(row, _common_passes(extents, half))
    yield from _update_rows(extents, nominal, "updated")
    yield from map(row, _other_passes(extents, half))
    yield Row("passes", "scattered", lambda meter: _scattered(meter, extents, nominal))
    yield from _update_rows(extents, nominal, "foreach")


def _update_rows(extents, nominal, access):
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        yield Row("passes", f"{access} {name}", lambda meter, name=name, dtype=dtype: _updated(
            meter, extents, nominal, access, name, dtype))


# ---- attention

def _attention(meter, extents, width, tokens):
    if not hasattr(F, "scaled_dot_product_attention"):
        raise Absent("this PyTorch has no scaled_dot_product_attention")
    attend = lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=True)
    forward, backward = [], []
    for heads in extents.heads:
        inputs = [meter.normal(1, heads, tokens, width, grad=True) for _ in range(3)]
        detached = [one.detach() for one in inputs]
        flop = 2 * tokens ** 2 * width * heads
        forward.append((flop, meter.us([lambda: attend(*detached)], "attention")))
        out = attend(*inputs)
        grad = torch.randn_like(out)
        backward.append((2.5 * flop, meter.us([lambda: _gradients(out, inputs, grad)], "attention backward")))
        del out, grad, inputs, detached
        meter.release()
    fixed, rate = fixed_and_rate(forward)
    fixed_back, rate_back = fixed_and_rate(backward)
    return {"head_dim": width, "tokens": tokens, "tflop_per_s": rate / 1e6, "fixed_us": fixed,
            "backward_tflop_per_s": rate_back / 1e6, "backward_fixed_us": fixed_back}


def attention_rows(extents):
    for width, tokens in extents.attention:
        yield Row("attention", f"{width} x {tokens}",
                  lambda meter, width=width, tokens=tokens: _attention(meter, extents, width, tokens))
