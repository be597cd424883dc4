"""The Python stacks of another process, even if Python is deadlocked in that process.

A thread of the process writes its stacks to a file in memory, which the asking process opens
through /proc. This thread holds the interpreter's lock, so that no other thread runs Python. If it
cannot get the lock, because a thread that sleeps in C code holds it, faulthandler's signal handler
writes the stacks instead. The handler must not do so while Python runs: the frames would change
while it reads them, which crashes the process.

The name of the file contains the descriptor and the signals with which to ask.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfhvd.system import procfs

_NAME = re.compile(r"tfhvd-stacks-(\d+)-(\d+)-(\d+)")
_LIMIT = 2.0  # seconds for an answer
_QUIET = 0.05  # seconds without another line, after which the answer is complete
_DEAF = 0.5  # seconds; if all threads sleep after that, the process will not answer by itself
# How many checks must find each thread asleep, not necessarily the same checks for all threads: a
# thread that waits for the interpreter's lock wakes up every 5 ms, and may then wait for a busy
# processor.
_LOOKS = 5
_MOST = 100  # threads that faulthandler shows, the newest first; with more it omits the main thread

_ANSWERS = " in _answer_when_asked"  # the end of the first frame of the thread that answers

# The line before the stack of a main thread that leaves its program with an exception.
UNCAUGHT = "leaves with "

# The line before the stack of a main thread while no thread can run Python.
NO_PYTHON = "no Python runs: C code keeps the interpreter's lock"


@dataclass(frozen=True)
class _Ways:
    """The ways to ask a process.

    Attributes:
        pipe: the process's descriptor of a pipe, which asks its thread; this thread needs the
            interpreter's lock.
        signal: the signal that asks faulthandler.
        uncaught: the signal to append the exception with which the main thread leaves; 0 for none.
    """

    pipe: int
    signal: int
    uncaught: int


def answer(append_uncaught_at: Callable[[int, int], None] | None = None) -> bool:
    """Answers questions for the stacks until the end of this process.

    Uses real-time signals that have no handler yet.

    Args:
        append_uncaught_at: installs a handler for a signal (the first argument), which appends the
            exception with which the main thread leaves to a file (the second argument).

    Returns:
        Whether this process answers: False if there is no free signal.
    """
    free = _free_signals()
    number, uncaught = next(free, 0), next(free, 0) if append_uncaught_at is not None else 0
    if not number:
        return False
    asked, asks = os.pipe()
    file = os.memfd_create(f"tfhvd-stacks-{asks}-{number}-{uncaught}")
    # The asking process first truncates the file: the next output must go to its beginning.
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    if append_uncaught_at is not None and uncaught:
        append_uncaught_at(uncaught, file)
    faulthandler.register(number, file=file, all_threads=True)
    threading.Thread(
        target=_answer_when_asked, args=(asked, file), name="tfhvd-stacks", daemon=True
    ).start()
    return True


def _free_signals() -> Iterator[int]:
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            yield number


def _answer_when_asked(asked: int, file: int) -> None:
    with contextlib.suppress(OSError):  # the program has closed our pipe
        while os.read(asked, 1024):
            faulthandler.dump_traceback(file, all_threads=True)
            if len(sys._current_frames()) > _MOST:
                os.write(file, _main_thread().encode())


def _main_thread() -> str:
    """Returns the main thread's stack in the form of faulthandler."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines = ["Thread 0x0 (most recent call first):"]
    while frame is not None:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return "\n".join([*lines, ""])


def of(pid: int) -> list[list[str]]:
    """Asks a process for its stacks.

    Args:
        pid: the process id, in this process's namespace.

    Returns:
        A list of lines for each thread, beginning with its last call; the main thread comes first.
        Without an answer, one list with one line, the reason.
    """
    try:
        text = _ask(pid)
    except OSError as error:
        return [[f"no stacks: {error.strerror or error}"]]
    return text if isinstance(text, list) else parse(text)


def parse(text: str) -> list[list[str]]:
    r"""Splits faulthandler's output into threads.

    The main thread comes first, and begins with the exception with which it leaves, if any. The
    thread that answers is left out. If another thread has written the output, no thread runs
    Python, and the main thread begins with NO_PYTHON.

    Example:
        >>> parse('Current thread 0x1 (most recent call first):\\n  File "t.py", line 3 in f\\n')
        [['t.py:3 in f']]
    """
    threads: list[list[str]] = []
    current: list[str] = []
    uncaught = ""
    for line in text.splitlines():
        if "hread 0x" in line:
            threads.append([])
            if line.startswith("Current"):
                current = threads[-1]
        elif line.startswith("Uncaught: "):
            uncaught = line.removeprefix("Uncaught: ")
        elif threads and line.strip():
            frame = re.fullmatch(r'  File "(.*)", line (\S+) in (.*)', line)
            threads[-1].append(f"{frame[1]}:{frame[2]} in {frame[3]}" if frame else line.strip())
    answering = [each for each in threads if each and each[0].endswith(_ANSWERS)]
    held = any(each is not current for each in answering)
    threads = [each for each in threads if each not in answering]
    if held and threads:
        threads[-1].insert(0, NO_PYTHON)
    if uncaught and threads:
        threads[-1].insert(0, f"{UNCAUGHT}{uncaught}")
    return threads[::-1]


def _ask(pid: int) -> str | list[list[str]]:
    status = procfs.status_of(pid)
    if status["State"].startswith(procfs.STOPPED):
        return [["no stacks: the process is stopped (SIGSTOP); kill -CONT continues it"]]
    for name, path in procfs.memory_files(pid):
        found = _NAME.fullmatch(name)
        if found is not None:
            return _answer(pid, _Ways(*map(int, found.groups())), path)
    return [["no stacks: the process does not answer to such questions"]]


def _answer(pid: int, ways: _Ways, path: Path) -> str | list[list[str]]:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(file, 0)
        _send(pid, ways.uncaught)
        pipe = os.open(path.parent / str(ways.pipe), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):  # full of earlier questions without an answer
            os.write(pipe, b"?")
        os.close(pipe)
        return _await(pid, ways, file)
    finally:
        os.close(file)


def _await(pid: int, ways: _Ways, file: int) -> str | list[list[str]]:
    begun = grown_at = time.monotonic()
    size = 0
    sent = False
    asleep: Counter[str] = Counter()
    while time.monotonic() < begun + _LIMIT:
        time.sleep(_QUIET / 5)
        now, grown = time.monotonic(), os.fstat(file).st_size
        if grown != size:
            size, grown_at = grown, now
        elif size > 0 and now > grown_at + _QUIET:
            text = os.pread(file, size, 0).decode(errors="replace")
            if parse(text):  # otherwise the text is only the exception
                return text
        if now > begun + _DEAF and not sent:
            threads = procfs.threads_that_run(pid)
            asleep.update(thread for thread, runs in threads.items() if not runs)
            sent = all(asleep[thread] >= _LOOKS for thread in threads)
            if sent:
                _send(pid, ways.signal)
    return [
        [
            f"no stacks: no answer within {_LIMIT:g} s: it computes in C code that keeps Python "
            "waiting, or gets no processor"
        ]
    ]


def _send(pid: int, number: int) -> None:
    """Sends a signal if the process has a handler for it: without one it would end the process."""
    if number and int(procfs.status_of(pid)["SigCgt"], 16) >> (number - 1) & 1:
        os.kill(pid, number)
