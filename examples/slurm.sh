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
# Two minutes before the time is over, and where Slurm wants the nodes back, all ranks are asked to
# save and to stop. The job then waits for nodes again, and continues in the same file of output.
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

# What your cluster needs before it can start Python, for example:
#   module load openmpi
#   . "$HOME/venv/bin/activate"

if (($# == 0)); then
  set -- python examples/keras_digits.py
fi

# Runs a launcher, which gets the SIGTERM that this script gets. All ranks have stopped because they
# were asked to, if it ends with exit code 75.
run() {
  local code=0 launcher='' asked=''
  # Before the launcher begins, so that no signal ends this script alone.
  trap 'if [[ -n $launcher ]]; then kill -TERM "$launcher" 2>/dev/null || true; else asked=1; fi' TERM
  "$@" &
  launcher=$!
  if [[ -n $asked ]]; then kill -TERM "$launcher" 2>/dev/null || true; fi
  wait "$launcher" || code=$?
  while kill -0 "$launcher" 2>/dev/null; do  # the signal has ended only the wait
    code=0
    wait "$launcher" || code=$?
  done
  if ((code == 75)); then
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$code"
}

case ${LAUNCHER:-tfhvdrun} in
  tfhvdrun)
    # It reads the number of ranks and their nodes from Slurm.
    run tfhvdrun --grace 100 "$@"
    ;;
  srun)
    # tfhvdrun would give each rank its share of the cores; srun has done so by --cpus-per-task.
    export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
    export TF_NUM_INTRAOP_THREADS=$OMP_NUM_THREADS
    # Since Slurm 22.05 srun does not take --cpus-per-task from sbatch. Where a rank fails, Slurm
    # would wait for the others.
    run srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS" "$@"
    ;;
  *)
    echo "LAUNCHER is '$LAUNCHER'. Expected: tfhvdrun or srun." >&2
    exit 2
    ;;
esac
