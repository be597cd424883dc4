"""Can the ranks meet as those of a job do, by `hvd.init()`?"""

from __future__ import annotations

from tfhvd.diagnose.doctor.finding import Finding, failed, passed, warned
from tfhvd.diagnose.doctor.survey import Survey, where

# What is said of a rank whose call did not return.
HANGS = "hvd.init() was called on all ranks, and did not return"


def check(survey: Survey) -> list[Finding]:
    """Looks at what each rank said of it, and at the engine's own warnings."""
    if survey.meeting is None:
        return []
    by_text: dict[str, list[int]] = {}
    for rank, text in survey.meeting.items():
        if text:
            by_text.setdefault(text, []).append(rank)
    findings = []
    for text, ranks in by_text.items():
        said, _, command = text.partition(" Type: ")
        fix = command or "docs/troubleshooting.md has the message"
        if said == HANGS:
            fix = (
                "name the network that all hosts share: --network-interfaces eth0; or leave out "
                "other transports: --tcp. tfhvdrun -v prints what mpirun says"
            )
        findings.append(failed("meeting", f"{where(survey.facts, ranks)}: {said}", fix))
    for text in survey.warnings:
        findings.append(warned("meeting", text, "the message says what to do"))
    return findings or [passed("meeting", "hvd.init() and hvd.shutdown() work on all ranks")]
