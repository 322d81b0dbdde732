#!/usr/bin/env bash
# Everything that needs one GPU, in one command and under 8 minutes: builds here, tests itself, measures
# the GPU, predicts and executes 36 schedules, and writes what it found as JSON.
#
#   scripts/gpu_check.sh [--out DIR] [--deps DIR] [--build DIR] [--workload NAME] [--dry-run]
#   scripts/gpu_check.sh --pack-deps DIR      on a machine that has the packages: gather them
#
#   --out DIR       what was found (default build-gpu/check); a copy goes to traces/measured/ by hand
#   --deps DIR      headers that may be absent here: a prefix as --pack-deps makes it, looked at before
#                   the machine's own (nlohmann-json, CLI11, Eigen; programs in DIR/usr/bin, if any)
#   --build DIR     where to build (default build-gpu)
#   --workload NAME a model of the zoo (default gpt2)
#   --dry-run       only print the steps, with their deadlines
#
# Needs no network, no MPI, no Gloo, no GoogleTest. Needs g++, cmake from 3.25 on, nvcc, NCCL (also from
# Python wheels), python3. Every step has a deadline and all together 470 s; a step that fails or is
# late does not stop those that can do without it. One GPU: collectives are stood in for by sends of the
# rank to itself, which are NCCL's own kernels with the given number of thread blocks, but use no link.
#
# Exit codes: 0 all steps done, 1 a step failed or was late, 2 wrong use, 3 no GPU or no compiler.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

readonly total_s=470
out="build-gpu/check"
build="build-gpu"
deps=
workload=gpt2
world=2  # ranks of the plans; one plays them all
dry_run=
pack=
readonly ctas=(4 16 32)
readonly issues=(eager graph)
# One bucket, overlapped or not, about 3 and about 12 for gpt2's 475 MiB of gradients; waits per bucket
# or for the whole stream.
readonly policies=(
  "one-bucket"
  "no-overlap"
  "threshold:threshold=160MiB"
  "threshold:threshold=160MiB,scope=whole-stream"
  "threshold:threshold=24MiB"
  "threshold:threshold=24MiB,scope=whole-stream"
)

fail() {
  echo "gpu_check: $2" >&2
  exit "$1"
}

usage() { sed -n '2,23s/^# \{0,1\}//p' "$0"; }

