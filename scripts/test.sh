#!/usr/bin/env bash
# Builds and tests, from a bare checkout on. about 24 minutes on two cores that have nothing else to do.
#
#   scripts/test.sh              what continuous integration runs
#   scripts/test.sh --all        before a release: everything, under an hour; a person runs it
#   scripts/test.sh --quick      for work in between: format, layers, build, test
#   scripts/test.sh tsan tidy    only these steps, in the order below; with --all as they are there
#
#   setup    install what is missing (scripts/setup.sh)
#   format   clang-format finds nothing to change
#   layers   who may include whom (scripts/checks/check_layers.py)
#   build    the release preset, warnings are errors, indices of vectors and views are checked: the tool, the C++ library, the
#            benchmarks and all tests; with the CUDA module where nvcc is installed
#   test     all tests, in that build
#   asan     under the address, leak and undefined-behaviour sanitizers: the tests of what reads foreign bytes or counts bytes, and of
#            exec/; of the others one executable, drawn by the commit. --all: every test
#   tsan     tests of exec/, whose ranks and streams are threads, under the thread sanitizer; where neither exec/ nor what its tests
#            share has changed since the last full check this is a skip. --all: always
#   tidy     clang-tidy over what has changed since the last full check (.clang-tidy, scripts/checks/tidy.py). --all: over all rooms
#   readme   the commands of README.md and docs/ print what they show (scripts/checks/check_readme.py)
#   torch    capture, plan, apply, train and compare in real PyTorch (scripts/checks/check_torch.py). Installs
#            Debian's python3-torch where it is missing: 170 packages, 147 MB to fetch, 634 MB on disk
#   report   the HTML reports in headless Chromium (scripts/checks/check_report.py). Installs Debian's chromium and
#            chromium-driver where they are missing: 131 MB to fetch, 440 MB on disk
#   owners   what is exported and predicted beside what XLA, Megatron-Core, torchtitan and DeepSpeed do (scripts/checks/owners.sh), by
#            Debian 13's PyTorch in a root of its own: 300 MB to fetch, and 600 MB from the Python registry
#   package  a Debian package of step `build`, installed and run in a fresh Debian 12, and a foreign program built
#            against the installed C++ library (scripts/checks/check_package.sh). Installs Debian's mmdebstrap where it is missing
#   python   the Python package as a wheel in a fresh environment, its tests, types, pages and notebooks (scripts/checks/check_python.py), of
#            the libraries of step `build`; fetches about 150 MB of Python packages. --all: compiled as it is shipped
#   demo     the short demonstration (scripts/demo.sh)
#
# docs/faults.md says which step finds which kind of fault. The last full check is the commit that scripts/checks/last_full_check names:
# --all, where all of it passed, writes it there. Where that commit is not known here, everything counts as changed.
#
# The sanitizer builds take what the steps before them leave of the cores; torch, report, package, python and the demo run beside
# the tests under sanitizers, owners beside what follows: none asserts a time.
# A failed step does not stop the others, only those that need it. A test that takes over 30 s, also
# alone, counts as failed: it wants to be split. Exit status 1 if anything failed, 2 for a step that does not exist.
# Where the time went stands at the end, and the last line counts: each test of each run, and each step
# without tests as one.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.." || exit

readonly all_steps=(setup format layers build asan test tsan tidy readme torch report package python owners demo)
readonly quick_steps=(format layers build test)
# Which read foreign bytes or count bytes, and exec's.
readonly asan_tests=(base_test json_fuzz_test corpus_test kineto_test imports_test hlo_test schedule_test models_test traces_test
  traces_golden_test job_source_test lower_test verify_test policies_test schedule_property_test exec_test exec_property_test
  emulated_device_test emulated_test)
# Of these one more, by the commit.
readonly asan_drawn=(sim_test search_test calibrate_test testbed_test predict_test diagnose_test jobs_test report_test step_test
  exec_jobs_test yardsticks_test)
readonly tsan_tests=(exec_test exec_property_test)
# What the tests under the thread sanitizer are made of, as far as it has to do with threads.
readonly threaded=(exec base/parallel.h tests/exec tests/support scripts/cmake CMakeLists.txt CMakePresets.json)
readonly longest_test=30  # seconds

