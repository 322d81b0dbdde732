#!/usr/bin/env python3
"""Writes the cluster files of families, NAMExN, from public tables: models/clusters/{a100,h100,h200,b200,b300,gb200,gb300,
l40s,rtx_pro_6000}.json.

    import_nccl_families.py nccl_times.csv collective_bandwidth_by_nodes.csv OUTPUT_DIRECTORY

The first table has one row per system, NCCL version, collective, element type, ranks, bytes and time, all in one
node: rows of the newest version in f16 are copied. From its largest group come the rates of a node: what its largest
message takes beyond the latency that models/costs/topology.h states.

The second has the bus bandwidth of 256 MiB on 1 to 64 nodes of eight H100: the envelope of that family's network. From the best runs of all-gather and
reduce-scatter on 2 nodes and more come hop and start of the network, by least squares of relative errors:

    T - (n - 1) / n S / (8 rate) - (n - m) hop of a node = start + (m - 1) hop
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import csv
import pathlib
import statistics

from import_nccl_tests import HOST, contention_of, write

KINDS = {"all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter",
         "all_gather": "all-gather", "alltoall": "all-to-all"}
NODE_HOP_US = 3.4  # NCCL's tuning.cc, NVLink, Simple
PCIE_HOP_US = 5.7  # likewise, PCIe
BASE_US = 8.4
AICONFIGURATOR = ("github.com/ai-dynamo/aiconfigurator : src/aiconfigurator/systems/data/{}/nccl "
                  "(at 095f58a51)")
ULTRASCALE = ("github.com/vinjn/nanotron-ultrascale-playbook : "
              "assets/data/benchmarks/benchmarks_interactive.html (at 924e4d0)")

# Vendor peaks, dense: TFLOP/s by dtype, GB/s of memory, GiB of it. efficiency: median over bf16 products with m >= 2048 and
# n, k >= 1024 in the gemm tables of the same origin. network: GB/s of a rank's interface for large messages.
FAMILIES = {
    "a100": dict(gpu="ampere", system="a100_sxm", nccl="2.27.3", peaks=(19.5, 156, 312), memory=2039, capacity=80,
                 efficiency=.78, node_ranks=8, network=23.6,
                 words="nodes of eight A100 SXM, NVLink 3, 200 Gb/s per GPU",
                 network_hop=26, network_start=0,
                 interface="rate: all-reduce of 8 GiB over two nodes, a100x16_ib; hop: the one with the least log errors over all sizes of "
                           "that table, without a start"),
    "h100": dict(system="h100_sxm", nccl="2.29.2", peaks=(67, 495, 989), memory=3350, capacity=80,
                 efficiency=.74, node_ranks=8, network=48,
                 words="nodes of eight H100 SXM, NVLink 4, 400 Gb/s per GPU"),
    "h200": dict(system="h200_sxm", nccl="2.29.2", peaks=(67, 495, 989), memory=4800, capacity=141,
                 efficiency=.72, node_ranks=8, network=48,
                 words="nodes of eight H200, NVLink 4, 400 Gb/s per GPU"),
    "b200": dict(gpu="blackwell", system="b200_sxm", nccl="2.29.2", peaks=(75, 1125, 2250), memory=8000, capacity=180,
                 efficiency=.65, node_ranks=8, network=48,
                 words="nodes of eight B200, NVLink 5, 400 Gb/s per GPU"),
    "gb200": dict(gpu="blackwell", system="gb200", nccl="2.29.2", peaks=(80, 1250, 2500), memory=8000, capacity=186,
                  efficiency=.64, node_ranks=64, network=48, node_of="b200_sxm",
                  words="64 GPUs of each NVL72 domain, as jobs use it, which counts as one node; "
                        "400 Gb/s per GPU"),
    "b300": dict(gpu="blackwell", system="b300_sxm", nccl="2.29.2", peaks=(75, 1125, 2250), memory=8000, capacity=288,
                 efficiency=.72, node_ranks=8, network=96, products="gb300",
                 words="nodes of eight B300, NVLink 5, 800 Gb/s per GPU",
                 interface="rate: 800 Gb/s are taken to carry twice the 48 GB/s of 400, not measured"),
    "gb300": dict(gpu="blackwell", system="gb300", nccl="2.29.2", peaks=(80, 1250, 2500), memory=8000, capacity=288,
                  efficiency=.72, node_ranks=64, network=96, node_of="b300_sxm",
                  words="64 GPUs of each NVL72 domain, as jobs use it, which counts as one node; "
                        "800 Gb/s per GPU",
                  interface="rate: 800 Gb/s are taken to carry twice the 48 GB/s of 400, not measured"),
    "l40s": dict(gpu="ampere", system="l40s", nccl="2.27.3", peaks=(91.6, 183, 362), memory=864, capacity=48,
                 efficiency=.55, node_ranks=8, network=23.6, link="pcie", hop=PCIE_HOP_US,
                 remark="; that node moves 6 GB/s among four GPUs and 1 to 2 among eight, as one whose GPUs have no access to each other's memory",
                 words="nodes of eight L40S, PCIe 4, 200 Gb/s per GPU",
                 interface="rate: as a100's, not measured"),
    "rtx_pro_6000": dict(gpu="blackwell", system="rtx_pro_6000_server", nccl="2.29.2", peaks=(120, 252, 504), memory=1597,
                         capacity=96, efficiency=.5, node_ranks=8, network=23.6, link="pcie", hop=PCIE_HOP_US,
                         products=None, words="nodes of eight RTX PRO 6000 Blackwell Server Edition, PCIe 5, 200 Gb/s per GPU",
                         interface="rate: as a100's, not measured"),
}


def rows_of(path, system, nccl):
    """{(collective, ranks): [(bytes, us), ...]} of one system."""
    found = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["system"], row["nccl"], row["dtype"]) != (system, nccl, "f16"):
                continue
            key = (row["collective"], int(row["ranks"]))
            found.setdefault(key, []).append((int(row["bytes"]), float(row["us"])))
    return {key: sorted(points) for key, points in found.items()}


def node_rate(tables, collective, hop):
    """Bus bandwidth beyond the ring's latency, GB/s, of the largest message and group."""
    ranks = max(n for kind, n in tables if kind == collective)
    size, us = tables[collective, ranks][-1]
    rounds = 2 if collective == "all_reduce" else 1
    latency = BASE_US + rounds * (ranks - 1) * hop
    return rounds * (ranks - 1) / ranks * size / (us - latency) / 1e3


