"""Job: what the user asks for, as a value. The launcher sees the options only in this form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.scaling import PAUSES


@dataclass(frozen=True)
class Job:
    """The job that the user asks for, after all checks. Times are in seconds.

    Attributes:
        command: the program and its arguments, run once per rank.
        num_proc: the number of ranks, at least 1.
        hosts: the hosts; empty for this host, or for the hosts of a batch system's allocation.
        hostfile: the file from which the hosts were read, if any.
        env: (name, value) for the ranks; the value None means the launcher's value.
        settings: TFHVD_* variables that the options set.
        transport: "mpi": mpirun starts the ranks, and MPI carries the data between hosts; "tcp":
            the job needs no MPI; "auto": "mpi" if there is an mpirun, else "tcp".
        elastic: whether the job continues when ranks fail, if at least `min_np` are left.
        max_np: the largest number of ranks when others join, also to replace failed ranks; None: as
            many as the hosts have slots if the job finds its hosts, else no rank joins.
        discovery: a script that prints the present hosts, with its arguments; or empty.
        pods: the number of pods of an indexed Kubernetes Job, if the pods that can be found are the
            hosts; else 0.
        node_query: a command that prints the nodes of the Slurm job, with its arguments, if these
            nodes are the hosts; or empty.
        slots_per_host: the slots of a host for which the script gives no number.
        elastic_timeout: how long to wait at the start until the hosts have slots for `min_np`.
        reset_limit: how often the members may change; None: no limit.
        pauses: the first and the longest pause until a host with a failed rank is tried again.
        evict_after: when the job continues without ranks that block the others; 0: never.
        majority: whether the job outlives the launcher's host, with more than half of the ranks.
        ssh_check: whether to try ssh to all hosts before mpirun does.
        remote_shell: a program to use instead of ssh.
        binding_args: arguments for mpirun instead of its ``--bind-to none``.
        output: the only rank whose output is shown, None for all; or the folder for the output.
        grace: how long ranks may take to end after the launcher has got SIGTERM.
        max_restarts: how often the job is started again after a failure.
        pdb: the rank that gets the launcher's stdin, for a debugger.
        share_cores: whether each rank's libraries start threads for its part of the cores only.
        as_horovod: whether `import horovod` gives tfhvd in the ranks.
        task: "run", or what to print instead: "help", "version" or "check-build".
        warnings: a line for each option that was given and does nothing.
    """

    command: tuple[str, ...] = ()
    num_proc: int = 1
    hosts: tuple[Host, ...] = ()
    hostfile: Path | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    tcp: bool = False
    transport: str = "auto"
    elastic: bool = False
    min_np: int = 1
    max_np: int | None = None
    discovery: tuple[str, ...] = ()
    pods: int = 0
    node_query: tuple[str, ...] = ()
    slots_per_host: int = 1
    elastic_timeout: float = 600.0
    reset_limit: int | None = None
    pauses: tuple[float, float] = PAUSES
    evict_after: float = 0.0
    majority: bool = False
    ssh_port: int | None = None
    ssh_identity_file: Path | None = None
    ssh_check: bool = True
    remote_shell: Path | None = None
    mpirun: Path | None = None
    mpi_args: tuple[str, ...] = ()
    binding_args: tuple[str, ...] = ()
    output_dir: Path | None = None
    output: int | Path | None = None
    timestamps: bool = False
    prefix: bool = True
    verbose: bool = False
    start_timeout: float = 120.0
    stop_timeout: float = 5.0
    grace: float = 30.0
    max_restarts: int = 0
    share_cores: bool = True
    pdb: int | None = None
    as_horovod: bool = False
    task: str = "run"
    warnings: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether ranks may join later."""
        return self.max_np is not None or self.finds_hosts

    @property
    def finds_hosts(self) -> bool:
        """Whether the launcher finds the hosts while it runs, by a script or as pods."""
        return bool(self.discovery or self.pods)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the options set in the environment of the ranks."""
        given = {name: value for name, value in self.env if value is not None}
        return {**self.settings, **given}

    @property
    def ssh_args(self) -> tuple[str, ...]:
        """Options for ssh."""
        port = () if self.ssh_port is None else ("-p", str(self.ssh_port))
        key = () if self.ssh_identity_file is None else ("-i", str(self.ssh_identity_file))
        return port + key
