"""The supervisor that replaces one whose host is lost: ``standby_main.py LISTENER WILL LOST``.

The first two are descriptors: of the socket to which the agents come, and of what the launcher has
left, which is read if it is signed by the token of the job. LOST is "host", or "launcher" where
only that is known to be gone, so that agents of its host may come, too. It goes on with the job
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

from tfhvd.launch.failover import replication
from tfhvd.launch.failover.takeover import Takeover
from tfhvd.launch.state.quorum import TakeoverClaim
from tfhvd.launch.stdio.output import Output
from tfhvd.launch.supervisor.supervisor import Supervisor
from tfhvd.protocol import variables
from tfhvd.system.signal_pipe import SignalPipe


def main(argv: Sequence[str]) -> int:
    """See above. Returns the exit code of the job."""
    listener = socket.socket(fileno=int(argv[0]))
    table = int(argv[1])
    left = os.pread(table, os.fstat(table).st_size, 0)
    will = replication.opened(left, os.environ.get(variables.TOKEN, ""))
    os.close(table)
    config, pipe = will.config, SignalPipe()
    output = Output(config.num_proc, **config.output, append=True)
    with listener, contextlib.closing(output):
        awaited = will.reachable if argv[2] == "host" else will.handover.members.present
        claim = TakeoverClaim(awaited, time.monotonic())
        takeover = Takeover(config, time.monotonic(), left=(will.handover, claim))
        code = Supervisor(config, listener, output, pipe, takeover).run([], {})
        output.message(b"tfhvdrun: the job has ended with exit code %d\n" % code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
