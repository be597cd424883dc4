"""Survey -> findings: each module has one question, as a pure function."""

from __future__ import annotations

from tfhvd.diagnose.doctor.checks import (
    binding,
    clocks,
    gpus,
    interfaces,
    limits,
    links,
    meeting,
    memory,
    versions,
)
from tfhvd.diagnose.doctor.finding import Finding
from tfhvd.diagnose.doctor.survey import Survey

# In the order in which a person would look.
_CHECKS = (versions, binding, memory, limits, interfaces, links, clocks, gpus, meeting)


def check_all(survey: Survey) -> list[Finding]:
    """Returns what all checks have found; each says something."""
    return [finding for check in _CHECKS for finding in check.check(survey)]
