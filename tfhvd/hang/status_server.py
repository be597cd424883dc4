"""The helper process that answers status queries about a host's ranks, if there are no agents.

In a job of several hosts that mpirun or srun has started, the first rank of each host starts this
process. It can inspect ranks that cannot answer themselves, because they are stopped or their
Python is deadlocked. It ends with the rank that has started it.

The rank runs it by path with ``python -E -S``, so that it has the standard library only. Its
arguments are the descriptor of a listening socket and the rank's process. Its standard input is a
pipe: the rank writes the secret of the clients to it, and closes it to end this process.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: this folder's own names must not hide the standard library's.
    sys.path[:] = [*sys.path[1:], __file__.rsplit("/", 3)[0]]

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable

from tfhvd.hang import status_query
from tfhvd.hang.detector import Views
from tfhvd.hang.own_job import ThisHost
from tfhvd.network.listener import Door

ABOUT = "host"  # the name of this service in the handshake
_TO_ASK = 2.0  # seconds from the handshake to the query
_LOOK_UP = 2.0  # seconds between two checks of this process's parent


def serve(door: Door, look: Callable[[], Views], waits: Callable[[float], bool]) -> None:
    """Answers one client after the other, until the door is stopped.

    Args:
        door: accepts the connections of clients.
        look: takes snapshots of the ranks.
        waits: returns whether a rank has waited so many seconds without progress.
    """
    for guest in door.guests():
        # A client that disconnects, or sends an unreadable query, gets no answer.
        with contextlib.suppress(Exception), guest.sock:
            status_query.answer_one(guest.sock, look, waits, _TO_ASK)


def _end_with(rank: int) -> None:
    """Ends this process when the rank ends or closes the pipe.

    The pipe alone is not enough: a process that the rank has forked may hold its other end for
    longer than the rank lives.
    """
    while os.getppid() == rank and not select.select([0], [], [], _LOOK_UP)[0]:
        pass
    os._exit(0)


def main() -> None:
    """Answers until the rank ends."""
    listener, rank = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    token = sys.stdin.readline().strip()
    threading.Thread(target=_end_with, args=(rank,), daemon=True).start()
    here = ThisHost(rank)
    serve(Door(listener, token, ABOUT), here.look, here.waits)


if __name__ == "__main__":
    main()
