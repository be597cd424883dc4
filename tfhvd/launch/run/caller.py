"""run: calls a function on every rank of a new job, from a program or a notebook.

The job is an ordinary one, of `tfhvdrun`, in a process of its own: the launcher takes signals and
adopts orphans, which is not for the caller's process. Its ranks are `task`; function and results
travel through `exchange`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from tfhvd.errors import RankFailedError
from tfhvd.launch.errors import UsageError
from tfhvd.launch.options import parse
from tfhvd.launch.placement import command_line, environment
from tfhvd.launch.run.payload import payload_of
from tfhvd.protocol.transfer import Exchange

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")

# How the launcher's words on a failure begin; the first of them name the rank that failed first.
_VERDICT = re.compile(
    r"tfhvdrun: (?:rank (\d+) on host .* failed first|host |error:|mpirun |stopped by )"
)

_AGAIN = 10  # seconds after which a launcher that has not ended is interrupted again

_PACKAGE = Path(__file__).resolve().parents[3]  # the folder that `import tfhvd` is found in


def run(
    func: Callable[..., _Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | os.PathLike[str] | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    executable: str | None = None,
    network_interfaces: str | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    env: Mapping[str, str] | None = None,
    remote_shell: str | os.PathLike[str] | None = None,
) -> list[_Result]:
    """Calls a function on every rank of a new job, and returns what each rank's call returns.

    The function calls `hvd.init()` itself. What the ranks print is printed here, with the rank
    before each line. Function, arguments and results travel as pickles: cloudpickle writes those of
    a notebook and of the main script as well; modules are imported anew by each rank, from the
    caller's `sys.path`.

    Args:
        func: what to call.
        args: its positional arguments, the same on every rank.
        kwargs: its named arguments.
        np: the number of ranks; by default 1, or as many as `hosts` or `hostfile` have slots.
        min_np: how many ranks must be left for the job to go on where it loses some: it is elastic.
        max_np: the most ranks that it may have once others come, also in the place of lost ones.
        slots: taken for Horovod's sake: `hosts` says how many ranks a host may run.
        reset_limit: how often ranks may be lost or come; None: as often as they do.
        cooldown_range: the seconds until a host on which a rank has failed is tried again: the
            first time, and at most.
        hosts: hosts and slots, as in "a:4,b:4"; None for this machine.
        hostfile: a file with one host a line, as in "a slots=4".
        start_timeout: the seconds in which all ranks must have started; 120 by default.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the private key for ssh; None for what its configuration names.
        disable_cache: taken for Horovod's sake: nothing is cached.
        output_filename: a folder that gets each rank's output as well.
        verbose: whether to print what mpirun says.
        use_gloo: whether the ranks are started and meet without an MPI, over TCP.
        use_mpi: whether they are by MPI; by default where there is one.
        mpi_args: more arguments for mpirun, as in a shell.
        network_interface: network interfaces to use, as in "eth0,eth1".
        executable: the Python of the ranks; by default the one of this process.
        network_interfaces: the newer name of `network_interface`.
        num_proc: the newer name of `np`.
        min_num_proc: that of `min_np`.
        max_num_proc: that of `max_np`.
        env: variables for the ranks, beside those of this process.
        remote_shell: a program in the place of ssh, which is called as `FILE HOST COMMAND...`.

    Returns:
        The results, rank 0's first; of an elastic job those of the ranks that have come to its end.

    Raises:
        RankFailedError: if the function raises on a rank, or a rank ends otherwise. It names the
            rank that failed first and has its traceback; its `__cause__` is the exception itself,
            where that can be pickled.
        ValueError: for arguments that cannot be meant.
        TypeError: if the function or its arguments cannot be pickled.

    Example:
        >>> def whoami(greeting):
        ...     import tfhvd as hvd
        ...     hvd.init()
        ...     return f"{greeting} from {hvd.rank()} of {hvd.size()}"
        >>> tfhvd.run(whoami, args=("hello",), np=2)
        ['hello from 0 of 2', 'hello from 1 of 2']
    """
    del disable_cache, slots
    if use_gloo and use_mpi:
        raise ValueError("use_gloo=True and use_mpi=True exclude each other; pass one of them.")
    np = _one(np, num_proc, "np", "num_proc")
    if np is None and not hosts and hostfile is None:
        np = 1
    words = option_words(
        {
            "-np": np,
            "--hosts": hosts,
            "--hostfile": hostfile,
            "--min-np": _one(min_np, min_num_proc, "min_np", "min_num_proc"),
            "--max-np": _one(max_np, max_num_proc, "max_np", "max_num_proc"),
            "--reset-limit": reset_limit,
            "--start-timeout": start_timeout,
            "--ssh-port": ssh_port,
            "--ssh-identity-file": ssh_identity_file,
            "--output-filename": output_filename,
            "--mpi-args": mpi_args,
            "--remote-shell": remote_shell,
            "--transport": "tcp" if use_gloo else "mpi" if use_mpi else None,
            "--nics": _one(
                network_interface, network_interfaces, "network_interface", "network_interfaces"
            ),
        },
        env,
    )
    words += ["--verbose"] if verbose else []
    if cooldown_range is not None:
        words += ["--blacklist-cooldown-range", *map(str, cooldown_range)]
    return call(words, payload_of(func, args, kwargs or {}), executable).results()


def _one(first: _Given | None, second: _Given | None, name: str, other: str) -> _Given | None:
    if first is not None and second is not None and first != second:
        raise ValueError(
            f"`{name}` and `{other}` are one argument, and both were given ({name}={first!r}, "
            f"{other}={second!r}); pass one of them."
        )
    return second if first is None else first


def option_words(options: Mapping[str, object], env: Mapping[str, str] | None) -> list[str]:
    """The launcher's options, but for those that are None, and variables for the ranks."""
    words = [f"{flag}={value}" for flag, value in options.items() if value is not None]
    return words + [f"--env={name}={value}" for name, value in (env or {}).items()]


