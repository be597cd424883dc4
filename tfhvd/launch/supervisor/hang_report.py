"""The lines of tfhvdrun about a job that hangs, and about the ranks to blame."""

from __future__ import annotations

from pathlib import Path

from tfhvd.hang import report_file
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import Views
from tfhvd.system.formatting import ranks_text


def lines(found: Verdict, looks: list[Views], folder: Path | None = None) -> list[str]:
    """Writes all views of the ranks into a file; returns the lines for the terminal.

    Args:
        found: the verdict.
        looks: the views from which the verdict was made.
        folder: where the file goes; None for the current one.
    """
    last = report_file.write(folder or Path.cwd(), found, looks)
    return [f"tfhvdrun: {line}" for line in ("the job hangs", *found.lines, last)]


def delay(found: Verdict, looks: list[Views], evict: float) -> str:
    """Returns an early line for the terminal: which ranks the other ranks wait for.

    Args:
        found: the verdict.
        looks: the views from which the verdict was made.
        evict: seconds after which the job continues without such ranks; 0: never.
    """
    odd = [seen for seen in looks[-1].values() if seen.rank in found.ranks]
    where = f" on host {odd[0].record.host}" if len(odd) == 1 else ""
    line = next((f", at {seen.line}" for seen in odd if seen.line), "")
    then = f"after {evict:g} s the job continues without it"
    if not evict:
        then = "with --evict-after S the job would continue without it after S seconds"
    whom = f"{ranks_text(found.ranks)}{where}"
    what = f"{found.kind.value}{line}"
    return f"tfhvdrun: the other ranks wait for {whom}: {what}. `tfhvd why` says more; {then}"


def named(found: Verdict, looks: list[Views]) -> set[int]:
    """Returns the start numbers of the ranks in a verdict."""
    return {number for number, seen in looks[-1].items() if seen.rank in found.ranks}
