#!/bin/bash
# Eight ranks on two nodes, started by Slurm:   HET_PS=redis://store:7000 sbatch slurm.sh
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
set -e
export HET_RUN_SECRET=$(cat /proc/sys/kernel/random/uuid) # only the ranks of this job know it
srun --ntasks-per-node=1 het run --check # what a process finds on each node, before training begins
srun python train.py
