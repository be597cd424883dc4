"""Which hosts are lost, by what the kernel says of a connection."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from tfhvd.protocol import messages

pytestmark = pytest.mark.thorough


def test_a_process_that_does_not_read_is_no_lost_host():
    """The kernel asks it ever more seldom whether it does, and has its host's answers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sends,
        listener.accept()[0],
    ):
        sends.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sends.send(bytes(1 << 16))
        until = time.monotonic() + 3.0  # it has asked four times, for the last time 0.8 s apart
        while time.monotonic() < until:
            assert not messages.has_lost_host(sends, 0.4)
            assert messages.has_unacknowledged(sends)
            time.sleep(0.002)
