#!/usr/bin/env bash
# Plays ssh for a launcher: runs the command on a "host" of its own on this machine.
#
#   host_agent.sh [-OPTION...] HOST COMMAND...
#
# The host has a name (a UTS namespace) and a clock (a time namespace, as many days ahead as its name has
# letters) of its own; file system and network are this machine's.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
while [[ ${1:-} == -* ]]; do
  [[ $1 == -[lp] ]] && shift
  shift
done
host=$1
shift
exec unshare --uts --time --monotonic $((86400 * ${#host})) --fork \
  bash -c 'hostname "$1" && shift && eval "$@"' bash "$host" "$@"
