"""Hosts that the doctor does not reach, or that lack something: one line each, and what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import troubleshooting
from commands import tfhvd

from tfhvd._version import __version__
from tfhvd.launch.placement import ssh_check
from tfhvd.launch.state.hosts import Host
from tfhvd.tools.doctor import preflight

HERE = preflight._PACKAGE


def explained(code: int | None, out: str = "", said: str = ""):
    answer = ssh_check.Answer(Host("a", 2, "joe"), code, out, said)
    return preflight.explain(answer, ("-p", "23"))


def test_a_host_that_has_all():
    assert explained(0, f"Welcome!\ntfhvd-doctor {__version__} {HERE}\n") is None


@pytest.mark.parametrize(
    ("code", "out", "said", "text", "fix"),
    [
        (
            *(255, "", "joe@a: Permission denied (publickey)."),
            "host a cannot be reached by ssh: joe@a: Permission denied (publickey)",
            "ssh-copy-id -p 23 joe@a",
        ),
        (
            *(255, "", "ssh: connect to host a port 23: Connection refused"),
            "host a cannot be reached by ssh: ssh: connect to host a port 23: Connection refused",
            "If ssh listens on another port there: --ssh-port PORT",
        ),
        (
            *(None, "", ""),
            "host a cannot be reached by ssh: no answer within 9 s",
            "ssh -p 23 joe@a true, which must end without a question",
        ),
        (
            *(127, "", "bash: python: not found"),
            f"host a has no {sys.executable}",
            "make the same environment at the same path there",
        ),
        (
            *(0, f"tfhvd-doctor 0.0.1 {HERE}\n", ""),
            f"host a has tfhvd 0.0.1, and this machine {__version__}",
            f"ssh -p 23 joe@a {sys.executable} -m pip install tfhvd-{__version__}-*.whl, ",
        ),
        (
            *(0, f"tfhvd-doctor {__version__} /opt/x/tfhvd\n", ""),
            f"host a has tfhvd in /opt/x/tfhvd, and this machine in {HERE}",
            "install it at the same path",
        ),
        (
            *(1, "", "ModuleNotFoundError: No module named 'tfhvd'\n"),
            f"host a: {sys.executable} has no tfhvd",
            f"ssh -p 23 joe@a {sys.executable} -m pip install tfhvd",
        ),
        (
            *(0, "Welcome!\n", ""),
            "host a answers with something else: 'Welcome!'",
            "let the shell there print nothing by itself",
        ),
    ],
)
def test_a_host_that_lacks_something(code, out, said, text, fix):
    finding = explained(code, out, said)
    assert finding.text == text
    assert finding.fix.startswith(fix)


def test_what_a_host_is_asked():
    line = preflight.asked({"PYTHONPATH": str(HERE.parent)})
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30, env={})
    assert done.stdout == f"tfhvd-doctor {__version__} {HERE}\n", done.stderr


SSH = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do case $1 in -o) shift ;; esac; shift; done
case $1 in
far) shift; exec env -i HOME=/tmp PATH=/usr/bin:/bin bash -c "$*" ;;
bare) exit 127 ;;
*) echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255 ;;
esac
"""


@pytest.fixture
def ssh(tmp_path):
    """A folder with an ssh that reaches the host `far`, which is this machine."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return tfhvd("doctor", *words, PATH=f"{folder}:{os.environ['PATH']}")


def test_no_host_is_reached(ssh):
    done = doctor(ssh, "-H", "off:2,bare:2")
    assert done.returncode == 1 and not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("ssh: connect to host off port 22: Connection refused")
    troubleshooting.check("The job hangs at the start, on several hosts", lines[0])
    assert lines[2] == f"  FAILED  hosts  host bare has no {sys.executable}"
    assert len(lines) == 5 and lines[-1] == "tfhvd doctor: 2 failed"


def test_the_hosts_that_are_reached_are_looked_at(ssh):
    done = doctor(ssh, "-H", "off:1,far:1")
    assert done.returncode == 1 and not done.stderr
    assert done.stdout.startswith("1 rank on 1 host: ")
    assert "only 1 of 2 hosts were looked at" in done.stdout
    assert "passed  meeting" in done.stdout
