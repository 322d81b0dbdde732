#!/usr/bin/env python3
"""Turns tables of nccl-tests results into cluster files for models/clusters.

    import_nccl_tests.py shipped CSV_DIRECTORY OUTPUT_DIRECTORY      # every file that we ship
    import_nccl_tests.py one -o mine.json --name mine --gpu h100-sxm --ranks 8 \\
        --origin "own run, 2025-01-31" --table all-reduce=my_sweep.csv

A table is a CSV file with the columns size_bytes, oop_time_us, ip_time_us; others are ignored. The
in-place time is taken (gradients are reduced in place), the out-of-place time where that is all
there is. Rows without a usable time are dropped; of a size that stands more than once the median
is kept. nccl-tests launches back to back and divides: that one time stands for both, the lone and
the queued collective, until somebody measures them apart.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import csv
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCE = "facts: published measurements; no text reproduced"
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather")

# Vendor peaks, dense: TFLOP/s by dtype, GB/s of memory, and GiB of it.
GPUS = {
    "a100-sxm-40": ({"f32": 19.5, "tf32": 156, "f16": 312, "bf16": 312}, 1555, 40),
    "a100-sxm-80": ({"f32": 19.5, "tf32": 156, "f16": 312, "bf16": 312}, 2039, 80),
    "a100-pcie-80": ({"f32": 19.5, "tf32": 156, "f16": 312, "bf16": 312}, 1935, 80),
    "h100-sxm": ({"f32": 67, "tf32": 495, "f16": 989, "bf16": 989}, 3350, 80),
    "h200": ({"f32": 67, "tf32": 495, "f16": 989, "bf16": 989}, 4800, 141),
    "b200": ({"f32": 75, "tf32": 1125, "f16": 2250, "bf16": 2250}, 8000, 180),
    "mi300x": ({"f32": 163.4, "f16": 1307, "bf16": 1307}, 5300, 192),
}
F32_MEANS = {"mi300x": "f32 is the FP32 matrix rate"}

# Medians of public profiler traces on V100 and A100; see notes.host.
HOST = {"kind": "async", "run_op_us": 6, "collective_us": 15, "event_us": 1.5, "copy_us": 8,
        "launch_latency_us": 7, "launch_gap_us": 1}
PUBLISHED_MEAN = {"compute_slowdown": 1.19, "collective_slowdown": 1, "collective_cpu_us": 0}
# Multiprocessors, and NCCL's thread blocks of a ring in a node, of an all-reduce there, of either over several nodes
# (models/costs/multiprocessors.h).
CTAS = {"a100": (108, 24, 24, 16), "h100": (132, 24, 16, 16), "h200": (132, 24, 16, 16), "b200": (148, 32, 24, 32),
        "gb200": (148, 32, 24, 32), "b300": (148, 32, 24, 32), "gb300": (148, 32, 24, 32)}

STAS = "github.com/stas00/ml-engineering : network/README.md (at 744d01e1)"
AZURE = "github.com/JingchaoZhang/JingchaoZhang.github.io : _posts/"
DSTACK = "github.com/dstackai/dstack : mkdocs/docs/examples/clusters/gcp.md (at 511c318c)"
AMD = "github.com/hisohara/ai-scripts : training/01_rccl-smoketest/README.md"
TORCH = "PyTorch all-reduce benchmark, NCCL 2.27.7"

# One entry per cluster file. `system` is for people; `table` is what the reader must know about the
# numbers themselves.
SHIPPED = [
    dict(name="a100x2_nv12", gpu="a100-pcie-80", ranks=2, nodes=1, date="2023-07-14",
         origin=AZURE + "2023-07-14-Azure NCCL Test on NCv4.md, fourth table",
         system="one Azure NC48 v4: two A100 PCIe joined by NVLink bridges",
         table="nccl-tests, without the vendor's graph file",
         tables={"all-reduce": "a100x2_1node_azure_nc48v4_nv12_allreduce.csv"}),
    dict(name="a100x4_pcie", gpu="a100-pcie-80", ranks=4, nodes=1, date="2023-07-14",
         origin=AZURE + "2023-07-14-Azure NCCL Test on NCv4.md, first table",
         system="one Azure NC96 v4: four A100 PCIe, NVLink only within pairs",
         table="nccl-tests",
         tables={"all-reduce": "a100x4_1node_azure_nc96v4_pcie_allreduce.csv"}),
    dict(name="a100x8", gpu="a100-sxm-80", ranks=8, nodes=1,
         origin=STAS + ', "Real network throughput"',
         system="one node, eight A100, NVLink 3; 80 GB cards assumed",
         table="nccl-tests, 50 iterations, one time column printed",
         tables={"all-reduce": "a100x8_1node_nvlink3_allreduce.csv"}),
    dict(name="a100x16_ib", gpu="a100-sxm-80", ranks=16, nodes=2, date="2023-09-11",
         origin=AZURE + "2023-09-11-NCCL test on AKS NDmV4 VM.md",
         system="two Azure ND96amsr A100 v4, 8 x 200 Gb/s InfiniBand each",
         table="nccl-tests",
         tables={"all-reduce": "a100x16_2node_azure_ndmv4_ib_allreduce.csv"}),
    dict(name="h100x16_tcpxo", gpu="h100-sxm", ranks=16, nodes=2,
         origin="all-reduce: github.com/lessizzmore/create-a3mega-ztan-fork : "
                "ztan-NCCL-test-result.markdown; all-gather: " + DSTACK,
         system="two GCP a3-megagpu-8g, eight H100 each, GPUDirect-TCPXO",
         table="nccl-tests; the two collectives come from different people's clusters",
         tables={"all-reduce": "h100x16_2node_gcp_a3mega_tcpxo_allreduce.csv",
                 "all-gather": "h100x16_2node_gcp_a3mega_tcpxo_allgather.csv"},
         origins={"all-reduce": "lessizzmore", "all-gather": "dstackai"}),
    dict(name="h100x16_tcpx", gpu="h100-sxm", ranks=16, nodes=2, origin=DSTACK,
         system="two GCP a3-highgpu-8g, eight H100 each, GPUDirect-TCPX",
         table="nccl-tests, 200 iterations, 8 MiB and up; only the all-gather is published: an "
               "all-reduce is taken as twice that, the reduce-scatter assumed equal to it",
         tables={"all-gather": "h100x16_2node_gcp_a3high_tcpx_allgather.csv"}),
    dict(name="h200x8", gpu="h200", ranks=8, nodes=1, origin=STAS,
         system="one node, eight H200, NVLink 4, in-switch reduction from 2 MiB",
         table=TORCH + "; times computed from size / algbw",
         tables={"all-reduce": "h200x8_1node_nvlink4_nvls_torch_allreduce.csv"}),
    dict(name="b200x8", gpu="b200", ranks=8, nodes=1,
         origin=STAS + ', "Inter-node speed depends on intra-node speed"',
         system="one AWS p6 node, eight B200, NVLink 5",
         table=TORCH + "; times computed from the published bus bandwidth",
         tables={"all-reduce": "b200x8_1node_aws_p6_torch_allreduce.csv"}),
    dict(name="b200x16_roce", gpu="b200", ranks=16, nodes=2, origin=DSTACK,
         system="two GCP A4 nodes, eight B200 each, RoCE",
         table="nccl-tests, 8 MiB and up",
         tables={"all-reduce": "b200x16_2node_gcp_a4_roce_allreduce.csv"}),
    dict(name="b200x32_efa", gpu="b200", ranks=32, nodes=4,
         origin=STAS + ', "Inter-node speed depends on intra-node speed"',
         system="four AWS p6 nodes, eight B200 and 8 x 400 Gb/s EFA each",
         table=TORCH + "; times computed from the published bus bandwidth, coarse up to 1 MiB",
         tables={"all-reduce": "b200x32_4node_aws_p6_efa_torch_allreduce.csv"}),
    dict(name="mi300x8", gpu="mi300x", ranks=8, nodes=1, origin=AMD,
         system="one node, eight MI300X", table="rccl-tests",
         tables={"all-reduce": "mi300x8_1node_rccl_allreduce.csv"}),
    dict(name="mi300x16", gpu="mi300x", ranks=16, nodes=2, origin=AMD,
         system="two nodes, eight MI300X and 8 RDMA NICs each, RCCL 2.22.3", table="rccl-tests",
         tables={"all-reduce": "mi300x16_2node_rccl_allreduce.csv"}),
]


def positive(text):
    """The number in a cell, or None where it is absent, no number, or not above 0."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 < value < float("inf") else None


