#!/usr/bin/env bash
# Time and memory of reading profiler traces, beside plainly parsing the same file.
#
#   scripts/campaigns/bench_import.sh [DOVETAIL] [PLAIN_PARSE]   about two minutes and 1.1 GB of room in TMPDIR
#
# Without arguments both programs are built first, as releases, in build-import (needs libbenchmark-dev;
# with libsimdjson-dev there are rows of simdjson, too). Two files are made of the ResNet-50 trace of the
# tests: 200,000 events, and 1 GB (tests/bench/kineto_trace.py). A row is the median of seven runs (of the 1 GB
# file: three), in turn with the other rows, and the largest resident memory of any (at least that of the
# Python that starts it, about 12 MB). "x" is processor time against plain parsing by our own reader, which
# skips every value.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/../.."
tool=${1:-build-import/dovetail}
plain=${2:-build-import/plain_parse}
if [[ $# -eq 0 ]]; then
  cmake --preset tool -B build-import -D DOVETAIL_BENCHMARKS=ON --log-level=NOTICE
  cmake --build build-import --target dovetail plain_parse -j "$(nproc)"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# rows REPEATS FILE [PACKED]: a table of every way to read the file.
rows() {
  cat "${@:2}" > /dev/null  # into the page cache
  python3 - "$1" "$tool" "$plain" "$work/step.json" "${@:2}" <<'PY'
import os
import statistics
import subprocess
import sys
import time

repeats, tool, plain, out, file = int(sys.argv[1]), *sys.argv[2:6]
ways = {"plain, ours (pull)": [plain, file, "pull"],
        "plain, simdjson on demand": [plain, file, "on-demand"],
        "plain, simdjson tree": [plain, file, "dom"],
        "import kineto": [tool, "import", "kineto", file],
        "import kineto -o": [tool, "import", "kineto", file, "-o", out],
        "diagnose": [tool, "diagnose", file]}
for packed in sys.argv[6:]:
    ways["import kineto, gzip"] = [tool, "import", "kineto", packed]
runs = {name: [] for name in ways}
failed = {}
for _ in range(repeats):
    for name, command in ways.items():
        if name in failed:
            continue
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read().strip()
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - begin
        if status != 0:
            failed[name] = said.splitlines()[-1] if said else f"exit {os.waitstatus_to_exitcode(status)}"
        else:
            runs[name].append((took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss))
size = os.stat(file).st_size
print(f"{os.path.basename(file)}, {size} bytes, median of {repeats}")
first = None
for name, of in runs.items():
    if name in failed:
        print(f"  {name:<28} not run: {failed[name]}")
        continue
    wall, cpu = (statistics.median(run[k] for run in of) for k in (0, 1))
    first = first or cpu
    print(f"  {name:<28} {wall:7.3f} s  {cpu:7.3f} s of processor  {cpu / first:5.2f} x"
          f"  {max(run[2] for run in of) / 1024:8.1f} MB")
PY
}

python3 tests/bench/kineto_trace.py "$work/events.json" --events 200000
python3 tests/bench/kineto_trace.py "$work/events.json.gz" --events 200000
rows 7 "$work/events.json" "$work/events.json.gz"
rm "$work"/events.json*
python3 tests/bench/kineto_trace.py "$work/large.json" --bytes 1000000000
rows 3 "$work/large.json"
