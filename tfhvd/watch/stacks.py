"""The Python stacks of a process, asked for from outside, also while Python is deadlocked there.

faulthandler's handler in C writes them, without the interpreter's lock, to a file in memory that
whoever asks opens through /proc. The file's name says which signal asks for them.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tfhvd.watch import processes

_NAME = "tfhvd-stacks-"  # and the signal's number
_LIMIT = 2.0  # seconds for an answer
_QUIET = 0.05  # seconds without another line: the answer is complete

# Stands before the stack of a main thread that leaves its program with an exception.
UNCAUGHT = "leaves with "


def answer(append_uncaught_at: Callable[[int, int], None] | None = None) -> int | None:
    """Answers from now on, as long as this process lives.

    Args:
        append_uncaught_at: has the exception that the main thread leaves with appended to a file
            (the second argument) whenever a signal (the first one) comes.

    Returns:
        The signal that asks for the stacks: a real-time one that nothing else has taken; None where
        there is none.
    """
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            break
    else:
        return None
    file = os.memfd_create(f"{_NAME}{number}")
    # Whoever asks empties the file first: what is written next stands at its beginning.
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    if append_uncaught_at is not None:
        append_uncaught_at(number, file)
    # Chained: the handler before it comes after it.
    faulthandler.register(number, file=file, all_threads=True, chain=append_uncaught_at is not None)
    return number


def of(pid: int) -> list[list[str]]:
    """Asks a process for its stacks.

    Args:
        pid: the process, as this one sees it.

    Returns:
        A list of lines for each thread, the main one first, each from its last call outwards. One
        list with one line where there is no answer: why.
    """
    try:
        text = _ask(pid)
    except OSError as error:
        return [[f"no stacks: {error.strerror or error}"]]
    return text if isinstance(text, list) else parse(text)


def parse(text: str) -> list[list[str]]:
    r"""Cuts what faulthandler writes into threads, and puts what the main one leaves with first.

    Example:
        >>> parse('Current thread 0x1 (most recent call first):\\n  File "t.py", line 3 in f\\n')
        [['t.py:3 in f']]
    """
    threads: list[list[str]] = []
    uncaught = ""
    for line in text.splitlines():
        if "hread 0x" in line:
            threads.append([])
        elif line.startswith("Uncaught: "):
            uncaught = line.removeprefix("Uncaught: ")
        elif threads and line.strip():
            frame = re.fullmatch(r'  File "(.*)", line (\S+) in (.*)', line)
            threads[-1].append(f"{frame[1]}:{frame[2]} in {frame[3]}" if frame else line.strip())
    if uncaught and threads:
        threads[-1].insert(0, f"{UNCAUGHT}{uncaught}")
    return threads[::-1]


def _ask(pid: int) -> str | list[list[str]]:
    status = processes.status_of(pid)
    if status["State"].startswith(("T", "t")):
        return [["no stacks: the process is stopped (SIGSTOP); kill -CONT lets it go on"]]
    for name, path in processes.memory_files(pid):
        if name.startswith(_NAME):
            number = int(name.removeprefix(_NAME))
            # A signal that it does not expect would end the process.
            if int(status["SigCgt"], 16) >> (number - 1) & 1:
                return _answer(pid, number, path)
    return [["no stacks: the process does not answer to such questions"]]


def _answer(pid: int, number: int, path: Path) -> str | list[list[str]]:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(file, 0)
        os.kill(pid, number)
        deadline = time.monotonic() + _LIMIT
        size, grown_at = 0, time.monotonic()
        while True:
            time.sleep(_QUIET / 5)
            now, grown = time.monotonic(), os.fstat(file).st_size
            if grown != size:
                size, grown_at = grown, now
            elif (size > 0 and now > grown_at + _QUIET) or now > deadline:
                break
        if size == 0:
            who = signal.Signals(number).name if number in set(signal.Signals) else number
            return [[f"no stacks: no answer to signal {who} within {_LIMIT:g} s"]]
        return os.pread(file, size, 0).decode(errors="replace")
    finally:
        os.close(file)
