"""Surveys as plain values, for the tests of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tfhvd.tools.doctor.finding import Finding, Status
from tfhvd.tools.doctor.link import Measured
from tfhvd.tools.doctor.survey import Link, Survey
from tfhvd.tools.facts import Facts
from tfhvd.tools.machine import Cores, Interface, Limits, Memory, Room

GIB = 1 << 30
VERSIONS = {
    "tfhvd": "1.2",
    "Python": "3.11.7",
    "TensorFlow": "2.21.0",
    "Keras": "3.15.1",
    "numpy": "2.4.6",
    "MPI": "Open MPI v5.0.11",
    "glibc": "glibc 2.36",
    "kernel": "6.1",
}


def facts(host: str, number: int = 1) -> Facts:
    """Of a rank on a host with 8 cores, which lacks nothing; `number`: of its address."""
    return Facts(
        host=host,
        machine_id=f"{host} boot",
        versions=dict(VERSIONS),
        build="g++ 12; core 1",
        cores=Cores(tuple(range(8)), 8, None, {"TF_NUM_INTRAOP_THREADS": "4"}, 1.5),
        memory=Memory(64 * GIB, 60 * GIB, None, 32 * GIB, 32 * GIB),
        rooms=(
            Room("/home/ann", "checkpoints and logs", 900 * GIB, 300 * GIB, GIB),
            Room("/tmp", "temporary files", 90 * GIB, 30 * GIB, GIB // 10),
        ),
        limits=Limits(8 << 20, 65536, 65536, None, 96000),
        interfaces=(Interface("eth0", f"10.0.0.{number}", "10.0.0.0/24", 1500, 10000),),
        nccl="no NCCL",
    )


def job(*hosts: str) -> dict[int, Facts]:
    """Facts by rank: a name of a host for each."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts), 1)}
    return {rank: facts(host, numbers[host]) for rank, host in enumerate(hosts)}


def change(ranks: dict[int, Facts], rank: int, **values: object) -> dict[int, Facts]:
    return {**ranks, rank: replace(ranks[rank], **values)}


def survey(ranks: dict[int, Facts], **more: object) -> Survey:
    return Survey(facts=ranks, **more)


def link(first: str, second: str, up: float, down: float, milliseconds: float = 0.1) -> Link:
    """`up` and `down` in megabits per second."""
    measured = Measured("10.0.0.9", milliseconds / 1e3, up * 1e6 / 8, down * 1e6 / 8)
    return Link(first, second, measured)


def only(check: Callable[[Survey], list[Finding]], of: Survey, status: Status) -> Finding:
    """The one finding of a check, which has this status."""
    findings = check(of)
    assert [finding.status for finding in findings] == [status], findings
    return findings[0]


def texts(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{f.status.value} {f.text} fix: {f.fix}" for f in findings)
