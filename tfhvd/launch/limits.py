"""For how long the launcher waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """In seconds.

    Attributes:
        start: until all ranks must have started.
        stop: between asking ranks to stop and killing them.
        grace: the same, where SIGTERM asks us to stop: ranks may want to save their state.
        stopped: until a rank that is stopped (SIGSTOP) is killed, once another rank has come to its
            end and waits for it; 0: never.
        hang: without progress, after which to find out why ranks wait; 0: never.
        evict: after which a job goes on without ranks that keep the others, because they are
            stopped or do nothing; 0: never.
    """

    start: float
    stop: float
    grace: float
    stopped: float = 0.0
    hang: float = 0.0
    evict: float = 0.0
