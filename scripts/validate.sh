#!/usr/bin/env bash
# How good the predictions are here: calibrates once on the shaped link, then executes schedules that the
# calibration never saw, measures costs again between the rounds, predicts the quiet and the typical step of
# each schedule from them, and prints every error, the mean, the worst, and the regret of the schedule that
# the prediction would have chosen. Where there is no root or there are no network namespaces the ranks pace
# their traffic themselves at the same rate; the report says so.
#
#   [sudo] scripts/validate.sh [--set SET] [--steps N] [--time TIME] [--disturb PERCENT:MS] [--cluster FILE]
#                              [--keep NAME] [WORKLOAD] [RATE]
#
#   WORKLOAD    default mlp-1000mbit            RATE    default 1gbit
#   --set       groupings: 15 groupings x wait points (default)
#               variants: the naive program, Paddle's pass, sharded updates (batches of 1 and 2,
#               parameters gathered after the update or in the next forward) and gradients summed over
#               2 and 4 micro-steps (reduced in every one, after the last, in the last)
#   --steps     measured steps of a schedule per round (3)
#   --time      rounds until both figures are known to 1 %, at most this long (4min)
#   --disturb   takes core 0 away for so many percent of the time in bursts of so many milliseconds
#               (scripts/disturb.sh), from the calibration on
#   --cluster   the calibration, if there is one already
#   --keep      also write traces/measured/NAME.json and NAME-machine.json
#
# Exit code 0 whatever the figures are: accuracy is a report, not a pass mark. The first line says how well
# the measured figures are known.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
workload=mlp-1000mbit
rate=1gbit
set_name=groupings
steps=3
time=4min
disturb=
cluster=
keep=
positional=()
while (($# > 0)); do
  if [[ $1 != --* ]]; then
    positional+=("$1")
    shift
    continue
  fi
  (($# > 1)) || { echo "validate.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --set) set_name=$2 ;;
    --steps) steps=$2 ;;
    --time) time=$2 ;;
    --disturb) disturb=$2 ;;
    --cluster) cluster=$2 ;;
    --keep) keep=$2 ;;
    *) echo "validate.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
workload=${positional[0]:-$workload}
rate=${positional[1]:-$rate}
out=build/validate
dovetail=build/dovetail
[[ -x $dovetail ]] || { echo "validate.sh: build first (cmake --preset release && cmake --build build)" >&2; exit 2; }

case $set_name in
  groupings)
    policies=(
      exact
      exact:wait=end-of-backward
      torch-ddp:cap=25MiB,first=1MiB
      torch-ddp:cap=8MiB,first=1MiB,mode=view,wait=first-use
      threshold:threshold=4MiB
      threshold:threshold=4MiB,wait=end-of-backward
      threshold:threshold=16MiB
      threshold:threshold=16MiB,scope=whole-stream
      threshold:threshold=24MiB,mode=copy
      per-tensor
      per-tensor:mode=copy,wait=end-of-backward
      one-bucket
      no-overlap
      no-overlap-per-tensor
      naive
    )
    ;;
  variants)
    policies=(
      naive
      source-first-fit
      source-improved
      sharded:cap=8MiB,p=1
      sharded:cap=8MiB,p=2
      sharded:cap=8MiB,p=1,gather=next-forward
      sharded:cap=8MiB,p=2,gather=next-forward
      sharded:cap=8MiB,p=1,k=2
      gradient-merge:cap=8MiB,k=2,sync=every
      gradient-merge:cap=8MiB,k=2,sync=after
      gradient-merge:cap=8MiB,k=2,sync=last
      gradient-merge:cap=8MiB,k=4,sync=every
      gradient-merge:cap=8MiB,k=4,sync=after
      gradient-merge:cap=8MiB,k=4,sync=last
    )
    ;;
  *) echo "validate.sh: --set is groupings or variants, not $set_name" >&2; exit 2 ;;
esac

rm -rf "$out"
mkdir -p "$out"
link=(--rate "$rate")
disturber=
is_shaped=
tidy_up() {
  [[ -z $disturber ]] || kill "$disturber"
  [[ -z $is_shaped ]] || scripts/testbed.sh down >/dev/null
}
trap tidy_up EXIT
if ((EUID == 0)) && scripts/testbed.sh up "$rate"; then
  is_shaped=yes
  link=(--netns dovetail)
