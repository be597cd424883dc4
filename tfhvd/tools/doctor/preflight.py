"""What can be found out about the hosts before a probe runs: by one command over ssh on each.

Whether a host is reached, and whether the Python and the tfhvd of this machine are there, at the
same paths: the launcher starts the ranks by these.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfhvd._version import __version__
from tfhvd.launch.placement import ssh_check
from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.job_spec import Job
from tfhvd.tools.doctor.finding import Finding, failed, passed

_PACKAGE = Path(__file__).resolve().parents[2]
_MARK = "tfhvd-doctor"
# What the Python of a host prints: the mark, then the version of tfhvd and the folder it is in.
_CODE = (
    "import os, tfhvd; from tfhvd._version import __version__ as v; "
    f"print('{_MARK}', v, os.path.dirname(os.path.realpath(tfhvd.__file__)))"
)
# What to install there: no index need have it.
_WHEEL = f"tfhvd-{__version__}-*.whl, the wheel or the folder that it was installed from here"
_MISSING = (126, 127)  # exit codes of shells: not executable, not found


@dataclasses.dataclass(frozen=True)
class Preflight:
    """What was found out.

    Attributes:
        findings: at least one, unless no host was asked.
        usable: the hosts on which ranks can be started.
    """

    findings: tuple[Finding, ...]
    usable: tuple[Host, ...]


def asked(environ: Mapping[str, str]) -> str:
    """Returns the command for a host, as its shell reads it.

    Args:
        environ: of the ranks, whose PYTHONPATH counts there.
    """
    python = shlex.join([sys.executable, "-c", _CODE])
    path = environ.get("PYTHONPATH")
    return f"PYTHONPATH={shlex.quote(path)} {python}" if path else python


def look(job: Job, environ: Mapping[str, str], *, in_allocation: bool) -> Preflight:
    """Asks all hosts at once.

    Args:
        job: which hosts, and how they are reached.
        environ: of the ranks.
        in_allocation: whether a batch system starts ranks on them, without ssh.
    """
    hosts = ssh_check.hosts_to_check(job, environ, in_allocation=in_allocation)
    if not hosts:
        return Preflight((), job.hosts)
    ssh_args = ssh_check.arguments(job, environ)
    try:
        answers = ssh_check.ask(hosts, ssh_args, environ, job.remote_shell, asked(environ))
    except OSError as error:
        text = f"{job.remote_shell or 'ssh'} cannot be started: {error.strerror or error}"
        return Preflight((failed("hosts", text, "install an ssh client (openssh-client)"),), ())
    findings = []
    lost = []
    for answer in answers:
        found = explain(answer, ssh_args, job.remote_shell)
        if found is not None:
            findings.append(found)
            lost.append(answer.host)
    usable = tuple(host for host in job.hosts if host not in lost)
    if not findings:
        text = f"{len(hosts)} other host{'s' * (len(hosts) > 1)} reached, with the same tfhvd"
        findings = [passed("hosts", text)]
    return Preflight(tuple(findings), usable)


def explain(
    answer: ssh_check.Answer, ssh_args: Sequence[str], shell: Path | None = None
) -> Finding | None:
    """Returns what is wrong with a host; None if nothing is.

    Args:
        answer: what it has said.
        ssh_args: options of ssh.
        shell: what is called in the place of ssh.
    """
    name = answer.host.name
    python = sys.executable
    found = re.search(rf"^{_MARK} (\S+) (.+?)\s*$", answer.out, re.MULTILINE)
    login = shlex.join(["ssh", *ssh_args, answer.host.target])
    if found is not None and answer.code == 0:
        if found[1] != __version__:
            text = f"host {name} has tfhvd {found[1]}, and this machine {__version__}"
            fix = f"{login} {python} -m pip install {_WHEEL}"
            return failed("hosts", text, fix)
        if Path(found[2]) != _PACKAGE:
            text = f"host {name} has tfhvd in {found[2]}, and this machine in {_PACKAGE}"
            return failed("hosts", text, "install it at the same path: ranks are started by that")
        return None
    if answer.code in _MISSING:
        text = f"host {name} has no {python}"
        fix = "make the same environment at the same path there, or share it between the hosts"
        return failed("hosts", text, fix)
    if "No module named 'tfhvd" in answer.said:
        text = f"host {name}: {python} has no tfhvd"
        fix = f"{login} {python} -m pip install {_WHEEL}"
        return failed("hosts", text, fix)
    if answer.code == 0:
        text = f"host {name} answers with something else: {answer.out.strip()[:80]!r}"
        return failed("hosts", text, f"let the shell there print nothing by itself: {login} true")
    line = ssh_check.explain(answer.host, ssh_args, answer.said, answer.code, shell)
    text, _, fix = line.rpartition(". ")
    return failed("hosts", text, fix.removeprefix("Type: "))
