"""What answers for the ranks of a host, and who may ask it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tfhvd.launch import address, host_answers, inquiry, wire
from tfhvd.launch.inquiry import Watcher
from tfhvd.watch.flight import Record
from tfhvd.watch.snapshot import Snapshot

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
    served = (listener, TOKEN, lambda: views, lambda limit: limit <= 5)
    thread = threading.Thread(target=host_answers.serve, args=served)
    thread.start()
    yield listener.getsockname()[1]
    address.stop(listener)
    thread.join(10)
    assert not thread.is_alive()


def test_who_is_of_the_job_sees_what_is_seen_there(port):
    watcher = Watcher(f"127.0.0.1:{port}", TOKEN)
    assert inquiry.look(watcher) == [seen(2), seen(3)]
    assert inquiry.waits(watcher, 5)
    assert not inquiry.waits(watcher, 6)


def test_a_stranger_gets_no_answer_and_hinders_nobody(port):
    at = f"127.0.0.1:{port}"
    assert inquiry.look(Watcher(at, "wrong")) == []
    assert not inquiry.waits(Watcher(at, "wrong"), 5)
    asks = wire.frame_json(wire.ASK, token=TOKEN)
    for nonsense in (b"GET / HTTP/1.0\r\n\r\n", asks[:-3], wire.frame(wire.ASK, b"[]")):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(nonsense)
    with socket.create_connection(("127.0.0.1", port)):
        began = time.monotonic()
        assert [each.rank for each in inquiry.look(Watcher(at, TOKEN))] == [2, 3]
        assert time.monotonic() - began < 8, "it waits for the stranger's question for 2 s"
