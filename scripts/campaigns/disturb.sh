#!/usr/bin/env bash
# Takes a stated share of one core away in bursts of a stated length, as a host does that gives the
# core to somebody else, until it is interrupted or the time is over.
#
#   sudo scripts/campaigns/disturb.sh --core N --share PERCENT --burst MILLISECONDS [--seconds S]
#   sudo scripts/campaigns/disturb.sh --core 0 --share 30 --burst 50 &
#
# Bursts begin after pauses of random length, from half to one and a half times the mean pause, so that
# they cannot fall into step with anything; the random numbers have a fixed seed. As root the bursts have
# real-time priority 50: every other thread of the core stands still, as under a hypervisor. Without it
# they only compete at the ordinary priority, and the share taken is smaller; the first line says which.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  sed -n '5,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

core='' share='' burst='' seconds=0
while (($# > 0)); do
  (($# > 1)) || usage
  case $1 in
    --core) core=$2 ;;
    --share) share=$2 ;;
    --burst) burst=$2 ;;
    --seconds) seconds=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $core =~ ^[0-9]+$ && $share =~ ^[0-9]+(\.[0-9]+)?$ && $burst =~ ^[0-9]+(\.[0-9]+)?$ &&
  $seconds =~ ^[0-9]+$ ]] || usage

exec python3 - "$core" "$share" "$burst" "$seconds" <<'PY'
import gc
import os
import random
import sys
import time

core, share, burst, seconds = (float(word) for word in sys.argv[1:])
if not 0 < share < 90 or burst <= 0:
    sys.exit("disturb.sh: the share must be between 0 and 90 %, the burst more than 0")
os.sched_setaffinity(0, {int(core)})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    how = "at real-time priority 50"
except PermissionError:
    how = "at ordinary priority (not root): other threads share the bursts"
print(f"disturb.sh: core {core:.0f}, {share:g} % in bursts of {burst:g} ms, {how}", flush=True)
gc.disable()
burst_s = burst / 1e3
pause_s = burst_s * (100 - share) / share
draw = random.Random(1)
end = time.monotonic() + seconds if seconds else float("inf")
while time.monotonic() < end:
    time.sleep(pause_s * draw.uniform(0.5, 1.5))
    until = time.monotonic() + burst_s
    while time.monotonic() < until:
        pass
PY
