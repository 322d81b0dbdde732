# For Megatron-Core 0.20: a job as arguments.
#   written by  dovetail 0 from gpt_oss_20b:tp=2,pp=5,dp=8,ep=8,zero=1,seq=8192,gbs=80,bucket=160MB,async_tp=yes,prefetch=2
#   ranks       80
#   memory      27.5 GiB a rank as it is run there, 32.7 GiB as asked (predicted)
#   note        without arguments it runs ten steps of made-up data; data, tokenizer, learning rate and steps stand behind the script: --data-path, --tokenizer-type, --lr, --train-iters, ...
#   note        Megatron has buckets on the first stage only; each other stage is reduced at once, which is counted as in buckets
GPUS_PER_NODE=8
NNODES=10
export CUDA_DEVICE_MAX_CONNECTIONS=1
MODEL=(
  --num-layers 24
  --hidden-size 2880
  --quick-geglu
  --normalization RMSNorm
  --untie-embeddings-and-output-weights
  --position-embedding-type yarn
  --max-position-embeddings 8192
  --rotary-base 150000
  --rotary-scaling-factor 32
  --vocab-size 201088
  --make-vocab-size-divisible-by 1
  --attention-dropout 0
  --hidden-dropout 0
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 8
  --kv-channels 64
  --softmax-type learnable
  --window-size "127,0"
  --window-attn-skip-freq 2
  --num-experts 32
  --moe-router-topk 4
  --moe-ffn-hidden-size 2880
  --moe-grouped-gemm
  --moe-token-dispatcher-type alltoall
)
LAYOUT=(
  --tensor-model-parallel-size 2
  --context-parallel-size 1
  --pipeline-model-parallel-size 5
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --sequence-parallel
  --tp-comm-overlap
  --pipeline-model-parallel-layout "Et*5|t*5|t*5|t*5|t*4L"
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --ddp-bucket-size 40000000
)
BATCH=(
  --seq-length 8192
  --micro-batch-size 1
  --global-batch-size 80
  --optimizer adam
)
PRECISION=(
  --bf16
)
DATA=(--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 10)
if [ $# -gt 0 ]; then DATA=("$@"); fi
: "${NODE_RANK:=${SLURM_NODEID:?NODE_RANK is needed, the number of this node from 0 on; srun sets its own}}"
if [ -n "$SLURM_JOB_NODELIST" ]; then
  : "${MASTER_ADDR:=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"
fi
: "${MASTER_ADDR:?MASTER_ADDR is needed, the host of node 0}"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "${MASTER_PORT:-29500}" pretrain_gpt.py "${MODEL[@]}" "${LAYOUT[@]}" "${BATCH[@]}" "${PRECISION[@]}" "${DATA[@]}"
