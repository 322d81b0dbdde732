#!/usr/bin/env python3
# What each decision about a step is worth, predicted: over models of the zoo and shipped machines, how much longer a
# step takes without it.
#
#   scripts/checks/decisions.py [--tool build/dovetail] [MODEL...] [--clusters NAME...]
#
# One call of `explore` for each pair of model and machine. A row compares two policies, or the best of two lists of
# them: median, 90th percentile and most over the pairs, and in how many it is worth more than 1 %. Pairs on which
# a policy does not apply are left out of its row. Where parameters are gathered before each use memory counts: searched
# blocks hold no more at a time than a block for each layer, or as much as the row says.
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

MODELS = ("mlp resnet18 resnet50 resnet152 vgg16 googlenet inception_v4 densenet201 bert_base bert_large gpt2 gpt2_medium "
          "gpt2_large gpt2_xl llama2_7b").split()
TRANSFORMERS = ("bert", "gpt", "llama")  # what is wrapped layer by layer
CLUSTERS = ("a100x2_nv12 a100x4_pcie a100x8 a100x16_ib b200x8 b200x16_roce b200x32_efa h100x16_tcpx h100x16_tcpxo h200x8 "
            "mi300x8 mi300x16").split()

DDP = "torch-ddp:cap=25MiB,first=1MiB"
CAPS = [f"torch-ddp:cap={cap}MiB,first=1MiB" for cap in (1, 2, 5, 10, 15, 25, 40, 64, 100, 128)]
LIST = "exact:mode=copy,wait=end-of-backward"
SHARDED = "sharded:p=1,gather=next-forward,mode=view+exact"
CUT = [f"sharded:cap={cap}MiB,p=1,gather=next-forward" for cap in (8, 16, 32, 64, 100, 128)]
FSDP = "fsdp:blocks=layer,mode=copy,wait=end-of-backward"
FSDP_GROUPS = "fsdp:mode=copy,wait=end-of-backward+exact"
FSDP_MORE = "fsdp:mode=copy,wait=end-of-backward,memory=8GiB+exact"
MERGE = "gradient-merge:k=4"
# (what is decided, the policies without, the policies with, on which models)
DECISIONS = [
    ("one bucket size, the best of ten, for DDP's default", [DDP], CAPS, "all"),
    ("a list of sizes for the best one", CAPS, [LIST], "all"),
    ("views and waits at first use for copies and waits at the end", [LIST], ["exact"], "all"),
    ("sharded updates, searched, for all-reduces, searched", ["exact"], [SHARDED], "all"),
    ("their groups searched for the best of six sizes", CUT, [SHARDED], "all"),
    ("a second communicator", ["exact"], ["exact:streams=2"], "all"),
    ("fewer thread blocks of collectives", ["exact"], ["exact:ctas=4", "exact:ctas=8", "exact:ctas=16"], "all"),
    ("four micro-steps for one, by the micro-step", ["exact"], [MERGE], "all"),
    ("FSDP: blocks searched, in the same memory", [FSDP], [FSDP_GROUPS], "transformers"),
    ("FSDP: blocks searched, in 8 GiB", [FSDP], [FSDP_MORE], "transformers"),
    ("FSDP: two layers ahead for one", [FSDP], [FSDP.replace("layer,", "layer,forward=2,backward=2,")], "transformers"),
    ("FSDP: no reshard between forward and backward", [FSDP], [FSDP + ",reshard=no"], "transformers"),
    ("everything but accumulation, for DDP's default", [DDP], CAPS + [LIST, "exact", SHARDED, "exact:streams=2"] + CUT, "all"),
]


def names_of(tool, policies):
    """What the tool calls each policy, with the options that it has by itself."""
    names = {}
    for policy in policies:
        made = subprocess.run([tool, "plan", "--workload", "mlp", "--cluster", "a100x8", "--policy", policy, "--json"],
                              capture_output=True, text=True, check=True)
        names[policy] = json.loads(made.stdout)["policy"]
    return names


def steps_of(tool, model, cluster, names):
    """Microseconds a micro-step of each policy that applies."""
    made = subprocess.run([tool, "explore", "--workload", model, "--cluster", cluster, "--json"]
                          + [word for policy in names for word in ("--policies", policy)],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        print(f"{model} on {cluster}: {made.stderr.strip()}", file=sys.stderr)
        return {}
    rows = {row["policy"]: row["step_us"] / row["micro_steps"] for row in json.loads(made.stdout)["rows"]}
    return {policy: rows[name] for policy, name in names.items() if name in rows}


def row_of(what, without, having, pairs):
    gains = []
    for steps in pairs:
        before = [steps[policy] for policy in without if policy in steps]
        after = [steps[policy] for policy in having if policy in steps]
        if before and after:
            gains.append(100 * (min(before) / min(after) - 1))
    if not gains:
        return f"| {what} | - | - | - | 0 of 0 |"
    gains.sort()
    p90 = gains[int(0.9 * (len(gains) - 1))]
    return (f"| {what} | {statistics.median(gains):.2f} | {p90:.2f} | {gains[-1]:.1f} | "
            f"{sum(gain > 1 for gain in gains)} of {len(gains)} |")


def main():
    parser = argparse.ArgumentParser(description="what each decision is worth, predicted")
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS)
    parser.add_argument("--tool", default="build/dovetail")
    options = parser.parse_args()
    names = names_of(options.tool, dict.fromkeys(
        policy for _, without, having, _ in DECISIONS for policy in without + having))
    pairs = [(model, cluster) for model in options.models for cluster in options.clusters]
    with ThreadPoolExecutor(2) as pool:
        steps = list(pool.map(lambda pair: steps_of(options.tool, *pair, names), pairs))
    print("| decision | median % | 90 % | most | worth more than 1 % |\n| --- | ---: | ---: | ---: | ---: |")
    for what, without, having, on in DECISIONS:
        chosen = [found for (model, _), found in zip(pairs, steps)
                  if on == "all" or model.startswith(TRANSFORMERS)]
        print(row_of(what, without, having, chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
