#!/usr/bin/env bash
# Builds and tests everything, from a bare checkout on. 25 to 50 minutes on two cores, by how fast they are.
#
#   scripts/test.sh              all steps
#   scripts/test.sh --quick      for work in between: format, layers, asan
#   scripts/test.sh tsan tidy    only these steps, in the order below
#
#   setup    install what is missing (scripts/setup.sh)
#   format   clang-format finds nothing to change
#   layers   who may include whom (scripts/check_layers.py)
#   build    the release preset, warnings are errors: the tool, the C++ library, the benchmarks, and the tests of
#            step `test`; with the CUDA module where nvcc is installed
#   asan     every test, under the address and undefined-behaviour sanitizers (the tests' own code under
#            the former only)
#   test     what depends on optimised code: the tests of exec/ and sim/ in the release build, every case of
#            the property tests of exec/ and schedule/ and of predictions under disturbance, and the tests
#            of the front door with the release tool
#   tsan     tests of exec/, the only room with threads, under the thread sanitizer
#   tidy     clang-tidy over the rooms (.clang-tidy, scripts/tidy.py)
#   readme   the commands of README.md and docs/ print what they show (scripts/check_readme.py)
#   torch    capture, plan, apply, train and compare in real PyTorch (scripts/check_torch.py). Installs
#            Debian's python3-torch where it is missing: 170 packages, 147 MB to fetch, 634 MB on disk
#   report   the HTML reports in headless Chromium (scripts/check_report.py). Installs Debian's chromium and
#            chromium-driver where they are missing: 131 MB to fetch, 440 MB on disk
#   package  a Debian package of step `build`, installed and run in a fresh Debian 12, and a foreign program built
#            against the installed C++ library (scripts/check_package.sh). Installs Debian's mmdebstrap where it is missing
#   python   the Python package as a wheel in a fresh environment, its tests, types, pages and notebooks
#            (scripts/check_python.py): compiles the tool once more, as code that a library may hold, and fetches
#            about 150 MB of Python packages
#   demo     the short demonstration (scripts/demo.sh)
#
# They run one after the other, except that torch, report, package and python run beside tidy and readme, and so does the demo:
# of the two cores they use less than one, and none asserts a time. The sanitizer builds begin early, where a core is idle.
# A failed step does not stop the others, only those that need it. A test that takes over 30 s, also
# alone, counts as failed: it wants to be split. Exit status 1 if anything failed, 2 for a step that does not exist.
# Where the time went stands at the end, and the last line counts: each test of each run, and each step
# without tests as one.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.." || exit

readonly all_steps=(setup format layers build asan test tsan tidy readme torch report package python demo)
readonly quick_steps=(format layers asan)
readonly longest_test=30  # seconds
readonly root=$PWD

