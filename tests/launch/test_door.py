"""Who gets into a listener of a job, and what those cost who do not."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import resource
import socket
import struct
import sys
import threading
import time
import types
from pathlib import Path

import hostile
import pytest
from launching import launch, script, started, wait_until_gone

from tfhvd.launch.failover import replication
from tfhvd.launch.failover.replication import TakeoverState
from tfhvd.launch.state.supervisor_config import SupervisorConfig, Timeouts
from tfhvd.network import acceptor, address, connector, handshake, tokens
from tfhvd.network.listener import Door
from tfhvd.network.signed_channel import Channel
from tfhvd.protocol import messages
from tfhvd.telemetry.metrics_server import MetricsServer

ROOT = Path(__file__).parents[2]
TOKEN, ABOUT = "t" * 32, "test"


@pytest.fixture(name="doors")
def _doors():
    """Makes doors that count their guests, each of which is told so by a byte."""
    made = []

    def make():
        ours = Door(address.listen(remote=False), TOKEN, ABOUT)
        guests = []

        def serve():
            for guest in ours.guests():
                guests.append(guest)
                guest.sock.sendall(b"!")

        thread = threading.Thread(target=serve)
        thread.start()
        made.append((ours, thread, guests))
        return ours.port, guests

    yield make
    for ours, thread, guests in made:
        ours.stop()
        thread.join(10)
        assert not thread.is_alive()
        for guest in guests:
            guest.sock.close()


def is_let_in(port, token=TOKEN, about=ABOUT):
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        try:
            handshake.prove(sock, token, about)
            return sock.recv(1) == b"!"
        except OSError:
            return False


def test_who_knows_the_token_is_let_in(doors):
    port, guests = doors()
    assert is_let_in(port) and len(guests) == 1
    assert not is_let_in(port, token="t" * 31 + "u")
    assert not is_let_in(port, about="other"), "it is meant for something else"
    assert not is_let_in(port, token="")
    assert len(guests) == 1


def test_neither_side_says_the_token_and_a_recording_opens_nothing(doors):
    port, guests = doors()
    said = hostile.recorded(("127.0.0.1", port), TOKEN, ABOUT)
    assert len(said) == handshake.GREETING + handshake.PROOF
    assert TOKEN.encode() not in said
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(said)
        answer = sock.recv(1000)
        assert len(answer) == handshake.ANSWER and TOKEN.encode() not in answer
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert len(guests) == 1


def test_what_does_not_know_the_token_is_found_out():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for answer in (bytes(handshake.ANSWER), b"W\0\0\0\0", b""):

            def serve(answer=answer):
                with listener.accept()[0] as sock:
                    sock.recv(1000)
                    sock.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            with (
                socket.create_connection(listener.getsockname()) as sock,
                pytest.raises(handshake.HandshakeError, match="test"),
            ):
                handshake.prove(sock, TOKEN, ABOUT)
            thread.join()


def test_what_says_nothing_is_not_waited_for():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sock,
        pytest.raises(socket.timeout),
    ):
        handshake.prove(sock, TOKEN, ABOUT, 0.05)


def test_both_have_the_same_key_and_no_two_connections_have():
    keys = []
    for _ in range(2):
        theirs = handshake.Listening(TOKEN, ABOUT)
        ours, other = socket.socketpair()
        with ours, other:
            thread = threading.Thread(
                target=lambda sock=ours: keys.append(handshake.prove(sock, TOKEN, ABOUT))
            )
            thread.start()
            while not theirs.key:
                other.sendall(theirs.feed(other.recv(theirs.missing)))
            thread.join()
        keys.append(theirs.key)
    assert keys[0] == keys[1] and keys[2] == keys[3] and keys[0] != keys[2]


def test_ranks_speak_the_same_language(monkeypatch):
    """Byte for byte as the core, whose test has these bytes."""
    about = struct.pack("<3I", 1, 3, 5).decode()  # data, from rank 3 to rank 5
    token = "0123456789abcdef" * 2
    ours, other = socket.socketpair()
    said = []
    with ours, other:

        def listen():
            theirs = handshake.Listening(token, about)
            while not theirs.key:
                said.append(other.recv(theirs.missing))
                said.append(theirs.feed(said[-1]))
                other.sendall(said[-1])

        nonces = [b"n" * 16, b"s" * 16]
        monkeypatch.setattr(handshake.os, "urandom", lambda size: nonces.pop(0))
        thread = threading.Thread(target=listen)
        thread.start()
        handshake.prove(ours, token, about)
        thread.join()
    greeting, answer, proof, _ = (part.hex() for part in said)
    core = (ROOT / "tests" / "core" / "tcp_handshake_test.cc").read_text()
    for part in (greeting, answer[:32], answer[32:], proof):
        assert f'"{part}"' in core


def test_strangers_hinder_nobody_and_are_few(doors):
    """Idle ones, slow ones, and those that say too much: as many as a listener holds."""
    port, _ = doors()
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(300)
        ]
        for number, sock in enumerate(idle):
            with contextlib.suppress(OSError):  # it is the one that has been here for longest
                sock.sendall((b"", b"tfhvd", bytes(5000))[number % 3])
        assert sum(link.is_socket() for link in Path("/proc/self/fd").iterdir()) < 500
        assert is_let_in(port)


def test_a_stranger_is_given_up_in_time(doors, monkeypatch):
    monkeypatch.setattr(handshake, "LIMIT", 0.3)
    port, guests = doors()
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        with contextlib.suppress(OSError):
            for byte in handshake.MAGIC * 100:  # slowly
                sock.sendall(bytes([byte]))
                time.sleep(0.02)
        with contextlib.suppress(OSError):
            assert sock.recv(1) == b""
    assert not guests and is_let_in(port)


class CountingSocket(socket.socket):
    """A listening socket.

    Attributes:
        accepts: how often `accept` has been called.
    """

    accepts = 0

    def accept(self):
        self.accepts += 1
        return super().accept()


@contextlib.contextmanager
def no_descriptors():
    """No descriptor of this process is free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)


