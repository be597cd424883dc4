"""Words of the command line -> Job. The table OPTIONS is the one place that names an option."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfhvd.launch.errors import UsageError
from tfhvd.launch.hosts import Host, check_slots, parse_hosts, read_hostfile

USAGE = "tfhvdrun -np N [-H host:slots,... | --hostfile FILE] [options] command [arguments ...]"
_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


@dataclass(frozen=True)
class Job:
    """What the user asks for, checked. Times are in seconds.

    Attributes:
        command: the program and its arguments, run once per rank.
        num_proc: the number of ranks, at least 1.
        hosts: where; empty means here, or wherever a batch system's allocation is.
        env: (name, value) for the ranks; the value None means the launcher's own value.
        settings: TFHVD_* variables that the options set.
        as_horovod: whether `import horovod` is to give tfhvd in the ranks.
        task: "run", or what to print instead: "help", "version" or "check-build".
    """

    command: tuple[str, ...] = ()
    num_proc: int = 1
    hosts: tuple[Host, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    ssh_port: int | None = None
    mpirun: Path | None = None
    mpi_args: tuple[str, ...] = ()
    output_dir: Path | None = None
    prefix: bool = True
    verbose: bool = False
    start_timeout: float = 120.0
    stop_timeout: float = 5.0
    as_horovod: bool = False
    task: str = "run"


@dataclass(frozen=True)
class Option:
    """One option: its spellings, the name of its value (none: a switch), and its sentence."""

    flags: tuple[str, ...]
    key: str
    help: str
    metavar: str = ""
    convert: Callable[[str], Any] = str


def _whole(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or int(text) < least:
            raise ValueError(f"a whole number, at least {least}")
        return int(text)

    return convert


def _number(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text):
        raise ValueError("a number, at least 0")
    return float(text)


def _plain_number(text: str) -> str:
    return f"{_number(text):.10g}"


def _megabytes(text: str) -> str:
    return str(int(_number(text) * 2**20))


def _level(text: str) -> str:
    if text.lower() not in _LEVELS:
        raise ValueError(f"one of {', '.join(_LEVELS)}")
    return text.lower()


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("NAME or NAME=VALUE")
    return name, value if equals else None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(re.fullmatch(r"[^\s/,]+", name) for name in names):
        raise ValueError("names of network interfaces, as in eth0,eth1")
    return names


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise ValueError("a port number, 1 to 65535")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError("arguments for mpirun, quoted as for a shell") from error


OPTIONS = (
    Option(("-np", "-n", "--num-proc"), "num_proc", "number of ranks", "N", _whole(1)),
    Option(("-H", "-host", "--host", "--hosts"), "hosts", "hosts and slots, as in a:4,b:4", "LIST"),
    Option(
        ("--hostfile", "-hostfile", "--host-file"),
        "hostfile",
        "a file with one host a line, as in: node1 slots=4",
        "FILE",
        Path,
    ),
    Option(
        ("--env", "-x"),
        "env",
        "a variable for every rank (may be repeated)",
        "NAME[=VALUE]",
        _variable,
    ),
    Option(
        ("--as-horovod",),
        "as_horovod",
        "let `import horovod.tensorflow` give tfhvd: scripts for Horovod run as they are",
    ),
    Option(("-v", "--verbose"), "verbose", "print the mpirun line and what mpirun says"),
    Option(("--no-prefix",), "no_prefix", "do not put [rank] before each line of output"),
    Option(
        ("--output-filename",),
        "output_dir",
        "also write each rank's output to DIR/rank.R/stdout and stderr",
        "DIR",
        Path,
    ),
    Option(("-p", "--ssh-port"), "ssh_port", "port of ssh on the other hosts", "PORT", _port),
    Option(
        ("--network-interfaces", "--network-interface", "--nics"),
        "nics",
        "network interfaces to use, as in eth0,eth1",
        "LIST",
        _names,
    ),
    Option(
        ("--start-timeout",),
        "start_timeout",
        "seconds for all ranks to start (default 120)",
        "S",
        _number,
    ),
    Option(
        ("--stop-timeout",),
        "stop_timeout",
        "seconds between asking a rank to stop and killing it (default 5)",
        "S",
        _number,
    ),
    Option(
        ("--fusion-threshold-mb",),
        "TFHVD_FUSION_THRESHOLD",
        "size of the fusion buffer in MiB",
        "MB",
        _megabytes,
    ),
    Option(
        ("--cycle-time-ms",),
        "TFHVD_CYCLE_TIME",
        "longest time in ms that a ready tensor waits for company",
        "MS",
        _plain_number,
    ),
    Option(
        ("--cache-capacity",),
        "TFHVD_CACHE_CAPACITY",
        "number of tensors in the response cache",
        "N",
        lambda text: str(_whole(0)(text)),
    ),
    Option(
        ("--stall-check-warning-time-seconds",),
        "TFHVD_STALL_CHECK_TIME_SECONDS",
        "seconds after which a tensor that some ranks lack is reported",
        "S",
        _plain_number,
    ),
    Option(
        ("--stall-check-shutdown-time-seconds",),
        "TFHVD_STALL_SHUTDOWN_TIME_SECONDS",
        "seconds after which such a tensor ends the job",
        "S",
        _plain_number,
    ),
    Option(
        ("--timeline-filename",),
        "TFHVD_TIMELINE",
        "write a timeline for chrome://tracing there, from rank 0, or with {rank} in it from each",
        "FILE",
    ),
    Option(
        ("--timeline-mark-cycles",),
        "TFHVD_TIMELINE_MARK_CYCLES",
        "mark in it where collectives that were agreed on together begin",
    ),
    Option(("--log-level",), "TFHVD_LOG_LEVEL", ", ".join(_LEVELS), "LEVEL", _level),
    Option(("--mpirun",), "mpirun", "the mpirun to use", "FILE", Path),
    Option(("--mpi-args",), "mpi_args", "more arguments for mpirun, in quotes", '"..."', _words),
    Option(("--check-build", "-cb"), "check-build", "print what tfhvd was built with"),
    Option(("--version",), "version", "print the version"),
    Option(("-h", "--help"), "help", "print this help"),
)
_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_TASKS = ("help", "version", "check-build")


def parse(argv: Sequence[str]) -> Job:
    """Turns the words after ``tfhvdrun`` into a Job; raises UsageError with one clear line.

    Example: ``parse(["-np", "2", "python", "train.py"]).command == ("python", "train.py")``
    """
    given, command = _split(argv)
    for task in _TASKS:
        if task in given:
            return Job(task=task)
    if not command:
        raise UsageError(f"no command to run. Usage: {USAGE}")
    hosts = _hosts(given)
    if "num_proc" not in given and not hosts:
        raise UsageError("the number of ranks is missing. Type -np N, as in: tfhvdrun -np 2 ...")
    num_proc = given.get("num_proc", sum(host.slots for host in hosts))
    check_slots(num_proc, hosts)
    plain = ("nics", "ssh_port", "mpirun", "mpi_args", "output_dir", "verbose", "env", "as_horovod")
    times = ("start_timeout", "stop_timeout")
    return Job(
        command=command,
        num_proc=num_proc,
        hosts=hosts,
        prefix="no_prefix" not in given,
        settings={
            key: "1" if value is True else value
            for key, value in given.items()
            if key.startswith("TFHVD_")
        },
        **{key: given[key] for key in plain + times if key in given},
    )


def _hosts(given: dict[str, Any]) -> tuple[Host, ...]:
    if "hosts" in given and "hostfile" in given:
        raise UsageError("-H and --hostfile exclude each other: give one of them")
    if "hostfile" in given:
        return read_hostfile(given["hostfile"])
    return parse_hosts(given["hosts"]) if "hosts" in given else ()


def _split(argv: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Reads options up to the first word that is none: there the command begins."""
    given: dict[str, Any] = {}
    words = list(argv)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        flag, equals, raw = word.partition("=")
        option = _BY_FLAG.get(flag)
        if option is None:
            raise UsageError(_unknown(flag))
        if not option.metavar:
            if equals:
                raise UsageError(f"{flag} takes no value. Received: {word}")
            given[option.key] = True
            continue
        if not equals:
            if not words:
                raise UsageError(f"{flag} needs a value: {flag} {option.metavar}")
            raw = words.pop(0)
        value = _convert(option, flag, raw)
        given[option.key] = (*given.get("env", ()), value) if option.key == "env" else value
    return given, tuple(words)


def _convert(option: Option, flag: str, raw: str) -> Any:
    try:
        return option.convert(raw)
    except ValueError as error:
        raise UsageError(f"{flag} must be {error}. Received: {raw!r}") from error


def _unknown(flag: str) -> str:
    near = [name for name in _BY_FLAG if len(flag) > 3 and name.startswith(flag)]
    near = near or difflib.get_close_matches(flag, _BY_FLAG, n=1, cutoff=0.7)
    hint = f"Did you mean {near[0]}?" if near else "tfhvdrun --help lists the options"
    return f"unknown option {flag}. {hint} (options of your command go after the command)"


def help_text() -> str:
    """What ``tfhvdrun --help`` prints."""
    lines = [f"usage: {USAGE}", "", "Runs the command N times, as the ranks of one job.", ""]
    for option in OPTIONS:
        head = "  " + ", ".join(option.flags) + (f" {option.metavar}" if option.metavar else "")
        lines += [head, f"        {option.help}"]
    lines += ["", "Ranks have no input: what they read from stdin is empty."]
    lines += ["The exit code is that of the rank that failed first (128 + N: by signal N)."]
    return "\n".join(lines)