@dataclass(frozen=True)
class Outcome:
    """How a job has ended, as plain values: what the ranks have pickled is still bytes.

    Attributes:
        size: the number of ranks; None where some may have been lost, and others have come.
        answers: what ranks have sent, as (rank, message), in the order of arrival.
        code: the launcher's exit code.
        last_lines: the launcher's own last lines.
    """

    size: int | None
    answers: Sequence[tuple[int, bytes]]
    code: int
    last_lines: Sequence[str]

    def results(self) -> list[Any]:
        """What each rank's call has returned, or raises RankFailedError."""
        return _results(self.size, self.answers, self.code, self.last_lines)


def call(
    words: Sequence[str],
    payload: bytes,
    executable: str | None = None,
    cancelled: threading.Event | None = None,
) -> Outcome:
    """Has every rank of a new job make a call, and waits for the job.

    Args:
        words: the launcher's options.
        payload: of `payload_of`.
        executable: the Python of the ranks; by default the one of this process.
        cancelled: ends the job when it is set. It is set at the end in any case.

    Raises:
        ValueError: for options that cannot be meant.
    """
    line = [*words, executable or sys.executable, "-m", "tfhvd.launch.run.rank_main"]
    try:
        job = parse.parse(line)
    except UsageError as error:
        raise ValueError(f"tfhvd.run: {error}") from None
    node = command_line.Node(environment.physical_cores(), environment.in_allocation(os.environ))
    exchange = Exchange(
        payload,
        {**os.environ, **job.variables},
        remote=command_line.is_remote(job, node),
        hosts=[host.name for host in job.hosts],
        nics=job.nics,
    )
    env = {**os.environ, **exchange.environment}
    env["PYTHONPATH"] = os.pathsep.join(
        [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    try:
        code, last = _supervise(
            [sys.executable, "-m", "tfhvd.launch.run.launcher_main", *line],
            env,
            cancelled or threading.Event(),
        )
    finally:
        exchange.close()
    size = None if job.elastic else job.num_proc
    return Outcome(size, tuple(exchange.answers), code, tuple(last))


def _supervise(
    line: Sequence[str], env: Mapping[str, str], cancelled: threading.Event
) -> tuple[int, list[str]]:
    """Runs the launcher to its end; returns its exit code and its own last lines."""
    with contextlib.ExitStack() as blocked:
        blocked.enter_context(_without_interrupts())  # The launcher unblocks its own.
        launcher = subprocess.Popen(
            list(line),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours to pass on, once.
        )
        last: list[str] = []
        pumps = [
            threading.Thread(target=_pump, args=(launcher.stdout, sys.stdout, None), daemon=True),
            threading.Thread(target=_pump, args=(launcher.stderr, sys.stderr, last), daemon=True),
        ]
        over = threading.Event()

        def interrupt() -> None:
            cancelled.wait()
            while not over.is_set():
                launcher.send_signal(signal.SIGINT)  # nothing where it has ended
                over.wait(_AGAIN)

        for thread in (*pumps, threading.Thread(target=interrupt, daemon=True)):
            thread.start()
        try:
            blocked.close()  # Here, so that Ctrl-C meets one who ends the launcher.
            code = launcher.wait()
        except BaseException:
            cancelled.set()
            launcher.wait()
            raise
        finally:
            over.set()
            cancelled.set()
            for pump in pumps:
                pump.join()
    return code, last


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks SIGINT for this thread, and for what it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pump(source: IO[str], target: IO[str], last: list[str] | None) -> None:
    """Writes lines on, and keeps those from the launcher's first word on the failure."""
    for text in source:
        if last is not None and (last or _VERDICT.match(text)):
            last.append(text.rstrip("\n"))
        target.write(text)
        target.flush()


def _results(
    size: int | None, answers: Sequence[tuple[int, bytes]], code: int, last: Sequence[str]
) -> list[Any]:
    results: dict[int, Any] = {}
    raised: dict[int, tuple[str, str, bytes | None]] = {}  # by rank, in the order of arrival
    for rank, message in answers:
        kind, content = pickle.loads(message)
        if kind == "raised":
            raised[rank] = content
        else:
            results[rank] = content
    if size is None and not code:
        raised.clear()  # whoever has raised was lost, and the others went on
    verdict = next(filter(None, map(_VERDICT.match, last)), None)
    first = int(verdict[1]) if verdict is not None and verdict[1] else next(iter(raised), None)
    if first in raised:
        said, trace, original = raised[first]
        text = f"rank {first} of tfhvd.run failed with {said}\n\n{trace.rstrip()}"
        raise RankFailedError(text, first, trace) from _unpickled(original)
    missing = sorted(set(range(size or 0)) - set(results))
    if missing or code:
        where = f"rank {', '.join(map(str, missing))} returned nothing" if missing else "it failed"
        text = f"the job of tfhvd.run ended with exit code {code}: {where}"
        named = first if first is not None else next(iter(missing), None)
        raise RankFailedError("\n".join([text, *last]), named, "")
    return [results[rank] for rank in sorted(results)]


def _unpickled(original: bytes | None) -> BaseException | None:
    if original is None:
        return None
    try:
        return pickle.loads(original)
    except Exception:  # The class may be importable on the rank only.
        return None