def test_a_listener_rests_while_descriptors_are_short(monkeypatch):
    """And accepts who has come meanwhile."""
    now = 1000.0
    monkeypatch.setattr(acceptor, "time", types.SimpleNamespace(monotonic=lambda: now))
    listener = CountingSocket(fileno=address.listen(remote=False).detach())
    ours = Door(listener, TOKEN, ABOUT)
    with contextlib.closing(ours), socket.create_connection(("127.0.0.1", ours.port), 20) as sock:
        with no_descriptors():
            for rest in range(1, 4):
                while listener.accepts < rest:
                    assert not ours.take(1.0)
                for _ in range(100):
                    assert not ours.take()
                assert listener.accepts == rest, "accept() is tried while it can only fail"
                now += 0.3
        proves = threading.Thread(target=handshake.prove, args=(sock, TOKEN, ABOUT))
        proves.start()
        guests = []
        while not guests:
            guests = ours.take(1.0)
        proves.join()
        guests[0].sock.close()


# -- what is signed ---------------------------------------------------------------------------


def test_a_message_that_somebody_else_has_sent_is_refused():
    for change in (lambda data: data[:-1] + b"?", lambda data: data[:8] + bytes(32) + data[40:]):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            Channel(ours, b"key", listens=False).send(b"right")
            theirs.sendall(change(theirs.recv(1000)))
            with pytest.raises(ConnectionError, match="signature"):
                Channel(ours, b"key", listens=False).receive()


def test_a_message_that_comes_again_is_refused():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours, b"key", listens=False).send(b"once")
        once = theirs.recv(1000)
        ours.sendall(once + once)
        receiver = Channel(theirs, b"key", listens=True)
        assert receiver.receive() == b"once"
        with pytest.raises(ConnectionError, match="signature"):
            receiver.receive()


class _Evil:
    def __reduce__(self):
        return os._exit, (66,)


