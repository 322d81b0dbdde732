"""Known models written in plain PyTorch, for scripts/checks/check_torch.py: their parameters and FLOPs are those of the zoo.

SPDX-License-Identifier: Apache-2.0
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def attention(query, key, value):
    """One kernel where this PyTorch has it, else written out; no mask. Heads of keys may be fewer."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value)
    return written_out_attention(query, key, value)


def written_out_attention(query, key, value):
    return torch.softmax(query @ key.transpose(2, 3) / math.sqrt(query.shape[-1]), -1) @ value


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, tokens, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, 2)
        heads = (part.view(samples, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        x = x + self.c_proj(written_out_attention(*heads).transpose(1, 2).reshape(x.shape))
        return x + self.out(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt2(nn.Module):
    """The output layer is tied to the embedding."""

    def __init__(self, width=768, layers=12, heads=12, vocabulary=50257):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, key_value_heads):
        super().__init__()
        self.heads, kept = heads, width // heads * key_value_heads
        self.q_proj, self.k_proj = nn.Linear(width, width, bias=False), nn.Linear(width, kept, bias=False)
        self.v_proj, self.o_proj = nn.Linear(width, kept, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, cosine, sine):
        def rotated(y):
            first, second = y.chunk(2, -1)
            return y * cosine + torch.cat((-second, first), -1) * sine
        head = x.shape[-1] // self.heads
        query, key, value = (part(x).view(*x.shape[:2], -1, head).transpose(1, 2)
                             for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attention(rotated(query), rotated(key), value).transpose(1, 2).reshape(x.shape))


class LlamaMlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, key_value_heads, inner):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(width, heads, key_value_heads), LlamaMlp(width, inner)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)

    def forward(self, x, **rotary):
        x = x + self.self_attn(self.input_layernorm(x), **rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """As Hugging Face's LlamaForCausalLM has its modules."""

    def __init__(self, width=4096, layers=32, heads=32, key_value_heads=32, inner=11008, vocabulary=32000):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, width)
        self.model.layers = nn.ModuleList(LlamaLayer(width, heads, key_value_heads, inner) for _ in range(layers))
        self.model.norm, self.lm_head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head = width // heads

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=x.device, dtype=torch.float32)
        angles = positions[:, None] @ torch.ones(1, self.head // 2, device=x.device)
        angles = torch.cat((angles, angles), -1)
        for layer in self.model.layers:
            x = layer(x, cosine=angles.cos().to(x.dtype), sine=angles.sin().to(x.dtype))
        return self.lm_head(self.model.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or before != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        blocks, before = [], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for block in range(depth):
                blocks.append(Bottleneck(before, 64 << stage, 2 if stage > 0 and block == 0 else 1))
                before = 256 << stage
        self.layers, self.avgpool, self.fc = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d(1), nn.Linear(before, 1000)

    def forward(self, images):
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))
