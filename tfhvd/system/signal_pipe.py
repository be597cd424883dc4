"""The signals that we are sent, as bytes of a pipe: none is lost, even between two starts."""

from __future__ import annotations

import os
import signal

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class SignalPipe:
    """Takes the signals of this process, for the main thread.

    Attributes:
        fd: readable when a signal has come.
    """

    def __init__(self) -> None:
        self.fd, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (*STOPPING, *PASSED_ON):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, lambda number, stack: None)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)

    def take(self) -> bytes:
        """The numbers of the signals that have come; waits for one."""
        return os.read(self.fd, 4096)
