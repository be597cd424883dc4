"""What a rank tells the agent around it."""

from __future__ import annotations

import json
import os
import socket
from array import array
from pathlib import Path

from tfhvd.protocol.rank_channel import NOTICE, Notice, Receiver, Sender


def files_of_this_process() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_notices_arrive_in_order_and_the_address_is_no_childs():
    receiver = Receiver()
    environ = {NOTICE: receiver.address}
    sender = Sender(environ)
    assert environ == {}
    assert receiver.take() == []
    sender.leave(follows=True)
    sender.leave(follows=False)
    sender.takes_part(True)
    sender.takes_part(False)
    sender.aside("a traceback")
    told = [Notice(follows=True), Notice(follows=False)]
    told += [Notice(takes_part=True), Notice(takes_part=False), Notice(aside="a traceback")]
    assert receiver.take() == told
    assert receiver.take() == []


def test_of_a_long_traceback_the_end_arrives():
    receiver = Receiver()
    Sender({NOTICE: receiver.address}).aside(100_000 * "\u20ac" + "ValueError: bad")
    [notice] = receiver.take()
    assert notice.aside.endswith("\u20acValueError: bad") and len(notice.aside) == 1 << 14


def test_a_record_can_be_read_when_the_rank_has_closed_it():
    receiver = Receiver()
    sender = Sender({NOTICE: receiver.address})
    sender.show(-1)
    assert receiver.take() == []
    file = os.memfd_create("record")
    os.write(file, b"last lines")
    sender.show(file)
    os.close(file)
    [notice] = receiver.take()
    assert os.pread(notice.record, 100, 0) == b"last lines"
    os.close(notice.record)


def test_who_has_no_agent_says_nothing():
    Sender({}).leave(follows=False)
    receiver = Receiver()
    sender = Sender({NOTICE: receiver.address})
    receiver.sock.close()
    sender.leave(follows=False)


def test_a_strangers_datagrams_are_dropped_and_their_files_closed():
    receiver = Receiver()
    name = receiver.sock.getsockname()
    before = files_of_this_process()
    for data in (b"", b"\xff", b"[]", b"{}", json.dumps({"secret": "x", "follows": True}).encode()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.connect(name)
            files = array("i", [stranger.fileno()])
            stranger.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    Sender({NOTICE: receiver.address}).leave(follows=False)
    assert receiver.take() == [Notice(follows=False)]
    assert files_of_this_process() == before
