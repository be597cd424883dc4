"""Words of the command line -> Job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tfhvd.launch.errors import UsageError
from tfhvd.launch.hosts import Host, check_slots, parse_hosts, read_hostfile
from tfhvd.launch.parser import USAGE, make_parser


@dataclass(frozen=True)
class Job:
    """What the user asks for, checked. Times are in seconds.

    Attributes:
        command: the program and its arguments, run once per rank.
        num_proc: the number of ranks, at least 1.
        hosts: where; empty means here, or wherever a batch system's allocation is.
        env: (name, value) for the ranks; the value None means the launcher's own value.
        settings: TFHVD_* variables that the options set.
        binding_args: arguments for mpirun in the place of its ``--bind-to none``.
        as_horovod: whether `import horovod` is to give tfhvd in the ranks.
        task: "run", or what to print instead: "help", "version" or "check-build".
        warnings: a line for each option that was given and does nothing.
    """

    command: tuple[str, ...] = ()
    num_proc: int = 1
    hosts: tuple[Host, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    tcp: bool = False
    ssh_port: int | None = None
    ssh_identity_file: Path | None = None
    mpirun: Path | None = None
    mpi_args: tuple[str, ...] = ()
    binding_args: tuple[str, ...] = ()
    output_dir: Path | None = None
    prefix: bool = True
    verbose: bool = False
    start_timeout: float = 120.0
    stop_timeout: float = 5.0
    as_horovod: bool = False
    task: str = "run"
    warnings: tuple[str, ...] = ()

    @property
    def ssh_args(self) -> tuple[str, ...]:
        """Options for ssh."""
        port = () if self.ssh_port is None else ("-p", str(self.ssh_port))
        key = () if self.ssh_identity_file is None else ("-i", str(self.ssh_identity_file))
        return port + key


def parse(argv: Sequence[str]) -> Job:
    """Turns the words after ``tfhvdrun`` into a Job; raises UsageError with one clear line.

    Example: ``parse(["-np", "2", "python", "train.py"]).command == ("python", "train.py")``
    """
    given = make_parser().read(argv)
    for task in ("help", "version", "check-build"):
        if task in given:
            return Job(task=task)
    command = tuple(given["command"])
    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise UsageError(f"no command to run. Usage: {USAGE}")
    hosts = _hosts(given)
    if "num_proc" not in given and not hosts:
        raise UsageError("the number of ranks is missing. Type -np N, as in: tfhvdrun -np 2 ...")
    num_proc = given.get("num_proc", sum(host.slots for host in hosts))
    check_slots(num_proc, hosts)
    as_they_are = {name.name for name in fields(Job)} - {"command", "num_proc", "hosts"}
    return Job(
        command=command,
        num_proc=num_proc,
        hosts=hosts,
        prefix="no_prefix" not in given,
        settings={name: value for name, value in given.items() if name.startswith("TFHVD_")},
        **{name: value for name, value in given.items() if name in as_they_are},
    )


def _hosts(given: dict[str, Any]) -> tuple[Host, ...]:
    if "hosts" in given and "hostfile" in given:
        raise UsageError("-H and --hostfile exclude each other: give one of them")
    if "hostfile" in given:
        return read_hostfile(given["hostfile"])
    return parse_hosts(given["hosts"]) if "hosts" in given else ()


def help_text() -> str:
    """What ``tfhvdrun --help`` prints."""
    return make_parser().format_help().rstrip("\n")
