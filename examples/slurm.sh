#!/bin/bash
# Trains on two nodes with four ranks each:
#
#   sbatch examples/slurm.sh                             the digits, from the root of the repository
#   sbatch examples/slurm.sh python train.py             a program of yours
#   LAUNCHER=srun sbatch examples/slurm.sh               by srun, where Slurm's MPI plugin is PMIx
#
#SBATCH --job-name=tfhvd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

# What your cluster needs before it can start Python, for example:
#   module load openmpi
#   . "$HOME/venv/bin/activate"

if (($# == 0)); then
  set -- python examples/keras_digits.py
fi

case ${LAUNCHER:-tfhvdrun} in
  tfhvdrun)
    # It reads the number of ranks and their nodes from Slurm. It takes the place of this script,
    # so that a signal of Slurm's reaches it.
    exec tfhvdrun "$@"
    ;;
  srun)
    # tfhvdrun would give each rank its share of the cores; srun has done so by --cpus-per-task.
    export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
    export TF_NUM_INTRAOP_THREADS=$OMP_NUM_THREADS
    # Since Slurm 22.05 srun does not take --cpus-per-task from sbatch. Where a rank fails, Slurm
    # would wait for the others.
    exec srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS" "$@"
    ;;
  *)
    echo "LAUNCHER is '$LAUNCHER'. Expected: tfhvdrun or srun." >&2
    exit 2
    ;;
esac
