"""run: calls a function on every rank of a new job, from a program or a notebook.

The job is an ordinary job of `tfhvdrun`, in a separate process: the launcher handles signals and
adopts orphans, and the caller's process should not. The ranks run `rank_main`; the function and the
results travel by `protocol.transfer`.
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

# The beginning of the launcher's lines on a failure; the first form names the rank that failed.
_VERDICT = re.compile(
    r"tfhvdrun: (?:rank (\d+) on host .* failed first|host |error:|mpirun |stopped by )"
)

_AGAIN = 10  # seconds after which a launcher that has not ended is interrupted again

_PACKAGE = Path(__file__).resolve().parents[3]  # the folder in which `import tfhvd` finds tfhvd


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
    """Calls a function on every rank of a new job, and returns the result of each rank.

    The function must call `hvd.init()`. The output of the ranks is printed here, with the rank
    before each line. The function, its arguments and the results travel as pickles: cloudpickle
    can write functions and classes of a notebook and of the main script, too. Each rank imports
    modules itself, from the caller's `sys.path`.

    Args:
        func: the function to call.
        args: its positional arguments, the same on every rank.
        kwargs: its named arguments.
        np: the number of ranks; by default 1, or as many as `hosts` or `hostfile` have slots.
        min_np: the smallest number of ranks with which the job continues when ranks fail; makes the
            job elastic.
        max_np: the largest number of ranks when others join, also to replace failed ranks; makes
            the job elastic.
        slots: ignored; Horovod has this argument. `hosts` gives the slots of each host.
        reset_limit: how often ranks may fail or join; None for no limit.
        cooldown_range: the first and the longest pause, in seconds, until a host on which a rank
            has failed is tried again.
        hosts: hosts and slots, as in "a:4,b:4"; None for this machine.
        hostfile: a file with one host per line, as in "a slots=4".
        start_timeout: the seconds in which all ranks must have started; 120 by default.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the private key for ssh; None for the key in ssh's configuration.
        disable_cache: ignored; Horovod has this argument, and nothing is cached here.
        output_filename: a folder that gets each rank's output, too.
        verbose: whether to print mpirun's messages.
        use_gloo: whether the job starts its ranks without an MPI, and connects them over TCP.
        use_mpi: whether the job uses an MPI; by default if there is one.
        mpi_args: more arguments for mpirun, as in a shell.
        network_interface: network interfaces to use, as in "eth0,eth1".
        executable: the Python of the ranks; by default the Python of this process.
        network_interfaces: the newer name of `network_interface`.
        num_proc: the newer name of `np`.
        min_num_proc: the newer name of `min_np`.
        max_num_proc: the newer name of `max_np`.
        env: variables for the ranks, in addition to those of this process.
        remote_shell: a program to use instead of ssh, with the arguments `HOST COMMAND...`.

    Returns:
        The results in the order of ranks; for an elastic job the results of the ranks that have
        reached its end.

    Raises:
        RankFailedError: if the function raises on a rank, or a rank ends in another way. It names
            the rank that failed first and has its traceback; its `__cause__` is the exception, if
            this exception can be pickled.
        ValueError: if the arguments are invalid, or exclude each other.
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
    """Returns the launcher's options, without those that are None, and variables for the ranks."""
    words = [f"{flag}={value}" for flag, value in options.items() if value is not None]
    return words + [f"--env={name}={value}" for name, value in (env or {}).items()]


@dataclass(frozen=True)
class Outcome:
    """The end of a job, as plain values: the pickles of the ranks are still bytes.

    Attributes:
        size: the number of ranks; None for an elastic job, in which it may have changed.
        answers: the messages of the ranks, as (rank, message), in the order of arrival.
        code: the launcher's exit code.
        last_lines: the launcher's last lines.
    """

    size: int | None
    answers: Sequence[tuple[int, bytes]]
    code: int
    last_lines: Sequence[str]

    def results(self) -> list[Any]:
        """Returns the result of each rank, or raises RankFailedError."""
        return _results(self.size, self.answers, self.code, self.last_lines)


def call(
    words: Sequence[str],
    payload: bytes,
    executable: str | None = None,
    cancelled: threading.Event | None = None,
) -> Outcome:
    """Runs a job in which every rank makes a call; waits for its end.

    Args:
        words: the launcher's options.
        payload: the call, from `payload_of`.
        executable: the Python of the ranks; by default the Python of this process.
        cancelled: an event that ends the job. It is set at the end in any case.

    Raises:
        ValueError: if the options are invalid.
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
    """Runs the launcher to its end; returns its exit code and its last lines."""
    with contextlib.ExitStack() as blocked:
        blocked.enter_context(_without_interrupts())  # launcher_main unblocks SIGINT again
        launcher = subprocess.Popen(
            list(line),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that only we pass Ctrl-C on, once
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
                launcher.send_signal(signal.SIGINT)  # does nothing if the launcher has ended
                over.wait(_AGAIN)

        for thread in (*pumps, threading.Thread(target=interrupt, daemon=True)):
            thread.start()
        try:
            blocked.close()  # inside the try, so that Ctrl-C ends the launcher
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
    """Blocks SIGINT for this thread, and for the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pump(source: IO[str], target: IO[str], last: list[str] | None) -> None:
    """Copies lines; keeps those from the launcher's first line on a failure in `last`."""
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
        raised.clear()  # the job has continued without the ranks that raised
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
    except Exception:  # only the rank may be able to import the class
        return None
