#!/usr/bin/env bash
# torchrun, on every node: torchrun hands out ranks and the address of rank 0.
#
#   scripts/data/clusters/torchrun.sh FIRST_NODE NODES PLAN
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
readonly first=$1 nodes=$2 plan=$3
# torchrun's own store sits on the port; dovetail takes one of the seven after it.
exec torchrun --nnodes "$nodes" --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
  --no-python dovetail run --backend cuda --plan "$plan" --trace measured.json
