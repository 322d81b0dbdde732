#!/usr/bin/env python3
"""Writes tables of measured matrix products and attention kernels (models/gemm/*.csv) from the parquet files of aiconfigurator.

    scripts/import_gemm_tables.py CLONE          needs pyarrow; CLONE: ai-dynamo/aiconfigurator at 095f58a51

Only those that TensorRT-LLM ran by PyTorch: products of fp8 and fp4, in which its time to cast the first matrix is contained, and GB200's
of bf16. The other tables of bf16 are older and were written by hand (models/gemm/README.md). Of attention (attention.csv) each row is the median
over batches, heads and key-value heads of what vLLM's causal forward pass reached, of calls with 0.1 TFLOP and more.

SPDX-License-Identifier: Apache-2.0
"""
import collections
import io
import pathlib
import statistics
import subprocess
import sys

import pyarrow.parquet

DATA = "aic-core/src/aiconfigurator_core/systems/data"
VERSION = "trtllm/1.3.0rc20"
SYSTEMS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "gb200": "gb200", "gb300": "gb300",
           "l40s": "l40s"}
TYPES = {"-fp8": "fp8", "-fp4": "nvfp4"}
ATTENTION = {"a100": ("a100_sxm", "0.14.0"), **{gpu: (system, "0.24.0") for gpu, system in SYSTEMS.items()}}
HEADS = (64, 128, 256)
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
LEAST_FLOP = 1e11


def rows_of(clone, path):
    path = f"{DATA}/{path}_perf.parquet"
    blob = subprocess.run(["git", "-C", clone, "show", f"HEAD:{path}"], check=True, capture_output=True).stdout
    return pyarrow.parquet.read_table(io.BytesIO(blob)).to_pylist()


def write_products(clone, folder):
    for device, system in SYSTEMS.items():
        measured = rows_of(clone, f"{system}/gemm/{VERSION}/gemm")
        types = dict(TYPES, **({"": "bfloat16"} if device == "gb200" else {}))
        for suffix, dtype in types.items():
            us = {(row["m"], row["n"], row["k"]): row["latency"] * 1e3
                  for row in measured if row["gemm_dtype"] == dtype and row["m"] % 256 == 0}
            if us:
                lines = [f"{m},{n},{k},{time:.5g}\n" for (m, n, k), time in sorted(us.items())]
                (folder / f"{device}{suffix}.csv").write_text("m,n,k,us\n" + "".join(lines))
                print(device + suffix, len(us))


def write_attention(clone, folder):
    lines = []
    for device, (system, version) in sorted(ATTENTION.items()):
        reached = collections.defaultdict(list)
        for row in rows_of(clone, f"{system}/attention/vllm/{version}/context_attention"):
            tokens, head = row["isl"], row.get("head_dim", 128)
            flop = 2.0 * row["batch_size"] * row["num_heads"] * tokens * tokens * head
            is_plain = row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16" and not row.get("window_size")
            if is_plain and flop >= LEAST_FLOP and tokens in LENGTHS and head in HEADS:
                reached[head, tokens].append(flop / row["latency"] / 1e9)
        lines += [f"{device},{head},{tokens},{statistics.median(rates):.4g}\n"
                  for (head, tokens), rates in sorted(reached.items())]
    (folder / "attention.csv").write_text("device,head_dim,tokens,tflop_per_s\n" + "".join(lines))
    print("attention", len(lines))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(__file__).resolve().parent.parent / "models" / "gemm"
    write_products(sys.argv[1], folder)
    write_attention(sys.argv[1], folder)


main()
