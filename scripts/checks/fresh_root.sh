#!/usr/bin/env bash
# Runs the two commands of README.md as a fresh Debian 12 machine would: in a minimal Debian 12 that
# mmdebstrap (or the slower debootstrap) makes, with an empty environment, from a clone of the last commit;
# where git is missing from the files of this checkout, without its build folders.
#
#   sudo scripts/checks/fresh_root.sh                 ./scripts/demo.sh and ./scripts/test.sh, by both users
#   sudo scripts/checks/fresh_root.sh [--user root|builder|both] [--lang C|C.UTF-8] [--folder DIR] [--keep]
#                              [--base] [--copy FILE] [--] [COMMAND...]      this command instead, in the checkout
#
#   --user    root, builder (who may use sudo) or both (default), each in a Debian of its own
#   --lang    LANG of the commands; default C.UTF-8 for root and C for builder
#   --folder  where everything is put (default /var/cache/dovetail-fresh-root)
#   --base    only make the minimal system that later calls start from
#   --copy    a file to put into the user's home folder
#   --keep    leave the two used systems, DIR/debian-root and DIR/debian-builder, to look at
#
# DIR/debian-base, as it was made, stays for the next call: remove it to have it made anew.
# Packages come from where apt of this machine gets those of Debian 12. Where this machine has a CUDA
# toolkit in /usr/local/cuda, the systems see it too, read-only. /proc, /dev and /sys are mounted in
# namespaces that end with the command: nothing stays mounted, and no process of it lives on.
#
# Prints where the log of each command is, how long it took, and the last line of it:
#
#   fresh_root: builder, LANG=C: ./scripts/demo.sh (log: /var/cache/dovetail-fresh-root/logs/builder-demo.log)
#   fresh_root:   done in 231 s: from the build on: 190 s
#
# Exit codes: 0 all done, 1 a command failed, 2 wrong use, 3 this machine cannot do it.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

readonly release=bookworm
script=$(realpath "$0")
checkout=$(dirname "$(dirname "$(dirname "$script")")")
users=both
lang=
folder=/var/cache/dovetail-fresh-root
keep=
copy=
base_only=
failed=0

fail() {
  echo "fresh_root: $2" >&2
  exit "$1"
}

usage() { sed -n '6,14s/^# \{0,1\}//p' "$script"; }

# "deb URI SUITE COMPONENT", a line for each list of Debian 12 packages that apt here knows.
sources() {
  # shellcheck disable=SC2016  # apt replaces these, not the shell
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
    sort -u | grep -E " $release(-updates|-security)? main$"
}

require_tools() {
  local tool
  ((EUID == 0)) || fail 3 "needs root, to mount and to change the root folder"
  for tool in apt-get unshare setpriv; do
    command -v "$tool" >/dev/null || fail 3 "$tool is missing (packages apt, util-linux)"
  done
  [[ -d $folder/debian-base ]] || command -v mmdebstrap >/dev/null || command -v debootstrap >/dev/null ||
    fail 3 "mmdebstrap is missing (package mmdebstrap)"
  unshare --mount --pid --fork true || fail 3 "cannot make namespaces; a container needs CAP_SYS_ADMIN"
}

# bootstrap ROOT PACKAGES LISTS MIRROR: Debian's minimal set of packages and these. mmdebstrap unpacks all at
# once and is not told to sync every file to the disk: half the work of debootstrap.
bootstrap() {
  local root=$1 packages=$2 lists=$3 mirror=$4 options
  if command -v mmdebstrap >/dev/null; then
    options=$(mktemp)
    { apt-config dump | sed -n '/^Acquire::\(http\|Check\)/p'; echo 'Acquire::Languages "none";'; } >"$options"
    mmdebstrap --mode=root --variant=minbase --include="$packages" --aptopt="$options" \
      --dpkgopt=force-unsafe-io "$release" "$root" - <<<"$lists" || return 1
    rm -f "$options"
  else
    debootstrap --variant=minbase --include="$packages" "$release" "$root" "$mirror"
  fi
}
export -f bootstrap
export release

# The minimal system, with sudo and an ordinary user, for both users to start from.
make_base() {
  local base=$folder/debian-base log=$folder/logs/debootstrap.log lists mirror packages=sudo
  [[ -d $base ]] && return 0
  lists=$(sources) || fail 3 "apt here has no source of Debian 12 ($release main)"
  mirror=$(sed -n "s/^deb \(.*\) $release main$/\1/p" <<<"$lists" | head -n 1)
  [[ $mirror == https:* ]] && packages+=,ca-certificates
  echo "fresh_root: a minimal Debian 12 (log: $log)"
  rm -rf --one-file-system "$base.tmp"
  # shellcheck disable=SC2016  # expanded in there
  unshare --mount bash -c 'bootstrap "$@"' bash "$base.tmp" "$packages" "$lists" "$mirror" \
    >"$log" 2>&1 || fail 3 "the minimal system could not be made: $(tail -n 1 "$log")"
  echo "$lists" >"$base.tmp/etc/apt/sources.list"
  # How to reach them: a proxy, a snapshot that has expired.
  apt-config dump | sed -n '/^Acquire::\(http\|Check\)/p' >"$base.tmp/etc/apt/apt.conf.d/99host"
  chroot "$base.tmp" useradd --create-home --shell /bin/bash builder
  echo "builder ALL=(ALL:ALL) NOPASSWD: ALL" >"$base.tmp/etc/sudoers.d/builder"
  mv "$base.tmp" "$base"
}

