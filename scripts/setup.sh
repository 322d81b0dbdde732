#!/usr/bin/env bash
# Installs what dovetail needs on Debian 12; does nothing where everything is there already.
#
#   scripts/setup.sh             install what is missing (as root, or with a sudo that asks for nothing)
#   scripts/setup.sh --tool      only what building and running the tool needs (10 packages): no tests, checks,
#                                shaped links, MPI or Gloo. Python only makes the build shorter
#   scripts/setup.sh --check     only say what is missing; exit 1 if anything is
#   scripts/setup.sh --torch     only Debian's PyTorch (1.13.1), which only scripts/checks/check_torch.py and
#                                scripts/campaigns/validate_torch.sh need: 147 MB to fetch, 634 MB on disk
#   scripts/setup.sh --browser   only Debian's Chromium and its driver, which only scripts/checks/check_report.py and
#                                scripts/checks/report_image.py need: 131 MB to fetch, 440 MB on disk
#   scripts/setup.sh --torch --fetch
#                                only fetch it, or what --browser or --package needs, for a later call to install
#   scripts/setup.sh --package   only what scripts/checks/check_package.sh needs to make a fresh Debian 12: mmdebstrap
#
# One line per action; never asks a question.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

# Package, and the lowest version that will do; "-" where any will.
tool="
g++                 4:12
cmake               3.25
ninja-build         -
libeigen3-dev       3.4
nlohmann-json3-dev  3.11
libcli11-dev        2.1
zlib1g-dev          -
libsqlite3-dev      3.40
libyaml-cpp-dev     0.7
python3             3.11
"
needed="$tool
libgtest-dev        1.12
libgmock-dev        1.12
libbenchmark-dev    1.7
dpkg-dev            -
file                -
openmpi-bin         4.1
libgloo-dev         -
iproute2            -
procps              -
clang               1:14
clang-format        1:14
clang-tidy          1:14
libclang-rt-14-dev  -
libclang-14-dev     -
llvm-14-dev         -
lld                 1:14
python3-jsonschema  4.10
python3-yaml        -
python3-dev         3.11
python3-venv        3.11
"

fail() {
  echo "setup: $*" >&2
  exit 1
}

case ${1:-} in
  "" | --check) ;;
  --tool) needed=$tool ;;
  # Without OpenBLAS its products take ten times as long.
  --torch) needed="python3-torch 1.13"$'\n'"libopenblas0-pthread -" ;;
  --package) needed="mmdebstrap -"$'\n'"dpkg-dev -"$'\n'"file -" ;;
  --browser) needed="chromium -"$'\n'"chromium-driver -"$'\n'"fonts-dejavu-core -" ;;
  *)
    echo "usage: scripts/setup.sh [--tool | --check | --torch [--fetch] | --browser [--fetch] | --package [--fetch]]" >&2
    exit 2
    ;;
esac
how=()
[[ ${2:-} == --fetch ]] && how=(--download-only)

command -v dpkg-query >/dev/null || fail "no dpkg here: written for Debian 12. Needed:$needed"

# The installed version of a package, or nothing.
installed_version() {
  dpkg-query --show --showformat='${db:Status-Status} ${Version}\n' "$1" 2>/dev/null |
    sed -n 's/^installed //p' | head -n 1
}

missing=()
count=0
while read -r package lowest; do
  [[ -z $package ]] && continue
  count=$((count + 1))
  version=$(installed_version "$package" || true)
  if [[ -z $version ]]; then
    echo "setup: $package is missing"
    missing+=("$package")
  elif [[ $lowest != - ]] && dpkg --compare-versions "$version" lt "$lowest"; then
    echo "setup: $package is $version, need $lowest"
    missing+=("$package")
  fi
done <<<"$needed"

if ((${#missing[@]} == 0)); then
  echo "setup: all $count packages are there"
  exit 0
fi
[[ ${1:-} == --check ]] && exit 1

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "not root and no sudo; install: ${missing[*]}"
  sudo -n true 2>/dev/null || fail "sudo asks for a password here; run: sudo scripts/setup.sh"
  echo "setup: not root, using sudo"
  as_root=(sudo -n)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive)

# What apt-get says stands nowhere but where it fails: hundreds of lines.
apt_get() {
  local said
  said=$("${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null 2>&1) ||
    fail "apt-get $1 failed:"$'\n'"$said"
}

echo "setup: apt-get update"
apt_get update
echo "setup: apt-get install ${how[*]} ${missing[*]} (a few minutes)"
apt_get install -y --no-install-recommends "${how[@]}" "${missing[@]}"
if ((${#how[@]})); then
  echo "setup: fetched ${#missing[@]} packages"
else
  echo "setup: installed ${#missing[@]} packages"
fi
