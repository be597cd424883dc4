"""metrics: counts of this rank's engine, which only grow. No TensorFlow."""

from __future__ import annotations

import dataclasses

from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Counts of this rank only, since `hvd.init()`.

    The increase in an epoch is the difference from the counts at its beginning.

    Attributes:
        submitted: the collectives that the program of this rank has called; a group counts as one.
        completed: the number of these that have ended without an error.
        failed: the number of these that have ended with an error.
        tensors: the tensors of the collectives for which all ranks were ready.
        bytes: the bytes of these tensors on this rank.
        calls: the operations of shared memory, MPI or NCCL that have transferred these tensors.
        fused_tensors: the number of `tensors` that shared an operation with others.
        rounds: how often all ranks have agreed on the next collectives, by messages or by votes.
        locked_rounds: the number of `rounds` by votes only, for buckets of repeated steps.
        locked_steps: how often a repeated step was locked, so that votes suffice.
        unlocked: how often a locked step has ended, by the reason that this rank saw: "term_over"
            (the agreed term has ended), "other_collective" (this rank called a collective that is
            not in the step), "cancelled", "negotiation" (this rank had a message for the others,
            for instance that it leaves), "bucket_late" (some tensors of a bucket were missing on
            this rank for long), "votes_late" (other ranks were not ready for long), "another_rank"
            (another rank ended the step, for a reason that only this other rank knows).
        inline_runs: the number of `locked_rounds` that ran in the thread that called the last
            tensor.
        cache_hits: the collectives that were announced to rank 0 by number.
        cache_misses: the collectives that were announced by name, because they had no number or had
            changed.
        waits_by_rank: for each rank the seconds that this rank was ready and waited for it as the
            last rank. A rank other than 0 knows these only in locked steps, and in a job of several
            hosts rarely.
        waits_unknown: the seconds that this rank waited without knowing which rank was the last.

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
    """Returns the counts of this rank's engine since `init`.

    The call takes microseconds, and waits for no other rank. Any thread may call it, also while
    collectives run.

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
    """Returns the counts as `metrics` does, also while the process leaves the job."""
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
