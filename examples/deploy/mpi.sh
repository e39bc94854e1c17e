#!/bin/bash
# Eight ranks on two hosts, by Open MPI:   HET_PS=redis://store:7000 bash mpi.sh
set -e
export HET_RUN_SECRET=$(cat /proc/sys/kernel/random/uuid) # only the ranks of this job know it
mpirun -np 8 --host a:4,b:4 -x HET_PS -x HET_RUN_SECRET python train.py
