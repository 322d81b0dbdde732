#!/usr/bin/env bash
# Runs the benchmarks that the README's speed figures come from, and prints ratios taken in one run.
#
#   scripts/campaigns/bench.sh            builds if needed; about 3 minutes
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset release --log-level=NOTICE
cmake --build build --target dovetail sim_bench exact_bench editor_bench -j "$(nproc)"

build/exact_bench --benchmark_min_time=0.2
build/editor_bench --benchmark_min_time=0.2
build/sim_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=5 \
  --benchmark_min_time=0.1 --benchmark_format=json --benchmark_report_aggregates_only=true \
  >build/sim_bench.json
python3 - build/sim_bench.json <<'PY'
import json
import sys

rows = {}
for entry in json.load(open(sys.argv[1]))["benchmarks"]:
    if entry.get("aggregate_name") == "median":
        rows[entry["run_name"]] = entry["ns_per_rank_op"]
    elif entry.get("error_occurred"):
        sys.exit(f"{entry['name']}: {entry['error_message']}")
print("CPU ns per rank-op, medians of 5; makespans of all loops were checked")
print(f"{'ops/ranks':>12} {'minimal loop':>13} {'event loop':>11} {'ratio':>6}"
      f" {'minimal pass':>13} {'fast path':>10} {'ratio':>6}")
for ops in (100, 1000, 10000, 100000):
    for ranks in (1, 8, 64):
        at = lambda loop: rows[f"{loop}/{ops}/{ranks}"]
        print(f"{ops:>8}/{ranks:<3} {at('binary_heap'):>13.2f} {at('ours_contended'):>11.2f}"
              f" {at('ours_contended') / at('binary_heap'):>6.2f}"
              f" {at('program_order'):>13.2f} {at('ours_program_order'):>10.2f}"
              f" {at('ours_program_order') / at('program_order'):>6.2f}")
PY
