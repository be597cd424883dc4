"""``tfhvdrun --ports``: at which ports the processes of a job listen for those on other hosts."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path

import children
import pytest
from launching import launch, script, started, wait_until_gone
from variants import also

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.network import address, ports

LISTENS = "0A"  # the state of a socket, in /proc/net/tcp
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def test_a_range_is_two_numbers():
    assert ports.read("20000-20100") == range(20000, 20101)
    assert ports.read("7-7") == range(7, 8)
    assert ports.read("") == ports.ANY
    for text in ("7", "8-7", "0-9", "1-65536", "1-2-3", "a-b", "1 - 2"):
        with pytest.raises(ValueError, match="20000-20100"):
            ports.read(text)
        with pytest.raises(UsageError, match="--ports"):
            parse(["-np", "1", "--ports", text, "true"])
    assert parse(["-np", "1", "--ports", "7-9", "true"]).settings == {"TFHVD_PORTS": "7-9"}


@contextlib.contextmanager
def taken():
    """A port that another process has; it does not listen, and may not for long."""
    with socket.socket() as holder:
        holder.bind(("", 0))
        yield holder.getsockname()[1]


def test_each_listener_takes_another_port_of_the_range():
    with taken() as first, contextlib.ExitStack() as stack:
        of = range(first, first + 60)
        found = []
        for _ in range(3):
            sock = stack.enter_context(address.listen(remote=True, of=of))
            found.append(sock.getsockname()[1])
            assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert len({first, *found}) == 4 and set(found) < set(of)
        # This host's own processes need no way through a firewall.
        own = stack.enter_context(address.listen(remote=False, of=of))
        assert own.getsockname()[1] not in of


def test_a_range_without_a_free_port_is_named():
    with taken() as port, pytest.raises(ports.PortsTakenError, match=f"--ports {port}-{port} "):
        address.listen(remote=True, of=range(port, port + 1))


@pytest.fixture(name="elsewhere")
def _elsewhere(tmp_path):
    """The options of two hosts that are this machine."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    return ("-H", "far1.invalid:1,far2.invalid:1", "--remote-shell", shell, "--no-ssh-check")


def test_the_launcher_says_that_there_is_none(elsewhere):
    with taken() as port:
        job = launch("--transport", "tcp", *elsewhere, "--ports", f"{port}-{port}", "true")
    assert job.code == 2
    assert f"tfhvdrun: error: all ports of --ports {port}-{port} (TFHVD_PORTS) are taken" in job.err


def test_a_rank_says_that_there_is_none(elsewhere):
    with taken() as port:
        of = f"{port}-{port + 1}"  # the launcher takes the other one, or nobody can
        job = launch("--transport", "tcp", *elsewhere, "--ports", of, "true")
    assert job.code != 0
    assert f"all ports of --ports {of} (TFHVD_PORTS) are taken" in job.err


SLEEPS = """
import sys, time
from pathlib import Path

import tfhvd as hvd

hvd.init()
print(hvd.allreduce(1.0, op=hvd.Sum).numpy(), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def listening(process):
    """The ports at which a process listens for other hosts."""
    sockets = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            host, port = local.split(":")
            if state == LISTENS and host not in LOOPBACK and f"socket:[{inode}]" in sockets:
                found.add(int(port, 16))
    return found


def family(process):
    """A process and all that it has started."""
    return {process, *(each for child in children.of(process) for each in family(child))}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "least"),
    [
        (("--transport", "tcp"), 3),  # the launcher and two ranks
        also(("--transport", "tcp", "--elastic"), 3),
    ],
    ids=["fixed", "elastic"],
)
def test_all_listeners_of_a_job_take_theirs_from_the_range(tmp_path, elsewhere, words, least):
    go, path = tmp_path / "go", script(tmp_path, SLEEPS)
    with taken() as first:
        of = range(first, first + 100)
        job_words = (*words, *elsewhere, "--ports", f"{of[0]}-{of[-1]}", "--no-prefix")
        with started(*job_words, sys.executable, path, go) as job:
            assert [job.stdout.readline() for _ in range(2)] == ["2.0\n"] * 2
            found = set().union(*map(listening, family(job.pid)))
            go.touch()
            _, err = job.communicate(timeout=60)
        assert job.returncode == 0, err
        assert first not in found and len(found) >= least, found
        assert found <= set(of), found
    assert wait_until_gone(str(path)) == []
