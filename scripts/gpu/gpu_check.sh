#!/usr/bin/env bash
# Everything that needs one GPU, in one command and under 10 minutes: builds here, tests itself, measures
# the GPU, predicts and executes 36 schedules, checks the values of 32 plans, and writes what it found as JSON.
#
#   scripts/gpu/gpu_check.sh [--out DIR] [--deps DIR] [--build DIR] [--workload NAME] [--dry-run]
#   scripts/gpu/gpu_check.sh --prebuilt DIR [--only PATTERN] ...       with programs that were built elsewhere
#   scripts/gpu/gpu_check.sh --pack-deps DIR      on a machine that has the packages: gather them
#
#   --out DIR       what was found (default build-gpu/check); a copy goes to traces/measured/ by hand
#   --deps DIR      headers that may be absent here: a prefix as --pack-deps makes it, looked at before
#                   the machine's own (nlohmann-json, CLI11, Eigen; programs in DIR/usr/bin, if any)
#   --build DIR     where to build (default build-gpu)
#   --prebuilt DIR  build nothing: DIR has dovetail, libdovetail_cuda.so and dovetail_conformance, built for
#                   this GPU (targets of these names). Needs no compiler, cmake or nvcc
#   --only PATTERN  only steps whose names match, e.g. values (with the plans that they execute)
#   --workload NAME a model of the zoo (default gpt2)
#   --gpus N        use so many (default: all that nvidia-smi lists)
#   --dry-run       only print the steps, with their deadlines, and the most that all of them take
#
# Needs no network, no MPI, no Gloo, no GoogleTest. Needs g++, cmake from 3.25 on, nvcc, NCCL and cuBLAS
# (also from Python wheels), python3. Every step has a deadline, and all together 560 s (415 s with --prebuilt); a
# step that fails or is late does not stop those that can do without it, and what was found by then is reported.
# One GPU: collectives are stood in for by sends of the rank to itself, which are NCCL's own kernels with the given
# number of thread blocks, but use no link. First of all the rules that the executor relies on are probed
# (tests/emulated/conformance.cc): where an answer differs, the emulated device of the tests is wrong. Values are
# checked of plans of every kind, by 1, 2 and 4 ranks that share the GPU. With two GPUs or more, and 180 s more:
# real collectives by kind, size, group and thread blocks, a rank on each GPU, and a small training job under
# several schedules (in the self-test). All that is measured is in one file, DIR/measured.json, and everything in
# DIR.tar.gz.
#
# Exit codes: 0 all steps done, 1 a step failed or was late, 2 wrong use, 3 no GPU or no compiler.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
readonly caller=$PWD  # paths that are given count from here
cd "$(dirname "$0")/../.." || exit 2

readonly total_s=545   # of all steps but the report
readonly built_s=145   # less, where nothing is built
readonly report_s=15
readonly several_s=180 # more, with several GPUs
out="build-gpu/check"
build="build-gpu"
deps=
prebuilt=
only=
workload=gpt2
gpus=
world=2  # ranks of the plans; one plays them all
dry_run=
pack=
# Few thread blocks make a copy within the GPU as slow, beside the computing, as a link is: by some 20 GB/s
# per block, gpt2's 475 MiB take a third of a step in tf32 with one and a twentieth with 8.
readonly ctas=(1 2 8)
readonly issues=(eager graph)
# One bucket, overlapped or not, 3 and about 12 for gpt2's 475 MiB of gradients; waits per bucket
# or for the whole stream.
readonly policies=(
  "one-bucket"
  "no-overlap"
  "threshold:cap=160MiB"
  "threshold:cap=160MiB,scope=whole-stream"
  "threshold:cap=24MiB"
  "threshold:cap=24MiB,scope=whole-stream"
)
# Whose values are checked: in place, packed, and scattered.
readonly exact_policies=(
  "threshold:cap=8MiB"
  "torch-ddp:cap=8MiB"
  "sharded:cap=8MiB"
)

