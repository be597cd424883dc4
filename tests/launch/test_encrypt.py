"""``tfhvdrun --encrypt``: what processes of a job say to each other is read by nobody else."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading

import pytest
from launching import launch, read_until, script, started, wait_until_gone
from variants import also

from tfhvd.errors import InvalidSettingError, UnavailableError
from tfhvd.launch import cli
from tfhvd.launch.run.node import Node, NodeServer, execute
from tfhvd.network import address, connector, handshake, tls, tokens
from tfhvd.network.listener import Door

ASKED = {tokens.SETTING: "1"}
ABOUT = "test"


@pytest.fixture(name="encrypted", params=[True, False], ids=["encrypted", "plain"])
def _encrypted(request):
    """Whether the processes of a test encrypt; if not, the test sees what they say."""
    return request.param


@pytest.fixture(name="door")
def _door():
    """Opens a door to who knows a token; returns its port, and the guests as they come.

    Each is sent a byte.
    """
    with contextlib.ExitStack() as stack:

        def opened(token):
            ours, guests = Door(address.listen(remote=False), token, ABOUT), []

            def serve():
                for guest in ours.guests():
                    guests.append(stack.enter_context(guest.sock))
                    guest.sock.sendall(b"!")

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(ours.stop)
            return ours.port, guests

        yield opened


def knocks(port, token):
    """Whether who knows this token is let in."""
    with (
        contextlib.suppress(OSError),
        connector.connect(("127.0.0.1", port), token, ABOUT, to_connect=20).sock as sock,
    ):
        return sock.recv(1) == b"!"
    return False


# -- the token says whether -----------------------------------------------------------------------


def test_the_setting_decides():
    assert tokens.encrypts(tokens.new(ASKED))
    assert not tokens.encrypts(tokens.new({}))
    assert not tokens.encrypts(tokens.new({tokens.SETTING: "0"}))
    with pytest.raises(InvalidSettingError, match=r"must be 0 or 1\. Received: 'yes'"):
        tokens.new({tokens.SETTING: "yes"})


def test_who_does_not_encrypt_is_not_let_in_and_lets_nobody_in(door):
    token = tokens.new(ASKED)
    plain = token.removeprefix("tls-")
    port, guests = door(token)
    assert knocks(port, token) and len(guests) == 1
    assert not knocks(port, plain)
    assert not knocks(port, tokens.new(ASKED))
    with (
        socket.create_connection(("127.0.0.1", port), 20) as sock,
        pytest.raises(ConnectionError),
    ):
        handshake.prove(sock, token, ABOUT)  # of who knows the token, but does not encrypt
    assert len(guests) == 1
    port, guests = door(plain)
    assert not knocks(port, token) and not guests


def test_a_python_that_cannot_encrypt_says_so_and_starts_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tls, "_CIPHER", "NO-SUCH-CIPHER")
    tls._context.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="lacks NO-SUCH-CIPHER"):
            tokens.new(ASKED)
        with pytest.raises(OSError, match="lacks NO-SUCH-CIPHER"):
            Door(address.listen(remote=False), "tls-" + 32 * "0", ABOUT)
        begun = tmp_path / "begun"
        assert cli.main(["-np", "1", "--encrypt", "touch", str(begun)]) == 2
    finally:
        tls._context.cache_clear()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("tfhvdrun: error: --encrypt (TFHVD_ENCRYPT=1): OpenSSL ")
    assert "lacks NO-SUCH-CIPHER of TLS 1.2. Use a Python whose OpenSSL has it, or" in line
    assert not begun.exists()


# -- who is in between ----------------------------------------------------------------------------


class Proxy:
    """Passes connections on to another port, and keeps what it sees.

    Args:
        target: returns the port.
        with_sessions: whether it has a TLS session of its own with either side.

    Attributes:
        port: its own.
        seen: all bytes, of both directions.
    """

    def __init__(self, target, with_sessions=False):
        self._target, self._with_sessions = target, with_sessions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.seen = bytearray()
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def _serve(self):
        with self._listener, contextlib.suppress(OSError):
            while True:
                theirs, _ = self._listener.accept()
                ours = socket.create_connection(("127.0.0.1", self._target()))
                if self._with_sessions:
                    theirs = tls.encrypted(theirs, listens=True)
                    ours = tls.encrypted(ours, listens=False)
                    theirs.agree(), ours.agree()
                for ends in ((theirs, ours), (ours, theirs)):
                    thread = threading.Thread(target=self._pass_on, args=ends)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def test_a_man_in_the_middle_is_found_out(door):
    """He decrypts what both say, and passes it on as they say it."""
    token = tokens.new(ASKED)
    port, guests = door(token)
    with contextlib.closing(Proxy(lambda: port)) as wire:
        assert knocks(wire.port, token) and len(guests) == 1
    with contextlib.closing(Proxy(lambda: port, with_sessions=True)) as man:
        with pytest.raises(handshake.HandshakeError, match="does not know the token"):
            connector.connect(("127.0.0.1", man.port), token, ABOUT, to_connect=20)
        assert handshake.MAGIC in man.seen, "he did not see what they say"
    assert len(guests) == 1


THROUGH = """#!/bin/sh
# Runs what is to run on another host here, whose launcher is behind a proxy.
shift
read -r spec
named='"TFHVDRUN_ADDRESS": "[^"]*:\\([0-9]*\\)"'
printf '%s\\n' "$spec" | sed "s/.*$named.*/\\1/" > {at}.new && mv {at}.new {at}
anew='"TFHVDRUN_ADDRESS": "127.0.0.1:{port}"'
{{ printf '%s\\n' "$spec" | sed "s/$named/$anew/"; cat; }} | sh -c "$*"
"""


@pytest.mark.thorough
def test_a_listener_on_the_network_learns_nothing_of_a_job(tmp_path, encrypted):
    at, shell = tmp_path / "at", tmp_path / "shell"
    path = script(tmp_path, "print('printed by the rank')\n")
    with contextlib.closing(Proxy(lambda: int(at.read_text()))) as wire:
        shell.write_text(THROUGH.format(at=shlex.quote(str(at)), port=wire.port))
        shell.chmod(0o755)
        far = ("-H", "far.invalid:1", "--remote-shell", shell, "--no-ssh-check")
        words = ["--encrypt"] if encrypted else []
        job = launch("--transport", "tcp", *far, *words, sys.executable, path)
    assert job.code == 0 and "printed by the rank" in job.out, job
    assert b"tfhvd" in wire.seen or encrypted
    for secret in (b"printed by the rank", socket.gethostname().encode(), b'"addresses"'):
        assert (secret in wire.seen) is not encrypted, secret
    assert wire.seen


def test_a_listener_on_the_network_learns_nothing_of_a_command(capfd, encrypted):
    token = tokens.new(ASKED if encrypted else {})
    server = NodeServer(token)
    with (
        contextlib.closing(server),
        contextlib.closing(Proxy(lambda: server.port)) as wire,
    ):
        command = "WITH=an_environment; echo $WITH and output"
        assert execute(Node("127.0.0.1", wire.port), token, command) == 0
    assert capfd.readouterr().out == "an_environment and output\n"
    assert token.encode() not in wire.seen and token[4:].encode() not in wire.seen
    assert (b"WITH=an_environment" in wire.seen) is not encrypted
    assert (b"an_environment and output" in wire.seen) is not encrypted


# -- a connection as others use it ----------------------------------------------------------------


@pytest.fixture(name="pair")
def _pair(door):
    """Both ends of an encrypted connection."""
    token = tokens.new(ASKED)
    port, guests = door(token)
    with connector.connect(("127.0.0.1", port), token, ABOUT, to_connect=20).sock as ours:
        assert ours.recv(1) == b"!"
        yield ours, guests[0]


def received(sock, count):
    data = bytearray()
    while len(data) < count:
        data += sock.recv(1 << 16) or pytest.fail("the connection has ended")
    return bytes(data)


def test_both_sides_send_and_receive_at_once(pair):
    sent = [os.urandom(3 << 20) for _ in pair]
    came = {}
    threads = []
    for sock, ours, theirs in ((pair[0], *sent), (pair[1], *reversed(sent))):
        threads.append(threading.Thread(target=sock.sendall, args=(ours,)))
        threads.append(
            threading.Thread(
                target=lambda s=sock, t=theirs: came.update({s: received(s, len(t)) == t})
            )
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert came == dict.fromkeys(pair, True)


def test_who_waits_for_a_selector_misses_nothing(pair):
    """What has come is either returned, or the descriptor stays readable."""
    ours, theirs = pair
    for size in (1, 100, 1 << 14, (1 << 14) + 1, 70_000):
        data = os.urandom(size)
        sender = threading.Thread(target=theirs.sendall, args=(data,))
        sender.start()
        came = b""
        while len(came) < size:
            assert tls._comes(ours.fileno(), 1, 20.0), f"{len(came)} of {size}"
            with contextlib.suppress(BlockingIOError):
                came += ours.recv(1 << 16, socket.MSG_DONTWAIT)
        sender.join()
        assert came == data
        with pytest.raises(BlockingIOError):
            ours.recv(1 << 16, socket.MSG_DONTWAIT)


def test_a_limit_counts_and_an_end_is_one(pair):
    ours, theirs = pair
    ours.settimeout(0.05)
    with pytest.raises(socket.timeout):
        ours.recv(1)
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        ours.recv(1)
    theirs.sendall(b"last")
    theirs.close()
    ours.setblocking(True)
    memory = bytearray(10)
    assert ours.recv_into(memory) == 4 and memory[:4] == b"last"
    assert ours.recv(1) == b""
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        ours.recv(1)


# -- jobs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), also(("--elastic",))], ids=["fixed", "elastic"])
def test_a_job_says_all_that_it_has_to_say(tmp_path, words):
    lines = "for i in range(20000): print(i, 'x' * (i % 90))\n"
    path = script(tmp_path, lines + "sys.exit(7 * (os.environ['PATH'] == ''))\n")
    job = launch("-np", 2, "--transport", "tcp", *words, "--encrypt", sys.executable, path)
    assert job.code == 0, job.err
    for rank in range(2):
        came = [line for line in job.out.splitlines() if line.startswith(f"[{rank}]")]
        assert came == [f"[{rank}] {i} {'x' * (i % 90)}" for i in range(20000)]


def test_a_job_of_mpirun_ends_and_its_failure_is_named(tmp_path):
    path = script(tmp_path, "sys.exit(5)\n")
    job = launch("-np", 2, "--encrypt", sys.executable, path)
    assert job.code == 5 and any("exit code 5" in line for line in job.own_lines), job
    assert wait_until_gone(str(path)) == []


QUIET = """
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("end", flush=True)
"""


def test_another_launcher_takes_over(tmp_path):
    import children

    path, end = script(tmp_path, QUIET), tmp_path / "end"
    words = ("-np", 2, "--elastic", "--encrypt", sys.executable, path, end)
    with started(*words) as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        os.kill(children.supervisor_of(process.pid), 9)
        # Output of the moment in which the supervisor is killed may be missing.
        read_until(process.stderr, "process .* takes over")
        end.touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.count("end") == 2, err


def rank_of_two():
    import tfhvd as hvd

    hvd.init()
    return hvd.rank(), hvd.size()


@pytest.mark.parametrize("by", ["environment", also("argument")])
def test_tfhvd_run(monkeypatch, by):
    import tfhvd

    made = []
    new = tokens.new
    monkeypatch.setattr(tokens, "new", lambda environ: made.append(new(environ)) or made[-1])
    if by == "environment":
        monkeypatch.setenv(tokens.SETTING, "1")
    env = ASKED if by == "argument" else None
    assert tfhvd.run(rank_of_two, np=2, use_gloo=True, env=env) == [(0, 2), (1, 2)]
    assert all(map(tokens.encrypts, made)) and made
