"""SignalPipe: the signals to this process as bytes of a pipe, so that no signal is missed."""

from __future__ import annotations

import os
import signal

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class SignalPipe:
    """A receiver of the signals to this process; for the main thread.

    No signal is missed between two starts of a job.

    Attributes:
        fd: a descriptor that is readable when a signal has arrived.
    """

    def __init__(self) -> None:
        self.fd, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (*STOPPING, *PASSED_ON):
            if signal.getsignal(number) != signal.SIG_IGN:  # set by nohup, or for background jobs
                signal.signal(number, lambda number, stack: None)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)

    def take(self) -> bytes:
        """Returns the numbers of the signals that have arrived; waits for one."""
        return os.read(self.fd, 4096)
