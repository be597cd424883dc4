"""Who gets into a listener of a job, and what those cost who do not."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from launching import launch, script, started, wait_until_gone

from tfhvd.launch import address, handshake, wills, wire
from tfhvd.launch.call.channel import Channel
from tfhvd.launch.door import Door
from tfhvd.launch.limits import Limits
from tfhvd.launch.orders import Orders
from tfhvd.launch.wills import Will

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


def recorded(port):
    """What who is let in has sent."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        said = []

        class Recorder:
            def sendall(self, data):
                said.append(data)
                sock.sendall(data)

            def __getattr__(self, name):
                return getattr(sock, name)

        handshake.prove(Recorder(), TOKEN, ABOUT)
        assert sock.recv(1) == b"!"
    return b"".join(said)


def test_who_knows_the_token_is_let_in(doors):
    port, guests = doors()
    assert is_let_in(port) and len(guests) == 1
    assert not is_let_in(port, token="t" * 31 + "u")
    assert not is_let_in(port, about="other"), "it is meant for something else"
    assert not is_let_in(port, token="")
    assert len(guests) == 1


def test_neither_side_says_the_token_and_a_recording_opens_nothing(doors):
    port, guests = doors()
    said = recorded(port)
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


def test_a_listener_rests_while_descriptors_are_short(doors):
    port, guests = doors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    sock = socket.socket()
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        sock.connect(("127.0.0.1", port))
        before = time.process_time()
        time.sleep(1.0)
        spent = time.process_time() - before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
    assert spent < 0.2, "of processor time, in a second in which accept() fails"
    with sock:
        handshake.prove(sock, TOKEN, ABOUT)
        assert sock.recv(1) == b"!"
    assert len(guests) == 1


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
    orders = Orders(2, TOKEN, Limits(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    sealed = wills.sealed(Will(orders, "estate", frozenset({1})))
    assert TOKEN.encode() not in sealed
    assert wills.opened(sealed, TOKEN) == Will(orders, "estate", frozenset({1}))
    evil = pickle.dumps(_Evil())
    for data in (evil, bytes(32) + evil, sealed[:32] + evil, sealed[:-1], b""):
        with pytest.raises(ValueError, match="not signed"):
            wills.opened(data, TOKEN)
    with pytest.raises(ValueError, match="not signed"):
        wills.opened(sealed, "another")


# -- a running job ------------------------------------------------------------------------------


def _launcher_of(job, ranks):
    """Where the launcher of a job listens, and its token: as its workers are told."""
    until = time.monotonic() + 30
    while True:
        assert job.poll() is None and time.monotonic() < until
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().decode().split("\0")
                lines = (process / "environ").read_bytes().decode().split("\0")
                variables = dict(line.split("=", 1) for line in lines if "=" in line)
                if ranks in words and any(word.endswith("worker.py") for word in words):
                    [(host, port)] = address.pairs(variables["TFHVDRUN_ADDRESS"])
                    return (host, port), variables["TFHVDRUN_TOKEN"]
        time.sleep(0.05)


DEEP = b"[" * 100_000


@pytest.mark.parametrize("elastic", [(), ("--elastic",)], ids=["fixed", "elastic"])
def test_no_frame_ends_a_job(tmp_path, elastic):
    """Of a stranger, nor of a process of the job that has proved to be one, and talks nonsense."""
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    words = ("--transport", "tcp", "-np", 2, *elastic, "sh", "-c", wait)
    with started(*words) as job:
        at, token = _launcher_of(job, wait)
        hellos = [
            wire.frame(wire.HELLO, b'{"rank": 1e999}'),
            wire.frame(wire.HELLO, DEEP),
            wire.frame(wire.HELLO, b'{"rank": 0, "host": 5, "again": 7}'),
            wire.frame(wire.HELLO, b'{"rank": 99, "host": "h"}'),
            wire.frame(wire.ASK, DEEP),
            wire.frame(wire.EXIT, b'{"code": 1}'),
            b"\xff" * 100,
        ]
        for hello in hellos:
            with socket.create_connection(at, 20) as sock, contextlib.suppress(OSError):
                sock.sendall(hello)
                while sock.recv(100):
                    pass
            with socket.create_connection(at, 20) as sock:
                handshake.prove(sock, token, wire.ABOUT)
                with contextlib.suppress(OSError):
                    sock.sendall(hello)
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
