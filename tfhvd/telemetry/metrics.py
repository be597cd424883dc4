"""metrics: what this rank's engine has done so far, as numbers that only grow. No TensorFlow."""

from __future__ import annotations

import dataclasses

from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Counts of one rank since `hvd.init()`, all of them of this rank alone.

    To see what an epoch has added, subtract those of its beginning.

    Attributes:
        submitted: collectives that the program of this rank has called; a group counts as one.
        completed: of these, those that have ended without an error.
        failed: of these, those that have ended with one.
        tensors: the tensors of the collectives that all ranks were ready for.
        bytes: the bytes of these tensors, as this rank brought them.
        calls: operations of shared memory, MPI or NCCL that have carried them.
        fused_tensors: of `tensors`, those that shared their operation with others.
        rounds: how often all ranks agreed on what runs next, by messages or by votes.
        locked_rounds: of these, those by votes alone: buckets of steps that repeat.
        locked_steps: how often a step that repeats was locked, so that votes suffice.
        unlocked: how often such a step ended, by the reason that this rank saw: "term_over" (as all
            had agreed when they locked it), "other_collective" (this rank called what is not in
            the step), "cancelled", "negotiation" (this rank had something to say, for instance
            that it leaves), "bucket_late" (some of a bucket's tensors did not come here for long),
            "votes_late" (other ranks were not ready for long), "another_rank" (another rank
            ended it, for a reason of its own).
        inline_runs: of `locked_rounds`, those that the thread that called the last tensor ran.
        cache_hits: collectives that were announced to rank 0 by number.
        cache_misses: those that were announced by name, since they had no number or had changed.
        waits_by_rank: seconds that this rank, ready itself, waited for each rank that was the last
            to be ready. A rank other than 0 sees that in locked steps alone, and a rank of one of
            several hosts rarely.
        waits_unknown: seconds that it waited and cannot tell which rank was the last.

    Example:
        >>> now = hvd.metrics()
        >>> now.locked_rounds <= now.rounds
        True
    """

    submitted: int
    completed: int
    failed: int
    tensors: int
    bytes: int
    calls: int
    fused_tensors: int
    rounds: int
    locked_rounds: int
    locked_steps: int
    unlocked: dict[str, int]
    inline_runs: int
    cache_hits: int
    cache_misses: int
    waits_by_rank: dict[int, float]
    waits_unknown: float


def metrics() -> Metrics:
    """Returns what this rank's engine has done since `init`. Costs microseconds; waits for nobody.

    Any thread may call it, also while collectives run.

    Raises:
        NotInitializedError: before `init` and after `shutdown`.

    Example:
        >>> before = hvd.metrics()
        >>> reduced = hvd.allreduce(tf.ones([1000, 1000]))
        >>> after = hvd.metrics()
        >>> print(f"{(after.bytes - before.bytes) / 1e6:.0f} MB reduced")
    """
    membership.check()
    return read()


def read() -> Metrics:
    """Returns the same where the process is about to leave the job, too."""
    now = load_native().metrics()
    return Metrics(
        submitted=now.submitted,
        completed=now.completed,
        failed=now.failed,
        tensors=now.tensors,
        bytes=now.bytes,
        calls=now.calls,
        fused_tensors=now.fused_tensors,
        rounds=now.rounds,
        locked_rounds=now.locked_rounds,
        locked_steps=now.locked_steps,
        unlocked=dict(now.unlocked),
        inline_runs=now.inline_runs,
        cache_hits=now.cache_hits,
        cache_misses=now.cache_misses,
        waits_by_rank=dict(enumerate(now.waited)),
        waits_unknown=now.waited_for_unknown,
    )
