#!/usr/bin/env bash
# Time and memory of reading profiler traces, beside plainly parsing the same file.
#
#   scripts/bench_import.sh [DOVETAIL] [PLAIN_PARSE]   about a minute; 2.2 GB of room in TMPDIR
#
# Two files are made of the ResNet-50 trace of the tests: 200,000 events, and 1 GB (bench/kineto_trace.py).
# Of each row the quickest of three runs is taken (of the 1 GB file: one), and its peak resident memory.
# "x" is against plain parsing by our own reader, which skips every value. The simdjson rows need
# libsimdjson-dev.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
tool=${1:-build/dovetail}
plain=${2:-build/plain_parse}
if [[ $# -eq 0 ]]; then
  cmake --preset release --log-level=NOTICE
  cmake --build build --target dovetail plain_parse -j "$(nproc)"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the row of a command: its name, seconds, and peak memory; REPEATS runs.
row() {
  local name=$1 repeats=$2
  shift 2
  python3 - "$name" "$repeats" "$work/base" "$@" <<'PY'
import os
import subprocess
import sys
import time

name, repeats, base, command = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
best = peak = None
for _ in range(repeats):
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    if status != 0:
        print(f"  {name:<28} not run (exit {os.waitstatus_to_exitcode(status)})")
        sys.exit(0)
    cpu = usage.ru_utime + usage.ru_stime
    if best is None or took < best[0]:
        best = (took, cpu)
    peak = max(peak or 0, usage.ru_maxrss)
if name.startswith("plain, ours"):
    open(base, "w").write(str(best[1]))
first = float(open(base).read())
print(f"  {name:<28} {best[0]:7.3f} s  {best[1]:7.3f} s of processor  {best[1] / first:5.2f} x  {peak / 1024:8.1f} MB")
PY
}

rows() {
  local file=$1 repeats=$2
  cat "$file" > /dev/null  # into the page cache
  row "plain, ours (pull)" "$repeats" "$plain" "$file" pull
  row "plain, simdjson on demand" "$repeats" "$plain" "$file" on-demand
  row "plain, simdjson tree" "$repeats" "$plain" "$file" dom
  row "import kineto" "$repeats" "$tool" import kineto "$file"
  row "import kineto -o" "$repeats" "$tool" import kineto "$file" -o "$work/step.json"
  row "diagnose" "$repeats" "$tool" diagnose "$file"
}

python3 bench/kineto_trace.py "$work/events.json" --events 200000
python3 bench/kineto_trace.py "$work/events.json.gz" --events 200000
rows "$work/events.json" 3
row "import kineto, gzip" 3 "$tool" import kineto "$work/events.json.gz"
rm "$work"/events.json*
python3 bench/kineto_trace.py "$work/large.json" --bytes 1000000000
rows "$work/large.json" 1
