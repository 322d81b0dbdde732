#!/usr/bin/env bash
# Open MPI 4 or 5 over the hosts of a file ("node0 slots=8"), one rank per GPU.
#
#   scripts/data/clusters/openmpi.sh HOSTFILE RANKS PLAN
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
readonly hosts=$1 ranks=$2 plan=$3
first=$(awk '!/^#/ && NF { print $1; exit }' "$hosts")
exec mpirun --hostfile "$hosts" -np "$ranks" --bind-to none -x "DOVETAIL_STORE=$first:24100" \
  dovetail run --backend cuda --plan "$plan" --trace measured.json
