#!/usr/bin/env bash
# How good the predictions are for real PyTorch: captures three models on two ranks over the shaped link, plans, applies
# the plans, measures them in turn with DDP's own settings, and prints predicted beside measured. Between the rounds the
# model is captured again, in short: a round is held against what the captures before and after it make of the plans, so
# that both are of the same minute.
#
#   sudo scripts/campaigns/validate_torch.sh [--models LIST] [--rounds N] [--steps N] [--rate RATE] [--tool FILE] [--python FILE]
#                                  [--out DIR] [--show replan|fsdp]
#
#   --models   of mlp (45 MB in 14 uneven gradients), transformer (50 MB in 101), deep (15 MB in 300), layers (10 MB
#              in 200; for --show fsdp); default the first three
#   --rounds   over all settings (3); --steps of a setting per round (8), the first of which is not counted
#   --rate     of the link, as scripts/campaigns/testbed.sh takes it (1gbit)
#   --tool     default build/dovetail; --python default /usr/bin/python3, of which torch is used
#   --out      where files go (build/validate-torch); MODEL.results.json has every figure and every step
#   --show     replan: instead of all this trains each model with dovetail_torch.ReplannedModel, halves the link's rate
#              half-way, and prints the medians of windows of 20 steps: DDP's default, planned, the same plan on the slower
#              link, planned again, and DDP's default there (scripts/campaigns/replan_torch_rank.py). Logs go to OUT/MODEL.replan/.
#              A plan changes where the rate decides what is best: --models transformer --rate 3gbit, mlp at 2gbit
#              fsdp: predicted and measured steps of FSDP2 instead of DDP (2.14 was run; scripts/checks/torch_root.sh makes a root):
#              groups of layers, gathers ahead, parameters kept, with FSDP2's own collectives, which block here, and with
#              dovetail_torch.OverlappedCollectives (scripts/campaigns/fsdp_torch_rank.py)
#
# On two idle cores all three models take eight to nine minutes; other programs must be quiet then.
#
# Settings: DDP's default; single caps (the predicted best one and its neighbours); `exact` within what DDP can do, by
# bucket_cap_mb_list where this PyTorch has it, else by DDP's bucket assignment; `exact` with own hooks and waits at first
# use. All are alive at once and take turns. Each starts from the same weights, and must end with the same bits.
#
# Exit codes: 0 done, whatever the errors are (accuracy is a report, not a pass mark), 1 weights or buckets were wrong,
# 2 wrong use, 77 no PyTorch or no namespaces here: a skip, with the reason.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."
models=mlp,transformer,deep
rounds=3
steps=8
rate=1gbit
tool=build/dovetail
python=/usr/bin/python3
out=build/validate-torch
script=validate_torch_rank.py
while (($# > 0)); do
  (($# > 1)) || { echo "validate_torch.sh: $1 needs a value; see the first lines of this script" >&2; exit 2; }
  case $1 in
    --models) models=$2 ;;
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --rate) rate=$2 ;;
    --tool) tool=$2 ;;
    --python) python=$2 ;;
    --out) out=$2 ;;
    --show)
      case $2 in
        replan | fsdp) script=$2_torch_rank.py ;;
        *) echo "validate_torch.sh: --show $2: expected replan or fsdp" >&2; exit 2 ;;
      esac
      ;;
    *) echo "validate_torch.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
[[ -x $tool ]] || { echo "validate_torch.sh: $tool: build first, or name it with --tool" >&2; exit 2; }
version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) ||
  { echo "validate_torch.sh: skipped: $python has no torch (scripts/setup.sh --torch)"; exit 77; }
((EUID == 0)) || { echo "validate_torch.sh: skipped: needs root, for network namespaces"; exit 77; }
scripts/campaigns/testbed.sh up "$rate" || { echo "validate_torch.sh: skipped: no network namespaces here"; exit 77; }
ranks=()
tidy_up() {
  local rank
  for rank in "${ranks[@]}"; do kill "$rank" 2>/dev/null || true; done
  scripts/campaigns/testbed.sh down >/dev/null
}
trap tidy_up EXIT
trap 'exit 1' INT TERM
mkdir -p "$out"
echo "PyTorch $version, gloo, two ranks on one core each, $rate"

# Autograd's and Gloo's threads share a core with the step, so the session gets a large share of it.
echo -20 >/proc/self/autogroup 2>/dev/null || true
status=0
for model in ${models//,/ }; do
  meeting=$(realpath "$out")/meeting-$$-$model
  rm -f "$meeting"
  ranks=()
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 OMP_NUM_THREADS=1 USE_LIBUV=0 GLOO_SOCKET_IFNAME=dvt$rank PYTHONDONTWRITEBYTECODE=1 \
      ip netns exec "dovetail$rank" taskset -c "$rank" "$python" "scripts/campaigns/$script" \
      --model "$model" --rounds "$rounds" --steps "$steps" --rate "$rate" --tool "$tool" --out "$out" --meeting "$meeting" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || status=1; done
  rm -f "$meeting"
done
exit "$status"
