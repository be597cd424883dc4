"""Do the limits of the processes leave room for a job?"""

from __future__ import annotations

from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey, where

_FILES = 256  # that a rank has open by itself, and as many again for each other rank's two
_FILES_OF_A_PEER = 2
_SHARED = 64 << 20  # bytes of the file through which the ranks of a host reduce
_PROCESSES_OF_A_RANK = 128  # threads count as well


def check(survey: Survey) -> list[Finding]:
    """Looks at each limit on all ranks."""
    facts = survey.facts
    files = _FILES + _FILES_OF_A_PEER * len(facts)
    per_host = max(len(facts) // max(1, len({f.machine_id for f in facts.values()})), 1)
    processes = per_host * _PROCESSES_OF_A_RANK
    findings = []

    def look(ranks: list[int], text: str, fix: str) -> None:
        if ranks:
            findings.append(warned("limits", f"{where(facts, ranks)}: {text}", fix))

    everywhere = "in the shell that starts the job and in /etc/security/limits.conf of each host"
    look(
        [r for r, f in facts.items() if _less(f.limits.open_files, files)],
        f"fewer than {files} open files are allowed",
        f"ulimit -n {max(65536, files)}, {everywhere}",
    )
    look(
        [r for r, f in facts.items() if f.infiniband and f.limits.memlock is not None],
        "memory that may be locked is limited, and the InfiniBand adapters need to lock it",
        f"ulimit -l unlimited, {everywhere}; docker run --ulimit memlock=-1",
    )
    look(
        [r for r, f in facts.items() if _less(f.limits.file_size, _SHARED)],
        "the size of files is limited, so that ranks of a host cannot share memory",
        f"ulimit -f unlimited, {everywhere}",
    )
    look(
        [r for r, f in facts.items() if _less(f.limits.processes, processes)],
        f"fewer than {processes} processes and threads are allowed to the user",
        f"ulimit -u {max(4096, processes)}, {everywhere}",
    )
    if findings:
        return findings
    first = facts[min(facts)].limits
    texts = [
        f"{name} {'unlimited' if value is None else value}"
        for name, value in (
            ("open files", first.open_files),
            ("locked memory", first.memlock and f"{first.memlock >> 10} KiB"),
            ("processes", first.processes),
        )
    ]
    return [passed("limits", ", ".join(texts))]


def _less(limit: int | None, needed: int) -> bool:
    return limit is not None and limit < needed
