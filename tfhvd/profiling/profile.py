"""hvd.profile: the parts of some steps' time, on all ranks."""

from __future__ import annotations

import os
from types import TracebackType

from tfhvd.ops import allgather_object
from tfhvd.profiling import page as pages
from tfhvd.profiling import report
from tfhvd.profiling.recorder import Recorder
from tfhvd.profiling.report import Report
from tfhvd.profiling.trace import Trace
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

_GATHER = "tfhvd.profile"


class Profile:
    """A recording of some steps; `profile` makes it.

    Attributes:
        report: the parts of the time; None before the last step.
    """

    def __init__(
        self,
        steps: int,
        process_set: ProcessSet = global_process_set,
        *,
        quiet: bool = False,
        page: str | os.PathLike[str] | None = None,
    ) -> None:
        self.report: Report | None = None
        self._left = steps
        self._ranks = process_set
        self._quiet = quiet
        self._page = page
        self._recorder: Recorder | None = Recorder()

    def step(self) -> Report | None:
        """Says that a step is over. Call it after every step, on every rank.

        Returns:
            After the last step, and on every rank the same: the report, which the first rank
            prints; before it None.

        Raises:
            tf.errors.AbortedError: if a rank has failed or left.
        """
        if self._recorder is not None:
            self._recorder.step()
            self._left -= 1
            if self._left <= 0:
                self.stop()
        return self.report

    def stop(self) -> Report | None:
        """Ends the recording, on all ranks together, with the completed steps."""
        if self._recorder is not None:
            trace = self._recorder.stop()
            self._recorder = None
            self.report = together(trace, self._ranks)
            if self.report is not None and self._ranks.rank() == 0:
                tell(self.report, self._page, quiet=self._quiet)
        return self.report

    def __enter__(self) -> Profile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        elif self._recorder is not None:
            self._recorder.stop()
            self._recorder = None


def together(trace: Trace | None, ranks: ProcessSet) -> Report | None:
    """Makes the report of all ranks, each of which calls this; None if none has a trace."""
    own = None if trace is None else trace.as_fields()
    gathered = allgather_object(own, name=_GATHER, process_set=ranks)
    traces = [Trace.of_fields(fields) for fields in gathered if fields is not None]
    return report.make({trace.rank: trace for trace in traces}) if traces else None


def tell(found: Report, page: str | os.PathLike[str] | None = None, *, quiet: bool = False) -> None:
    """Prints a report unless `quiet`, and writes its page if one is requested.

    If the page cannot be written, an error is printed and the training continues.
    """
    if not quiet:
        print("\n".join(found.lines()), flush=True)
    if page is None:
        return
    try:
        pages.write(found, page)
        said = f"{os.fspath(page)}: open it in a browser."
    except OSError as error:
        said = f"The profile's page cannot be written to {os.fspath(page)}: {error.strerror}."
    if not quiet:
        print(said, flush=True)


def profile(
    steps: int = 20,
    process_set: ProcessSet = global_process_set,
    *,
    quiet: bool = False,
    page: str | os.PathLike[str] | None = None,
) -> Profile:
    """Records the next steps of a training loop, and reports the parts of their time.

    Each step is divided into parts that add up to the whole: waiting for input, Python's garbage
    collector, computing, waiting for which rank, overhead of tfhvd, communication that nothing
    hides, and the program between the steps. Then the report names the rank that the others wait
    for, the cause, and what to do about it. `profile` uses TensorFlow's profiler, of which a
    process has only one, and records within the time of the steps, except for a few hundredths of a
    second at the end.

    In Keras' `fit` use the callback `ProfileCallback`.

    Args:
        steps: how many.
        process_set: the ranks that train together: each of them calls this.
        quiet: whether the first rank prints nothing; the report is returned.
        page: a file that the first rank writes, to be opened in a browser: the report as pictures,
            with each collective over time. docs/how-to/where-the-time-goes.md says what it shows.

    Returns:
        What is told of each step by `step()`. As a context manager it ends with the block.

    Raises:
        NotInitializedError: before `init`.
        ValueError: for less than one step.
        tf.errors.AlreadyExistsError: if TensorFlow's profiler is in use.

    Example:
        >>> profile = hvd.profile(steps=3, quiet=True)
        >>> for _ in range(3):
        ...     _ = hvd.allreduce(1.0, name="loss")  # a step
        ...     report = profile.step()
        >>> report.seconds(0, "communication") < report.seconds(0, "whole")
        True
    """
    if steps < 1:
        raise ValueError(f"profile: received steps={steps}. Expected: at least 1.")
    return Profile(steps, process_set, quiet=quiet, page=page)
