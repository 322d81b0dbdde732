#!/usr/bin/env bash
# What is exported and predicted beside what its owners' code does: XLA for eight H100 (check_xla.py), Megatron-Core and torchtitan
# (check_owners.py), DeepSpeed (check_deepspeed.py). None needs a GPU.
#
#   sudo scripts/checks/owners.sh [--tool build/dovetail] [--root DIR]
#
# Their Python and PyTorch (2.6) are Debian 13's, unpacked under DIR (default /var/cache/dovetail-torch-trixie;
# scripts/checks/torch_root.sh, 300 MB to fetch); their packages come from the Python registry (600 MB) and are thrown away afterwards.
#
# Each part's last line counts; the last line of all says the seconds. Exit codes: 0 all passed or some could not be had,
# 1 something failed, 77 nothing could be had (a skip, with the reason).
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
tool=build/dovetail
root=/var/cache/dovetail-torch-trixie
while (($# > 0)); do
  (($# > 1)) || { echo "owners.sh: $1 needs a value; see the first lines of this script" >&2; exit 2; }
  case $1 in
    --tool) tool=$2 ;;
    --root) root=$2 ;;
    *) echo "owners.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
scripts/checks/torch_root.sh --suite trixie --root "$root" || exit
python=$root/run-python
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv" || { echo "owners.sh: skipped: no environment (Debian: python3-venv)"; exit 77; }
own=$work/venv/bin/python

# fetched FOLDER PACKAGES...: wheels for that Python, unpacked.
fetched() {
  "$own" -m pip install -q --no-deps --no-compile --only-binary=:all: --ignore-requires-python --python-version "$version" \
    --root-user-action ignore --target "$work/$1" "${@:2}"
}

# DeepSpeed is a source package whose folder is enough: its operators are not built.
fetched_deepspeed() {
  fetched deepspeed hjson==3.1.0 msgpack==1.2.4 ninja==1.13.2 packaging==26.4 psutil py-cpuinfo==9.0.0 pydantic==2.14.4 \
    pydantic_core==2.50.5 annotated_types==0.8.0 typing_extensions typing_inspection tqdm einops==0.8.2 &&
    DS_BUILD_OPS=0 "$own" -m pip download -q --no-deps --no-binary=:all: -d "$work" deepspeed==0.19.8 &&
    tar -xzf "$work"/deepspeed-0.19.8.tar.gz -C "$work" && mv "$work"/deepspeed-0.19.8/deepspeed "$work/deepspeed/"
}

export USER=${USER:-root}  # PyTorch asks for it
ran=0
failed=0
# part NAME COMMAND...: 77 is a skip.
part() {
  local status=0 began=$SECONDS name=$1
  shift
  "$@" || status=$?
  echo "$name: $((SECONDS - began)) s"
  ((status == 77)) && return
  ran=1
  ((status == 0)) || failed=1
}
# XLA compiles beside the others.
(part XLA "$own" scripts/checks/check_xla.py --tool "$tool" --python "$python"; exit $((ran + failed))) >"$work/xla.log" 2>&1 &
# Megatron-Core has no wheel for newer ones; its compiled part is not used.
version=3.12 fetched megatron megatron-core==0.19.2 einops==0.8.2 setuptools==80.9.0 &&
  fetched titan torchtitan==0.2.2 tyro==1.0.17 docstring_parser==0.18.0 typing_extensions typeguard rich &&
  part "Megatron-Core, torchtitan" scripts/checks/check_owners.py --tool "$tool" --python "$python" \
    --megatron "$work/megatron" --titan "$work/titan"
fetched_deepspeed &&
  part DeepSpeed scripts/checks/check_deepspeed.py --tool "$tool" --python "$python" --packages "$work/deepspeed"
wait $!
xla=$?  # 1: it ran, 2: something failed
cat "$work/xla.log"
((xla == 0)) || ran=1
((xla < 2)) || failed=1
((ran)) || { echo "owners.sh: skipped: the packages cannot be fetched"; exit 77; }
echo "owners.sh: $SECONDS s"
exit "$failed"