def envelope(path):
    """Worst, mean and best bus bandwidth by collective and nodes, as the cluster file has it."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    words = {"AllReduce": "all-reduce", "AllGather": "all-gather", "ReduceScatter": "reduce-scatter"}
    return [{"collective": words[row["collective"]], "nodes": int(row["nodes"]),
             **{f"{word}_bytes_per_s": round(float(row[column]) * 1e3) * 1e6
                for word, column in (("worst", "low"), ("mean", "mean"), ("best", "high"))}}
            for row in rows]


def network_latency(path, rate):
    """Start and hop in us."""
    size = 256 * 2**20
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            nodes = int(row["nodes"])
            if row["collective"] == "AllReduce" or nodes < 2:
                continue
            ranks = 8 * nodes
            wire = (ranks - 1) / ranks * size
            us = wire / float(row["high"]) / 1e3
            rest = us - wire / (8 * rate) / 1e3 - (ranks - nodes) * NODE_HOP_US
            rows.append((1 / us, (nodes - 1) / us, rest / us))
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    start = (ay * bb - by * ab) / (aa * bb - ab * ab)
    hop = (by * aa - ay * ab) / (aa * bb - ab * ab)
    for row in rows:
        print(f"  {1 / row[0]:7.0f} us measured, {100 * (row[0] * start + row[1] * hop - row[2]):+.1f} %")
    return start, hop


def compute_words(name, products):
    """Where the times of kernels come from; `products`: whose measured ones."""
    if not products:
        return "vendor peaks times an assumed efficiency; uncalibrated; f32 is the rate without tensor cores"
    whose = "" if products == name else f" on {products}"
    return (f"bf16 and f16 products as public measurements{whose} have them (models/rates/gemm); other work by vendor peaks times "
            "the median efficiency of those, uncalibrated; f32 is the rate without tensor cores")


def family(name, nccl_times, bandwidth_by_nodes, start, hop):
    about = FAMILIES[name]
    tables = rows_of(nccl_times, about["system"], about["nccl"])
    of_node = rows_of(nccl_times, about.get("node_of", about["system"]), about["nccl"])
    link, node_hop = about.get("link", "nvlink"), about.get("hop", NODE_HOP_US)
    gathered = statistics.mean(node_rate(of_node, kind, node_hop) for kind in ("all_gather", "reduce_scatter"))
    reduced = node_rate(of_node, "all_reduce", node_hop)
    node = {"link": link, "bytes_per_s": round(gathered, 0 if gathered > 10 else 1) * 1e9, "hop_us": node_hop}
    if reduced > 1.1 * gathered:
        node["all_reduce_bytes_per_s"] = round(reduced) * 1e9
    interface = about.get("interface", "rate: 46 to 48 GB/s are expected of 400 Gb/s, NVIDIA/nccl-tests#290")
    ranks = max(n for _, n in tables)
    products = about.get("products", name)
    latency = "; hop and start: best runs of 256 MiB on 2 to 64 nodes of eight H100"
    if name == "h100":
        latency += "; envelope: worst, mean and best of these runs, on a shared network"
    elif "network_hop" in about:
        latency = ""
    else:
        latency += ", no table of this machine"
    return {
        "schema": "dovetail.cluster/1", "kind": "cluster", "name": name,
        "origin": AICONFIGURATOR.format(about["system"]) + "; network: " + ULTRASCALE,
        "licence": "facts: published measurements under Apache-2.0; no text reproduced",
        "notes": {
            "system": about["words"],
            "collectives": f"nccl-tests, NCCL {about['nccl']}, f16, inside one node" + about.get("remark", ""),
            "topology": "node: bus bandwidth of the largest message and group"
                        + (f" of {about['node_of']}" if "node_of" in about else "")
                        + f"; network: {interface}" + latency,
            "compute": compute_words(name, products),
            "host": "PyTorch's own: medians of public profiler traces on V100 and A100, from one launch of a kernel to "
                    "the next and of one call of a collective; uncalibrated",
            "contention": contention_of(name)[1],
        },
        "ranks": 8, "backend": "cuda",
        "collectives": [
            {"collective": word, "ranks": n, "nodes": 1, "link": link,
             "points": [{"bytes": size, "isolated_us": us} for size, us in tables[kind, n]]}
            for kind, word in KINDS.items() for n in (2, 4, 8) if n <= ranks],
        "topology": {
            "node_ranks": about["node_ranks"],
            "gpu": about.get("gpu", "hopper"),
            "node": node,
            "network": {"link": "network", "bytes_per_s": about["network"] * 1e9,
                        "hop_us": about.get("network_hop", round(hop, 1)),
                        "start_us": about.get("network_start", round(start)),
                        **({"envelope": envelope(bandwidth_by_nodes)} if name == "h100" else {})}},
        "compute": {
            "gemm": {"flop_per_s": {dtype: rate * 1e12 for dtype, rate in zip(
                         ("f32", "tf32", "f16", "bf16"), (*about["peaks"], about["peaks"][-1]))},
                     "efficiency": about["efficiency"], **({"table": products} if products else {})},
            "memory_bytes_per_s": about["memory"] * 1e9, "kernel_overhead_us": 0,
            "memory_bytes": about["capacity"] * 2**30},
        "host": {**HOST, "run_op_us": 26, "collective_us": 70}, "contention": contention_of(name)[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nccl_times", type=pathlib.Path)
    parser.add_argument("bandwidth_by_nodes", type=pathlib.Path)
    parser.add_argument("output_directory", type=pathlib.Path)
    options = parser.parse_args()
    start, hop = network_latency(options.bandwidth_by_nodes, FAMILIES["h100"]["network"])
    for name in FAMILIES:
        write(family(name, options.nccl_times, options.bandwidth_by_nodes, start, hop), options.output_directory / (name + ".json"))


if __name__ == "__main__":
    main()
