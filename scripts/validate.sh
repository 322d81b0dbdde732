#!/usr/bin/env bash
# How good the predictions are here: calibrates once on the shaped link, then predicts and executes
# schedules that the calibration never saw, and prints every error, the mean, the worst, and the regret
# of the schedule that the prediction would have chosen. Where there is no root or there are no network
# namespaces the ranks pace their traffic themselves at the same rate; the report says so.
#
#   [sudo] scripts/validate.sh [--set SET] [--steps N] [--rounds N] [--keep NAME] [WORKLOAD] [RATE]
#
#   WORKLOAD    default mlp-1000mbit            RATE    default 1gbit
#   --set       groupings: 15 groupings x wait points (default), about 3 minutes
#               variants: the naive program, Paddle's pass, sharded updates (batches of 1 and 2,
#               parameters gathered after the update or in the next forward) and gradients summed over
#               2 and 4 micro-steps (reduced in every one, after the last, in the last), about 5 minutes
#   --steps, --rounds  measured steps of a schedule per round (4), and rounds (3)
#   --keep      also write traces/measured/NAME.json and NAME-machine.json
#
# Exit code 0 whatever the figures are: accuracy is a report, not a pass mark. They mean something only
# where the run calls itself valid (a quiet machine).
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
workload=mlp-1000mbit
rate=1gbit
set_name=groupings
steps=4
rounds=3
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
    --rounds) rounds=$2 ;;
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
if ((EUID == 0)) && scripts/testbed.sh up "$rate"; then
  trap 'scripts/testbed.sh down >/dev/null' EXIT
  link=(--netns dovetail)
else
  echo "not root, or no network namespaces here: the ranks pace their traffic themselves at $rate"
fi

"$dovetail" calibrate --workload "$workload" --ranks 2 "${link[@]}" -o "$out/here.json"

arguments=()
for index in "${!policies[@]}"; do
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" \
    --policy "${policies[index]}" -o "$out/plan$index.json" --trace "$out/predicted$index.json" >/dev/null
  arguments+=(--plan "$out/plan$index.json" --trace "$out/measured$index.json")
done
"$dovetail" run "${arguments[@]}" --ranks 2 "${link[@]}" --warmup 1 --steps "$steps" \
  --rounds "$rounds" --json >"$out/run.json"

python3 - "$out/run.json" <<'PY'
import json
import sys

report = json.load(open(sys.argv[1]))
rows = report["rows"]
print(f"measured on {report['machine']}, {report['backend']}, {report['link']}")
print(f"{'policy':<60} {'buckets':>7} {'predicted ms':>12} {'measured ms':>11} {'spread':>7} {'error':>8}")
errors = []
for row in rows:
    error = row["predicted_step_us"] / row["measured_step_us"] - 1
    errors.append(abs(error))
    spread = (row["p90_us"] - row["p10_us"]) / row["measured_step_us"]
    print(f"{row['policy']:<60} {row['buckets']:>7} {row['predicted_step_us'] / 1e3:>12.2f}"
          f" {row['measured_step_us'] / 1e3:>11.2f} {spread:>6.1%} {error:>+8.2%}")
best = min(row["measured_step_us"] for row in rows)
chosen = min(rows, key=lambda row: row["predicted_step_us"])
wrong = sum(row["wrong_elements"] for row in rows)
checked = sum(row["checked_elements"] for row in rows)
ordered = total = 0
for a in rows:
    for b in rows:
        if a["measured_step_us"] > 1.02 * b["measured_step_us"]:
            total += 1
            ordered += a["predicted_step_us"] > b["predicted_step_us"]
print(f"mean absolute error {sum(errors) / len(errors):.2%}, worst {max(errors):.2%},"
      f" over {len(rows)} schedules")
print(f"chosen by prediction: {chosen['policy']}, measured {chosen['measured_step_us'] / best - 1:.2%}"
      f" above the best measured")
print(f"pairs that differ by more than 2 %: {ordered} of {total} in the right order")
print(f"{checked} gradient elements checked, {wrong} wrong")
print("measurement valid" if report["valid"] else "measurement NOT valid: " + "; ".join(report["why_not_valid"]))
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
