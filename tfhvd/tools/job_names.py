"""What a user may call a job of this host: a process, the program, or a batch system's names."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tfhvd.hang import init_waiters, local_ranks
from tfhvd.launch.errors import UsageError
from tfhvd.system import procfs
from tfhvd.system.formatting import ranks_text

HELP = (
    "a rank's process, or what has started the job; the number or name that Slurm, PBS or LSF has "
    "for it; or its program, such as train.py. Without, all jobs of this host"
)

_BATCH = (
    *("SLURM_JOB_ID", "SLURM_JOB_NAME", "PBS_JOBID", "PBS_JOBNAME"),
    *("LSB_JOBID", "LSB_JOBNAME"),
)
# A process's number, also as the name of a verdict's file has it.
_NUMBER = re.compile(r"(?:.*/)?(?:tfhvd-verdict-)?(\d+)(?:\.json)?")


@dataclass(frozen=True)
class About:
    """What tells a job from the others of its host.

    Attributes:
        process: one of its ranks'.
        program: which it runs; "" if that has no name.
        user: whose it is.
        since: when that process was started, by the local time.
    """

    process: int
    program: str
    user: str
    since: str

    @staticmethod
    def of(pid: int) -> About:
        """Looks at a rank's process; what is not known any more is ""."""
        program = user = since = ""
        with contextlib.suppress(OSError):  # ended meanwhile
            user = procfs.user_of(pid)
            since = time.strftime("%F %T", time.localtime(procfs.started_at(pid)))
            program = program_of(procfs.command_of(pid))
        return About(pid, program, user, since)

    @property
    def whose(self) -> str:
        """Whose it is, and since when."""
        return f"user {self.user or 'unknown'}, since {self.since or 'unknown'}"

    def __str__(self) -> str:
        return f"{self.program or 'a program'} (process {self.process}, {self.whose})"


@dataclass(frozen=True)
class _Job:
    """Its ranks on this host, by number, and what it may be called."""

    ranks: Mapping[int, int]
    names: tuple[str, ...]

    @property
    def pid(self) -> int:
        return next(iter(self.ranks.values()))

    def has(self, pid: int) -> bool:
        return any(pid in (each, *procfs.above(each)) for each in self.ranks.values())

    def __str__(self) -> str:
        names = ", ".join(self.names) or "no name"
        about = About.of(self.pid)
        return f"  process {self.pid}: {names} ({ranks_text(self.ranks)}), {about.whose}"


def headings(jobs: Sequence[About | None]) -> list[tuple[str, ...]]:
    """What stands before what is said of each job; nothing if there is one alone.

    Args:
        jobs: all that are spoken of; None for one that has no rank on this host.
    """
    if len(jobs) < 2:
        return [() for _ in jobs]
    return [(f"Job {about or 'without a rank on this host'}:",) for about in jobs]


def process_of(name: str | None) -> int | None:
    """Finds a process by which the job is known that a user speaks of.

    Args:
        name: what he calls it; None for all jobs.

    Raises:
        UsageError: if no job of this host is called so, or several are.
    """
    if name is None:
        return None
    jobs = _jobs()
    called = [job for job in jobs if name in job.names]
    number = _NUMBER.fullmatch(name)
    pid = int(number[1]) if number else 0
    runs = number is not None and (procfs.PROC / str(pid)).exists()
    # A batch system's number may be that of a process that has nothing to do with its job.
    if runs and (not called or any(job.has(pid) for job in jobs)):
        return pid
    if len(called) == 1:
        return called[0].pid
    if called:
        what = f"{len(called)} jobs on this host are called {name}: type the process of one."
    elif number:
        what = f"there is no process {pid} on this host, and no job of that number."
    else:
        what = f"no job on this host is called {name}."
    listed = called or jobs
    if not listed:
        raise UsageError(f"{what} No job of tfhvd runs here, or none that you may look at.")
    raise UsageError("\n".join([what if called else f"{what} These run:", *map(str, listed)]))


def _jobs() -> list[_Job]:
    """Those that have begun, and those whose ranks still meet."""
    begun = [{rank.record.rank: rank.pid for rank in job} for job in local_ranks.jobs()]
    known = {pid for ranks in begun for pid in ranks.values()}
    meet = [
        {rank: arrival.pid for rank, arrival in ranks.items()}
        for ranks in init_waiters.meetings(None)
        if known.isdisjoint(arrival.pid for arrival in ranks.values())
    ]
    return [_Job(ranks, _names_of(next(iter(ranks.values())))) for ranks in (*begun, *meet)]


def _names_of(pid: int) -> tuple[str, ...]:
    """What a rank's job is called: its program, and the batch system's number and name of it."""
    names: dict[str, None] = {}
    with contextlib.suppress(OSError):  # ended meanwhile
        program = program_of(procfs.command_of(pid))
        environ = procfs.environment_of(pid)
        named = (program, PurePath(program).name, *(environ.get(each, "") for each in _BATCH))
        names = dict.fromkeys(filter(None, named))
    return tuple(names)


def program_of(command: Sequence[str]) -> str:
    """The script or the module that Python runs; another program itself; "" for `python -c`.

    Example:
        >>> program_of(["python3", "-u", "-W", "error", "train.py", "--epochs", "3"])
        'train.py'
    """
    if not command or "python" not in PurePath(command[0]).name:
        return command[0] if command else ""
    words = iter(command[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, "")
        elif word == "-m":
            return next(words, "")
        elif word == "-c":
            return ""
        elif not word.startswith("-"):
            return word
    return ""