else
  echo "not root, or no network namespaces here: the ranks pace their traffic themselves at $rate"
fi
if [[ -n $disturb ]]; then
  scripts/disturb.sh --core 0 --share "${disturb%:*}" --burst "${disturb#*:}" &
  disturber=$!
fi

if [[ -n $cluster ]]; then
  cp "$cluster" "$out/here.json"
else
  "$dovetail" calibrate --workload "$workload" --ranks 2 "${link[@]}" -o "$out/here.json"
fi

arguments=()
for index in "${!policies[@]}"; do
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" \
    --policy "${policies[index]}" -o "$out/plan$index.json" --trace "$out/predicted$index.json" >/dev/null
  arguments+=(--plan "$out/plan$index.json" --trace "$out/measured$index.json")
done
"$dovetail" run "${arguments[@]}" --ranks 2 "${link[@]}" --warmup 1 --steps "$steps" \
  --calibrate-between --cluster "$out/here.json" --time "$time" --json >"$out/run.json"

python3 - "$out/run.json" <<'PY'
import json
import sys

report = json.load(open(sys.argv[1]))
rows = report["rows"]
print(report["belief"])
print(f"measured on {report['machine']}, {report['backend']}, {report['link']}")
FIGURES = {"quiet": ("predicted_p10_us", "p10_us"), "typical": ("predicted_step_us", "measured_step_us")}
print(f"{'policy':<60} {'buckets':>7}", end="")
for name in FIGURES:
    print(f" {name + ' ms':>10} {'measured':>9} {'error':>7}", end="")
print(f" {'spread':>7}")
for row in rows:
    print(f"{row['policy']:<60} {row['buckets']:>7}", end="")
    for predicted, measured in FIGURES.values():
        error = row[predicted] / row[measured] - 1
        print(f" {row[predicted] / 1e3:>10.2f} {row[measured] / 1e3:>9.2f} {error:>+7.2%}", end="")
    print(f" {(row['p90_us'] - row['p10_us']) / row['measured_step_us']:>7.1%}")
for name, (predicted, measured) in FIGURES.items():
    errors = [abs(row[predicted] / row[measured] - 1) for row in rows]
    best = min(row[measured] for row in rows)
    chosen = min(rows, key=lambda row: row[predicted])
    pairs = [(a, b) for a in rows for b in rows if a[measured] > 1.02 * b[measured]]
    ordered = sum(a[predicted] > b[predicted] for a, b in pairs)
    print(f"{name} step: mean absolute error {sum(errors) / len(errors):.2%}, worst {max(errors):.2%},"
          f" over {len(rows)} schedules; {ordered} of {len(pairs)} pairs that differ by 2 % in order")
    print(f"  chosen by prediction: {chosen['policy']}, {chosen[measured] / best - 1:.2%} above the best measured")
for core in report["yardstick"]:
    print(f"yardstick, rank {core['rank']}, core {core['core']}: {core['taken_share']:.1%} of the core taken,"
          f" in bursts of about {core['burst_us'] / 1e3:.1f} ms")
print(f"the yardstick itself used {report['yardstick_cpu_share']:.2%} of a core")
wrong = sum(row["wrong_elements"] for row in rows)
checked = sum(row["checked_elements"] for row in rows)
print(f"{checked} gradient elements checked, {wrong} wrong")
print("a quiet machine" if report["valid"] else "not a quiet machine: " + "; ".join(report["why_not_valid"]))
PY

if [[ -n $keep ]]; then
  cp "$out/here.json" "traces/measured/$keep-machine.json"
  python3 - "$out/run.json" "traces/measured/$keep.json" <<'PY'
import json
import os
import sys

report = json.load(open(sys.argv[1]))
for row in report["rows"]:
    row["plan"] = os.path.basename(row["plan"])
with open(sys.argv[2], "w") as file:
    json.dump(report, file, indent=1)
    file.write("\n")
PY
  echo "kept: traces/measured/$keep.json, traces/measured/$keep-machine.json"
fi
