"""What the kernel has counted of this process's connections."""

import os
import socket

from tfhvd.profiling import tcp_stats


def test_what_is_sent_over_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        second, _ = server.accept()
        ends = [f"127.0.0.1:{end.getsockname()[1]}" for end in (first, second)]
        with first, second:
            first.sendall(bytes(10))
            assert second.recv(10)
            before = tcp_stats.read()
            first.sendall(bytes(50_000))
            while len(second.recv(1 << 16, socket.MSG_PEEK)) < 50_000:
                pass  # what has come has been acknowledged, or is at once
            second.sendall(bytes(7))  # carries the acknowledgement of the rest
            assert first.recv(7)
            sent = {each.own: each for each in tcp_stats.since(before)}
        assert sent[ends[0]].peer == ends[1]
        assert sent[ends[0]].bytes == 50_000
        assert 0 <= sent[ends[0]].busy < 60
        assert sent[ends[1]].peer == ends[0]
    assert not {each.own for each in tcp_stats.since(before)} & set(ends), "it is closed"
    # The server, which is connected to nobody, is none of them.
    assert all(each.peer for each in tcp_stats.read().values())


def test_no_socket_changes_where_the_program_has_set_a_timeout():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
    ):
        assert tcp_stats.read()
        assert os.get_blocking(connected.fileno())
        socket.setdefaulttimeout(5.0)
        try:
            assert not tcp_stats.read()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(connected.fileno())
