#!/usr/bin/env bash
# Is a ring that paces itself (--rate) as good as a shaped link (--netns)? The same plans are executed
# on both in turn, sitting after sitting, so that slow drift of the machine meets both alike.
#
#   sudo scripts/campaigns/compare_links.sh [--sittings N] [--steps N] [--workload NAME] [--rate RATE]
#
#   --sittings  turns of each link (default 3)        --workload  default mlp-1000mbit
#   --steps     measured steps per plan and turn (4)  --rate      default 1gbit
#
# Prints per plan the median step on both links, their ratio, and how many of the pairs of plans that
# differ by more than 2 % on the shaped link stand in the same order on the paced one. About 5 minutes.
# Exit code 0 whatever the figures are; they mean something only on a quiet machine.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."
workload=mlp-1000mbit
rate=1gbit
sittings=3
steps=4
while (($# > 0)); do
  (($# > 1)) || { echo "compare_links.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --sittings) sittings=$2 ;;
    --steps) steps=$2 ;;
    --workload) workload=$2 ;;
    --rate) rate=$2 ;;
    *) echo "compare_links.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
out=build/compare_links
dovetail=build/dovetail
[[ -x $dovetail ]] || { echo "compare_links.sh: build first (cmake --preset release && cmake --build build)" >&2; exit 2; }
policies=(
  exact
  torch-ddp:cap=25MiB,first=1MiB
  torch-ddp:cap=8MiB,first=1MiB,mode=view,wait=first-use
  threshold:cap=4MiB
  threshold:cap=16MiB
  threshold:cap=24MiB,mode=copy
  per-tensor
  one-bucket
  no-overlap-per-tensor
)

rm -rf "$out"
mkdir -p "$out"
scripts/campaigns/testbed.sh up "$rate"
trap 'scripts/campaigns/testbed.sh down >/dev/null' EXIT
"$dovetail" calibrate --workload "$workload" --ranks 2 --rate "$rate" -o "$out/here.json" \
  --op-steps 3 --budget 3s >/dev/null
plans=()
for index in "${!policies[@]}"; do
  "$dovetail" plan --workload "$workload" --cluster "$out/here.json" --policy "${policies[index]}" \
    -o "$out/plan$index.json" >/dev/null
  plans+=(--plan "$out/plan$index.json")
done
# measure LINK SITTING OPTION...: one turn of all plans; each trace holds the steps of this turn.
measure() {
  local link=$1 sitting=$2 index traces=()
  for index in "${!policies[@]}"; do traces+=(--trace "$out/$link.$sitting.$index.json"); done
  "$dovetail" run "${plans[@]}" "${traces[@]}" --ranks 2 "${@:3}" --warmup 1 --steps "$steps" \
    --rounds 1 --json >"$out/$link.$sitting.json"
}
for ((sitting = 0; sitting < sittings; ++sitting)); do
  measure shaped "$sitting" --netns dovetail
  measure paced "$sitting" --rate "$rate"
done

python3 - "$out" "$sittings" <<'PY'
import json
import statistics
import sys

out, sittings = sys.argv[1], int(sys.argv[2])


def reports(link):
    return [json.load(open(f"{out}/{link}.{sitting}.json")) for sitting in range(sittings)]


# Of each plan the median over the turns of the median of a turn.
def medians(runs):
    return [statistics.median(run["rows"][plan]["measured_step_us"] for run in runs) / 1e3
            for plan in range(len(runs[0]["rows"]))]


shaped_runs, paced_runs = reports("shaped"), reports("paced")
shaped, paced = medians(shaped_runs), medians(paced_runs)
print(f"{shaped_runs[0]['machine']}; {sittings} turns of each link")
print(f"  shaped: {shaped_runs[0]['link']}\n  paced: {paced_runs[0]['link']}")
print(f"{'plan':<56} {'shaped ms':>10} {'paced ms':>10} {'ratio':>8}")
for row, a, b in zip(shaped_runs[0]["rows"], shaped, paced):
    print(f"{row['policy']:<56} {a:>10.2f} {b:>10.2f} {b / a - 1:>+8.2%}")
worst = max(abs(b / a - 1) for a, b in zip(shaped, paced))
plans = range(len(shaped))
pairs = [(i, j) for i in plans for j in plans if shaped[i] > 1.02 * shaped[j]]
same = sum(paced[i] > paced[j] for i, j in pairs)
print(f"largest difference {worst:.2%}")
print(f"pairs that differ by more than 2 %: {same} of {len(pairs)} in the same order")
for name, runs in (("shaped", shaped_runs), ("paced", paced_runs)):
    wrong = sum(row["wrong_elements"] for run in runs for row in run["rows"])
    reasons = sorted({reason for run in runs for reason in run["why_not_valid"]})
    valid = sum(run["valid"] for run in runs)
    print(f"{name}: {valid} of {sittings} turns valid, {wrong} elements wrong"
          + "".join(f"\n  {reason}" for reason in reasons))
PY
