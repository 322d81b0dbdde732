#!/usr/bin/env bash
# How good the predictions are here: calibrates once on the shaped link, then executes schedules that the
# calibration never saw, measures costs again between the rounds, predicts the quiet and the typical step of
# each schedule from them, and prints every error, the mean, the worst, and the regret of the schedule that
# the prediction would have chosen. Where there is no root or there are no network namespaces the ranks pace
# their traffic themselves at the same rate; the report says so.
#
#   [sudo] scripts/campaigns/validate.sh [--set SET] [--steps N] [--time TIME] [--disturb PERCENT:MS] [--cluster FILE]
#                              [--keep NAME] [WORKLOAD] [RATE]
#   sudo scripts/campaigns/validate.sh --cross FACTOR [--set SET] [--steps N] [--time TIME] [WORKLOAD] [RATE]
#
# The second form calibrates at RATE, predicts for a link FACTOR times as fast (--what-if link=FACTORx), makes the link so and
# runs there: nothing is measured on that link before. Errors are those of the median step.
#
#   WORKLOAD    default mlp-1000mbit            RATE    default 1gbit
#   --set       groupings: 15 groupings x wait points (default)
#               variants: the naive program, Paddle's pass, sharded updates (batches of 1 and 2,
#               parameters gathered after the update or in the next forward) and gradients summed over
#               2 and 4 micro-steps (reduced in every one, after the last, in the last)
#               systems: what is searched beside what frameworks and papers do by themselves
#   --steps     measured steps of a schedule per round (3)
#   --time      rounds until both figures are known to 1 %, at most this long (4min)
#   --disturb   takes core 0 away for so many percent of the time in bursts of so many milliseconds
#               (scripts/campaigns/disturb.sh), from the calibration on
#   --cluster   the calibration, if there is one already
#   --keep      also write traces/measured/NAME.json and NAME-machine.json
#
# Exit code 0 whatever the figures are: accuracy is a report, not a pass mark. The first line says how well
# the measured figures are known. Every run is kept in build/validate-runs, the last one of each workload, set
# and disturbance; scripts/campaigns/validate_table.py prints a row for each of them.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."
workload=mlp-1000mbit
rate=1gbit
set_name=groupings
steps=3
time=4min
disturb=
cluster=
keep=
cross=
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
    --cross) cross=$2 ;;
    *) echo "validate.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
workload=${positional[0]:-$workload}
rate=${positional[1]:-$rate}
out=build/validate
kept=build/validate-runs
dovetail=build/dovetail
[[ -x $dovetail ]] || { echo "validate.sh: build first (cmake --preset release && cmake --build build)" >&2; exit 2; }

case $set_name in
  groupings)
    policies=(
      exact
      exact:wait=end-of-backward
      torch-ddp:cap=25MiB,first=1MiB
      torch-ddp:cap=8MiB,first=1MiB,mode=view,wait=first-use
      threshold:cap=4MiB
      threshold:cap=4MiB,wait=end-of-backward
      threshold:cap=16MiB
      threshold:cap=16MiB,scope=whole-stream
      threshold:cap=24MiB,mode=copy
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
  systems)
    policies=(
      exact
      exact:wait=end-of-backward
      exact:mode=copy,wait=end-of-backward
      sharded:p=1,gather=next-forward,mode=view+exact
      ddp
      ddp:mode=view
      horovod
      xla
      megatron
      deepspeed
      paddle-pass
      mg-wfbp
      asc-wfbp
      dear
      per-tensor
      no-overlap
    )
    ;;
  *) echo "validate.sh: --set is groupings, variants or systems, not $set_name" >&2; exit 2 ;;
esac

rm -rf "$out"
mkdir -p "$out"
link=(--rate "$rate")
disturber=
is_shaped=
tidy_up() {
  [[ -z $disturber ]] || kill "$disturber"
  [[ -z $is_shaped ]] || scripts/campaigns/testbed.sh down >/dev/null
}
trap tidy_up EXIT
if ((EUID == 0)) && scripts/campaigns/testbed.sh up "$rate"; then
  is_shaped=yes
  link=(--netns dovetail)
else
  echo "not root, or no network namespaces here: the ranks pace their traffic themselves at $rate"
fi
if [[ -n $disturb ]]; then
  scripts/campaigns/disturb.sh --core 0 --share "${disturb%:*}" --burst "${disturb#*:}" &
  disturber=$!
fi

if [[ -n $cluster ]]; then
  cp "$cluster" "$out/here.json"
else
  "$dovetail" calibrate --workload "$workload" --ranks 2 "${link[@]}" -o "$out/here.json"
fi

what_if=()
if [[ -n $cross ]]; then
  [[ -n $is_shaped ]] || { echo "validate.sh: --cross needs root and network namespaces" >&2; exit 3; }
  # In kbit, which tc takes as whole numbers.
  crossed=$(python3 -c 'import sys, re
number, unit = re.fullmatch(r"([\d.]+)([kmg])bit", sys.argv[1]).groups()
print(round(float(number) * {"k": 1, "m": 1e3, "g": 1e6}[unit] * float(sys.argv[2])), "kbit", sep="")' "$rate" "$cross")
  scripts/campaigns/testbed.sh up "$crossed"
  what_if=(--what-if "link=${cross}x")
fi
arguments=()
for index in "${!policies[@]}"; do
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" \
    "${what_if[@]}" --policy "${policies[index]}" -o "$out/plan$index.json" --trace "$out/predicted$index.json" >/dev/null
  arguments+=(--plan "$out/plan$index.json" --trace "$out/measured$index.json")
done
if [[ -n $cross ]]; then
  "$dovetail" run "${arguments[@]}" --ranks 2 "${link[@]}" --warmup 1 --steps "$steps" --time "$time" --json >"$out/run.json"
  python3 - "$out/run.json" <<'PY'
import json
import sys

rows = json.load(open(sys.argv[1]))["rows"]
errors = []
print(f"{'policy':60} {'predicted ms':>12} {'measured ms':>12} {'error %':>8} {'wrong':>6}")
for row in rows:
    error = (row["predicted_step_us"] / row["measured_step_us"] - 1) * 100
    errors.append(abs(error))
    print(f"{row['policy']:60} {row['predicted_step_us'] / 1e3:12.2f} {row['measured_step_us'] / 1e3:12.2f} {error:+8.2f} {row['wrong_elements']:6}")
print(f"mean {sum(errors) / len(errors):.2f} %, worst {max(errors):.2f} %")
PY
  exit 0
fi
"$dovetail" run "${arguments[@]}" --ranks 2 "${link[@]}" --warmup 1 --steps "$steps" \
  --calibrate-between --cluster "$out/here.json" --time "$time" --json >"$out/run.json"

mkdir -p "$kept"
python3 - "$out/run.json" "$kept/$(basename "$workload" .json)-$set_name-${disturb:-as-is}.json" \
  "$workload" "$set_name" "$disturb" <<'PY'
import json
import sys

report, output, workload, policies, disturb = sys.argv[1:]
condition = {"workload": workload, "set": policies, "disturb": disturb}
with open(report) as run, open(output, "w") as file:
    json.dump({"condition": condition, "run": json.load(run)}, file, indent=1)
    file.write("\n")
PY
scripts/campaigns/validate_table.py "$out/run.json"

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
