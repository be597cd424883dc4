"""Is there room for the job's files: checkpoints in its folder, and temporary files?"""

from __future__ import annotations

from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey, ranks_by_host

_GIB = 1 << 30


def check(survey: Survey) -> list[Finding]:
    """Looks at each host alone."""
    findings = []
    texts = []
    for host, ranks in ranks_by_host(survey.facts).items():
        rooms = {room.path: room for rank in ranks for room in survey.facts[rank].rooms}
        for room in rooms.values():
            if not room.writable:
                findings.append(
                    warned(
                        "room",
                        f"host {host}: the job cannot write its {room.use} to {room.path}",
                        f"start it in another folder, or: chmod u+w {room.path}",
                    )
                )
            elif room.free < room.least:
                findings.append(
                    warned(
                        "room",
                        f"host {host}: {_gib(room.free)} of {_gib(room.total)} are free in "
                        f"{room.path}, for {room.use}",
                        "delete files, or write elsewhere. To see the free room, type: df -h "
                        f"{room.path}",
                    )
                )
        free = ", ".join(f"{_gib(room.free)} free in {room.path}" for room in rooms.values())
        texts.append(f"host {host}: {free or 'not known'}")
    return findings or [passed("room", texts[0], texts[1:])]


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.1f} GiB"