def test_nothing_is_unpickled_that_is_not_signed():
    config = SupervisorConfig(2, TOKEN, Timeouts(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    sealed = replication.sealed(TakeoverState(config, "estate", frozenset({1})))
    assert TOKEN.encode() not in sealed
    assert replication.opened(sealed, TOKEN) == TakeoverState(config, "estate", frozenset({1}))
    evil = pickle.dumps(_Evil())
    for data in (evil, bytes(32) + evil, sealed[:32] + evil, sealed[:-1], b""):
        with pytest.raises(ValueError, match="not signed"):
            replication.opened(data, TOKEN)
    with pytest.raises(ValueError, match="not signed"):
        replication.opened(sealed, "another")


# -- a running job ------------------------------------------------------------------------------


def _launcher_of(job, ranks):
    """Where the launcher of a job listens, and its token: as its agents are told."""
    until = time.monotonic() + 30
    while True:
        assert job.poll() is None and time.monotonic() < until
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().decode().split("\0")
                lines = (process / "environ").read_bytes().decode().split("\0")
                variables = dict(line.split("=", 1) for line in lines if "=" in line)
                if ranks in words and any(word.endswith("agent.py") for word in words):
                    [(host, port)] = address.pairs(variables["TFHVDRUN_ADDRESS"])
                    return (host, port), variables["TFHVDRUN_TOKEN"]
        time.sleep(0.05)


@pytest.mark.parametrize(
    "options", [(), ("--elastic",), ("--encrypt",)], ids=["fixed", "elastic", "encrypted"]
)
def test_no_frame_ends_a_job(tmp_path, options):
    """Of a stranger, nor of a process of the job that has proved to be one, and talks nonsense."""
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    words = ("--transport", "tcp", "-np", 2, *options, "sh", "-c", wait)
    with started(*words) as job:
        at, token = _launcher_of(job, wait)
        seed = random.randrange(1 << 31)
        print("seed", seed)
        draw = random.Random(seed)
        seen = [hostile.recorded(at, token, messages.ABOUT)]
        ways = {False, tokens.encrypts(token)}
        for data in [*hostile.NONSENSE, *(hostile.frame(draw, seen) for _ in range(300))]:
            for encrypts in ways:
                answer = hostile.say(at, data, encrypts=encrypts)
                assert len(answer) <= handshake.ANSWER, "it was let in"
        for data in [*hostile.NONSENSE, *(hostile.nonsense(draw) for _ in range(30))]:
            with connector.connect(at, token, messages.ABOUT, to_connect=20).sock as sock:
                sock.settimeout(20)
                with contextlib.suppress(OSError):
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(100):
                        pass
        assert job.poll() is None
        go.touch()
        out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert out.count("done") == 2
    assert "Traceback" not in err
    assert wait_until_gone(str(go)) == []


@pytest.mark.thorough
def test_no_frame_ends_the_metrics_port():
    prometheus_client = pytest.importorskip("prometheus_client")
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("steps", "Steps.", registry=registry).inc()
    server = MetricsServer("127.0.0.1", 0, prometheus_client.make_wsgi_app(registry))
    at = ("127.0.0.1", server.port)
    seed = random.randrange(1 << 31)
    print("seed", seed)
    draw = random.Random(seed)
    with contextlib.closing(server), contextlib.ExitStack() as stack:
        right = hostile.say(at, hostile.REQUEST)
        assert right.startswith(b"HTTP/1.1 200 OK\r\n") and b"\nsteps_total 1.0\n" in right
        threads, files = threading.active_count(), hostile.descriptors(os.getpid())
        for _ in range(200):  # they say nothing
            stack.enter_context(socket.create_connection(at))
        assert threading.active_count() == threads
        assert hostile.descriptors(os.getpid()) < files + 200 + 100
        for data in [hostile.frame(draw, [hostile.REQUEST]) for _ in range(300)]:
            answer = hostile.say(at, data)
            assert not answer or answer.startswith(b"HTTP/1.1 "), (data, answer)
        assert hostile.say(at, hostile.REQUEST) == right


CALLS_A_RANK = """
import json, os, socket, struct
import numpy as np

table = int(os.environ["_TFHVDRUN_ENDPOINTS"].split(",")[1])
fields = json.loads(os.pread(table, os.fstat(table).st_size, 0))
os.environ["TFHVD_TEST_HOST"] = f"host{fields['rank']}"  # else they meet in shared memory alone

import tfhvd as hvd
from tfhvd.network import address, handshake

def call(token, traffic, sender, receiver):
    [(host, port)] = address.pairs(fields["addresses"][0])
    with socket.create_connection((host, port), 20) as sock:
        about = struct.pack("<3I", traffic, sender, receiver).decode()
        try:
            handshake.prove(sock, token, about)
            return sock.recv(1)
        except OSError as error:
            return str(error)

hvd.init()
total = hvd.allreduce(np.ones(3), op=hvd.Sum)
if hvd.rank() == 1:
    print("let in:", call(fields["token"], 0, 1, 0))
    print("another token:", call("?" * 32, 0, 1, 0))
    print("another rank:", call(fields["token"], 0, 1, 1))
total += hvd.allreduce(np.ones(3), op=hvd.Sum)
print("total:", np.asarray(total).tolist())
hvd.shutdown()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("elastic", [(), ("--elastic",)], ids=["fixed", "elastic"])
def test_a_rank_lets_in_who_knows_the_token(tmp_path, elastic):
    program = script(tmp_path, CALLS_A_RANK)
    job = launch("--transport", "tcp", "-np", 2, *elastic, sys.executable, program)
    assert job.code == 0, job
    assert "let in: b'W'" in job.out, job.out
    assert "another token: the listener does not know the token" in job.out, job.out
    assert "another rank: the listener is not this job's" in job.out, job.out
    assert job.out.count("total: [4.0, 4.0, 4.0]") == 2, job.out


LISTS_SOCKETS = """
import os, stat
import tfhvd as hvd
from pathlib import Path

hvd.init()
numbers = []
for link in Path("/proc/self/fd").iterdir():
    try:
        if stat.S_ISSOCK(os.fstat(int(link.name)).st_mode) and os.get_inheritable(int(link.name)):
            numbers.append(int(link.name))
    except OSError:
        pass  # of the listing itself
print("inheritable sockets:", numbers)
hvd.shutdown()
"""


@pytest.mark.parametrize("elastic", [(), ("--elastic",)], ids=["fixed", "elastic"])
def test_what_a_rank_starts_inherits_no_socket(tmp_path, elastic):
    program = script(tmp_path, LISTS_SOCKETS)
    job = launch("--transport", "tcp", "-np", 2, *elastic, sys.executable, program)
    assert job.code == 0, job
    assert job.out.count("inheritable sockets: []") == 2, job.out