jobs=$(nproc)
passed=0
failed=0
skipped=0
summary=()
slowest=()  # lines "SECONDS RUN NAME"
wanted=("$@")
[[ $# -eq 0 ]] && wanted=("${all_steps[@]}")
[[ $# -eq 1 && $1 == --quick ]] && wanted=("${quick_steps[@]}")
for name in "${wanted[@]}"; do
  [[ " ${all_steps[*]} " == *" $name "* ]] && continue
  echo "test.sh: there is no step $name; there are ${all_steps[*]}, and --quick" >&2
  exit 2
done

# Open MPI refuses to start as root, which is what containers run as.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Frames on a heap of 64 KiB a size: after an exception all of them are looked through, which at the default of
# 1 MiB takes four fifths of the time of the tests that provoke errors.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:max_uar_stack_size_log=16:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

is_wanted() { [[ " ${wanted[*]} " == *" $1 "* ]]; }

# note NAME START VERDICT: a line of the summary for what began at second START.
note() { summary+=("$(printf '%-14s %5d s  %s' "$1" $((SECONDS - $2)) "$3")"); }

# check NAME COMMAND...: runs it under a headline and counts it as one check.
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n==== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
    note "$name" "$start" ok
    return 0
  fi
  failed=$((failed + 1))
  note "$name" "$start" FAILED
  return 1
}

# step NAME COMMAND...: the same, where this step is wanted.
step() { ! is_wanted "$1" || check "$@"; }

# The thread sanitizer cannot place its shadow memory where addresses are randomised too far
# (vm.mmap_rnd_bits > 28), so randomisation is off where that is allowed.
fixed_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed_addresses=(setarch "$(uname -m)" -R)

# tests NAME BUILD_DIR SELECTION...
tests() {
  local name=$1 folder=$2 start=$SECONDS log status counts
  shift 2
  printf '\n==== %s\n' "$name"
  log=$folder/tests.${name// /-}.log
  "${fixed_addresses[@]}" scripts/run_tests.py "$folder" --longest "$longest_test" "$@" 2>&1 | tee "$log" |
    awk '!/^ +[0-9.]+ s  / || /: FAILED$|: skipped: /'
  status=${PIPESTATUS[0]}
  # "   0.012 s  Suite.Name" to "0.012 RUN Suite.Name"
  mapfile -t -O "${#slowest[@]}" slowest < <(
    sed -n -E "s/^ +([0-9.]+) s  ([^ ]+).*/\1 ${name// /-} \2/p" "$log" | sort -rn | head -n 12)
  if ! read -r -a counts < <(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' <(tail -n 1 "$log")); then
    failed=$((failed + 1))  # it found no tests, or did not come to its end
    note "$name" "$start" "FAILED: no tests were run"
    return 1
  fi
  passed=$((passed + counts[0]))
  failed=$((failed + counts[2]))
  skipped=$((skipped + counts[4]))
  note "$name" "$start" "$(tail -n 1 "$log")"
  return "$status"
}

# clang in a sixth less time where its memory comes in large pages; g++ has its own memory and would take longer.
with_large_pages() { GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "$@"; }

# configure PRESET OPTIONS...
configure() {
  cmake --preset "$1" --log-level=NOTICE -D DOVETAIL_PCH=ON -D DOVETAIL_UNITY=ON "${@:2}"
}

# Without line numbers in stacks, which take 7 % of the time: the preset has them, for who looks closer.
configure_asan() { configure asan -D CMAKE_CXX_FLAGS_DEBUG="-O0 -g0"; }

# Goes on after a file that cannot be compiled, so that all of them are seen at once.
# build FOLDER TARGETS...
build() { cmake --build "$1" -j "$jobs" --target "${@:2}" -- -k 0; }

# The CUDA module is built by this configuration only, and must be where there is a compiler for it.
build_release() {
  local cuda=AUTO cold=OFF
  { command -v nvcc || [[ -x /usr/local/cuda/bin/nvcc ]]; } >/dev/null && cuda=ON
  [[ -e /dev/nvidiactl ]] || cold=ON
  configure release -D DOVETAIL_CUDA="$cuda" -D DOVETAIL_CUDA_COLD="$cold" -D DOVETAIL_LIBRARY=ON &&
    build build dovetail dovetail_library dovetail_benchmarks advice_test testbed_test exec_test exec_property_test schedule_property_test sim_test
}

build_asan() { configure_asan && with_large_pages build build-asan all; }
build_tsan() { configure tsan && with_large_pages build build-tsan exec_test exec_property_test; }

# The sanitizer builds begin with the first steps, and one begins when the other has ended: they take what the step
# before them leaves of the cores, which configuring, linking and the last file of a build do not fill.
when_idle() { chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null; }
asan_build() {
  when_idle
  check "asan build" build_asan
}
tsan_build() {
  when_idle
  [[ -z ${beside_pids[asan_build]:-} ]] || tail --pid="${beside_pids[asan_build]}" -f /dev/null
  check "tsan build" build_tsan
}

tidy() { cmake --preset tidy --log-level=NOTICE && scripts/tidy.py build-tidy; }

# or_skip COMMAND...: exit status 77 is a skip, whose reason the command has said.
or_skip() {
  local status=0
  "$@" || status=$?
  ((status == 77)) && skipped=$((skipped + 1)) && return 0
  return "$status"
}

# check_with SETUP_OPTION PACKAGE COMMAND...: where the package cannot be had, the command's checks are
# skipped (its exit status is 77 then) with a line that says so.
check_with() {
  local began=$SECONDS option=$1 package=$2
  shift 2
  scripts/setup.sh "$option" || echo "skipped: ${option#--}: $package cannot be installed here"
  echo "$package and what it needs: $((SECONDS - began)) s"
  or_skip "$@"
}

# What later steps install is fetched while the first ones compile. It is not installed then: where apt upgrades a
# header of the system, the compiler refuses the precompiled headers that contain it.
fetch_ahead() {
  is_wanted torch && scripts/setup.sh --torch --fetch
  is_wanted report && scripts/setup.sh --browser --fetch
  is_wanted package && scripts/setup.sh --package --fetch
}

# The steps that install something, one after the other.
installing() {
  step torch check_with --torch python3-torch scripts/check_torch.py --tool build/dovetail
  step report check_with --browser chromium scripts/check_report.py --tool build/dovetail
  step package check_with --package mmdebstrap scripts/check_package.sh --build build
  step python or_skip scripts/check_python.py --fast
}

demonstration() { step demo scripts/demo.sh --short; }

# beside STEPS: runs these in the background. What they print, count and take is told by told_of STEPS, which fails
# where one of them did.
beside=$(mktemp -d)
declare -A beside_pids
end_beside() {
  # Each is a group of its own, with all that it started; nothing is left of it where it has ended.
  ((${#beside_pids[@]} == 0)) || kill -- "${beside_pids[@]/#/-}" 2>/dev/null
  rm -rf "$beside"
}
trap end_beside EXIT
trap 'exit 130' INT TERM
beside() {
  set -m
  (
    set +m
    passed=0 failed=0 skipped=0 summary=()
    trap - EXIT INT TERM
    "$1" >"$beside/$1.log" 2>&1 </dev/null
    printf '%s\n' "$passed $failed $skipped" "${summary[@]}" >"$beside/$1.counts"
  ) &
  beside_pids[$1]=$!
  set +m
}

told_of() {
  local counts
  wait "${beside_pids[$1]}"
  unset "beside_pids[$1]"
  cat "$beside/$1.log"
  if read -r -a counts < <(head -n 1 "$beside/$1.counts" 2>/dev/null); then
    passed=$((passed + counts[0]))
    failed=$((failed + counts[1]))
    skipped=$((skipped + counts[2]))
    mapfile -t -O "${#summary[@]}" summary < <(tail -n +2 "$beside/$1.counts")
    return $((counts[1] > 0))
  fi
  failed=$((failed + 1))  # it did not come to its end
  note "$1" "$SECONDS" "FAILED: no steps were run"
  return 1
}

readonly started=$SECONDS
step setup scripts/setup.sh
fetch_ahead >/dev/null 2>&1 &
fetching=$!
is_wanted asan && beside asan_build
is_wanted tsan && beside tsan_build
step format scripts/format.sh --check
step layers scripts/check_layers.py
step build build_release
is_wanted asan && told_of asan_build && tests asan build-asan
if is_wanted test; then
  tests "test" build -L 'unit|property'
  [[ -d build-asan ]] && DOVETAIL_TOOL=$root/build/dovetail tests "test tool" build-asan -L tool
fi
# Whole calibrations and trainings only take minutes there: what they run has tests of its own.
is_wanted tsan && told_of tsan_build && tests tsan build-tsan -L 'unit|property' -E 'Calibration|LawTest'
wait "$fetching"
beside installing
beside demonstration
step tidy with_large_pages tidy
step readme scripts/check_readme.py
told_of installing
told_of demonstration

printf '\n==== the slowest tests\n'
printf '%s\n' "${slowest[@]}" | sort -rn | head -n 12 | awk 'NF { printf "%8.1f s  %-10s %s\n", $1, $2, $3 }'
printf '\n==== where the time went: %d s\n' $((SECONDS - started))
printf '%s\n' "${summary[@]}"
((skipped > 0)) && echo "$skipped skipped, listed above: this machine or this build lacks what they need"
echo "$passed passed, $failed failed"
((failed == 0))
