#!/bin/bash
# Eight ranks on two hosts, by Open MPI:   HET_PS=redis://store:7000 bash mpi.sh
set -e
mpirun -np 8 --host a:4,b:4 -x HET_PS python train.py