# Plans of every kind, whose values two ranks check that share the GPU: what each policy and each framework's
# words decide.
readonly value_policies=(
  "naive" "per-tensor" "one-bucket" "no-overlap"
  "exact" "exact:mode=copy,wait=end-of-backward" "mg-wfbp" "asc-wfbp"
  "threshold:cap=8MiB,streams=2" "horovod" "xla"
  "torch-ddp:cap=8MiB,k=3,sync=every" "gradient-merge:cap=25MiB,k=2"
  "source-first-fit:elements=50331648" "source-improved:cap=25MiB"
  "sharded:cap=25MiB,p=2,gather=next-forward" "megatron" "deepspeed" "dear:cap=25MiB"
  "zero3" "fsdp2" "fsdp:blocks=layer,forward=2,backward=2"
  "pipeline:cap=25MiB,kind=1f1b,stages=2" "pipeline:kind=1f1b,stages=2+fsdp:blocks=layer,forward=1,backward=1"
)
# Jobs: ranks, what is divided, the model of it (write_models), and how. Small, and of every kind of group.
readonly value_jobs=(
  "2 tp llama tp=2,gbs=2"
  "2 pp llama pp=2,gbs=4"
  "2 zbv llama pp=2,vp=2,schedule=zbv,gbs=4"
  "2 cp llama cp=2,gbs=2"
  "2 dp_shard llama dp_shard=2,gbs=4"
  "2 ep mixtral dp=2,ep=2,gbs=2"
  "4 tp-pp llama tp=2,pp=2,gbs=4"
  "4 hsdp llama dp=2,dp_shard=2,gbs=4"
)

fail() {
  echo "gpu_check: $2" >&2
  exit "$1"
}