jobs=$(nproc)
passed=0
failed=0
skipped=0
summary=()
slowest=()  # lines "SECONDS RUN NAME"
all=
[[ ${1:-} == --all ]] && all=yes && shift
wanted=("$@")
[[ $# -eq 0 ]] && wanted=("${all_steps[@]}")
[[ $# -eq 1 && $1 == --quick ]] && wanted=("${quick_steps[@]}")
for name in "${wanted[@]}"; do
  [[ " ${all_steps[*]} " == *" $name "* ]] && continue
  echo "test.sh: there is no step $name; there are ${all_steps[*]}, --all and --quick" >&2
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
  "${fixed_addresses[@]}" scripts/checks/run_tests.py "$folder" --longest "$longest_test" "$@" 2>&1 | tee "$log" |
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
  configure release -D DOVETAIL_CUDA="$cuda" -D DOVETAIL_CUDA_COLD="$cold" -D DOVETAIL_LIBRARY=ON \
    -D CMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS && build build all
}

# Whether any of these paths differs from the last full check.
last_full_check=$(cat scripts/checks/last_full_check)
git cat-file -e "$last_full_check^{commit}" 2>/dev/null || last_full_check=
changed() {
  [[ -n $all || -z $last_full_check ]] && return 0
  [[ -n $(git diff --name-only "$last_full_check" -- "$@"; git ls-files --others --exclude-standard -- "$@") ]]
}

# The tests that go under the address sanitizer, as arguments of build.
for_asan() {
  [[ -n $all ]] && echo all && return
  local commit
  commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
  echo "${asan_tests[@]}" "${asan_drawn[$((16#$commit % ${#asan_drawn[@]}))]}"
}
read -r -a asan_targets < <(for_asan)

build_asan() { configure_asan && with_large_pages build build-asan "${asan_targets[@]}"; }
build_tsan() { configure tsan && with_large_pages build build-tsan "${tsan_tests[@]}"; }

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

tidy() {
  local since=()
  # Other rules are for all files.
  changed .clang-tidy scripts/checks/tidy.py scripts/checks/tidy_own_code.cc || since=(--since "$last_full_check")
  cmake --preset tidy --log-level=NOTICE && scripts/checks/tidy.py build-tidy "${since[@]}"
}

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
  step torch check_with --torch python3-torch scripts/checks/check_torch.py --tool build/dovetail
  step report check_with --browser chromium scripts/checks/check_report.py --tool build/dovetail
  step package check_with --package mmdebstrap scripts/checks/check_package.sh --build build
  local rooms=(--rooms build)
  [[ -n $all ]] && rooms=()
  step python or_skip scripts/checks/check_python.py "${rooms[@]}"
}

# Fetches most of its time while the others compute.
owning() { step owners or_skip scripts/checks/owners.sh --tool build/dovetail; }

readme() { step readme scripts/checks/check_readme.py; }

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
if is_wanted tsan && ! changed "${threaded[@]}"; then
  echo "tsan: skipped: nothing with threads has changed since $last_full_check"
  skipped=$((skipped + 1))
  wanted=("${wanted[@]/#tsan/}")
fi
is_wanted asan && beside asan_build
is_wanted tsan && beside tsan_build
step format scripts/checks/format.sh --check
step layers scripts/checks/check_layers.py
step build build_release
beside readme
is_wanted test && tests "test" build
# The long run of tests that draw their cases.
is_wanted test && [[ -n $all ]] && DOVETAIL_DRAWN=10000 tests "test drawn" build --of drawn_test advice_test --longest 240
is_wanted asan && told_of asan_build
is_wanted tsan && told_of tsan_build
wait "$fetching"
beside installing
beside demonstration
# Scripts find the same under any build, and what a whole calibration runs has tests of its own.
some_of_asan=(--of "${asan_targets[@]}" -E 'CheckLayers|CheckRules|RunTests|ACalibrationRuns')
[[ -n $all ]] && some_of_asan=()
is_wanted asan && tests asan build-asan "${some_of_asan[@]}"
beside owning
# Whole calibrations and trainings only take minutes there: what they run has tests of its own.
is_wanted tsan && tests tsan build-tsan --of "${tsan_tests[@]}" -E 'Calibration|LawTest'
step tidy with_large_pages tidy
told_of readme
told_of installing
told_of demonstration
told_of owning

printf '\n==== the slowest tests\n'
printf '%s\n' "${slowest[@]}" | sort -rn | head -n 12 | awk 'NF { printf "%8.1f s  %-10s %s\n", $1, $2, $3 }'
printf '\n==== where the time went: %d s\n' $((SECONDS - started))
printf '%s\n' "${summary[@]}"
if [[ -n $all && $failed -eq 0 && ${wanted[*]} == "${all_steps[*]}" && -z $(git status --porcelain --untracked-files=no) ]]; then
  git rev-parse HEAD >scripts/checks/last_full_check
  echo "scripts/checks/last_full_check names this commit now: commit it"
fi
((skipped > 0)) && echo "$skipped skipped, listed above: this machine or this build lacks what they need"
echo "$passed passed, $failed failed"
((failed == 0))
