"""Findings -> what is printed, for people and for programs. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from tfhvd.system.formatting import ranks_text
from tfhvd.tools.doctor.finding import Finding, Status, exit_code
from tfhvd.tools.doctor.survey import Survey, ranks_by_host

_MARKS = {Status.PASSED: "passed", Status.WARNED: "WARNED", Status.FAILED: "FAILED"}
_MOST_HOSTS = 8  # in the first line


def heading(survey: Survey) -> str:
    """Returns the examined ranks and their hosts."""
    hosts = ranks_by_host(survey.facts)
    named = [f"{host} ({ranks_text(ranks)})" for host, ranks in hosts.items()]
    if len(named) > _MOST_HOSTS:
        named = [*named[:_MOST_HOSTS], "..."]
    ranks, count = len(survey.facts), len(hosts)
    return f"{ranks} rank{'s' * (ranks > 1)} on {count} host{'s' * (count > 1)}: {', '.join(named)}"


def text(findings: Sequence[Finding], *, verbose: bool = False) -> str:
    """Returns a line for each finding, and one for each fix.

    Args:
        findings: in the order in which they are printed.
        verbose: whether to print the details also of what has not failed.
    """
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"  {_MARKS[finding.status]}  {finding.check:<{width}}  {finding.text}")
        indent = " " * (width + 12)
        if finding.fix:
            lines.append(f"{indent}fix: {finding.fix}")
        if verbose or finding.status is Status.FAILED:
            lines += [indent + detail for detail in finding.details]
    return "\n".join([*lines, _conclusion(findings)])


def _conclusion(findings: Sequence[Finding]) -> str:
    count = {status: sum(f.status is status for f in findings) for status in Status}
    said = [f"{count[status]} {status.value}" for status in Status if count[status]]
    return f"tfhvd doctor: {', '.join(said)}"


def as_json(findings: Sequence[Finding], survey: Survey | None) -> str:
    """Returns all of it as a JSON object: "ok", "checks", and what was measured."""
    found: dict[str, object] = {
        "ok": exit_code(findings) == 0,
        "checks": [{**dataclasses.asdict(f), "status": f.status.value} for f in findings],
    }
    if survey is not None:
        found["hosts"] = ranks_by_host(survey.facts)
        found["ranks"] = {rank: each.to_json() for rank, each in survey.facts.items()}
        found["links"] = [dataclasses.asdict(link) for link in survey.links]
        found["clocks"] = [dataclasses.asdict(clock) for clock in survey.clocks]
    return json.dumps(found, indent=1)
