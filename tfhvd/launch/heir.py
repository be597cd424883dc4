"""The supervisor that takes the place of one whose host is lost: ``heir.py LISTENER WILL LOST``.

The first two are descriptors: of the socket to which the workers come, and of what the launcher has
left, which is read if it is signed by the token of the job. LOST is "host", or "launcher" where
only that is known to be gone, so that workers of its host may come, too. It goes on with the job
once more than half of the ranks have come. Where they do not, others may go on, and it ends the job
on this side. What ranks print goes to its stdout, a file in the job's folder. It starts no more
ranks.

It is run by path with ``python -E -S``, with the standard library alone.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: this folder's own names must not hide the standard library's.
    sys.path[:] = [*sys.path[1:], __file__.rsplit("/", 3)[0]]

import contextlib
import os
import socket
import time
from collections.abc import Sequence

from tfhvd.launch import environment, wills
from tfhvd.launch.claim import Claim
from tfhvd.launch.output import Output
from tfhvd.launch.signals import SignalPipe
from tfhvd.launch.succession import Succession
from tfhvd.launch.supervisor import Supervisor


def main(argv: Sequence[str]) -> int:
    """See above. Returns the exit code of the job."""
    listener = socket.socket(fileno=int(argv[0]))
    table = int(argv[1])
    left = os.pread(table, os.fstat(table).st_size, 0)
    will = wills.opened(left, os.environ.get(environment.TOKEN, ""))
    os.close(table)
    orders, pipe = will.orders, SignalPipe()
    output = Output(orders.num_proc, **orders.output, append=True)
    with listener, contextlib.closing(output):
        awaited = will.reachable if argv[2] == "host" else will.estate.members.present
        claim = Claim(awaited, time.monotonic())
        succession = Succession(orders, time.monotonic(), left=(will.estate, claim))
        code = Supervisor(orders, listener, output, pipe, succession).run([], {})
        output.message(b"tfhvdrun: the job has ended with exit code %d\n" % code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
