"""``tfhvd doctor``: starts here. Options -> a job of probes -> findings -> what is printed."""

from __future__ import annotations

import argparse
import dataclasses
import socket
from typing import Any

from tfhvd.launch.options import parse
from tfhvd.launch.options.table import where_options
from tfhvd.launch.placement import environment
from tfhvd.launch.state.job_spec import Job
from tfhvd.protocol import variables
from tfhvd.tools import machine
from tfhvd.tools.doctor import preflight, report
from tfhvd.tools.doctor.budget import Budget
from tfhvd.tools.doctor.checks import check_all, interfaces
from tfhvd.tools.doctor.examine import examine
from tfhvd.tools.doctor.finding import Finding, exit_code, failed
from tfhvd.tools.doctor.probes import Probes
from tfhvd.tools.doctor.survey import Survey

_WHERE = ("num_proc", "hosts", "hostfile")  # options that this command itself passes on


class _Keep(argparse.Action):
    """Keeps an option of the launcher as it was typed, for the launcher."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, text: Any, flag: str | None = None
    ) -> None:
        """Appends its name and word."""
        word = str(flag) if self.nargs == 0 else f"{flag}={text}"
        namespace.launcher = [*namespace.launcher, (self.const, word)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options: our own, and those of tfhvdrun for the placement of ranks."""
    parser.add_argument("--json", action="store_true", help="print all that was found, as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="print tables as well")
    group = parser.add_argument_group("as for tfhvdrun")
    for row in where_options():
        switch = row.get("action") in ("store_true", "store_const")
        group.add_argument(
            *row["flags"],
            action=_Keep,
            dest="launcher",
            const=row["dest"],
            default=[],
            nargs=0 if switch else None,
            metavar=None if switch else row["metavar"],
            help=row["help"],
        )


def run(options: argparse.Namespace) -> int:
    """Looks, and prints what was found; the exit code is 1 where something has failed."""
    job = _job(options.launcher)
    findings, survey = _examine(job, options.launcher)
    if options.json:
        print(report.as_json(findings, survey))
    else:
        if survey is not None:
            print(report.heading(survey))
        print(report.text(findings, verbose=options.verbose))
    return exit_code(findings)


def _job(given: list[tuple[str, str]]) -> Job:
    """What the options say; without any, and outside of Slurm, one rank here."""
    words = [word for _, word in given]
    environ = variables.own()
    where = {*_WHERE, "config_file"} & {name for name, _ in given}
    if not where and "SLURM_JOB_ID" not in environ:
        words = ["-np", "1", *words]
    return parse.parse([*words, "true"], environ)


def _examine(job: Job, given: list[tuple[str, str]]) -> tuple[list[Finding], Survey | None]:
    budget = Budget()
    environ = environment.build(job, variables.own(), root=False)
    before = preflight.look(job, environ, in_allocation=environment.in_allocation(environ))
    findings = list(before.findings)
    here = interfaces.missing({socket.gethostname(): machine.interfaces()}, job.nics)
    if here:
        return findings + here, None
    reduced = dataclasses.replace(job, hosts=before.usable)
    if job.hosts:
        room = sum(host.slots for host in before.usable)
        if not room:
            return findings, None
        reduced = dataclasses.replace(reduced, num_proc=min(job.num_proc, room))
    words = [word for name, word in given if name not in _WHERE]
    words += ["-np", str(reduced.num_proc)]
    words += ["-H", ",".join(map(str, reduced.hosts))] if reduced.hosts else []
    with Probes(reduced, words) as probes:
        survey, errors = examine(probes, job.nics, budget)
    if survey is not None:
        findings += check_all(survey)
        if len(reduced.hosts) < len(job.hosts):
            text = f"only {len(reduced.hosts)} of {len(job.hosts)} hosts were looked at"
            findings.append(failed("hosts", text, "run it again once all of them answer"))
    return findings + errors, survey
