#!/usr/bin/env bash
# Runs libFuzzer over every reader of the project, one after the other: fuzz.sh [SECONDS_EACH] [READER...]
#
# Builds with clang and the address and undefined-behaviour sanitizers in build-fuzz. Inputs that break a reader are written to
# build-fuzz/found/READER as crash-*, timeout-* or oom-*; put them into tests/fuzz/corpus/READER once they
# are mended. Default: 1800 seconds each. The last lines of each reader say how many inputs were tried, and in how many
# processor seconds. docs/development.md keeps count.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-1800}
shift $(( $# > 0 ? 1 : 0 ))
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -gline-tables-only" \
      -DCMAKE_CXX_COMPILER=clang++ -DDOVETAIL_FUZZ=ON -DDOVETAIL_SANITIZE=address,undefined,fuzzer-no-link \
      -DDOVETAIL_CUDA=OFF -DDOVETAIL_GLOO=OFF -DDOVETAIL_BENCHMARKS=OFF -DDOVETAIL_UNITY=ON > /dev/null
cmake --build build-fuzz --target fuzz_readers

readers=("$@")
if [[ ${#readers[@]} -eq 0 ]]; then
  for folder in tests/fuzz/corpus/*/; do readers+=("$(basename "$folder")"); done
fi
TIMEFORMAT='processor seconds: %U'
for reader in "${readers[@]}"; do
  found=build-fuzz/found/$reader
  mkdir -p "$found"
  echo "== $reader"
  time DOVETAIL_READER=$reader build-fuzz/fuzz_readers -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$reader" \
    > "$found.log" 2>&1 || echo "$reader: BROKEN, see $found.log"
  grep -E "DONE|number_of_executed_units|peak_rss" "$found.log" || true
done
