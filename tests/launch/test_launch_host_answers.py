"""What answers for the ranks of a host, and who may ask it."""

from __future__ import annotations

import socket
import threading

import pytest

from tfhvd.hang import status_query, status_server
from tfhvd.hang.flight_record import Record
from tfhvd.hang.snapshot import Snapshot
from tfhvd.hang.status_query import Watcher
from tfhvd.network import address, handshake
from tfhvd.network.listener import Door
from tfhvd.protocol import messages

MAIN = ("train.py:3 in <module>",)
TOKEN = "the secret"


def seen(rank):
    record = Record(rank, 4, 70 + rank, 70, f"host{rank}", 1.0, 2.0, 0, 0, 0, 0, 1.0, 0.0, 3.0, ())
    return Snapshot(record, "S", 0.5, 6, 7, 0.0, 0, "poll", (MAIN,), 3.0)


@pytest.fixture
def port():
    """Of answers for ranks 2 and 3, which have waited for 5 seconds."""
    listener = address.listen(remote=False)
    views = {rank: seen(rank) for rank in (2, 3)}
    door = Door(listener, TOKEN, status_server.ABOUT)
    served = (door, lambda: views, lambda limit: limit <= 5)
    thread = threading.Thread(target=status_server.serve, args=served)
    thread.start()
    yield door.port
    door.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_who_is_of_the_job_sees_what_is_seen_there(port):
    watcher = Watcher(f"127.0.0.1:{port}", TOKEN, status_server.ABOUT)
    assert status_query.look(watcher) == [seen(2), seen(3)]
    assert status_query.waits(watcher, 5)
    assert not status_query.waits(watcher, 6)


def test_a_stranger_gets_no_answer_and_hinders_nobody(port):
    at = f"127.0.0.1:{port}"
    assert status_query.look(Watcher(at, "wrong", status_server.ABOUT)) == []
    assert status_query.look(Watcher(at, TOKEN)) == [], "it is not the launcher"
    assert not status_query.waits(Watcher(at, "wrong", status_server.ABOUT), 5)
    right = Watcher(at, TOKEN, status_server.ABOUT)
    with socket.create_connection(("127.0.0.1", port)) as waits:
        for nonsense in (b"GET / HTTP/1.0\r\n\r\n", bytes(1000), handshake.MAGIC):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(nonsense)
        assert [each.rank for each in status_query.look(right)] == [2, 3]
        waits.sendall(b"it is still here")


def test_a_question_that_cannot_be_read_harms_who_asks_alone(port):
    for nonsense in (b"[]", b"[" * 5000, b'{"limit": "much"}', b'{"limit": 1e999}', b"{"):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            handshake.prove(sock, TOKEN, status_server.ABOUT)
            sock.sendall(messages.frame(messages.FrameKind.STATUS_QUERY, nonsense))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
    assert status_query.waits(Watcher(f"127.0.0.1:{port}", TOKEN, status_server.ABOUT), 5)
