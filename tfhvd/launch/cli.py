"""``tfhvdrun``: start here. Reads the command line, prepares mpirun's, and supervises the job."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfhvd._version import __version__
from tfhvd.errors import TfhvdError
from tfhvd.hang import timeouts
from tfhvd.launch.errors import UsageError
from tfhvd.launch.failover import standby
from tfhvd.launch.failover.takeover import Takeover
from tfhvd.launch.options import parse
from tfhvd.launch.placement import (
    command_line,
    discovery,
    environment,
    kubernetes,
    legacy_keras,
    mpi,
    slurm,
    ssh_check,
)
from tfhvd.launch.state.hosts import Host, place
from tfhvd.launch.state.job_spec import Job
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.scaling import Autoscaler, Hosts
from tfhvd.launch.state.supervisor_config import SupervisorConfig, Timeouts
from tfhvd.launch.stdio.output import Output
from tfhvd.launch.supervisor.supervisor import Supervisor
from tfhvd.network import address, ports, tokens
from tfhvd.protocol import endpoints, exit_codes, variables
from tfhvd.system import signal_pipe


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the console script; returns the exit code of the rank that failed first; 2: usage."""
    try:
        job = parse.parse(sys.argv[1:] if argv is None else argv, os.environ)
        if job.task != "run":
            print(_answer(job.task))
            return 0
        return _run(job)
    except UsageError as error:
        print(f"tfhvdrun: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before a job has started
        return 128 + signal.SIGINT


def _answer(task: str) -> str:
    if task == "help":
        return parse.help_text()
    if task == "version":
        return f"tfhvd {__version__}"
    import tfhvd  # The only task that loads TensorFlow.

    return str(tfhvd.build_info())


def _run(job: Job) -> int:
    with contextlib.closing(_hosts(job)) as found_hosts:
        return _run_on(found_hosts, _with_hosts(job, found_hosts))


def _hosts(job: Job) -> Hosts:
    """Returns the hosts on which ranks may be started, now and later."""

    def warn(text: str) -> None:
        print(f"tfhvdrun: warning: {text}", file=sys.stderr)

    if job.discovery:
        return discovery.script(job.discovery, job.slots_per_host, warn)
    if job.pods:
        words = kubernetes.command(job.pods, os.environ, socket.getfqdn())
        return discovery.script(words, job.slots_per_host, warn)
    if job.grows and job.node_query:
        read = functools.partial(slurm.hosts_now, first=job.hosts)
        return discovery.Command(job.node_query, read, warn, job.hosts)
    if job.grows and job.hostfile is not None:
        return discovery.HostFile(job.hostfile, warn)
    here = Host("localhost", max(job.num_proc, job.max_np or 0))
    return discovery.Fixed(job.hosts or (here,))


def _with_hosts(job: Job, found: Hosts) -> Job:
    """Waits for slots for `min_np` ranks if the job finds its hosts; returns the job on them.

    Raises UsageError if there are not enough slots in time.
    """
    if not job.finds_hosts:
        return job
    whose = f"--host-discovery-script {job.discovery[0]}" if job.discovery else "--pods"
    give_up = time.monotonic() + job.elastic_timeout
    while True:
        found.tick(time.monotonic())
        slots = sum(host.slots for host in found.hosts)
        if slots >= job.min_np:
            num_proc = min(job.num_proc, slots)
            return dataclasses.replace(job, hosts=found.hosts, num_proc=num_proc)
        if time.monotonic() > give_up:
            raise UsageError(
                f"{whose}: the hosts that are found have {slots} slots after "
                f"{job.elastic_timeout:g} s, and --min-np asks for {job.min_np}. More time: "
                "--elastic-timeout S"
            )
        time.sleep(0.05)


def _run_on(found_hosts: Hosts, job: Job) -> int:
    node = command_line.Node(environment.physical_cores(), environment.in_allocation(os.environ))
    remote = command_line.is_remote(job, node)
    env = environment.build(job, os.environ, root=os.geteuid() == 0)
    if not remote:
        check_command(job.command[0], env.get("PATH", os.defpath))
    output = _output(job)

    def warn(text: str) -> None:
        output.message(f"tfhvdrun: warning: {text}\n".encode())

    found = find_mpi(job, warn)
    _check_hosts(job, env, node, output)
    for warning in job.warnings:
        warn(warning)
    if environment.chooses_legacy_keras(job, os.environ):
        output.message(f"tfhvdrun: --as-horovod: {legacy_keras.NOTE}\n".encode())
    if isinstance(job.output, Path):
        output.message(f"tfhvdrun: the ranks' output goes to {job.output}/rank.*.log\n".encode())
    pipe = signal_pipe.SignalPipe()
    if found is None and remote and not job.hosts:
        raise UsageError(
            "without an MPI the batch system's hosts are not known. Name them, as in: "
            "-H node1:4,node2:4; in Slurm: -H $(scontrol show hostnames | paste -sd,)"
        )
    with (
        _host_file(None if found is None else command_line.host_file(job, found)) as path,
        _own_folder(job, env),
    ):
        node = dataclasses.replace(node, host_file=path, ports=ports.of(env))
        restarts = 0
        while True:
            if job.max_restarts:
                env[variables.RESTARTS] = str(restarts)
            ended = _start(job, found, found_hosts, node, env, output, pipe)
            stops = ended.interrupted or ended.code in (0, exit_codes.STOP_REQUESTED)
            if stops or restarts == job.max_restarts:
                return ended.code
            restarts += 1
            output.message(
                f"tfhvdrun: the job failed with exit code {ended.code} and is started again "
                f"({restarts} of {job.max_restarts})\n".encode()
            )
            output = _output(job, append=True)


def find_mpi(job: Job, warn: Callable[[str], object]) -> mpi.Mpi | None:
    """Returns the MPI whose mpirun starts the ranks; None if they connect over TCP.

    Args:
        job: the job.
        warn: gets a warning if there is no MPI, and the user has not asked for TCP.

    Raises:
        UsageError: if the MPI that the user asks for is not found.
    """
    if job.transport == "tcp":
        return None
    try:
        return mpi.identify(job.mpirun or mpi.find_mpirun())
    except UsageError as error:
        if job.transport == "mpi" or job.mpirun is not None:
            raise
        warn(f"{error}. Until then the ranks meet over TCP; without this line: --transport tcp")
        return None


def _output(job: Job, *, append: bool = False) -> Output:
    return Output(job.num_proc, **_output_arguments(job), append=append)


def _output_arguments(job: Job) -> dict[str, Any]:
    return {
        "prefix": job.prefix,
        "folder": job.output_dir,
        "show": job.output,
        "timestamps": job.timestamps,
        "startup_lines": job.verbose,
    }


def _start(
    job: Job,
    found: mpi.Mpi | None,
    found_hosts: Hosts,
    node: command_line.Node,
    env: dict[str, str],
    output: Output,
    pipe: signal_pipe.SignalPipe,
) -> standby.Outcome:
    """Runs the job once."""
    remote = command_line.is_remote(job, node)
    listener = _listener(remote=remote, env=env)
    env[variables.TOKEN] = token = _token(env)
    env[variables.ADDRESS] = address.addresses(
        listener.getsockname()[1],
        remote=remote,
        hosts=[host.name for host in job.hosts],
        nics=job.nics,
    )
    if found is None:
        env[endpoints.TCP] = ",".join(job.nics) if remote else endpoints.LOOPBACK
    exported = environment.exported(job, env)

    ssh_args = ssh_check.arguments(job, env)
    without_mpi = functools.partial(
        command_line.build_without_mpi,
        job,
        folder=Path.cwd(),
        agent=agent_words(),
        exported=exported,
        ssh_args=ssh_args,
    )
    placed = place(job.hosts or (Host("localhost", job.num_proc),), job.num_proc)
    if found is None:
        line = without_mpi(placed)
    else:
        line = command_line.build(job, found, node, agent_words(), exported)
    if job.verbose:
        output.message(f"tfhvdrun: {shlex.join(line)}\n".encode())

    config = SupervisorConfig(
        job.num_proc,
        token,
        _limits(job, env),
        end_hanging=timeouts.ends_hanging(env),
        majority=job.majority,
        verbose=job.verbose,
        output=_output_arguments(job),
    )

    def supervise(snapshot: standby.LocalSnapshot | None) -> standby.Outcome:
        takeover = Takeover(config, time.monotonic(), snapshot=snapshot)
        supervisor = Supervisor(
            config,
            listener,
            output if takeover.handover is None else _output(job, append=True),
            pipe,
            takeover,
            members=Roster(job.num_proc, job.min_np if job.elastic else None, job.reset_limit),
            autoscaler=Autoscaler(found_hosts, placed, job.max_np, job.pauses)
            if job.grows
            else None,
            start_more=lambda host, ranks: without_mpi([(host, ranks)]),
            debugged=job.pdb,
        )
        manager = "tfhvd's process manager" if found is None else "mpirun"
        return standby.Outcome(supervisor.run(line, env, manager), supervisor.interrupted)

    with listener, contextlib.closing(output):
        return standby.keep(supervise) if job.elastic else supervise(None)


def _listener(*, remote: bool, env: Mapping[str, str]) -> socket.socket:
    try:
        return address.listen(remote=remote, of=ports.read(env.get(ports.SETTING, "")))
    except ports.PortsTakenError as error:
        raise UsageError(str(error.strerror)) from error
    except ValueError as error:
        raise UsageError(f"{ports.SETTING} must be {error}") from error


def _token(env: Mapping[str, str]) -> str:
    try:
        return tokens.new(env)
    except TfhvdError as error:
        raise UsageError(str(error)) from error


def _limits(job: Job, env: Mapping[str, str]) -> Timeouts:
    return Timeouts(
        start=job.start_timeout,
        stop=job.stop_timeout,
        grace=job.grace,
        stopped=timeouts.stall_limit(env),
        hang=_hang_limit(job, env),
        evict=_evict_after(job, env),
    )


def _evict_after(job: Job, env: Mapping[str, str]) -> float:
    """Returns the seconds until an elastic job continues without blocking ranks; 0: never."""
    return (job.evict_after or timeouts.stall_limit(env)) if job.elastic else 0.0


def _hang_limit(job: Job, env: Mapping[str, str]) -> float:
    """Returns the seconds without progress until the launcher asks why ranks wait; 0: never."""
    if job.pdb is not None:
        return 0.0
    return _evict_after(job, env) or timeouts.hang_limit(env)


def _check_hosts(job: Job, env: Mapping[str, str], node: command_line.Node, output: Output) -> None:
    hosts = ssh_check.hosts_to_check(job, env, in_allocation=node.in_allocation)
    if not hosts:
        return
    if job.remote_shell is None and shutil.which("ssh", path=env.get("PATH", os.defpath)) is None:
        return
    lines = ssh_check.failures(hosts, ssh_check.arguments(job, env), env, job.remote_shell)
    for line in lines:
        output.message(f"tfhvdrun: {line}\n".encode())
    if lines:
        raise UsageError(
            f"{job.remote_shell or 'ssh'} reaches {len(hosts) - len(lines)} of {len(hosts)} hosts "
            "(without this check: --no-ssh-check)"
        )


@contextlib.contextmanager
def _host_file(content: str | None) -> Iterator[Path | None]:
    """Yields a file with the content while mpirun runs; None without a content."""
    if content is None:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", prefix="tfhvdrun-hosts-", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


@contextlib.contextmanager
def _own_folder(job: Job, env: dict[str, str]) -> Iterator[None]:
    """Makes a folder for the temporary files of mpirun while it runs.

    Open MPI's mpirun names them by its process id, and does not remove them if it is killed. A
    later mpirun with the same process id could then not start.
    """
    folder = tempfile.mkdtemp(prefix="tfhvdrun-")
    for name in environment.folders_to_set(job, env):
        env[name] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def agent_words() -> list[str]:
    """Returns the command that starts an agent: by path, without site-packages, to save 20 ms."""
    agent = Path(__file__).absolute().parent / "agent" / "agent.py"
    return [sys.executable, "-E", "-S", str(agent)]


def check_command(name: str, path: str) -> None:
    """Raises UsageError if this machine cannot start the command."""
    if shutil.which(name, path=path) is not None:
        return
    if Path(name).is_file():
        python = f"python {name}" if name.endswith(".py") else f"bash {name}"
        raise UsageError(
            f"{name} is not executable. Type: tfhvdrun ... {python}, or: chmod +x {name}"
        )
    raise UsageError(f"command not found: {name}. Name a program on PATH, or give its path")


if __name__ == "__main__":
    sys.exit(main())
