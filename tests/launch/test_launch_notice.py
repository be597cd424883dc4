"""What a rank tells the worker around it."""

from __future__ import annotations

import json
import socket

from tfhvd.launch.notice import NOTICE, Receiver, Sender


def test_notices_arrive_in_order_and_the_address_is_no_childs():
    receiver = Receiver()
    environ = {NOTICE: receiver.address}
    sender = Sender(environ)
    assert environ == {}
    assert receiver.take() == []
    sender.leave(follows=True)
    sender.leave(follows=False)
    assert receiver.take() == [True, False]
    assert receiver.take() == []


def test_who_has_no_worker_says_nothing():
    Sender({}).leave(follows=False)
    receiver = Receiver()
    sender = Sender({NOTICE: receiver.address})
    receiver.sock.close()
    sender.leave(follows=False)


def test_a_strangers_datagrams_are_dropped():
    receiver = Receiver()
    for data in (b"", b"\xff", b"[]", b"{}", json.dumps({"secret": "x", "follows": True}).encode()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(data, receiver.sock.getsockname())
    Sender({NOTICE: receiver.address}).leave(follows=False)
    assert receiver.take() == [False]
