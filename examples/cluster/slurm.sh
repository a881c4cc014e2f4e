#!/bin/bash
#SBATCH --job-name=flatout
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
# Two minutes before the time is over every rank gets SIGINT: the step ends, a checkpoint is written, and the next job of
# the same command goes on from there.
#SBATCH --signal=INT@120
#SBATCH --requeue
set -eu
# The run directory of run.yaml lies on a file system that all nodes share. --kill-on-bad-exit: a rank that fails ends the job.
srun --mpi=pmix --kill-on-bad-exit=1 --cpu-bind=none flatout train run.yaml
