"""Survey -> findings: each module has one question, as a pure function."""

from __future__ import annotations

from tfhvd.tools.doctor.checks import (
    binding,
    clocks,
    gpus,
    interfaces,
    limits,
    links,
    load,
    meeting,
    memory,
    room,
    versions,
)
from tfhvd.tools.doctor.finding import Finding
from tfhvd.tools.doctor.survey import Survey

# In the order in which a person would look.
_CHECKS = (versions, binding, load, memory, room, limits, interfaces, links, clocks, gpus, meeting)


def check_all(survey: Survey) -> list[Finding]:
    """Returns what all checks have found; each says something."""
    return [finding for check in _CHECKS for finding in check.check(survey)]