usage() { sed -n '2,32s/^# \{0,1\}//p' "$0"; }

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
    --out | --deps | --build | --prebuilt | --only | --workload | --gpus | --pack-deps)
      (($# > 1)) || fail 2 "$1 needs a value"
      path=$2
      [[ $path == /* ]] || path=$caller/$path
      case $1 in
        --out) out=$path ;;
        --deps) deps=$path ;;
        --build) build=$path ;;
        --prebuilt) prebuilt=$path ;;
        --only) only=$2 ;;
        --workload) workload=$2 ;;
        --gpus) gpus=$2 ;;
        --pack-deps) pack=$path ;;
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

[[ -n $gpus ]] || gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
[[ $gpus =~ ^[0-9]{1,2}$ ]] || fail 2 "--gpus: expected a number, found $gpus"
if [[ -n $prebuilt ]]; then
  for file in dovetail libdovetail_cuda.so dovetail_conformance; do
    [[ -f $prebuilt/$file ]] || fail 2 "--prebuilt: there is no $file in $prebuilt"
  done
  build=$prebuilt
  export DOVETAIL_DATA=${DOVETAIL_DATA:-$PWD/models} DOVETAIL_CUDA_MODULE=$prebuilt/libdovetail_cuda.so
fi
readonly dovetail=$build/dovetail
readonly device=(--backend cuda --stand-in send-to-self --f32-math tf32)
found_options=()  # for CMake: what wheels hold
start=$SECONDS
most_s=$((total_s + (gpus > 1 ? several_s : 0)))  # of all steps but the report
[[ -n $prebuilt ]] && most_s=$((most_s - built_s))
deadline=$((start + most_s))
failed=0

# By --only. What was found is always told.
is_wanted() { [[ -z $only || $1 =~ $only || $1 == report ]]; }

# step NAME SECONDS COMMAND...: runs it with a deadline, its output in OUT/NAME.log. Prints one line.
step() {
  local name=$1 limit=$2 left begin=$SECONDS code result
  shift 2
  is_wanted "$name" || return 0
  if [[ -n $dry_run ]]; then
    printf '%-22s %4d s  %s\n' "$name" "$limit" "$*"
    return 0
  fi
  left=$((deadline - SECONDS))
  if ((left < 5)); then
    failed=$((failed + 1))
    printf '{"step": "%s", "seconds": 0, "result": "no time left"}\n' "$name" >>"$out/steps.jsonl"
    echo "gpu_check: $name: no time left"
    return 1
  fi
  timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$out/$name.log" 2>&1
  code=$?
  if ((code != 0)) && [[ $name == sanitizer* ]] && grep -q 'Device not supported' "$out/$name.log"; then
    printf '{"step": "%s", "seconds": %d, "result": "skipped: compute-sanitizer may not watch this device"}\n' \
      "$name" $((SECONDS - begin)) >>"$out/steps.jsonl"
    echo "gpu_check: $name: skipped, compute-sanitizer may not watch this device"
    return 0
  fi
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

# Runs the command behind them as $1 ranks that share the GPU, and rank 0's standard output goes to file $2. For
# values, never for times: the GPU hands over in slices of milliseconds (docs/gpu.md).
sharing_ranks() {
  local ranks=$1 file=$2 code=0 rank others=()
  shift 2
  export WORLD_SIZE=$ranks LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
  export NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_IB_DISABLE=1
  export NCCL_MNNVL_ENABLE=0 NCCL_RAS_ENABLE=0 NCCL_PROTO=Simple
  for ((rank = 1; rank < ranks; ++rank)); do
    RANK=$rank NCCL_HOSTID=dovetail-rank-$rank "$@" >/dev/null &
    others+=($!)
  done
  RANK=0 NCCL_HOSTID=dovetail-rank-0 "$@" >"$file" || code=$?
  for rank in "${others[@]}"; do wait "$rank" || code=$?; done
  return "$code"
}
export -f sharing_ranks

# The architecture of this GPU, so that nothing else is compiled; 90 where it cannot be asked: a broken
# nvidia-smi says so on its standard output.
architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d ' .')
  [[ $found =~ ^[0-9]{2,3}$ ]] || found=90
  echo "$found"
}

# The folder of a Python wheel's package, if there is one.
wheel_of() {
  python3 -c 'import importlib, sys
print(list(importlib.import_module(sys.argv[1]).__path__)[0])' "$1" 2>/dev/null
}

# Puts a folder of libraries before the others.
use_libraries() { export LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; }

# NCCL and cuBLAS may come as Python wheels, where only the toolkit's compiler is installed. A wheel holds
# no libcublas.so, the name that CMake looks for, so the file is named.
find_wheels() {
  local wheel toolkit name
  toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/bin/nvcc)")")")
  wheel=$(wheel_of nvidia.cu13)
  if [[ -f $wheel/include/cublas_v2.h && ! -f $toolkit/include/cublas_v2.h ]] &&
    ! compgen -G "$toolkit/targets/*/include/cublas_v2.h" >/dev/null; then
    export CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$wheel/include
    for name in cublas cublasLt; do
      found_options+=("-DCUDA_${name}_LIBRARY=$(compgen -G "$wheel/lib/lib$name.so.*" | head -n 1)")
    done
    use_libraries "$wheel/lib"
  fi
  wheel=$(wheel_of nvidia.nccl)
  if [[ -z ${NCCL_ROOT:-} && -f $wheel/include/nccl.h ]]; then export NCCL_ROOT=$wheel; fi
  if [[ -n ${NCCL_ROOT:-} ]]; then use_libraries "$NCCL_ROOT/lib"; fi
}

find_tools() {
  [[ -n $deps ]] && PATH=$deps/usr/bin:$PATH
  PATH=$PATH:/usr/local/cuda/bin
  local tool
  find_wheels
  [[ -n $dry_run ]] && return 0
  local needed=(python3 timeout)
  [[ -n $prebuilt ]] || needed+=(cmake g++ nvcc)
  for tool in "${needed[@]}"; do
    command -v "$tool" >/dev/null || fail 3 "$tool is missing here"
  done
  # The emulated device of the tests needs no driver.
  [[ -n ${DOVETAIL_EMULATED:-} || -e /proc/driver/nvidia/version || -e /dev/nvidiactl ]] || fail 3 "no NVIDIA driver is loaded here"
}

# The folder for what is found, without what an earlier run left in it: that was not measured now.
empty_folder() {
  mkdir -p "$out" || fail 2 "cannot make $out"
  rm -f "$out"/{facts,selftest,errors,measured}.json \
    "$out"/{calibration,collectives,plan,run,trace,exact,values}-*.json \
    "$out"/*.log
  : >"$out/steps.jsonl"
}

configure_and_build() {
  [[ -n $prebuilt ]] && return 0
  local options=(-DCMAKE_BUILD_TYPE=Release -DDOVETAIL_CUDA=ON -DDOVETAIL_GLOO=OFF -DDOVETAIL_TESTS=OFF
                 -DDOVETAIL_BENCHMARKS=OFF "-DCMAKE_CUDA_ARCHITECTURES=$(architecture)"
                 "${found_options[@]}")
  [[ -n $deps ]] && options+=("-DCMAKE_PREFIX_PATH=$deps/usr")
  command -v ninja >/dev/null && options+=(-G Ninja)
  step configure 60 cmake -S . -B "$build" "${options[@]}" &&
    step build 240 cmake --build "$build" -j "$(nproc)" --target dovetail dovetail_cuda dovetail_conformance
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
      [[ -n $dry_run || -f $out/calibration-$issue-$blocks.json ]] || continue
      plans=()
      for index in "${!policies[@]}"; do
        plan=$out/plan-$issue-$blocks-$index.json
        step "plan-$issue-$blocks-$index" 10 "$dovetail" plan --workload "$workload" --world "$world" \
          --cluster "$out/calibration-$issue-$blocks.json" --policy "${policies[index]}" -o "$plan" &&
          step "ctas-$issue-$blocks-$index" 5 python3 scripts/gpu/gpu_report.py set-ctas "$plan" "$blocks" &&
          plans+=(--plan "$plan" --trace "$out/trace-$issue-$blocks-$index.json")
      done
      ((${#plans[@]} > 0)) || continue
      step "run-$issue-$blocks" 40 bash -c 'to_file "$@"' bash "$out/run-$issue-$blocks.json" \
        "$dovetail" run "${device[@]}" --ranks 1 "${flags[@]}" "${plans[@]}" \
        --warmup 2 --steps 5 --rounds 2 --json
    done
  done
}

# Says that a step was left out, and why.
left_out() {
  is_wanted "$1" || return 0
  if [[ -n $dry_run ]]; then
    printf '%-22s %4d s  left out: %s\n' "$1" 1 "$2"
    return 0
  fi
  printf '{"step": "%s", "seconds": 0, "result": "skipped: %s"}\n' "$1" "$2" >>"$out/steps.jsonl"
  echo "gpu_check: $1: skipped, $2"
}

# Real collectives of ranks with a GPU each: every kind, group and size that plans need, for NCCL's own choice of
# thread blocks and for two limits.
collectives() {
  local blocks flags
  if ((gpus < 2)); then
    left_out collectives "one GPU has no peer: nothing can be reduced over a link"
    return 0
  fi
  for blocks in 0 4 16; do
    flags=()
    ((blocks == 0)) || flags=(--max-ctas "$blocks")
    step "collectives-$blocks" 60 "$dovetail" calibrate --backend cuda --ranks "$gpus" --workload mlp \
      --budget 10s "${flags[@]}" --name "gpus-$gpus-ctas-$blocks" -o "$out/collectives-$blocks.json"
  done
}

# Every reduced gradient element against its exact value: real collectives of one rank, and of two that
# share the GPU. A stand-in reduces nothing, so the schedules above have no values to check.
exact() {
  local ranks issue index plan plans flags
  for ranks in 1 2; do
    plans=()
    for index in "${!exact_policies[@]}"; do
      plan=$out/plan-exact-$ranks-$index.json
      step "plan-exact-$ranks-$index" 10 "$dovetail" plan --workload mlp --world "$ranks" \
        --cluster a100x2_nv12 --policy "${exact_policies[index]}" -o "$plan" && plans+=(--plan "$plan")
    done
    ((${#plans[@]} > 0)) || continue
    for issue in "${issues[@]}"; do
      flags=(--backend cuda --device 0 --warmup 2 --steps 2 --rounds 1 --json "${plans[@]}")
      [[ $issue == graph ]] && flags+=(--graph)
      if ((ranks == 1)); then
        step "exact-1-$issue" 30 bash -c 'to_file "$@"' bash "$out/exact-1-$issue.json" \
          "$dovetail" run --ranks 1 "${flags[@]}"
      else
        step "exact-2-$issue" 40 bash -c 'sharing_ranks "$@"' bash 2 "$out/exact-2-$issue.json" \
          "$dovetail" run "${flags[@]}"
      fi
    done
  done
}

# What value_jobs divide: models as Hugging Face writes them, small enough for a processor.
write_models() {
  local both='"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
              "vocab_size": 1024, "tie_word_embeddings": false'
  echo "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, $both}" >"$out/llama.json"
  echo "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_local_experts\": 4,
         \"num_experts_per_tok\": 2, $both}" >"$out/mixtral.json"
}

# Executes plan $2 by $3 ranks, as step values-$1.
checked() {
  step "values-$1" 25 bash -c 'sharing_ranks "$@"' bash "$3" "$out/values-$1.json" \
    "$dovetail" run --backend cuda --device 0 --plan "$2" --warmup 1 --steps 2 --rounds 1 --json
}

# Every element of every kind of plan. A plan is made in a moment, on any machine; --only values makes them too.
values() {
  local index job ranks name model how plan
  [[ -n $dry_run ]] || write_models
  for index in "${!value_policies[@]}"; do
    plan=$out/plan-values-$index.json
    step "plan-values-$index" 10 "$dovetail" plan --workload mlp --world 2 --cluster a100x2_nv12 \
      --policy "${value_policies[index]}" -o "$plan" && checked "$index" "$plan" 2
  done
  for job in "${value_jobs[@]}"; do
    read -r ranks name model how <<<"$job"
    plan=$out/plan-values-$name.json
    step "plan-values-$name" 10 "$dovetail" plan --job "$out/$model.json:$how,seq=128,mbs=1" \
      --cluster h100x8 -o "$plan" && checked "$name" "$plan" "$ranks"
  done
}

# The stand-in's kernels, then those that make and compare values. Errors that calls return are the
# program's to report: NCCL asks on purpose for what a driver may refuse.
sanitize() {
  local sanitizer flags=(--warmup 1 --steps 1 --rounds 1)
  sanitizer=$(command -v compute-sanitizer)
  if [[ -z $dry_run && -z $sanitizer ]]; then
    left_out sanitizer "there is no compute-sanitizer here"
    return 0
  fi
  local memcheck=("${sanitizer:-compute-sanitizer}" --tool memcheck --report-api-errors no --target-processes all
                  --error-exitcode 9)
  step plan-small 10 "$dovetail" plan --workload mlp --world 8 --cluster h200x8 --policy per-tensor \
    -o "$out/plan-small.json" &&
    step sanitizer 75 "${memcheck[@]}" "$dovetail" run "${device[@]}" --ranks 1 \
      --plan "$out/plan-small.json" "${flags[@]}"
  step sanitizer-exact 45 "${memcheck[@]}" "$dovetail" run --backend cuda --ranks 1 \
    --plan "$out/plan-exact-1-1.json" "${flags[@]}"
}

# One file to bring home, where a machine gives back few.
pack() {
  tar czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")" && echo "gpu_check: everything is in $out.tar.gz"
}

find_tools
[[ -n $dry_run ]] || empty_folder
step facts 20 python3 scripts/gpu/gpu_report.py facts "$out/facts.json"
[[ -f $out/facts.log ]] && grep '^gpu_check:' "$out/facts.log"
if configure_and_build; then
  step conformance 30 "$build/dovetail_conformance"
  step selftest $((gpus > 1 ? 180 : 120)) bash -c 'to_file "$@"' bash "$out/selftest.json" "$dovetail" selftest --backend all --json
  collectives
  calibrate_all
  schedules
  exact
  values
  sanitize
fi
deadline=$((SECONDS + report_s))  # its own time: it tells what was found, however late it is
step report "$report_s" python3 scripts/gpu/gpu_report.py report "$out"
if [[ -n $dry_run ]]; then
  printf '%-22s %4d s  at most, of all steps together\n' total $((most_s + report_s))
  exit 0
fi
cat "$out/report.log"
pack
echo "gpu_check: $failed steps failed, $((SECONDS - start)) s; results in $out"
((failed == 0))
