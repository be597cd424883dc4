"""Ranks that answer for their hosts, and who may ask them."""

from __future__ import annotations

import socket
import time

import pytest

from tfhvd.launch import inquiry, wire
from tfhvd.launch.inquiry import Watcher
from tfhvd.runtime.host_looks import Answers, OtherHosts
from tfhvd.watch.flight import Record
from tfhvd.watch.snapshot import Snapshot

MAIN = ("train.py:3 in <module>",)


def seen(rank):
    record = Record(rank, 4, 70 + rank, 70, f"host{rank}", 1.0, 2.0, 0, 0, 0, 0, 1.0, 3.0, ())
    return Snapshot(record, "S", 0.5, 6, 7, 0.0, 0, "poll", (MAIN,), 3.0)


@pytest.fixture
def answers():
    """Answers for ranks 2 and 3, which have waited for 5 seconds."""
    made = Answers(lambda: {rank: seen(rank) for rank in (2, 3)}, lambda limit: limit <= 5)
    yield made
    made.close()


def test_another_host_sees_what_is_seen_there(answers):
    where = answers.listen()
    answers.start()
    others = OtherHosts(["", "", where, ""], [0, 0, 1, 1], 0)
    assert others.look() == {2: seen(2), 3: seen(3)}
    assert not others.wait_before(5), "that host comes after this one"
    assert OtherHosts([where, "", ""], [0, 1, 1], 1).wait_before(5)
    assert not OtherHosts([where, "", ""], [0, 1, 1], 1).wait_before(6)


def test_a_host_whose_first_rank_is_silent_is_asked_by_another_one(answers):
    with socket.create_server(("127.0.0.1", 0)) as ended:
        gone = f"secret 127.0.0.1:{ended.getsockname()[1]}"
    where = answers.listen()
    answers.start()
    assert list(OtherHosts(["", gone, where], [0, 1, 1], 0).look()) == [2, 3]
    assert OtherHosts(["", gone], [0, 1], 0).look() == {}


def test_a_stranger_gets_no_answer_and_hinders_nobody(answers):
    token, _, at = answers.listen().partition(" ")
    answers.start()
    assert inquiry.look(Watcher(at, "wrong")) == []
    assert not inquiry.waits(Watcher(at, "wrong"), 5)
    port = int(at.rpartition(":")[2])
    asks = wire.frame_json(wire.ASK, token=token)
    for nonsense in (b"GET / HTTP/1.0\r\n\r\n", asks[:-3], wire.frame(wire.ASK, b"[]")):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(nonsense)
    with socket.create_connection(("127.0.0.1", port)) as silent:
        began = time.monotonic()
        assert [each.rank for each in inquiry.look(Watcher(at, token))] == [2, 3]
        assert time.monotonic() - began < 8, "it waits for the stranger's question for 2 s"
        silent.close()


def test_a_port_is_closed_once_it_is_over(answers):
    _, _, at = answers.listen().partition(" ")
    answers.start()
    answers.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))
    assert answers.listen() != "", "a later job of the process listens anew"
