#!/usr/bin/env python3
"""Writes tables of measured matrix products (models/gemm/*.csv) from the parquet files of aiconfigurator.

    scripts/import_gemm_tables.py CLONE          needs pyarrow; CLONE: ai-dynamo/aiconfigurator at 095f58a51

Only those that TensorRT-LLM ran by PyTorch: products of fp8 and fp4, in which its time to cast the first matrix is contained, and GB200's
of bf16. The other tables of bf16 are older and were written by hand (models/gemm/README.md).

SPDX-License-Identifier: Apache-2.0
"""
import io
import pathlib
import subprocess
import sys

import pyarrow.parquet

DATA = "aic-core/src/aiconfigurator_core/systems/data"
VERSION = "trtllm/1.3.0rc20"
SYSTEMS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "gb200": "gb200", "gb300": "gb300",
           "l40s": "l40s"}
TYPES = {"-fp8": "fp8", "-fp4": "nvfp4"}


def rows_of(clone, system):
    path = f"{DATA}/{system}/gemm/{VERSION}/gemm_perf.parquet"
    blob = subprocess.run(["git", "-C", clone, "show", f"HEAD:{path}"], check=True, capture_output=True).stdout
    return pyarrow.parquet.read_table(io.BytesIO(blob)).to_pylist()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(__file__).resolve().parent.parent / "models" / "gemm"
    for device, system in SYSTEMS.items():
        measured = rows_of(sys.argv[1], system)
        types = dict(TYPES, **({"": "bfloat16"} if device == "gb200" else {}))
        for suffix, dtype in types.items():
            us = {(row["m"], row["n"], row["k"]): row["latency"] * 1e3
                  for row in measured if row["gemm_dtype"] == dtype and row["m"] % 256 == 0}
            if us:
                lines = [f"{m},{n},{k},{time:.5g}\n" for (m, n, k), time in sorted(us.items())]
                (folder / f"{device}{suffix}.csv").write_text("m,n,k,us\n" + "".join(lines))
                print(device + suffix, len(us))


main()
