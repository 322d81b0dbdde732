"""What issuing a kernel takes of the host: forward in Python, backward in C++, and updates of a fused optimizer.

A small Llama, whose kernels are over sooner than they are issued: the time until forward and backward have been issued, over the
kernels that a dispatch mode counts. Updates: one step of fused AdamW over many tiny tensors, a tensor.

SPDX-License-Identifier: Apache-2.0
"""

import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail_torch.describe import _storage, _tensors
from dovetail_torch.gpu_kernels import fused_adam

WIDTH, LAYERS, HEADS, WORDS, TOKENS = 64, 8, 2, 512, 64
UPDATED_TENSORS, UPDATED_ELEMENTS = 310, 64
WARM_UP, STEPS = 4, 20


class _Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def _attend(query, key, value):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(-1) @ value


class _Layer(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)
        self.query, self.key, self.value, self.out = (linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = linear(WIDTH, 2 * WIDTH), linear(WIDTH, 2 * WIDTH), linear(2 * WIDTH, WIDTH)
        self.before, self.after = _Norm(), _Norm()

    def forward(self, x, cosine, sine):
        def rotated(y):
            first, second = y.chunk(2, -1)
            return y * cosine + torch.cat((-second, first), -1) * sine

        normed = self.before(x)
        query, key, value = (part(normed).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        x = x + self.out(_attend(rotated(query), rotated(key), value).transpose(1, 2).reshape(x.shape))
        normed = self.after(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class _Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(_Layer() for _ in range(LAYERS))
        self.norm, self.head = _Norm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        angles = torch.arange(TOKENS, device=ids.device)[:, None] * torch.ones(WIDTH // HEADS, device=ids.device)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, WORDS).float(), ids.view(-1))


class _Launches(TorchDispatchMode):
    """Counts what is neither a view nor memory alone."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        read = {_storage(one)._cdata for one in _tensors([args, kwargs or {}])}
        writes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
        makes = any(_storage(one)._cdata not in read for one in _tensors(out))
        self.count += writes or (makes and "empty" not in func._schema.name)
        return out


def _launches(model, ids):
    """Of forward and backward."""
    with _Launches() as mode:
        loss = model(ids)
        forward = mode.count
        loss.backward()
    return forward, mode.count - forward


def _issue_us(meter, model, ids):
    """Of forward and backward, medians."""
    taken = []
    for _ in range(WARM_UP + STEPS):
        model.zero_grad(set_to_none=True)
        meter.wait()
        began = time.perf_counter()
        loss = model(ids)
        between = time.perf_counter()
        loss.backward()
        taken.append((between - began, time.perf_counter() - between))
    return [1e6 * statistics.median(part) for part in zip(*taken[WARM_UP:])]


def step_times(meter):
    """us of the host for a kernel."""
    model = _Llama().to(meter.device).to(meter.half)
    ids = meter.whole(WORDS, TOKENS).view(1, TOKENS)
    forward, backward = _issue_us(meter, model, ids)
    launches, launches_back = _launches(model, ids)
    if launches_back == 0:  # a PyTorch whose modes do not reach the threads of backward
        return {"run_op_us": forward / launches}
    return {"run_op_us": forward / launches, "backward_op_us": backward / launches_back}


def update_times(meter):
    """us of the host for a parameter."""
    parameters = [meter.normal(UPDATED_ELEMENTS, grad=True) for _ in range(UPDATED_TENSORS)]
    for one in parameters:
        one.grad = torch.randn_like(one)
    optimizer = fused_adam(parameters)
    taken = []
    for _ in range(WARM_UP + STEPS):
        meter.wait()
        began = time.perf_counter()
        optimizer.step()
        taken.append(time.perf_counter() - began)
    return {"update_op_us": 1e6 * statistics.median(taken[WARM_UP:]) / UPDATED_TENSORS}
