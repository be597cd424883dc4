"""Can the ranks meet as those of a job do, by `hvd.init()`?"""

from __future__ import annotations

from tfhvd.tools.doctor.checks import interfaces
from tfhvd.tools.doctor.finding import Finding, failed, passed, warned
from tfhvd.tools.doctor.survey import Survey, where

# What is said of a rank whose call did not return.
HANGS = "hvd.init() was called on all ranks, and did not return"
_OF_MPI = "MPI_"  # so begin the messages of its functions


def check(survey: Survey) -> list[Finding]:
    """Looks at what each rank said of it, and at the engine's own warnings."""
    if survey.meeting is None:
        return []
    by_text: dict[str, list[int]] = {}
    for rank, text in survey.meeting.items():
        if text:
            by_text.setdefault(text, []).append(rank)
    if len(by_text) > 1:  # Others hang because of it.
        by_text.pop(HANGS, None)
    findings = []
    for text, ranks in by_text.items():
        said, _, command = text.partition(" Type: ")
        fix = command or "docs/troubleshooting.md has the message"
        if said == HANGS or said.startswith(_OF_MPI):
            names = ",".join(interfaces.shared_names(survey.facts)) or "eth0"
            fix = (
                f"name the network that all hosts share: --network-interfaces {names}; or leave "
                "out other transports than TCP: --tcp"
            )
        findings.append(failed("meeting", f"{where(survey.facts, ranks)}: {said}", fix))
    for text in survey.warnings:
        findings.append(warned("meeting", text, "the message says what to do"))
    return findings or [passed("meeting", "hvd.init() and hvd.shutdown() work on all ranks")]
