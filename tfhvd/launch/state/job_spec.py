"""Job: what the user asks for, as a value. The agent needs no more of the options than this."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.scaling import PAUSES


@dataclass(frozen=True)
class Job:
    """What the user asks for, checked. Times are in seconds.

    Attributes:
        command: the program and its arguments, run once per rank.
        num_proc: the number of ranks, at least 1.
        hosts: where; empty means here, or wherever a batch system's allocation is.
        hostfile: the file that they were read from, if any.
        env: (name, value) for the ranks; the value None means the launcher's own value.
        settings: TFHVD_* variables that the options set.
        transport: "mpi": mpirun starts the ranks, and MPI carries what crosses hosts; "tcp": both
            without an MPI; "auto": the first where there is an mpirun.
        elastic: whether the job continues where ranks are lost, and at least `min_np` are left.
        max_np: the most ranks that it may have once others come, also in the place of lost ones;
            None: as many as the hosts have slots, or none come if there is no script either.
        discovery: a script that prints the hosts, as they change, and its arguments; or nothing.
        pods: of so many pods of an indexed Job of Kubernetes those that are there are the hosts; 0:
            they are not.
        node_query: a command that prints the nodes of the Slurm job whose nodes are the hosts, and
            its arguments; or nothing.
        slots_per_host: how many ranks a host may run of which the script does not say.
        elastic_timeout: how long to wait at the start until the hosts have slots for `min_np`.
        reset_limit: how often the members may change; None: as often as they do.
        pauses: after which a host is tried again on which a rank has failed: first, and at most.
        evict_after: when it goes on without ranks that keep the others; 0: never.
        majority: whether it outlives the launcher's host, with more than half of the ranks.
        ssh_check: whether to try ssh to all hosts before mpirun does.
        remote_shell: a program that takes the place of ssh.
        binding_args: arguments for mpirun in the place of its ``--bind-to none``.
        output: the only rank whose output is shown, None for all; or the folder that gets it.
        grace: how long ranks may take to end once SIGTERM has asked the launcher to.
        max_restarts: how often the job is started again after a failure.
        pdb: the rank that gets the launcher's stdin, for a debugger.
        share_cores: whether each rank's libraries start threads for its part of the cores only.
        as_horovod: whether `import horovod` is to give tfhvd in the ranks.
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
        """Whether ranks may come later."""
        return self.max_np is not None or self.finds_hosts

    @property
    def finds_hosts(self) -> bool:
        """Whether the hosts are not known from the beginning."""
        return bool(self.discovery or self.pods)

    @property
    def variables(self) -> dict[str, str]:
        """What the options set in the environment of the ranks."""
        given = {name: value for name, value in self.env if value is not None}
        return {**self.settings, **given}

    @property
    def ssh_args(self) -> tuple[str, ...]:
        """Options for ssh."""
        port = () if self.ssh_port is None else ("-p", str(self.ssh_port))
        key = () if self.ssh_identity_file is None else ("-i", str(self.ssh_identity_file))
        return port + key
