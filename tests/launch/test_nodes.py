"""Machines that a cluster's scheduler gives to a job: their servers, and jobs on them."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import launching
import network
import pytest

import tfhvd
from tfhvd.launch.run import on_nodes, remote_shell
from tfhvd.launch.run.node import Node, NodeServer, execute
from tfhvd.launch.run.on_nodes import Work, run_on_nodes
from tfhvd.launch.run.payload import payload_of
from tfhvd.network import handshake
from tfhvd.network.signed_channel import Channel

TOKEN = "t" * 32


# A command that makes the file named behind it, and stays.
STAYS = """python3 -c 'import sys, time; open(sys.argv[1], "w").close(); time.sleep(60)'"""


def _wait_for(mark: str) -> None:
    until = time.monotonic() + 30
    while not Path(mark).exists():
        assert time.monotonic() < until, "the command has not started"
        time.sleep(0.01)
    assert launching.processes_naming(mark)


def _proved(sock: socket.socket) -> Channel:
    return Channel(sock, handshake.prove(sock, TOKEN, "node"), listens=False)


@pytest.fixture(name="node")
def _node():
    server = NodeServer(TOKEN)
    yield Node("127.0.0.1", server.port)
    server.close()


def test_a_command_runs_there_with_its_output_here(node, capfdbinary):
    assert execute(node, TOKEN, "echo hello; printf 'a\\nb' >&2; exit 3") == 3
    assert tuple(capfdbinary.readouterr()) == (b"hello\n", b"a\nb")
    assert execute(node, TOKEN, "kill -TERM $$") == 128 + 15
    assert execute(node, TOKEN, "yes x | head -c 3000000") == 0
    assert len(capfdbinary.readouterr().out) == 3_000_000


def test_a_stranger_is_sent_away(node):
    for token in ("f" * 32, "short"):
        with socket.create_connection((node.host, node.port)) as sock:
            sock.sendall(token.encode())
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
    with pytest.raises(OSError):
        execute(node, "f" * 32, "echo never")


def test_what_runs_ends_with_who_has_asked(node, tmp_path):
    mark = str(tmp_path / "mark")
    with socket.create_connection((node.host, node.port)) as sock:
        asks = _proved(sock)
        asks.send(f"{STAYS} {mark}; true".encode())
        _wait_for(mark)
    assert launching.wait_until_gone(mark) == []


def test_what_outlives_its_shell_ends_with_who_has_asked(node, tmp_path):
    mark = str(tmp_path / "mark")
    with socket.create_connection((node.host, node.port)) as sock:
        asks = _proved(sock)
        asks.send(f"{STAYS} {mark} & echo shell $$".encode())
        shell = int(asks.receive().split()[1])
        _wait_for(mark)
        while Path(f"/proc/{shell}").exists():
            time.sleep(0.01)
    assert launching.wait_until_gone(mark) == []


def test_what_runs_ends_with_the_server(tmp_path):
    server = NodeServer(TOKEN)
    mark = str(tmp_path / "mark")
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        asks = _proved(sock)
        asks.send(f"{STAYS} {mark}; true".encode())
        _wait_for(mark)
        server.close()
        assert asks.receive() == b"x-9"
    assert launching.wait_until_gone(mark) == []


def test_a_server_outlives_a_want_of_descriptors(node):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sock = socket.socket()
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
    try:
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        sock.connect((node.host, node.port))
        time.sleep(0.3)  # in which the server cannot take it
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in held:
            os.close(number)
    with sock:
        asks = _proved(sock)
        asks.send(b"exit 5")
        assert asks.receive() == b"x5"


def test_a_closed_server_takes_nobody(node):
    server = NodeServer(TOKEN)
    server.close()
    with pytest.raises(OSError):
        execute(Node("127.0.0.1", server.port), TOKEN, "echo never")


def test_a_program_in_the_place_of_ssh(node):
    with remote_shell.program([node], TOKEN) as shell:
        assert shell.stat().st_mode & 0o077 == 0, "it holds the token"

        def call(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(shell), *words], capture_output=True, text=True, env=launching.environment()
            )

        done = call("-x", "127.0.0.1", "echo", "$((1 + 1))", ";", "exit 4")
        assert (done.returncode, done.stdout) == (4, "2\n"), done.stderr
        done = call("far", "true")
        assert done.returncode == 255
        assert done.stderr == "host far is not one of this job's: 127.0.0.1\n"
    assert not shell.exists()


def test_a_server_that_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = Node("127.0.0.1", listener.getsockname()[1])
    with remote_shell.program([gone], TOKEN) as shell:
        done = subprocess.run(
            [str(shell), "127.0.0.1", "true"],
            capture_output=True,
            text=True,
            env=launching.environment(),
        )
    assert done.returncode == 255
    assert "the server of tfhvd on 127.0.0.1 does not answer" in done.stderr


def test_a_job(node):
    def work(offset):
        import os

        import tfhvd as hvd

        hvd.init()
        return hvd.rank() + offset, hvd.size(), os.environ["COLOUR"], os.environ["OF_NODE"]

    two = Node(node.host, node.port, slots=2)
    task = Work(payload_of(work, (5,), {}), {"COLOUR": "blue"})
    outcome = run_on_nodes(task, [two], TOKEN, {node.host: {"OF_NODE": "yes"}})
    assert outcome.results() == [(5, 2, "blue", "yes"), (6, 2, "blue", "yes")]


def test_a_job_that_fails(node):
    def work():
        raise KeyError("no such sample")

    outcome = run_on_nodes(Work(payload_of(work, (), {})), [node], TOKEN)
    with pytest.raises(tfhvd.RankFailedError, match=r"rank 0 of .* failed with KeyError") as e:
        outcome.results()
    assert e.value.rank == 0
    assert isinstance(e.value.__cause__, KeyError)


def test_what_ranks_have_pickled_is_read_by_the_program_alone(node, tmp_path, monkeypatch):
    """A cluster's processes need not find the modules of the program."""
    (tmp_path / "own_module.py").write_text(
        "class Score(float): pass\n"
        "class Wrong(Exception): pass\n"
        "def work(wrong):\n"
        "    if wrong: raise Wrong('so')\n"
        "    return Score(0.5)\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        import own_module

        good = payload_of(own_module.work, (False,), {})
        bad = payload_of(own_module.work, (True,), {})
    names = vars(own_module)
    monkeypatch.delitem(sys.modules, "own_module")
    env = {node.host: {"A": "b"}}
    outcomes = [run_on_nodes(Work(call), [node], TOKEN, env) for call in (good, bad)]
    assert "own_module" not in sys.modules
    outcomes = pickle.loads(pickle.dumps(outcomes))  # on its way to the program
    monkeypatch.setitem(sys.modules, "own_module", own_module)
    assert type(outcomes[0].results()[0]) is names["Score"]
    with pytest.raises(tfhvd.RankFailedError) as e:
        outcomes[1].results()
    assert type(e.value.__cause__) is names["Wrong"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_job_that_is_cancelled(node, tmp_path, handler):
    """Also where this process ignores SIGINT, as a shell's background job does."""
    mark = str(tmp_path / "mark")

    def work():
        import pathlib
        import time

        pathlib.Path(mark).touch()
        time.sleep(600)

    cancelled = threading.Event()

    def cancel():
        while not Path(mark).exists():
            time.sleep(0.05)
        cancelled.set()

    threading.Thread(target=cancel, daemon=True).start()
    task = Work(payload_of(work, (), {}))
    before = signal.signal(signal.SIGINT, handler)
    try:
        outcome = run_on_nodes(task, [node], TOKEN, cancelled=cancelled)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.code == 130
    with pytest.raises(tfhvd.RankFailedError, match="failed with KeyboardInterrupt"):
        outcome.results()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_job_that_is_cancelled_before_it_begins(node, handler):
    cancelled = threading.Event()
    cancelled.set()
    task = Work(payload_of(time.sleep, (600,), {}))
    before = signal.signal(signal.SIGINT, handler)
    try:
        outcome = run_on_nodes(task, [node], TOKEN, cancelled=cancelled)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.code == 130


def test_a_rank_that_cannot_tell_where_it_is(node):
    call = payload_of(print, (), {})
    elsewhere = Node("203.0.113.1", 1)
    wrapped = on_nodes._OnNode(call, {node.host + "9": {"A": "b"}, elsewhere.host: {}}, None)
    with pytest.raises(tfhvd.TfhvdError, match=r"which of the job's machines .* 203\.0\.113\.1"):
        wrapped()


# On one of two hosts: opens a server, and where it is the first, starts the job on both.
HOST = """
import pathlib, sys, time
from tfhvd.launch.run.payload import payload_of
from tfhvd.launch.run.node import Node, NodeServer
from tfhvd.launch.run.on_nodes import Work, run_on_nodes

def work():
    import os, socket
    import tensorflow as tf
    import tfhvd as hvd
    hvd.init()
    total = float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum))
    return hvd.rank(), hvd.local_size(), hvd.cross_rank(), total, os.environ["OF_NODE"]

folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
server = NodeServer("t" * 32)
(folder / f"new{number}").write_text(str(server.port))
(folder / f"new{number}").rename(folder / str(number))
if number:
    time.sleep(600)
until = time.monotonic() + 120
while not (folder / "1").exists():
    assert time.monotonic() < until, "the other host has not started"
    time.sleep(0.05)
nodes = [
    Node(f"10.77.0.{i + 1}", int((folder / str(i)).read_text()), slots=2) for i in range(2)
]
own = {node.host: {"OF_NODE": node.host} for node in nodes}
print(run_on_nodes(Work(payload_of(work, (), {})), nodes, "t" * 32, own).results(), flush=True)
"""


@pytest.mark.thorough
def test_two_hosts_without_ssh(tmp_path):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    (tmp_path / "host.py").write_text(HOST)
    with network.hosts(2) as net:
        folders = [tmp_path / "shared"]
        folders[0].mkdir()
        words = [sys.executable, str(tmp_path / "host.py"), str(folders[0])]
        env = launching.environment()
        with subprocess.Popen([*net.run_on(1), *words, "1"], env=env) as other:
            try:
                first = subprocess.run(
                    [*net.run_on(0), *words, "0"],
                    capture_output=True,
                    text=True,
                    env=env,
                    timeout=300,
                )
            finally:
                other.kill()
    expected = [(rank, 2, rank // 2, 10.0, f"10.77.0.{rank // 2 + 1}") for rank in range(4)]
    assert str(expected) in first.stdout, first.stdout + first.stderr
