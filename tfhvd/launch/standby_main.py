"""The supervisor that replaces the one of a failed host: ``standby_main.py LISTENER STATE LOST``.

LISTENER and STATE are file descriptors: of the socket to which the agents connect, and of the
takeover state of the launcher, which must be signed with the token of the job. LOST is "host", or
"launcher" if only the launcher itself is known to have ended, so that agents of its host may
connect, too. This supervisor continues the job when the agents of more than half of the ranks have
connected. If they do not, another part of the job may continue, and this supervisor ends the job on
its side. The output of the ranks goes to its stdout, which is a file in the job's folder. It starts
no more ranks.

Agents run it by path with ``python -E -S``, and it imports the standard library alone.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: the names in this folder must not hide the standard library's.
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
    """Supervises the job to its end; returns its exit code. For the arguments see above."""
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
