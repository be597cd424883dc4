"""What a peer says first, after the handshake: it has a limit, and must come soon."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from tfhvd.hang import status_query, status_server
from tfhvd.launch.run.node import NodeServer
from tfhvd.launch.supervisor.connection import Connection
from tfhvd.launch.supervisor.connections import Connections
from tfhvd.launch.supervisor.liveness import Liveness
from tfhvd.network import address, handshake
from tfhvd.network.listener import Door
from tfhvd.network.signed_channel import Channel
from tfhvd.protocol import hello, messages
from tfhvd.protocol.transfer import Exchange, join

TOKEN = "t" * 32


@pytest.fixture(name="connection")
def _connection():
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


def lost(peers, later):
    rounds = Liveness(peers, elastic=False, stopped_limit=0.0, evict_after=0.0)
    return rounds.tick(time.monotonic() + later, [])


def test_a_peer_that_says_nothing_is_lost(connection):
    peers = Connections()
    peers.add(peer := Connection.connected(connection[0], again=False))
    assert lost(peers, 0.0) == []
    assert lost(peers, handshake.LIMIT) == [peer]
    begun = messages.frame_json(messages.FrameKind.HELLO, rank=0)
    assert peer.reader.feed(begun[:-1]) == []
    assert lost(peers, handshake.LIMIT) == [peer], "half a frame is none"
    peer.reader.feed(begun[-1:])
    assert lost(peers, 10 * handshake.LIMIT) == []


def test_the_first_frame_is_short(connection):
    hello = messages.frame(messages.FrameKind.HELLO, bytes(messages.FIRST_LIMIT))
    longer = messages.frame(messages.FrameKind.HELLO, bytes(messages.FIRST_LIMIT + 1))
    output = messages.frame(messages.FrameKind.OUTPUT, bytes(messages.LIMIT))
    reader = Connection.connected(connection[0], again=False).reader
    assert [kind for kind, _ in reader.feed(hello + output)] == [
        messages.FrameKind.HELLO,
        messages.FrameKind.OUTPUT,
    ]
    with pytest.raises(messages.WireError):
        Connection.connected(connection[0], again=False).reader.feed(longer[:5])
    # What an agent says to a launcher that takes another one's place has the roster.
    reader = Connection.connected(connection[0], again=True).reader
    assert [kind for kind, _ in reader.feed(longer)] == [messages.FrameKind.HELLO]


def test_a_host_with_many_networks_has_room():
    """60 interfaces, of which each address is said twice."""
    at = ",".join(f"192.168.{number}.{number}:65535" for number in range(100, 160))
    fields = {"rank": 0, "host": "h" * 64, "listens_at": at, "inherits_at": at}
    assert len(json.dumps(fields)) < messages.FIRST_LIMIT


GOOD = {"rank": 1, "host": "h", "share": None, "listens_at": None, "again": None}


def test_a_hello_is_read_as_a_whole():
    said = hello.read(messages.FrameKind.HELLO, json.dumps(GOOD).encode())
    assert said == hello.Hello(1, "h", 0, "", "", None)
    again = {"started": True, "line": "roster"}
    said = hello.read(messages.FrameKind.HELLO, json.dumps({**GOOD, "again": again}).encode())
    assert said.again == hello.Again(True, "roster")


@pytest.mark.parametrize(
    "bad",
    [
        {"rank": "1"},
        {"rank": None},
        {"rank": True},
        {"rank": -1},
        {"rank": 1e999},
        {"host": 5},
        {"host": None},
        {"share": "all"},
        {"listens_at": 7},
        {"inherits_at": []},
        {"again": 7},
        {"again": {}},
        {"again": {"started": 1, "line": ""}},
        {"again": {"started": True, "line": None}},
    ],
    ids=str,
)
def test_a_hello_with_a_field_of_another_kind_is_none(bad):
    with pytest.raises(messages.WireError):
        hello.read(messages.FrameKind.HELLO, json.dumps({**GOOD, **bad}).encode())
    with pytest.raises(messages.WireError):
        hello.read(messages.FrameKind.EXIT, json.dumps(GOOD).encode())


def test_a_question_is_short(connection):
    ours, theirs = connection
    ours.sendall(
        messages.frame(messages.FrameKind.STATUS_QUERY, bytes(messages.FIRST_LIMIT + 1))[:5]
    )
    with pytest.raises(messages.WireError):
        status_query.answer_one(theirs, dict, lambda limit: False, 10.0)


def is_closed(sock):
    """Whether the other side closes the connection."""
    sock.settimeout(20.0)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False
    return True


TOO_LONG = struct.pack("!Q32s", 1 << 62, b"")  # the head of a message of a channel


def test_who_answers_for_a_host_goes_on(monkeypatch):
    monkeypatch.setattr(status_server, "_TO_ASK", 0.1)
    ours = Door(address.listen(remote=False), TOKEN, status_server.ABOUT)
    serves = threading.Thread(
        target=status_server.serve, args=(ours, dict, lambda limit: True), daemon=True
    )
    serves.start()
    try:
        for said in (
            b"",
            b"A",
            messages.frame(messages.FrameKind.STATUS_QUERY, b"[" * 10_000),
            messages.frame(messages.FrameKind.STATUS_QUERY, b"5"),
        ):
            with socket.create_connection(("127.0.0.1", ours.port), 20) as sock:
                handshake.prove(sock, TOKEN, status_server.ABOUT)
                sock.sendall(said)
                assert is_closed(sock)
        monkeypatch.undo()
        watcher = status_query.Watcher(f"127.0.0.1:{ours.port}", TOKEN, status_server.ABOUT)
        assert status_query.waits(watcher, 1.0)
    finally:
        ours.stop()
        serves.join(10)
    assert not serves.is_alive()


@pytest.mark.parametrize("said", [b"", TOO_LONG], ids=["nothing", "too much"])
def test_who_takes_results_goes_on(monkeypatch, said):
    exchange = Exchange(b"payload", {}, remote=False)
    [at] = address.pairs(exchange.environment["TFHVDRUN_CALL_ADDRESS"])
    token = exchange.environment["TFHVDRUN_CALL_TOKEN"]
    with contextlib.closing(exchange):
        if not said:
            monkeypatch.setattr(handshake, "LIMIT", 0.1)
        with socket.create_connection(at, 20) as sock:
            handshake.prove(sock, token, "call", 10.0)
            sock.sendall(said)
            assert is_closed(sock)
        monkeypatch.undo()
        channel, payload = join(f"127.0.0.1:{at[1]}", token, 0)
        with channel.sock:
            assert payload == b"payload"


def test_who_runs_commands_takes_none_that_is_too_long():
    server = NodeServer(TOKEN)
    with contextlib.closing(server):
        for said in (TOO_LONG, struct.pack("!Q32s", 4, b"") + b"exit"):
            with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
                handshake.prove(sock, TOKEN, "node")
                sock.sendall(said)
                assert is_closed(sock)
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            channel = Channel(sock, handshake.prove(sock, TOKEN, "node"), listens=False)
            channel.send(b"exit 3")
            assert channel.receive() == b"x3"
