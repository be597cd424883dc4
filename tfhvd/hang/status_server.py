"""The small process that answers, where no agent does, what is seen of a host's ranks.

The first rank of each host starts it in a job of several hosts that mpirun or srun has started. It
sees a rank that is stopped, or whose Python is deadlocked, and so could not answer by itself, and
ends with the rank that has started it.

It is run by path with ``python -E -S``, with the standard library alone. It gets the listening
socket's descriptor and that rank's process as arguments, and a pipe as standard input, through
which comes the secret of those who may ask, and which is closed when it is to end.
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

ABOUT = "host"  # what listens, as handshake calls it
_TO_ASK = 2.0  # seconds for a question to come after the proof
_LOOK_UP = 2.0  # seconds from one look at who is this one's parent to the next


def serve(door: Door, look: Callable[[], Views], waits: Callable[[float], bool]) -> None:
    """Answers one after the other, until the door is stopped.

    Args:
        door: where they come.
        look: takes a look at the ranks.
        waits: whether one of them has waited in vain for so many seconds.
    """
    for guest in door.guests():
        # Whoever breaks off, or says what cannot be read, gets no answer.
        with contextlib.suppress(Exception), guest.sock:
            status_query.answer_one(guest.sock, look, waits, _TO_ASK)


def _end_with(rank: int) -> None:
    """Ends this process with that one, or once that closes the pipe.

    A process that the rank has forked may hold the pipe's other end for longer than the rank lives.
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