def read_points(path):
    """Points of one table, sizes rising, each once."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or "size_bytes" not in rows[0]:
        sys.exit(f"{path}: expected a CSV table with a column size_bytes")
    times = {}
    for row in rows:
        time = positive(row.get("ip_time_us")) or positive(row.get("oop_time_us"))
        size = positive(row["size_bytes"])
        if time is not None and size is not None:
            times.setdefault(int(size), []).append(time)
    if len(times) < 2:
        sys.exit(f"{path}: expected usable times for at least 2 sizes, found {len(times)}")
    return [{"bytes": size, "isolated_us": statistics.median(times[size])}
            for size in sorted(times)]


def products_of(gpu):
    """The table of models/rates/gemm for this GPU: that of its SXM form."""
    name = gpu.split("-sxm")[0]
    return name if (ROOT / "models/rates/gemm" / f"{name}.csv").is_file() else None


def compute_section(gpu):
    peaks, memory, capacity = GPUS[gpu]
    table = {"table": products_of(gpu)} if products_of(gpu) else {}
    return {"gemm": {"flop_per_s": {dtype: rate * 1e12 for dtype, rate in peaks.items()},
                     "efficiency": 0.5, **table},
            "memory_bytes_per_s": memory * 1e9, "kernel_overhead_us": 0,
            "memory_bytes": capacity * 2**30}


def contention_of(gpu, nodes=1):
    """The section, and what the file says of it. On PCIe NCCL's channels are not known."""
    if (name := gpu.split("-sxm")[0]) not in CTAS:
        return PUBLISHED_MEAN, "published mean over training on 4 GPUs, arXiv 2507.03114; uncalibrated"
    count, ring, all_reduce, network = CTAS[name]
    if nodes > 1:
        ring = all_reduce = network
    section = {"count": count, "ctas": ring, "all_reduce_ctas": all_reduce, "network_ctas": network}
    return ({"multiprocessors": section}, "derived, not measured: NCCL's thread blocks and memory traffic beside compute "
                                          "(models/costs/multiprocessors.h)")


