#!/bin/bash
# Eight ranks on two nodes, which `het run` starts and, after a failure, starts anew.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
set -e
export HET_RUN_SECRET=$(cat /proc/sys/kernel/random/uuid) # only the ranks of this job know it
srun het run --nnodes "$SLURM_NNODES" --nproc 4 --max-restarts 3 --log-dir "logs/$SLURM_JOB_ID" train.py
