#!/usr/bin/env bash
# How good the predictions are here: calibrates once on the shaped link, then predicts and executes
# schedules that the calibration never saw (groupings x wait points), and prints every error, the mean,
# the worst, and the regret of the schedule that the prediction would have chosen.
#
#   sudo scripts/validate.sh [WORKLOAD] [RATE]    default mlp-1000mbit 1gbit; about 3 minutes
#
# Exit code 0 whatever the figures are: accuracy is a report, not a pass mark. They mean something only
# where the run calls itself valid (a quiet machine).
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
workload=${1:-mlp-1000mbit}
rate=${2:-1gbit}
out=build/validate
dovetail=build/dovetail
[[ -x $dovetail ]] || { echo "validate.sh: build first (cmake --preset release && cmake --build build)" >&2; exit 2; }
rm -rf "$out"
mkdir -p "$out"
scripts/testbed.sh up "$rate"
trap 'scripts/testbed.sh down >/dev/null' EXIT

"$dovetail" calibrate --workload "$workload" --ranks 2 --netns dovetail -o "$out/here.json"

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
arguments=()
for index in "${!policies[@]}"; do
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" \
    --policy "${policies[index]}" -o "$out/plan$index.json" --trace "$out/predicted$index.json" >/dev/null
  arguments+=(--plan "$out/plan$index.json" --trace "$out/measured$index.json")
done
"$dovetail" run "${arguments[@]}" --ranks 2 --netns dovetail --warmup 1 --steps 4 --rounds 3 --json \
  >"$out/run.json"

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
