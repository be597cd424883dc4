"""The arguments of the command line -> Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options import config_file
from tfhvd.launch.options.parser import USAGE
from tfhvd.launch.options.table import make_parser
from tfhvd.launch.placement import slurm
from tfhvd.launch.state.hosts import Host, check_slots, parse_hosts, read_hostfile
from tfhvd.launch.state.job_spec import Job

# The options for the hosts.
_WHERE = {
    "discovery": "--host-discovery-script",
    "pods": "--pods",
    "hosts": "-H",
    "hostfile": "--hostfile",
}
_FINDS_HOSTS = {"discovery", "pods"}
_ELASTIC = {"min_np", "max_np", "evict_after", "majority", *_FINDS_HOSTS}  # imply --elastic
_MOST_WITH_MAJORITY = 2000  # ranks whose state fits into one frame (messages.LIMIT)
_OF_SSH = {"ssh_port": "--ssh-port", "ssh_identity_file": "--ssh-identity-file"}


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Job:
    """Turns the arguments of ``tfhvdrun`` into a Job; raises UsageError with one clear line.

    Args:
        argv: the arguments.
        environ: the environment, in which a batch system may name the hosts and their slots.

    Example: ``parse(["-np", "2", "python", "train.py"]).command == ("python", "train.py")``
    """
    parser = make_parser()
    given = parser.read(argv)
    for task in ("help", "version", "check-build"):
        if task in given:
            return Job(task=task)
    if "config_file" in given:
        given = _merged(config_file.read(given["config_file"], parser), given)
    command = tuple(given["command"])
    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise UsageError(f"no command to run. Usage: {USAGE}")
    hosts = _hosts(given)
    if "pods" in given:
        given.setdefault("max_np", given["pods"] * given.get("slots_per_host", 1))
    if "num_proc" not in given and given.keys() & _FINDS_HOSTS:
        given["num_proc"] = given.get("max_np", given.get("min_np", 1))
    if given.keys() & _ELASTIC:
        given["elastic"] = True
    # Otherwise mpirun asks Slurm for the hosts, because it gets the number of ranks.
    asks_slurm = "num_proc" not in given or "elastic" in given
    if asks_slurm and not hosts and not given.keys() & _FINDS_HOSTS:
        found = slurm.allocation(environ or {})
        # If there are more ranks than Slurm has tasks, all ranks run here, as without Slurm.
        if found is not None and given.get("num_proc", 0) <= sum(h.slots for h in found.hosts):
            given.setdefault("num_proc", found.num_proc)
            hosts, given["node_query"] = found.hosts, found.query
    if "num_proc" not in given and not hosts:
        raise UsageError("the number of ranks is missing. Type -np N, as in: tfhvdrun -np 2 ...")
    num_proc = given.get("num_proc", sum(host.slots for host in hosts))
    check_slots(num_proc, hosts)
    _check_rank("--output rank", given.get("output"), num_proc)
    _check_rank("--pdb ", given.get("pdb"), num_proc)
    _check_elastic(given, num_proc)
    if given.get("elastic"):
        if given.get("transport") == "mpi":
            raise UsageError(
                "--elastic and --transport mpi exclude each other: MPI ends a job that loses a "
                "rank. Leave one of them out"
            )
        given["transport"] = "tcp"
    of_ssh = [flag for name, flag in _OF_SSH.items() if name in given]
    if "remote_shell" in given and of_ssh:
        raise UsageError(
            f"{of_ssh[0]} is for ssh, in whose place --remote-shell has another program. Give one "
            "of them, or have that program pass it on"
        )
    as_they_are = {name.name for name in fields(Job)} - {"command", "num_proc", "hosts"}
    return Job(
        command=command,
        num_proc=num_proc,
        hosts=hosts,
        prefix="no_prefix" not in given,
        ssh_check="no_ssh_check" not in given,
        share_cores="no_share_cores" not in given,
        settings={name: value for name, value in given.items() if name.startswith("TFHVD_")},
        **{name: value for name, value in given.items() if name in as_they_are},
    )


def _check_elastic(given: dict[str, Any], num_proc: int) -> None:
    least, most = given.get("min_np", 1), given.get("max_np", num_proc)
    if least > num_proc:
        raise UsageError(f"--min-np {least} is more than the {num_proc} ranks that are started")
    if most < num_proc:
        raise UsageError(f"--max-np {most} is less than the {num_proc} ranks that are started")
    if given.get("majority") and max(most, num_proc) > _MOST_WITH_MAJORITY:
        raise UsageError(
            f"--majority is for jobs of up to {_MOST_WITH_MAJORITY} ranks, for each host knows all "
            f"of them. Received: {max(most, num_proc)}"
        )
    where = [flag for name, flag in _WHERE.items() if name in given]
    if len(where) > 1 and given.keys() & _FINDS_HOSTS:
        raise UsageError(f"{where[0]} and {where[1]} exclude each other: give one")


def _merged(file: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """Merges the options of a file and of the command line, which takes precedence."""
    merged = {**file, **line}
    for name in ("env", "warnings"):
        if name in file and name in line:
            merged[name] = (*file[name], *line[name])
    where = {"hosts", "hostfile"}
    if where & line.keys():  # either of them replaces both of the file
        for name in where - line.keys():
            merged.pop(name, None)
    return merged


def _hosts(given: dict[str, Any]) -> tuple[Host, ...]:
    if "hosts" in given and "hostfile" in given:
        raise UsageError("-H and --hostfile exclude each other: give one of them")
    if "hostfile" in given:
        return read_hostfile(given["hostfile"])
    return parse_hosts(given["hosts"]) if "hosts" in given else ()


def _check_rank(option: str, rank: object, num_proc: int) -> None:
    if isinstance(rank, int) and rank >= num_proc:
        raise UsageError(
            f"{option}{rank} names a rank that this job has not. Its ranks are 0 to {num_proc - 1}"
        )


def help_text() -> str:
    """Returns the text of ``tfhvdrun --help``."""
    return make_parser().format_help().rstrip("\n")
