#!/usr/bin/env bash
# Slurm: two nodes of 8 GPUs, one rank per GPU. Calibrates, plans, and runs the plan.
#
#   sbatch scripts/data/clusters/slurm.sh [WORKLOAD]
#
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=dovetail
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=00:20:00
set -euo pipefail
workload=${1:-gpt2}

# Where every rank can reach rank 0; the first node of the list is its node.
DOVETAIL_STORE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):24100
export DOVETAIL_STORE
# NCCL's threads need cores of their own: ranks are not bound to one.
ranks=(srun --cpu-bind=none)

"${ranks[@]}" dovetail selftest --backend cuda
"${ranks[@]}" dovetail calibrate --backend cuda --workload "$workload" --budget 60s -o here.json
dovetail plan --workload "$workload" --world "$SLURM_NTASKS" --cluster here.json --policy exact -o plan.json
"${ranks[@]}" dovetail run --backend cuda --plan plan.json --trace measured.json