def topology_section(entry):
    """Of one node of eight, as its family has it (import_nccl_families.py), for what was not measured here."""
    family = ROOT / "models/clusters" / f"{entry['gpu'].split('-sxm')[0]}.json"
    if entry["nodes"] != 1 or entry["ranks"] != 8 or not family.is_file():
        return {}
    return {"topology": json.loads(family.read_text(encoding="utf-8"))["topology"]}


def cluster(entry, csv_directory):
    """The cluster file's content for one entry of SHIPPED, or one made from options."""
    f32 = F32_MEANS.get(entry["gpu"], "f32 is the rate without tensor cores")
    document = {"schema": "dovetail.cluster/1", "kind": "cluster", "name": entry["name"],
                "origin": entry["origin"], "licence": LICENCE}
    if "date" in entry:
        document["date"] = entry["date"]
    peaks = ("bf16 and f16 products as public measurements have them (models/rates/gemm); other work by vendor peaks times an "
             "assumed efficiency" if products_of(entry["gpu"]) else "vendor peak times assumed efficiency")
    document["notes"] = {
        "system": entry["system"],
        "collectives": entry["table"],
        "compute": f"{peaks}; uncalibrated; {f32}",
        "host": "medians of public profiler traces on V100 and A100; uncalibrated",
        "contention": contention_of(entry["gpu"], entry["nodes"])[1],
    }
    document.update({"ranks": entry["ranks"], "backend": "cuda"})
    document["collectives"] = [
        {"collective": collective, "ranks": entry["ranks"], "nodes": entry["nodes"],
         **({"origin": entry["origins"][collective]} if "origins" in entry else {}),
         "points": read_points(csv_directory / file)}
        for collective, file in entry["tables"].items()]
    document.update(topology_section(entry))
    document.update({"compute": compute_section(entry["gpu"]), "host": HOST,
                     "contention": contention_of(entry["gpu"], entry["nodes"])[0]})
    return document


def layout(value, indent=""):
    """JSON text in which every flat object or array that fits stands on one line."""
    inner = indent + " "
    children = value.values() if isinstance(value, dict) else value
    if all(not isinstance(child, (dict, list)) for child in children):
        flat = json.dumps(value, ensure_ascii=False)
        if len(indent) + len(flat) <= 96:
            return flat
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {text(child, inner)}" for key, child in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + indent + "}"
    return "[\n" + ",\n".join(inner + text(child, inner) for child in value) + "\n" + indent + "]"


def text(value, indent):
    if isinstance(value, (dict, list)):
        return layout(value, indent)
    return json.dumps(value, ensure_ascii=False)


def write(document, path):
    pathlib.Path(path).write_text(layout(document) + "\n", encoding="utf-8")
    points = sum(len(table["points"]) for table in document["collectives"])
    print(f"{path}: {points} points over {document['ranks']} ranks")


def entry_from_options(options):
    tables = {}
    for option in options.table:
        collective, _, file = option.partition("=")
        if collective not in COLLECTIVES or not file:
            sys.exit(f"--table {option}: expected COLLECTIVE=FILE with one of "
                     + ", ".join(COLLECTIVES))
        tables[collective] = file
    entry = dict(name=options.name, gpu=options.gpu, ranks=options.ranks, nodes=options.nodes,
                 origin=options.origin, system=options.system, table="nccl-tests", tables=tables)
    if options.date:
        entry["date"] = options.date
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    shipped = commands.add_parser("shipped", help="write every cluster file that we ship")
    shipped.add_argument("csv_directory", type=pathlib.Path)
    shipped.add_argument("output_directory", type=pathlib.Path)
    one = commands.add_parser("one", help="write one cluster file from your own tables")
    one.add_argument("-o", "--output", required=True)
    one.add_argument("--name", required=True)
    one.add_argument("--gpu", required=True, choices=sorted(GPUS))
    one.add_argument("--ranks", type=int, required=True)
    one.add_argument("--nodes", type=int, default=1)
    one.add_argument("--origin", required=True, help="who measured, where and when")
    one.add_argument("--system", default="", help="the machine in words")
    one.add_argument("--date", default="", help="YYYY-MM-DD of the measurement")
    one.add_argument("--table", action="append", required=True, help="COLLECTIVE=FILE.csv")
    options = parser.parse_args()
    if options.command == "one":
        write(cluster(entry_from_options(options), pathlib.Path()), options.output)
        return
    for entry in SHIPPED:
        write(cluster(entry, options.csv_directory),
              options.output_directory / (entry["name"] + ".json"))


if __name__ == "__main__":
    main()
