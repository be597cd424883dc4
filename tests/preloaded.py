"""Starts Python programs as forks of this process, which has loaded TensorFlow already.

Six seconds of a processor are what a rank needs to import TensorFlow, and most jobs of the tests
are over in less. What `start_python_by_fork` starts is a process as any other, with its own command
line, descriptors, environment, signals and parent; also what such a process starts with subprocess.
What is imported is as it is here, however: for jobs in which that does not depend on their
environment.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import runpy
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfhvd.system import subreaper

# Before Python 3.11 subprocess has no such function that could be another one.
POSSIBLE = hasattr(subprocess, "_fork_exec")

_RUNPY = "<frozen runpy>"


@contextmanager
def start_python_by_fork(wanted: bool = True) -> Iterator[None]:
    """Within it subprocess forks where it is to start this Python; else all is as it was.

    Processes whose parent has ended are this one's then, and `left_behind` finds them.

    Args:
        wanted: whether that is to be so, where it is POSSIBLE.

    Raises:
        RuntimeError: where there is another thread than this one, whose locks a fork would keep.
    """
    if not (wanted and POSSIBLE):
        yield
        return
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"  # whose pools would be threads of this process
    import tensorflow  # noqa: F401

    import tfhvd.keras  # noqa: F401

    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("a process with other threads cannot fork")
    subreaper.adopt()
    before: Any = subprocess._fork_exec  # type: ignore[attr-defined]

    def fork_exec(args: Sequence[str], executables: Sequence[bytes], *rest: Any) -> int:
        program = _program(args)
        return before(args, executables, *rest) if program is None else _fork(program, *rest)

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess._fork_exec = before  # type: ignore[attr-defined]


def left_behind() -> list[int]:
    """Children of this process; what has ended is reaped."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            return []
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in found.split()]


def _program(args: Sequence[str]) -> Callable[[], object] | None:
    """What `python ARGS` runs; None where it is another program, or not understood."""
    words = [os.fsdecode(word) for word in args]
    if words[0] != sys.executable:
        return None
    words = words[1:]
    while words and words[0] in ("-E", "-S"):
        del words[0]
    if words[0] == "-m":
        name, sys_argv = words[1], [f"-m {words[1]}", *words[2:]]
        return lambda: _run(sys_argv, lambda: runpy.run_module(name, None, "__main__", True))
    if words[0].startswith("-"):
        return None
    return lambda: _run(words, lambda: runpy.run_path(words[0], None, "__main__"), in_folder=True)


def _run(argv: Sequence[str], run: Callable[[], object], *, in_folder: bool = False) -> None:
    sys.argv[:] = argv
    _show([sys.executable, *argv])
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    if in_folder:
        sys.path.insert(0, str(Path(argv[0]).absolute().parent))
    run()


def _show(words: Sequence[str]) -> None:
    """Makes the words this process's command line in /proc, in the place of what it has inherited.

    REQUIRES: os.environ has been set anew, for the environment's first place is written over.
    """
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    begin, end, _, end_of_environment = map(int, fields[45:49])
    room = end_of_environment - begin - 1
    text = " ".join(words).encode()[:room]
    # Where the last byte of the arguments is not 0, the kernel reads on, until one is.
    text = text.ljust(end - begin, b" ")
    ctypes.memmove(begin, text + b"\0", len(text) + 1)


def _fork(
    program: Callable[[], object],
    close_fds: bool,
    keep: Sequence[int],
    cwd: str | None,
    env: Sequence[bytes] | None,
    stdin: int,
    _stdin_of_parent: int,
    _stdout_of_parent: int,
    stdout: int,
    _stderr_of_parent: int,
    stderr: int,
    _error_read: int,
    error_write: int,
    restore_signals: bool,
    new_session: bool,
    *rest: Any,
) -> int:
    """In the place of subprocess._fork_exec, as far as the tests and the product use it."""
    before_exec = rest[-2] if callable(rest[-2]) else rest[-1] if callable(rest[-1]) else None
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number, fd in ((0, stdin), (1, stdout), (2, stderr)):
            if fd >= 0 and fd != number:
                os.dup2(fd, number)
            elif fd == number:
                os.set_inheritable(fd, True)
        if cwd is not None:
            os.chdir(cwd)
        _forget_signals(restore_signals)
        if new_session:
            os.setsid()
        if before_exec is not None:
            before_exec()
        _close(close_fds, {*keep} - {error_write})
        _set_environment(env)
        for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            inherited.atexit = False  # the parent's, such as the removal of its folders
        program()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        _tell(error)
    finally:
        _exit(code)
    return 0  # never


def _set_environment(env: Sequence[bytes] | None) -> None:
    if env is None:
        wanted = dict(os.environ)
    else:
        pairs = [os.fsdecode(line).partition("=") for line in env]
        wanted = {name: value for name, _, value in pairs}
    os.environ.clear()
    os.environ.update(wanted)


def _forget_signals(restore: bool) -> None:
    """As exec does: what is ignored stays so, and handlers go."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if restore:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts


def _close(everything: bool, keep: set[int]) -> None:
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd <= 2 or fd in keep:
            continue
        try:
            if everything or fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(fd)
        except OSError:  # that of the listing itself
            pass


def _tell(error: BaseException) -> None:
    """As Python does at the top, where only the program's own frames are."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename in (__file__, _RUNPY):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _exit(code: int) -> None:
    """As Python ends: its own functions first, then those of C."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        ctypes.CDLL(None).exit(code & 0xFF)
