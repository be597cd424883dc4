"""Hosts: how they are named, whether ssh reaches them, and what their ranks inherit."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest
from launching import launch, script, wait_until_gone

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.placement import environment, mpi, ssh_check
from tfhvd.launch.placement.command_line import Node, build, host_file
from tfhvd.launch.state.hosts import Host, parse_hosts
from tfhvd.network import address

OPENMPI = mpi.Mpi(Path("/m/mpirun"), "openmpi", 5)
MPICH = mpi.Mpi(Path("/m/mpirun"), "mpich", 4)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("joe@a:4", (Host("a", 4, "joe"),)),
        ("joe@a,ann@a:2", (Host("a", 1, "joe"), Host("a", 2, "ann"))),
        ("[fd00::3]:4,[::1]", (Host("fd00::3", 4), Host("::1", 1))),
        ("joe@[fd00::3]:2", (Host("fd00::3", 2, "joe"),)),
    ],
)
def test_users_and_addresses(text, hosts):
    assert parse_hosts(text) == hosts
    assert parse_hosts(",".join(map(str, hosts))) == hosts


@pytest.mark.parametrize(
    "text", ["fd00::3:4", "fd00::3", "[fd00]:2", "[a]:2", "@a", "joe@", "a@b@c"]
)
def test_malformed_hosts(text):
    with pytest.raises(UsageError, match="-H has a malformed part") as e:
        parse_hosts(text)
    assert ("in brackets" in str(e.value)) == (text.count(":") > 1)


def test_a_host_file_with_users_and_addresses(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("joe@a slots=4\nfd00::3 slots=2\n[fd00::4]:3\n")
    job = parse(["--hostfile", str(file), "true"])
    assert job.hosts == (Host("a", 4, "joe"), Host("fd00::3", 2), Host("fd00::4", 3))


def test_what_mpirun_is_given():
    node = Node(cores=2)
    job = parse(["-H", "joe@a:4,b:2", "true"])
    assert host_file(job, OPENMPI) is None
    assert "--host joe@a:4,b:2" in " ".join(build(job, OPENMPI, node, [], []))
    job = parse(["-H", "joe@a:4,[fd00::3]:2", "true"])
    assert host_file(job, OPENMPI) == "joe@a slots=4\nfd00::3 slots=2\n"
    line = " ".join(build(job, OPENMPI, Node(2, host_file=Path("/f")), [], []))
    assert "--hostfile /f" in line and "--host " not in line
    with pytest.raises(UsageError, match="MPICH's mpirun takes no IPv6 addresses"):
        host_file(job, MPICH)


def test_the_whole_environment_but_what_is_a_hosts_own():
    passed = {"PATH": "/p", "LANG": "C", "MINE": "1", "NCCL_DEBUG": "INFO", "TFHVDRUN_TOKEN": "t"}
    own = dict.fromkeys(
        [
            *("HOME", "OLDPWD", "HOSTNAME", "SSH_AUTH_SOCK", "DISPLAY", "LS_COLORS", "TMPDIR"),
            *("BASH_FUNC_x%%", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "TERM", "_"),
        ],
        "x",
    )
    job = parse(["-np", "1", "true"])
    assert environment.exported(job, {**passed, **own}) == tuple(sorted(passed))
    job = parse(["-np", "1", "--env", "DISPLAY", "--env", "NOT_THERE", "true"])
    assert set(environment.exported(job, {**passed, **own})) == {*passed, "DISPLAY"}


def test_which_hosts_are_tried():
    def tried(words: str, *, in_allocation: bool = False, **environ: str) -> list[str]:
        job = parse([*words.split(), "true"])
        found = ssh_check.hosts_to_check(job, environ, in_allocation=in_allocation)
        return [host.name for host in found]

    assert tried("-H a:1,localhost:1,b:1") == ["a", "b"]
    assert tried("-np 1") == []
    assert tried("-H a:1", in_allocation=True) == []
    assert tried("-H a:1 --no-ssh-check") == []
    assert tried("-H a:1", OMPI_MCA_plm_rsh_agent="kubexec") == []
    job = parse(["-H", "a:1", "--mpi-args=--prtemca plm_ssh_agent x", "true"])
    assert ssh_check.hosts_to_check(job, {}, in_allocation=False) == []


def test_what_asks_a_host():
    line = ssh_check.command(Host("a", 2, "joe"), ("-p", "23", "-i", "/key"))
    assert line == [
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8"),
        *("-p", "23", "-i", "/key", "-l", "joe", "a", "true"),
    ]


def test_ssh_gets_the_arguments_that_mpirun_gives_it():
    def given(words: str, more: str = "", **environ: str) -> tuple[str, ...]:
        job = parse([*words.split(), f"--mpi-args={more}", "-np", "1", "true"])
        return ssh_check.arguments(job, environ)

    assert given("") == ()
    assert given("-p 23", OMPI_MCA_plm_rsh_args="-p 9") == ("-p", "23")
    assert given("", OMPI_MCA_plm_rsh_args="-p 9 -o 'A=b c'") == ("-p", "9", "-o", "A=b c")
    assert given("", "--mca plm_rsh_args '-p 9'") == ("-p", "9")
    assert given("", HYDRA_LAUNCHER_EXTRA_ARGS="-p 9") == ("-p", "9")


@pytest.mark.parametrize(
    ("said", "code", "line"),
    [
        (
            "Warning: x\njoe@a: Permission denied (publickey).\r\n",
            255,
            "host a cannot be reached by ssh: joe@a: Permission denied (publickey). "
            "Type: ssh-copy-id -p 23 joe@a",
        ),
        (
            "Host key verification failed.",
            255,
            "Type: ssh -p 23 joe@a, and confirm that host's key",
        ),
        ("ssh: Could not resolve hostname a: Name or service not known", 255, "getent hosts a"),
        ("ssh: connect to host a port 23: Connection refused", 255, "--ssh-port PORT"),
        ("", None, "no answer within 9 s. Type: ssh -p 23 joe@a true, which must end without"),
        ("", 1, "ssh ended with exit code 1"),
    ],
)
def test_what_is_said_of_a_host(said, code, line):
    assert line in ssh_check.explain(Host("a", 1, "joe"), ("-p", "23"), said, code)


FAKE_SSH = """#!/bin/bash
case $* in
*good*) exit 0 ;;
*slow*) exec sleep 600 ;;
*) echo "me@bad: Permission denied (publickey)." >&2; exit 255 ;;
esac
"""


def test_every_host_that_ssh_does_not_reach_is_named(tmp_path, monkeypatch):
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    began = time.monotonic()
    result = launch("-H", "good,bad1,bad2", "true", PATH=path)
    assert time.monotonic() - began < 60
    assert result.code == 2
    assert [line.partition(":")[2] for line in result.err.splitlines()] == [
        " host bad1 cannot be reached by ssh: me@bad: Permission denied (publickey). "
        "Type: ssh-copy-id bad1",
        " host bad2 cannot be reached by ssh: me@bad: Permission denied (publickey). "
        "Type: ssh-copy-id bad2",
        " error: ssh reaches 1 of 3 hosts (without this check: --no-ssh-check)",
    ]
    monkeypatch.setattr(ssh_check, "LIMIT", 0.5)
    lines = ssh_check.failures([Host("slow", 1), Host("good", 1)], (), {"PATH": path})
    assert (
        len(lines) == 1 and "host slow cannot be reached by ssh: no answer within 0.5 s" in lines[0]
    )
    assert wait_until_gone(str(ssh)) == []


# Runs a command here as if on another host: with nothing of our environment, and another home.
AGENT = """#!/bin/bash
echo "$1" >> "$0.log"
shift
exec env -i HOME=/tmp PATH=/usr/bin:/bin bash -c "$*"
"""


@pytest.mark.parametrize("host", ["joe@far1", "[fd00::77]"])
@pytest.mark.parametrize("by", ["--remote-shell={}", "--mpi-args=--prtemca plm_ssh_agent {}"])
def test_a_job_on_another_host(tmp_path, host, by):
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    path = script(tmp_path, "print([os.environ.get(n) for n in ('MINE', 'LINES2', 'HOME')])\n")
    words = ("-np", 1, "-H", f"{host}:1", by.format(agent))
    mine = {"MINE": "a;b 'c'", "LINES2": "x\ny"}
    result = launch(*words, sys.executable, path, **mine, HOME="/home/me")
    assert result.code == 0, result.err
    assert result.out == f"[0] {[*mine.values(), '/tmp']}\n"
    # Our own option has the host tried before, as ssh is.
    calls = 2 if by.startswith("--remote-shell") else 1
    assert (tmp_path / "agent.log").read_text() == calls * (host.strip("[]") + "\n")


def test_a_host_that_the_program_in_the_place_of_ssh_does_not_reach(tmp_path):
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\necho "no node $1" >&2\nexit 1\n')
    shell.chmod(0o755)
    result = launch("-H", "far1:1", "--remote-shell", shell, "true")
    assert result.code == 2
    assert result.err.splitlines() == [
        f"tfhvdrun: host far1 cannot be reached by --remote-shell {shell}: no node far1. "
        f"Type: {shell} far1 true, which must end without an error",
        f"tfhvdrun: error: {shell} reaches 0 of 1 hosts (without this check: --no-ssh-check)",
    ]


def test_a_launcher_that_is_reached_by_ipv6():
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with address.listen(remote=True) as listener:
        port = listener.getsockname()[1]
        for ip in ("127.0.0.1", "::1"):
            socket.create_connection((ip, port), timeout=5).close()
    assert address._towards("::1") == [], "which means something else elsewhere"