# Copies the packages that a bare machine may lack into the prefix $1.
pack_deps() {
  local target=$1 package file
  command -v dpkg >/dev/null || fail 3 "--pack-deps copies Debian packages; there is no dpkg here"
  for package in nlohmann-json3-dev libcli11-dev libeigen3-dev; do
    dpkg -s "$package" >/dev/null 2>&1 || fail 3 "--pack-deps: package $package is not installed"
    while read -r file; do
      [[ -f $file && $file != /usr/share/doc/* ]] || continue
      install -D -m 644 "$file" "$target$file" || fail 3 "--pack-deps: cannot write $target$file"
    done < <(dpkg -L "$package")
  done
  echo "gpu_check: packed $(find "$target" -type f | wc -l) files into $target"
}

while (($# > 0)); do
  case $1 in
    --out | --deps | --build | --workload | --pack-deps)
      (($# > 1)) || fail 2 "$1 needs a value"
      case $1 in
        --out) out=$2 ;;
        --deps) deps=$2 ;;
        --build) build=$2 ;;
        --workload) workload=$2 ;;
        --pack-deps) pack=$2 ;;
      esac
      shift 2
      ;;
    --dry-run)
      dry_run=yes
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      fail 2 "unknown option $1"
      ;;
  esac
done

if [[ -n $pack ]]; then
  pack_deps "$pack"
  exit 0
fi

readonly dovetail=$build/dovetail
readonly device=(--backend cuda --stand-in send-to-self)
start=$SECONDS
failed=0

# step NAME SECONDS COMMAND...: runs it with a deadline, its output in OUT/NAME.log. Prints one line.
step() {
  local name=$1 limit=$2 left begin=$SECONDS code result
  shift 2
  if [[ -n $dry_run ]]; then
    printf '%-22s %4d s  %s\n' "$name" "$limit" "$*"
    return 0
  fi
  left=$((total_s - (SECONDS - start)))
  if ((left < 5)); then
    failed=$((failed + 1))
    printf '{"step": "%s", "seconds": 0, "result": "no time left"}\n' "$name" >>"$out/steps.jsonl"
    echo "gpu_check: $name: no time left"
    return 1
  fi
  timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$out/$name.log" 2>&1
  code=$?
  case $code in
    0) result=ok ;;
    124 | 137) result=late ;;
    *) result="exit $code" ;;
  esac
  printf '{"step": "%s", "seconds": %d, "result": "%s"}\n' "$name" $((SECONDS - begin)) "$result" \
    >>"$out/steps.jsonl"
  if ((code == 0)); then
    echo "gpu_check: $name: done in $((SECONDS - begin)) s"
    return 0
  fi
  failed=$((failed + 1))
  echo "gpu_check: $name: FAILED (exit $code) after $((SECONDS - begin)) s: $(tail -n 1 "$out/$name.log")"
  return 1
}

# Runs "$@" with its standard output in file $1; for step, which takes a command.
to_file() {
  local file=$1
  shift
  "$@" >"$file"
}
export -f to_file

# The architecture of this GPU, so that nothing else is compiled; 90 where it cannot be asked.
architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d ' .')
  echo "${found:-90}"
}

# NCCL may come as a Python wheel.
wheel_of_nccl() {
  python3 -c 'import nvidia.nccl, os; print(os.path.dirname(list(nvidia.nccl.__path__)[0] + "/x"))' 2>/dev/null
}

find_tools() {
  [[ -n $deps ]] && PATH=$deps/usr/bin:$PATH
  local wheel tool
  wheel=$(wheel_of_nccl)
  if [[ -n $wheel ]]; then
    export NCCL_ROOT=${NCCL_ROOT:-$wheel}
    export LD_LIBRARY_PATH=$wheel/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
  [[ -n $dry_run ]] && return 0
  for tool in cmake g++ python3 timeout; do
    command -v "$tool" >/dev/null || fail 3 "$tool is missing here"
  done
  if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
    fail 3 "nvcc is missing here"
  fi
  [[ -e /proc/driver/nvidia/version || -e /dev/nvidiactl ]] || fail 3 "no NVIDIA driver is loaded here"
}

configure_and_build() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DDOVETAIL_CUDA=ON -DDOVETAIL_GLOO=OFF -DDOVETAIL_TESTS=OFF
                 -DDOVETAIL_BENCHMARKS=OFF "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)")
  [[ -n $deps ]] && options+=("-DCMAKE_PREFIX_PATH=$deps/usr")
  command -v ninja >/dev/null && options+=(-G Ninja)
  step configure 40 cmake -S . -B "$build" "${options[@]}" &&
    step build 240 cmake --build "$build" -j "$(nproc)" --target dovetail dovetail_cuda
}

# One calibration per way of issuing and number of thread blocks: each is another machine to a plan.
calibrate_all() {
  local issue blocks flags
  for issue in "${issues[@]}"; do
    flags=()
    [[ $issue == graph ]] && flags=(--graph)
    for blocks in "${ctas[@]}"; do
      step "calibrate-$issue-$blocks" 30 "$dovetail" calibrate "${device[@]}" "${flags[@]}" \
        --max-ctas "$blocks" --workload "$workload" --world "$world" --budget 5s \
        --name "gpu-$issue-$blocks" -o "$out/calibration-$issue-$blocks.json"
    done
  done
}

# Plans with their predictions, then one run per configuration, its plans in turn: not all at once,
# since every plan has its own memory on the GPU.
schedules() {
  local issue blocks index plan plans flags
  for issue in "${issues[@]}"; do
    flags=()
    [[ $issue == graph ]] && flags=(--graph)
    for blocks in "${ctas[@]}"; do
      plans=()
      for index in "${!policies[@]}"; do
        plan=$out/plan-$issue-$blocks-$index.json
        step "plan-$issue-$blocks-$index" 10 "$dovetail" plan --workload "$workload" --world "$world" \
          --cluster "$out/calibration-$issue-$blocks.json" --policy "${policies[index]}" -o "$plan" &&
          step "ctas-$issue-$blocks-$index" 5 python3 scripts/gpu_report.py set-ctas "$plan" "$blocks" &&
          plans+=(--plan "$plan")
      done
      ((${#plans[@]} > 0)) || continue
      step "run-$issue-$blocks" 40 bash -c 'to_file "$@"' bash "$out/run-$issue-$blocks.json" \
        "$dovetail" run "${device[@]}" --ranks 1 "${flags[@]}" "${plans[@]}" \
        --warmup 2 --steps 5 --rounds 2 --json
    done
  done
}

sanitize() {
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ -z $dry_run && ! -x $sanitizer ]]; then
    echo '{"step": "sanitizer", "seconds": 0, "result": "skipped: no compute-sanitizer here"}' >>"$out/steps.jsonl"
    echo "gpu_check: sanitizer: skipped, there is no compute-sanitizer here"
    return 0
  fi
  step plan-small 10 "$dovetail" plan --workload mlp --world 8 --cluster h200x8 --policy per-tensor \
    -o "$out/plan-small.json" ||
    return 1
  step sanitizer 60 "$sanitizer" --tool memcheck --error-exitcode 9 "$dovetail" run "${device[@]}" \
    --ranks 1 --plan "$out/plan-small.json" --warmup 1 --steps 1 --rounds 1
}

find_tools
if [[ -z $dry_run ]]; then
  mkdir -p "$out" || fail 2 "cannot make $out"
  : >"$out/steps.jsonl"
fi
step facts 20 python3 scripts/gpu_report.py facts "$out/facts.json"
if configure_and_build; then
  step selftest 120 bash -c 'to_file "$@"' bash "$out/selftest.json" "$dovetail" selftest --backend all --json
  calibrate_all
  schedules
  sanitize
fi
step report 10 python3 scripts/gpu_report.py report "$out"
[[ -n $dry_run ]] && exit 0
cat "$out/report.log"
echo "gpu_check: $failed steps failed, $((SECONDS - start)) s; results in $out"
((failed == 0))
