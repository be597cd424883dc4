"""Slurm's allocation: the number of ranks, and the hosts. Pure: texts in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfhvd.launch.errors import UsageError
from tfhvd.launch.state.hosts import Host

_NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")


@dataclass(frozen=True)
class Allocation:
    """The allocation of a Slurm job.

    Attributes:
        num_proc: the number of ranks.
        hosts: the nodes.
        query: a command that prints the present nodes. Slurm removes a failed node from a job with
            `--no-kill`, and adds nodes to a job that expands.
    """

    num_proc: int
    hosts: tuple[Host, ...]
    query: tuple[str, ...]


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Returns the allocation of this process, or None.

    Raises UsageError if srun has started several launchers, each of which would start all ranks.
    """
    if "SLURM_JOB_ID" not in environ:
        return None
    copies = _number(environ, "SLURM_STEP_NUM_TASKS") or 1
    if copies > 1:
        raise UsageError(
            f"srun has started tfhvdrun {copies} times, and each would start all ranks. Type "
            "tfhvdrun without srun, or: srun --mpi=pmix python train.py"
        )
    nodes = expand(next((environ[name] for name in _NODE_LISTS if environ.get(name)), ""))
    if not nodes:
        return None
    tasks = next(filter(None, (_number(environ, name) for name in _TASKS)), None)
    slots = _slots(environ, len(nodes), tasks)
    hosts = tuple(Host(name, count) for name, count in zip(nodes, slots))
    query = ("squeue", "--noheader", f"--jobs={environ['SLURM_JOB_ID']}", "--format=%N")
    return Allocation(tasks or sum(slots), hosts, query)


def hosts_now(nodes: str, first: Sequence[Host]) -> tuple[Host, ...]:
    """Returns the present hosts of an allocation.

    Args:
        nodes: the output of its query.
        first: the hosts at the beginning. Added nodes have as many slots as the first host.

    Raises:
        UsageError: if the output is malformed.
    """
    slots = {host.name: host.slots for host in first}
    names = [name for line in nodes.split() for name in expand(line)]
    return tuple(Host(name, slots.get(name, first[0].slots)) for name in names)


def _slots(environ: Mapping[str, str], nodes: int, tasks: int | None) -> list[int]:
    """Returns the number of slots of each node."""
    said = repeated(environ.get("SLURM_TASKS_PER_NODE", ""))
    each = _number(environ, "SLURM_NTASKS_PER_NODE") or 1
    slots = said if len(said) == nodes else [each] * nodes
    if tasks is not None and sum(slots) < tasks:
        return [-(-tasks // nodes)] * nodes
    return slots


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]+", text) and int(text) else None


def repeated(text: str) -> list[int]:
    """Reads Slurm's form of numbers: ``repeated("2(x3),1") == [2, 2, 2, 1]``; [] if malformed."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([1-9][0-9]*)(?:\(x([0-9]+)\))?", part.strip())
        if match is None:
            return []
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def expand(nodes: str) -> list[str]:
    """Reads Slurm's form of names: ``expand("a[1-2,07],b") == ["a1", "a2", "a07", "b"]``.

    Raises UsageError if it is malformed.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", nodes):
        found = [""]
        for text, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            choices = [text] if text else _numbers(ranges, nodes)
            found = [name + choice for name in found for choice in choices]
        names += found
    if sum(map(nodes.count, "[]")) % 2 or (nodes and not names):
        raise UsageError(_malformed(nodes))
    return names


def _numbers(ranges: str, nodes: str) -> list[str]:
    numbers = []
    for part in ranges.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if match is None:
            raise UsageError(_malformed(nodes))
        first, last = match[1], match[2] or match[1]
        width = len(first)
        numbers += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def _malformed(nodes: str) -> str:
    return (
        f"cannot read Slurm's list of nodes. Received: SLURM_JOB_NODELIST={nodes!r}. Expected: "
        "names as in node[1-3,7]. Name the hosts yourself: -np N -H host:slots,..."
    )
