"""One line of the doctor's result: what was looked at, how it is, and what to type."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable


class Status(enum.Enum):
    """How something is. A job may run well in spite of a warning, and does not after a failure."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        check: its name, one word.
        status: how it is.
        text: what was found, and where: one line.
        fix: what to type, or to do; "" if there is nothing to do.
        details: more lines, as the rows of a table.
    """

    check: str
    status: Status
    text: str
    fix: str = ""
    details: tuple[str, ...] = ()


def passed(check: str, text: str, details: Iterable[str] = ()) -> Finding:
    """Returns a finding that asks for nothing."""
    return Finding(check, Status.PASSED, text, "", tuple(details))


def warned(check: str, text: str, fix: str, details: Iterable[str] = ()) -> Finding:
    """Returns a finding of something that makes jobs slow, or may make them fail."""
    return Finding(check, Status.WARNED, text, fix, tuple(details))


def failed(check: str, text: str, fix: str, details: Iterable[str] = ()) -> Finding:
    """Returns a finding of something that no job gets over."""
    return Finding(check, Status.FAILED, text, fix, tuple(details))


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns 1 where something has failed, else 0.

    Example:
        >>> exit_code([passed("memory", "enough")])
        0
    """
    return int(any(finding.status is Status.FAILED for finding in findings))
