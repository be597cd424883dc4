"""Options of horovodrun that tfhvdrun accepts and ignores.

A script that calls `tfhvdrun` instead of `horovodrun` should still run, and its user should learn
what the option no longer does.
"""

from __future__ import annotations

from dataclasses import dataclass

_TUNED = "--autotune compares the times of steps until one setting is faster beyond doubt"
_LEVELS = "tfhvd itself chooses when to reduce within each host first (TFHVD_CPU_OPERATIONS)"
_MPI = "ranks that meet over TCP wait for --start-timeout"
_THREADS = "tfhvd calls MPI from one thread"
_STAMPS = "tfhvd's log has no times; --timestamps puts one before each line of the ranks' output"


@dataclass(frozen=True)
class Idle:
    """Options that do nothing here: their spellings, the number of their values, and the reason."""

    flags: tuple[str, ...]
    values: int
    why: str


IDLE = (
    Idle(("--disable-cache",), 0, "the launcher keeps nothing between jobs"),
    Idle(("--autotune-warmup-samples",), 1, _TUNED),
    Idle(("--autotune-steps-per-sample",), 1, _TUNED),
    Idle(("--autotune-bayes-opt-max-samples",), 1, _TUNED),
    Idle(("--autotune-gaussian-process-noise",), 1, _TUNED),
    Idle(("--hierarchical-allreduce", "--no-hierarchical-allreduce"), 0, _LEVELS),
    Idle(("--hierarchical-allgather", "--no-hierarchical-allgather"), 0, _LEVELS),
    Idle(("--gloo-timeout-seconds",), 1, _MPI),
    Idle(("--jsrun",), 0, "ranks are started by mpirun, which asks the batch system for hosts"),
    Idle(("--mpi-threads-disable", "--no-mpi-threads-disable"), 0, _THREADS),
    Idle(("--num-nccl-streams",), 1, "NCCL has one stream for each communicator"),
    Idle(("--thread-affinity",), 1, "the engine's thread may run on every core"),
    Idle(("--mlsl-bgt-affinity",), 1, "MLSL is not used"),
    Idle(("--log-with-timestamp", "--log-without-timestamp"), 0, _STAMPS),
    Idle(("--log-hide-timestamp", "--no-log-hide-timestamp"), 0, _STAMPS),
)
