#!/bin/bash
# Two processes learn together on this machine, one a GPU, and each has half of the Ray workers. On several machines,
# give torchrun --nnodes, --node-rank and --rdzv-endpoint, and join the others by `ray start --address=HEAD:6379`.
set -euo pipefail
OUT=${OUT:-runs/beam}
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
ray start --head --port=6379 --include-dashboard=false
trap 'ray stop' EXIT
if [ -d "$OUT" ]; then what=(--resume "$OUT"); else what=(sokoban --search beam --out "$OUT"); fi
torchrun --nproc-per-node 2 -m tsr_gym train "${what[@]}" --ray 127.0.0.1:6379 --ray-workers 8
