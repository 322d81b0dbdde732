#!/usr/bin/env bash
# PBS with MPICH, Intel MPI or HPE's mpiexec: two nodes of 8 GPUs, one rank per GPU.
#
#   qsub scripts/data/clusters/pbs.sh
#
# SPDX-License-Identifier: Apache-2.0
#PBS -N dovetail
#PBS -l select=2:ncpus=64:mpiprocs=8:ngpus=8
#PBS -l walltime=00:20:00
set -euo pipefail
cd "$PBS_O_WORKDIR"
readonly ranks=16 per_node=8 workload=gpt2

DOVETAIL_STORE=$(sort -u "$PBS_NODEFILE" | head -n 1):24100
export DOVETAIL_STORE
start=(mpiexec -n "$ranks" -ppn "$per_node")

"${start[@]}" dovetail calibrate --backend cuda --workload "$workload" --budget 60s -o here.json
dovetail plan --workload "$workload" --world "$ranks" --cluster here.json --policy exact -o plan.json
"${start[@]}" dovetail run --backend cuda --plan plan.json --trace measured.json
