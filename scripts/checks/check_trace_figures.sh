#!/usr/bin/env bash
# Holds dovetail's figures of a real trace that is too large to keep against its published ones:
#
#   scripts/checks/check_trace_figures.sh dlrm-a100x8-rank3.json.gz [DOVETAIL]
#
# The file: facebookresearch/HolisticTraceAnalysis (MIT), tests/data/trace_diff/control/control.json.gz. The
# figures are sums of the file's own whole microseconds, so they must be equal. DOVETAIL: the program
# (default build/dovetail). Exit code 1 where any figure differs.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
file=${1:?usage: check_trace_figures.sh FILE [DOVETAIL]}
tool=${2:-build/dovetail}
"$tool" diagnose "$file" --json > "${TMPDIR:-/tmp}/trace_figures.$$"
trap 'rm -f "${TMPDIR:-/tmp}/trace_figures.$$"' EXIT
python3 - "${TMPDIR:-/tmp}/trace_figures.$$" <<'PYTHON'
import json, sys
PUBLISHED = {  # CPU step, span, comp, comm, overlap, exposed, idle; microseconds
    1009: (75473, 75103, 48438, 16256, 6619, 9637, 17028),
    1010: (76940, 76422, 50274, 21122, 9096, 12026, 14122),
    1011: (76212, 75725, 51474, 31488, 17331, 14157, 10094),
    1012: (76727, 76226, 51572, 29164, 14706, 14458, 10196),
    1013: (78473, 77915, 50417, 34480, 15648, 18832, 8666),
    1014: (81120, 80585, 49858, 31025, 13581, 17444, 13283)}
KEYS = ("cpu_step_us", "span_us", "compute_us", "communication_us", "overlap_us", "exposed_us", "idle_us")
rank = json.load(open(sys.argv[1]))["ranks"][0]
wrong = 0
for step in rank["steps"]:
    number = int(step["name"].split("#")[1])
    found = tuple(step[key] for key in KEYS)
    buckets = [(b["elements"], b["parameters"]) for b in step["buckets"]]
    good = (found == PUBLISHED[number] and step["gpu_works"] == 1575
            and buckets == [(45310188, 167), (267040, 17), (4432073, 72)])
    wrong += not good
    print(number, "equal" if good else f"DIFFERS: {found} {buckets}")
replay = rank["replay"]
print(f"replay: step {replay['step_error']:+.2%} (at most 2 %), exposed {replay['exposed_error']:+.2%} (at most 10 %)")
wrong += abs(replay["step_error"]) > 0.02 or abs(replay["exposed_error"]) > 0.1 or len(rank["steps"]) != 6
sys.exit(1 if wrong else 0)
PYTHON
