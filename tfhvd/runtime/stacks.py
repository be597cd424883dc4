"""Lets a process outside ask for the Python stacks of this one, also while Python is deadlocked.

faulthandler's handler in C writes them, without the interpreter's lock, to a file in memory that
whoever asks opens through /proc. The file's name says which signal asks for them.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal

NAME = "tfhvd-stacks-"  # and the signal's number


def answer() -> int | None:
    """Answers from now on, as long as this process lives.

    Returns:
        The signal that asks for the stacks: a real-time one that nothing else has taken; None where
        there is none.
    """
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            break
    else:
        return None
    file = os.memfd_create(f"{NAME}{number}")
    # Whoever asks empties the file first: what is written next stands at its beginning.
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(number, file=file, all_threads=True)
    return number
