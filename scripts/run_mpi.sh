#!/usr/bin/env bash
# Starts N ranks of dovetail on this host with Open MPI's mpirun, which only launches: the ranks
# meet over TCP by themselves (exec/launch/store.h).
#
#   scripts/run_mpi.sh 2 run --plan plan.json
#
# DOVETAIL is the program to start (default: dovetail of build/ or of the PATH), MPIRUN_FLAGS more
# flags for mpirun, e.g. --hostfile; with several hosts set DOVETAIL_STORE=HOST:PORT to rank 0's.
# The exit code is that of the first rank that failed.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fail() {
  echo "run_mpi.sh: $1" >&2
  exit 2
}

if [ "$#" -lt 1 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  sed -n '5,9s/^# \{0,1\}//p' "$0" >&2
  fail "the number of ranks comes first"
fi
ranks=$1
shift

root=$(cd "$(dirname "$0")/.." && pwd)
program=${DOVETAIL:-$root/build/dovetail}
[ -x "$program" ] || program=$(command -v "${DOVETAIL:-dovetail}") ||
  fail "no dovetail in build/ or in the PATH; set DOVETAIL"
command -v mpirun > /dev/null || fail "mpirun is missing (package openmpi-bin)"

# Ranks pin themselves, so mpirun must not bind them; more ranks than cores are allowed.
flags=(--bind-to none --oversubscribe -np "$ranks")
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
# shellcheck disable=SC2086  # several flags in one variable
exec mpirun "${flags[@]}" ${MPIRUN_FLAGS:-} "$program" "$@"
