#!/usr/bin/env bash
# The main job on real input, from a bare checkout on: calibrates this machine, explores the bucket
# groupings of a real workload, picks the best plan, executes it and the usual defaults on two real
# ranks, prints predicted beside measured, and leaves a Perfetto file with both.
#
#   scripts/demo.sh             everything; about a minute and a half once built
#   scripts/demo.sh --short     fewer plans and steps, for tests: the same path, rougher figures
#
# As root the two ranks talk over a shaped link (scripts/campaigns/testbed.sh), so that communication takes time
# as it does between machines; otherwise they pace their traffic themselves at the same rate, which
# needs no privilege (scripts/campaigns/compare_links.sh holds both against each other). The demo says which.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."

rate=1gbit
workload=mlp-1000mbit
budget=8s
op_steps=6
rounds=2
steps=6
policies=(exact torch-ddp:cap=25MiB,first=1MiB per-tensor one-bucket no-overlap)
if [[ ${1:-} == --short ]]; then
  budget=3s
  op_steps=3
  rounds=1
  steps=2
  policies=(exact torch-ddp:cap=25MiB,first=1MiB no-overlap)
elif (($# > 0)); then
  echo "usage: scripts/demo.sh [--short]" >&2
  exit 2
fi

headline() { printf '\n==== %s\n' "$*"; }

headline "setup"
scripts/setup.sh
headline "build"
started=$SECONDS
# The tool alone, and each header read once: half the time, the same machine code where it matters. A
# build that is already configured stays as it is.
[[ -f build/CMakeCache.txt ]] || cmake --preset tool --log-level=NOTICE
cmake --build build --target dovetail -j "$(nproc)"
dovetail=build/dovetail
out=build/demo
rm -rf "$out"
mkdir -p "$out"

link=(--rate "$rate")
if ((EUID == 0)) && scripts/campaigns/testbed.sh up "$rate"; then
  trap 'scripts/campaigns/testbed.sh down >/dev/null' EXIT
  link=(--netns dovetail)
  echo "the two ranks talk over a shaped link of $rate"
else
  echo "not root, or no network namespaces here: no shaped link; the two ranks pace their traffic"
  echo "themselves at $rate"
fi

headline "calibrate this machine (kernels, collectives, copies, host, contention)"
"$dovetail" calibrate --workload "$workload" --ranks 2 "${link[@]}" --budget "$budget" \
  --op-steps "$op_steps" "${policies[@]/#/--policy=}" -o "$out/here.json"

headline "explore: every fusion threshold and policy for $workload on this machine (predicted)"
"$dovetail" explore --workload "$workload" --cluster "$out/here.json" --plot

headline "plan: the best one, and what people use"
plans=()
traces=()
index=0
for policy in "${policies[@]}"; do
  plan=$out/plan$index.json
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" --policy "$policy" -o "$plan" \
    --trace "$out/predicted$index.json"
  plans+=(--plan "$plan")
  traces+=(--trace "$out/measured$index.json")
  index=$((index + 1))
done

headline "run: all of them for real on two ranks, interleaved, every gradient element checked"
"$dovetail" run "${plans[@]}" "${traces[@]}" --ranks 2 "${link[@]}" --warmup 1 --steps "$steps" \
  --rounds "$rounds" --calibrate-between --cluster "$out/here.json"

headline "compare: the best plan, predicted beside measured"
"$dovetail" compare "$out/predicted0.json" "$out/measured0.json" --timeline \
  --perfetto "$out/perfetto.json"
echo "from the build on: $((SECONDS - started)) s"
