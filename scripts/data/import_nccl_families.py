#!/usr/bin/env python3
"""Writes the cluster files of families, NAMExN, from public tables: models/clusters/{a100,h100,h200,b200,b300,gb200,gb300,
l40s,rtx_pro_6000}.json.

    import_nccl_families.py nccl_times.csv collective_bandwidth_by_nodes.csv OUTPUT_DIRECTORY

The first table has one row per system, NCCL version, collective, element type, ranks, bytes and time, all in one
node: rows of the newest version in f16 are copied. From its largest group come the rates of a node: what its largest
message takes beyond the latency that models/costs/topology.h states.

The second has the bus bandwidth of 1 GiB on 1 to 64 nodes of eight H100 with EFA. From the best runs of all-gather and reduce-scatter on 4 nodes and
more comes what a block costs a link there, by least squares of relative errors; it is printed, for models/clusters/h100_efa.json, which is of h100:

    T - (n - 1) / n S / (rate of a node) = (n - 1) block
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import csv
import pathlib
import statistics

from import_nccl_tests import HOST, contention_of, write

KINDS = {"all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter",
         "all_gather": "all-gather", "alltoall": "all-to-all"}
NETWORK_HOP_US = 26  # of a100x16_ib: the one with the least log errors over all sizes of that table
NODE_HOP_US = 3.4  # NCCL's tuning.cc, NVLink, Simple
PCIE_HOP_US = 5.7  # likewise, PCIe
BASE_US = 8.4
AICONFIGURATOR = ("github.com/ai-dynamo/aiconfigurator : src/aiconfigurator/systems/data/{}/nccl "
                  "(at 095f58a51)")

# Vendor peaks, dense: TFLOP/s by dtype, GB/s of memory, GiB of it. efficiency: median over bf16 products with m >= 2048 and
# n, k >= 1024 in the gemm tables of the same origin. network: GB/s of a rank's interface for large messages.
FAMILIES = {
    "a100": dict(gpu="ampere", system="a100_sxm", nccl="2.27.3", peaks=(19.5, 156, 312), memory=2039, capacity=80,
                 efficiency=.78, node_ranks=8, network=23.6,
                 words="nodes of eight A100 SXM, NVLink 3, 200 Gb/s per GPU",
                 has_own_hop=True,
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


def network_block(path, rate):
    """What a block costs a link between nodes, in us."""
    size = 2**30
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ranks = 8 * int(row["nodes"])
            if row["collective"] == "AllReduce" or ranks < 32:
                continue
            wire = (ranks - 1) / ranks * size
            us = wire / float(row["high"]) / 1e3
            rows.append(((ranks - 1) / us, (us - wire / rate / 1e3) / us, us))
    block = sum(per * rest for per, rest, _ in rows) / sum(per * per for per, _, _ in rows)
    for per, rest, us in rows:
        print(f"  {us:7.0f} us measured, {100 * (per * block - rest):+.1f} %")
    return block


def compute_words(name, products):
    """Where the times of kernels come from; `products`: whose measured ones."""
    if not products:
        return "vendor peaks times an assumed efficiency; uncalibrated; f32 is the rate without tensor cores"
    whose = "" if products == name else f" on {products}"
    return (f"bf16 and f16 products as public measurements{whose} have them (models/rates/gemm); other work by vendor peaks times "
            "the median efficiency of those, uncalibrated; f32 is the rate without tensor cores")


def family(name, nccl_times):
    about = FAMILIES[name]
    tables = rows_of(nccl_times, about["system"], about["nccl"])
    of_node = rows_of(nccl_times, about.get("node_of", about["system"]), about["nccl"])
    link, node_hop = about.get("link", "nvlink"), about.get("hop", NODE_HOP_US)
    gathered = statistics.mean(node_rate(of_node, kind, node_hop) for kind in ("all_gather", "reduce_scatter"))
    reduced = node_rate(of_node, "all_reduce", node_hop)
    node = {"bytes_per_s": round(gathered, 0 if gathered > 10 else 1) * 1e9, "hop_us": node_hop}
    if reduced > 1.1 * gathered:
        node["all_reduce_bytes_per_s"] = round(reduced) * 1e9
    interface = about.get("interface", "rate: 46 to 48 GB/s are expected of 400 Gb/s, NVIDIA/nccl-tests#290")
    ranks = max(n for _, n in tables)
    products = about.get("products", name)
    latency = "" if "has_own_hop" in about else "; hop: of InfiniBand between two nodes of A100 (a100x16_ib), no table of this machine"
    return {
        "schema": "dovetail.cluster/1", "kind": "cluster", "name": name,
        "origin": AICONFIGURATOR.format(about["system"]),
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
            "gpu": about.get("gpu", "hopper"),
            "levels": {link: {"ranks": about["node_ranks"], **node},
                       "network": {"bytes_per_s": about["network"] * 1e9, "hop_us": NETWORK_HOP_US,
                                   "start_us": 0}}},
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
    h100 = rows_of(options.nccl_times, FAMILIES["h100"]["system"], FAMILIES["h100"]["nccl"])
    rate = statistics.mean(node_rate(h100, kind, NODE_HOP_US) for kind in ("all_gather", "reduce_scatter"))
    print(f"EFA: {network_block(options.bandwidth_by_nodes, rate):.1f} us a block")
    for name in FAMILIES:
        write(family(name, options.nccl_times), options.output_directory / (name + ".json"))


if __name__ == "__main__":
    main()
