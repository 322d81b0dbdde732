#!/usr/bin/env bash
# Builds and tests everything, from a bare checkout on. About half an hour on two cores.
#
#   scripts/test.sh              all steps
#   scripts/test.sh build test   only these steps, in the order below
#
#   setup    install what is missing (scripts/setup.sh)
#   format   clang-format finds nothing to change
#   layers   who may include whom (scripts/check_layers.py)
#   build    the release preset, warnings are errors; with the CUDA module where nvcc is installed
#   test     all tests
#   asan     unit, property and fuzz tests under the address and undefined-behaviour sanitizers (the
#            tests' own code under the former only)
#   tsan     tests of exec/, the only room with threads, under the thread sanitizer
#   tidy     clang-tidy over the rooms (.clang-tidy, scripts/tidy.py)
#   readme   the commands of README.md print what it shows (scripts/check_readme.py)
#   demo     the short demonstration (scripts/demo.sh)
#
# A failed step does not stop the others, only those that need it. Exit status 1 if anything failed.
# The last line counts: each test of each run, and each step without tests as one.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.." || exit

jobs=$(nproc)
passed=0
failed=0
skipped=0
summary=()
wanted=("$@")

# Open MPI refuses to start as root, which is what containers run as.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

is_wanted() {
  ((${#wanted[@]} == 0)) && return 0
  local name
  for name in "${wanted[@]}"; do [[ $name == "$1" ]] && return 0; done
  return 1
}

# note NAME SECONDS VERDICT
note() { summary+=("$(printf '%-8s %5d s  %s' "$1" "$2" "$3")"); }

# step NAME COMMAND...: runs it under a headline and counts it as one check.
step() {
  local name=$1 start=$SECONDS
  shift
  is_wanted "$name" || return 0
  printf '\n==== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
    note "$name" $((SECONDS - start)) ok
    return 0
  fi
  failed=$((failed + 1))
  note "$name" $((SECONDS - start)) FAILED
  return 1
}

# count_tests NAME START LOG STATUS: adds what one ctest run says at its end to the counts.
count_tests() {
  local name=$1 start=$2 log=$3 status=$4 bad total not_run
  bad=$(sed -n 's/.* \([0-9]*\) tests failed out of [0-9]*$/\1/p' "$log" | tail -n 1)
  total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -n 1)
  not_run=$(grep -c '\*\*\*Skipped' "$log")
  if [[ -z $total ]]; then  # it found no tests, or did not come to its end
    failed=$((failed + 1))
    note "$name" $((SECONDS - start)) "FAILED: no tests were run"
    return 1
  fi
  passed=$((passed + total - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  note "$name" $((SECONDS - start)) "$((total - bad - not_run)) passed, $bad failed, $not_run skipped"
  ((status == 0 && bad == 0)) && return 0
  ((bad == 0)) && failed=$((failed + 1))
  return 1
}

# The thread sanitizer of g++ 12 cannot place its shadow memory where addresses are randomised too
# far (vm.mmap_rnd_bits > 28), so randomisation is off where that is allowed.
fixed_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed_addresses=(setarch "$(uname -m)" -R)

# skip_reasons LOG: which tests were skipped, and what GoogleTest says why.
skip_reasons() {
  awk '/^\[ RUN / { name = $NF } /: Skipped$/ { getline; print "skipped: " name ": " $0 }' "$1"
}

# tests NAME BUILD_DIR CTEST_ARGUMENTS...
tests() {
  local name=$1 folder=$2 start=$SECONDS log status
  shift 2
  is_wanted "$name" || return 0
  printf '\n==== %s\n' "$name"
  log=$folder/ctest.$name.log
  "${fixed_addresses[@]}" ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error "$@" 2>&1 |
    tee "$log" | grep -v -E '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test .*Passed'
  status=${PIPESTATUS[0]}
  skip_reasons "$folder/Testing/Temporary/LastTest.log"
  count_tests "$name" "$start" "$log" "$status"
}

# test_targets ROOM...: the test executables of these rooms.
test_targets() {
  local room
  for room in "$@"; do
    sed -n 's/^ *dovetail_test(\([a-z0-9_]*\).*/\1/p' "tests/$room/CMakeLists.txt"
  done
}

configure() { cmake --preset "$1" --log-level=NOTICE "${@:2}"; }

# The CUDA module is built by this configuration only, and must be where there is a compiler for it.
build_release() {
  local cuda=AUTO
  { command -v nvcc || [[ -x /usr/local/cuda/bin/nvcc ]]; } >/dev/null && cuda=ON
  configure release -D DOVETAIL_PCH=ON -D DOVETAIL_CUDA="$cuda" && cmake --build build -j "$jobs"
}

# sanitized NAME LABELS LEFT_OUT ROOM...: builds the tests of these rooms in the preset NAME and runs
# those with a label that matches, but for names that match LEFT_OUT.
sanitized() {
  local name=$1 labels=$2 left_out=$3 start=$SECONDS targets
  shift 3
  is_wanted "$name" || return 0
  printf '\n==== %s (build)\n' "$name"
  mapfile -t targets < <(test_targets "$@")
  # Files that cannot be compiled together (cmake/faster.cmake) are no failure, they only cost time.
  if { configure "$name" -D DOVETAIL_UNITY=ON &&
    cmake --build "build-$name" -j "$jobs" --target "${targets[@]}"; } ||
    { echo "$name: again, file by file" && configure "$name" -D DOVETAIL_UNITY=OFF &&
      cmake --build "build-$name" -j "$jobs" --target "${targets[@]}"; }; then
    note "$name" $((SECONDS - start)) "built"
    tests "$name" "build-$name" -L "$labels" -E "$left_out"
  else
    failed=$((failed + 1))
    note "$name" $((SECONDS - start)) "FAILED: does not build"
  fi
}

tidy() {
  [[ -f build/compile_commands.json ]] || configure release || return 1
  scripts/tidy.py build
}

demo() {
  [[ -x scripts/demo.sh ]] || { echo "there is no scripts/demo.sh"; return 0; }
  scripts/demo.sh --short
}

step setup scripts/setup.sh
step format scripts/format.sh --check
step layers scripts/check_layers.py
if step build build_release; then
  tests test build
  sanitized asan 'unit|property|fuzz' '^$' base schedule traces sim exec
  # Whole calibrations and trainings only take minutes there: what they run has tests of its own.
  sanitized tsan 'unit|property' 'Calibration|LawTest' exec
  step tidy tidy
  step readme scripts/check_readme.py
  step demo demo
fi

printf '\n==== summary\n'
printf '%s\n' "${summary[@]}"
((skipped > 0)) && echo "$skipped skipped, listed above: this machine or this build lacks what they need"
echo "$passed passed, $failed failed"
((failed == 0))
