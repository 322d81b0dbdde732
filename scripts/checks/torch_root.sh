#!/usr/bin/env bash
# A newer PyTorch on Debian 12, in a root of its own: Debian sid's packages, unpacked and never installed. For
# scripts/checks/check_torch.py and scripts/campaigns/validate_torch.sh with bucket_cap_mb_list, which Debian 12's 1.13.1 lacks.
#
#   sudo scripts/checks/torch_root.sh [--suite sid] [--root DIR]     fetches and unpacks; DIR/run-python is then a python3
#   sudo scripts/checks/check_torch.py --python DIR/run-python
#
#   --suite   sid (PyTorch 2.14 in November 2026) or trixie (2.6)
#   --root    default /var/cache/dovetail-torch-SUITE; about 300 MB to fetch and 1.5 GB on disk
#
# Exit codes: 0 there (also if it was there before), 2 wrong use, 77 cannot be had: no root, no network, or no such
# package. That is a skip, with the reason.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
suite=sid
root=
while (($# > 0)); do
  (($# > 1)) || { echo "torch_root.sh: $1 needs a value; see the first lines of this script" >&2; exit 2; }
  case $1 in
    --suite) suite=$2 ;;
    --root) root=$2 ;;
    *) echo "torch_root.sh: unknown option $1; see the first lines of this script" >&2; exit 2 ;;
  esac
  shift 2
done
root=${root:-/var/cache/dovetail-torch-$suite}
skip() {
  echo "torch_root.sh: skipped: $*"
  exit 77
}
((EUID == 0)) || skip "needs root, to unpack and enter another root"

if [[ ! -x $root/run-python ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  : >"$work/status"
  mirror=$(sed -n 's/^URIs: *\([^ ]*debian\)\/\? *$/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\/debian\)\/\? .*/\2/p' \
    /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)
  [[ -n $mirror ]] || skip "apt knows no mirror of Debian here"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/sources"
  options=(-q -o "Dir::State::Lists=$work/lists" -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o Acquire::Languages=none
    -o APT::Install-Recommends=false -o Debug::NoLocking=1 -o "APT::Sandbox::User=root")
  apt-get "${options[@]}" update >"$work/log" 2>&1 || skip "no package lists of $suite: $(tail -n 1 "$work/log")"
  apt-get "${options[@]}" --download-only -y install python3-torch libopenblas0-pthread >"$work/log" 2>&1 ||
    skip "no python3-torch in $suite: $(tail -n 1 "$work/log")"
  rm -rf "$root.part"
  mkdir -p "$root.part"
  for name in bin lib lib64 sbin; do
    mkdir -p "$root.part/usr/$name"
    ln -s "usr/$name" "$root.part/$name"
  done
  # Unpacked, not installed: no script of theirs runs.
  for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root.part" --keep-directory-symlink
  done
  [[ -e $root.part/usr/bin/python3 ]] || skip "the packages of $suite hold no python3"
  mkdir -p "$root.part"/{proc,dev,sys,tmp}
  cat >"$root.part/run-python" <<'RUN'
#!/usr/bin/env bash
# python3 of this root, with this machine's /proc, /dev and /sys, and its other folders under their own names.
root=$(dirname "$(realpath "$0")")
export DOVETAIL_ROOT=$root
exec unshare -m bash -c '
  mkdir -p "$DOVETAIL_ROOT/host" && mount --rbind / "$DOVETAIL_ROOT/host" || exit 77
  for name in proc dev sys tmp; do mount --rbind "/$name" "$DOVETAIL_ROOT/$name" || exit 77; done
  for name in /*; do
    case $name in /bin | /boot | /dev | /etc | /lib* | /proc | /sbin | /sys | /tmp | /usr | /lost+found) continue ;; esac
    [[ -d $name && ! -L $name ]] || continue
    case $DOVETAIL_ROOT in "$name"/*) mkdir -p "$DOVETAIL_ROOT$name"; mount --bind "$name" "$DOVETAIL_ROOT$name" ;;
      *) mkdir -p "$DOVETAIL_ROOT$name"; mount --rbind "$name" "$DOVETAIL_ROOT$name" ;; esac
  done
  mkdir -p "$DOVETAIL_ROOT/etc"; cp /etc/hosts "$DOVETAIL_ROOT/etc/hosts" 2>/dev/null
  export DOVETAIL_HOST=/host  # where programs of this machine find their libraries
  export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-pthread USE_LIBUV=0
  exec unshare --root="$DOVETAIL_ROOT" --wd="$PWD" /usr/bin/python3 "$@"' run-python "$@"
RUN
  chmod +x "$root.part/run-python"
  rm -rf "$root"
  mv "$root.part" "$root"
fi
version=$("$root/run-python" -c 'import torch; print(torch.__version__)' 2>&1) || skip "the unpacked PyTorch does not start: ${version##*$'\n'}"
echo "PyTorch $version: $root/run-python"
