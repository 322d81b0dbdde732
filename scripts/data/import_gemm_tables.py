#!/usr/bin/env python3
"""Writes tables of measured matrix products and attention kernels (models/rates/gemm/*.csv) from the parquet files of aiconfigurator.

    scripts/data/import_gemm_tables.py CLONE          needs pyarrow; CLONE: ai-dynamo/aiconfigurator at 095f58a51

Products of bf16: of each shape the median of the runs whose collectors fill both matrices with random numbers (collector/*/collect_gemm.py there).
vLLM's leaves its weights as they were allocated; multiplying by zeros takes less power, which GPUs turn into clock (models/rates/gemm/README.md).
Products of fp8 and fp4 are TensorRT-LLM's, run by PyTorch, in which its time to cast the first matrix is contained. Of attention (attention.csv)
each row is the median over batches, heads and key-value heads of what vLLM's causal forward pass reached, of calls with 0.1 TFLOP and more.

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
NARROW_RUN = "trtllm/1.3.0rc20"
BF16_RUNS = ("sglang/0.5.10", "sglang/0.5.14", NARROW_RUN)  # of SYSTEMS, in full
A100_RUNS = ("sglang/0.5.10",)
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


def products_of(clone, system, run, dtype):
    return {(row["m"], row["n"], row["k"]): row["latency"] * 1e3
            for row in rows_of(clone, f"{system}/gemm/{run}/gemm")
            if row["gemm_dtype"] == dtype and row["m"] % 256 == 0}


# Of the shapes that all runs have.
def median_of(runs):
    return {shape: statistics.median(us[shape] for us in runs)
            for shape in runs[0] if all(shape in us for us in runs)}


def write_products(folder, name, us):
    lines = [f"{m},{n},{k},{time:.5g}\n" for (m, n, k), time in sorted(us.items())]
    (folder / f"{name}.csv").write_text("m,n,k,us\n" + "".join(lines))
    print(name, len(us))


def write_all_products(clone, folder):
    for device, system in {"a100": "a100_sxm", **SYSTEMS}.items():
        runs = A100_RUNS if device == "a100" else BF16_RUNS
        write_products(folder, device, median_of([products_of(clone, system, run, "bfloat16") for run in runs]))
    for device, system in SYSTEMS.items():
        for suffix, dtype in TYPES.items():
            us = products_of(clone, system, NARROW_RUN, dtype)
            if us:
                write_products(folder, device + suffix, us)


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
    folder = pathlib.Path(__file__).resolve().parents[2] / "models" / "gemm"
    write_all_products(sys.argv[1], folder)
    write_attention(sys.argv[1], folder)


main()