home_of() { if [[ $1 == root ]]; then echo /root; else echo "/home/$1"; fi; }

# make_system USER: a copy of the base, that can look up names as this machine does, and the checkout.
make_system() {
  local root=$folder/debian-$1 clone file
  clone=$(home_of "$1")/dovetail
  rm -rf --one-file-system "$root"
  cp -a --reflink=auto "$folder/debian-base" "$root"
  for file in resolv.conf hosts hostname; do
    if [[ -e /etc/$file ]]; then cp -L "/etc/$file" "$root/etc/$file"; fi
  done
  if command -v git >/dev/null; then
    git clone --quiet --no-hardlinks "$checkout" "$root$clone"  # a hard link has one owner
  else
    mkdir "$root$clone"
    tar -C "$checkout" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$root$clone" -xf -
  fi
  chroot "$root" chown -R "$1:" "$clone"
  if [[ -n $copy ]]; then
    cp "$copy" "$root$(home_of "$1")/"
    chmod a+r "$root$(home_of "$1")/$(basename "$copy")"
  fi
}

# inside ROOT USER HOME LANG COMMAND...: the first process of namespaces of its own mounts what a running
# system has, then runs COMMAND as USER. It stays: it is who inherits processes without a parent.
inside() {
  local root=$1 user=$2 home=$3 lang=$4 toolkit path=/usr/local/bin:/usr/bin:/bin
  shift 4
  mount --bind "$root" "$root"  # `ip netns exec` wants the root folder to be a mount
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  if [[ -d /usr/local/cuda ]]; then
    toolkit=$(readlink -f /usr/local/cuda)
    [[ $toolkit == /usr/local/cuda ]] || ln -sfn "$toolkit" "$root/usr/local/cuda"
    mkdir -p "$root$toolkit"
    mount --bind "$toolkit" "$root$toolkit"
    mount -o remount,bind,ro "$root$toolkit"
  fi
  [[ $user == root ]] && path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  ulimit -Sn 1024  # of open files, as Debian has it
  # shellcheck disable=SC2016  # expanded in there
  chroot --userspec="$user" "$root" env -i HOME="$home" PATH="$path" LANG="$lang" \
    bash -c 'cd && cd dovetail && "$@"' bash "$@"
}
export -f inside

# run USER LANG COMMAND...: prints how it went, and counts it where it failed.
run() {
  local user=$1 lang=$2 start=$SECONDS code=0 log
  shift 2
  log=$folder/logs/$user-$(basename "$1" .sh).log
  echo "fresh_root: $user, LANG=$lang: $* (log: $log)"
  # shellcheck disable=SC2016  # expanded in there
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
    bash -euc 'inside "$@"' bash "$folder/debian-$user" "$user" "$(home_of "$user")" "$lang" "$@" \
    >"$log" 2>&1 </dev/null || code=$?
  if ((code == 0)); then
    echo "fresh_root:   done in $((SECONDS - start)) s: $(tail -n 1 "$log")"
  else
    echo "fresh_root:   FAILED (exit $code) after $((SECONDS - start)) s: $(tail -n 1 "$log")"
    failed=$((failed + 1))
  fi
}

while (($# > 0)); do
  case $1 in
    --user | --lang | --folder | --copy)
      (($# > 1)) || fail 2 "$1 needs a value"
      case $1 in
        --user) users=$2 ;;
        --lang) lang=$2 ;;
        --copy) copy=$2 ;;
        --folder) folder=$(realpath -m "$2") ;;
      esac
      shift 2
      ;;
    --base)
      base_only=yes
      shift
      ;;
    --keep)
      keep=yes
      shift
      ;;
    --)
      shift
      break
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      usage >&2
      fail 2 "unknown option $1"
      ;;
    *) break ;;
  esac
done
[[ $users == both ]] && users="root builder"
[[ $users =~ ^(root|builder|root builder)$ ]] || fail 2 "--user is root, builder or both, not $users"
[[ $lang =~ ^(C|C\.UTF-8)?$ ]] || fail 2 "--lang is C or C.UTF-8, not $lang: a minimal Debian has no other"

umask 022
require_tools
mkdir -p "$folder/logs"
exec {lock}>"$folder/lock"
flock --nonblock "$lock" || fail 3 "another fresh_root.sh is at work in $folder"
make_base
[[ -z $base_only ]] || exit 0
! command -v git >/dev/null || [[ -z $(git -C "$checkout" status --porcelain) ]] ||
  echo "fresh_root: there are uncommitted changes; the last commit is what runs"
for user in $users; do
  default=C
  [[ $user == root ]] && default=C.UTF-8
  make_system "$user"
  if (($# > 0)); then
    run "$user" "${lang:-$default}" "$@"
  else
    run "$user" "${lang:-$default}" ./scripts/demo.sh
    run "$user" "${lang:-$default}" ./scripts/test.sh
  fi
  [[ -n $keep ]] || rm -rf --one-file-system "$folder/debian-$user"
done
((failed == 0))
